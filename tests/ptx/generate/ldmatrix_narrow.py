"""Writes tests/ptx/ldmatrix/*_b[46]x16*.case and *_b8.case: 4- and 6-bit elements, padded rows in shared memory, one
to a byte, and bytes, transposed.

Lane t stores row t's 16 bytes; element e of a row stands at bit e * width, what lies behind the data is noise. The
values that come out are the manual's matrix fragments.

    python3 tests/ptx/generate/ldmatrix_narrow.py
"""
import os
import random
from exact import write_case

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'ldmatrix')


def case(bits, transposed, count):
    source = {4: 'b4x16_p64', 6: 'b6x16_p32', 8: 'b8'}[bits]
    name = '%s_x%d_%s' % ('m16n16_trans' if transposed else 'm8n16', count, source)
    rng = random.Random(name)
    registers = 2 * count if transposed else count
    elements = [[rng.getrandbits(bits) for _ in range(16)] for _ in range(32)]
    rows = []
    for t in range(32):
        packed = sum(e << (bits * i) for i, e in enumerate(elements[t]))
        if bits < 8:
            packed |= rng.getrandbits(128 - 16 * bits) << (16 * bits)
        words = [packed >> (32 * i) & 0xFFFFFFFF for i in range(4)]
        g, q = t >> 2, t & 3
        out = []
        for r in range(registers):
            if transposed:  # matrix r / 2: byte j is element (4q + j, g), in the odd register (4q + j, g + 8)
                out.append([elements[16 * (r // 2) + 4 * q + j][g + 8 * (r % 2)] for j in range(4)])
            else:  # matrix r: byte j is element (g, 4q + j)
                out.append([elements[8 * r + g][4 * q + j] for j in range(4)])
        rows.append((words, [sum(v << (8 * j) for j, v in enumerate(o)) for o in out]))
    ds = ['d%d' % i for i in range(registers)]
    opcode = 'ldmatrix.sync.aligned.%s.x%d%s.shared.%s%s' % (
        'm16n16' if transposed else 'm8n16', count, '.trans' if transposed else '', 'b8x16.' if bits < 8 else '', source)
    lines = ['reg .b32 r, s0;', 'op mov.u32 s0, scratch;', 'op mov.u32 r, %tid.x;', 'op shl.b32 r, r, 4;',
             'op add.u32 r, r, s0;', 'op st.shared.v4.b32 [r], {a, b, c, e};', 'op bar.sync 0;',
             'op %s {%s}, [r];' % (opcode, ', '.join(ds))]
    lines += ['out %s b32' % d for d in ds] + ['in %s b32' % i for i in 'abce'] + ['target sm_120a']
    write_case(os.path.join(HERE, name + '.case'), ['%s: document only' % opcode], lines, rows)


for width in (4, 6):
    for n in (1, 2, 4):
        case(width, False, n)
    for n in (1, 2):
        case(width, True, n)
for n in (1, 2):
    case(8, True, n)

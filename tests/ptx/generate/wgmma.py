"""Writes tests/ptx/wgmma/*.case: m64n8 products of one warpgroup, expected bits by exact arithmetic.

A warpgroup's 128 threads store A (16 bytes each) and B to shared memory in the layout without swizzle, K-major, or hold
A in registers; K is 32 bytes in every type.

    python3 tests/ptx/generate/wgmma.py        # rewrites the files
"""
import os
import random
from fractions import Fraction
from exact import encode, parts, product, step, value, width, write_case
from mma import small, wild, byte_a, f16_a, tf32_a, bit_a

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'wgmma')
LBO, SBO = 128, 256

STORE_B = ['reg .b32 r, t, u;', 'reg .b64 da, db;', 'reg .pred p, q;',
           'op mov.u32 r, scratch;', 'op mov.u32 t, %tid.x;', 'op setp.eq.u32 q, t, t;',
           'op shl.b32 u, t, 2;', 'op add.u32 u, u, r;', 'op setp.lt.u32 p, t, 64;',
           'op @p st.shared.b32 [u+2048], b0;']
STORE_A = ['op shl.b32 u, t, 4;', 'op add.u32 u, u, r;', 'op st.shared.v4.b32 [u], {a0, a1, a2, a3};']
START = ['op fence.proxy.async;', 'op bar.sync 0;', 'op shr.b32 u, r, 4;', 'op and.b32 u, u, 0x3fff;',
         'op cvt.u64.u32 da, u;', 'op or.b64 da, da, 0x%x;' % (LBO >> 4 << 16 | SBO >> 4 << 32), 'op add.s64 db, da, 128;',
         'op wgmma.fence.sync.aligned;']
END = ['op wgmma.commit_group.sync.aligned;', 'op wgmma.wait_group.sync.aligned 0;']


def form(name, opcode, fmt, bits, result, tail, in_registers, combine, draw, draw_c):
    """combine(a row, b column, c) -> d; matrices of codes."""
    rng = random.Random(name)
    k = 256 // bits
    a = [[draw(rng, r) for _ in range(k)] for r in range(64)]
    b = [[draw(rng, 0 if n < 4 else 8) for _ in range(k)] for n in range(8)]
    c = [[draw_c(rng, r) for _ in range(8)] for r in range(64)]
    d = [[combine(a[m], b[n], c[m][n]) for n in range(8)] for m in range(64)]
    per = 32 // bits
    word = lambda codes: sum(code << (bits * i) for i, code in enumerate(codes))
    fragment = {32: tf32_a(8), 16: f16_a(16), 8: byte_a(16, 32), 1: bit_a(16, 256)}[bits]
    half = result == 'f16'
    rows = []
    for t in range(128):
        lane, g, q = t % 32, t % 32 >> 2, t & 3
        if in_registers:
            elements = [a[16 * (t // 32) + m][kk] for m, kk in (fragment(g, q, i) for i in range(4 * per))]
            words = [word(elements[i * per:(i + 1) * per]) for i in range(4)]
        else:  # 16-byte chunk t: rows of eight, chunks of K, groups of eight rows
            m, chunk = t // 16 * 8 + t % 8, t // 8 % 2
            words = [word(a[m][(4 * chunk + i) * per:(4 * chunk + i + 1) * per]) for i in range(4)]
        at = t % 64 * 4  # B's word t: chunk, row, word of the chunk
        n, kk = at // 16 % 8, (at // 128 * 16 + at % 16) * 8 // bits
        words.append(word(b[n][kk:kk + per]))
        place = lambda v: (16 * (t // 32) + g + 8 * (v // 2), 2 * q + v % 2)
        get = lambda mat, v: mat[place(v)[0]][place(v)[1]]
        pick = lambda mat: [get(mat, 0) | get(mat, 1) << 16, get(mat, 2) | get(mat, 3) << 16] if half else \
            [get(mat, v) for v in range(4)]
        rows.append((words + pick(c), pick(d)))
    registers = 2 if half else 4
    cs = '{' + ', '.join('c%d' % i for i in range(registers)) + '}'
    lines = STORE_B + ([] if in_registers else STORE_A) + START
    lines.append('op wgmma.mma_async.sync.aligned.%s %s, %s, db, q%s;' % (
        opcode, cs, '{a0, a1, a2, a3}' if in_registers else 'da', tail))
    lines += END + ['op mov.b32 d%d, c%d;' % (i, i) for i in range(registers)]
    lines += ['out d%d b32' % i for i in range(registers)] + ['in a%d b32' % i for i in range(4)] + ['in b0 b32']
    lines += ['in c%d b32' % i for i in range(registers)]
    write_case(os.path.join(HERE, name + '.case'),
               ['%s, A in %s: exact sums' % (opcode, 'registers' if in_registers else 'shared memory')], lines, rows)


def float_form(name, fmt, other, bits, result, fraction_bits, keep, transposes, in_registers=False):
    def combine(x, y, c):
        terms = [product(parts(fmt, p), parts(other, q)) for p, q in zip(x, y)] + [parts(result, c)]
        return step(terms, fraction_bits, result) & keep
    shift = 13 if fmt == 'tf32' else 0
    spread = {'f16': 6, 'e4m3': 4, 'e5m2': 6}.get(fmt, 15)
    draw = lambda rng, r: (small(rng, fmt) if r % 16 < 8 else wild(rng, fmt, spread)) << shift
    strip = lambda x, y, c: combine([p >> shift for p in x], [p >> shift for p in y], c)
    draw_c = lambda rng, r: encode(result, Fraction(rng.randint(-64, 64))) if r % 16 < 8 else wild(rng, result, spread)
    form(name, 'm64n8k%d.%s.%s.%s' % (256 // bits, result, fmt, other), fmt, bits, result,
         ', 1, 1' + transposes, in_registers, strip, draw, draw_c)


def integer_form(name, a_type, b_type, saturate, in_registers=False):
    number = lambda code, kind: code - 256 if kind == 's8' and code > 127 else code

    def combine(x, y, c):
        total = c - (c >> 31 << 32) + sum(number(p, a_type) * number(q, b_type) for p, q in zip(x, y))
        if saturate:
            total = max(min(total, 2 ** 31 - 1), -2 ** 31)
        return total & 0xFFFFFFFF
    form(name, 'm64n8k32.s32.%s.%s%s' % (a_type, b_type, '.satfinite' if saturate else ''), None, 8, 's32', '',
         in_registers, combine, lambda rng, r: rng.getrandbits(8),
         lambda rng, r: rng.choice([rng.getrandbits(32), rng.randint(0, 99), 0x7FFFFFFF, 0x80000000]))


def main():
    os.makedirs(HERE, exist_ok=True)
    full, cut = 0xFFFFFFFF, 0xFFFFFC00
    float_form('bf16', 'bf16', 'bf16', 16, 'f32', 25, full, ', 0, 0')
    float_form('bf16_registers', 'bf16', 'bf16', 16, 'f32', 25, full, ', 0', True)
    float_form('f16', 'f16', 'f16', 16, 'f32', 25, full, ', 0, 0')
    float_form('f16_f16', 'f16', 'f16', 16, 'f16', 25, full, ', 0, 0')
    float_form('tf32', 'tf32', 'tf32', 32, 'f32', 25, full, '')
    float_form('e4m3', 'e4m3', 'e4m3', 8, 'f32', 13, cut, '')
    float_form('e5m2_e4m3_registers', 'e5m2', 'e4m3', 8, 'f32', 13, cut, '', True)
    float_form('e4m3_f16', 'e4m3', 'e5m2', 8, 'f16', 13, full, '')
    integer_form('s8', 's8', 's8', False)
    integer_form('u8_s8_satfinite', 'u8', 's8', True)
    integer_form('s8_registers', 's8', 'u8', False, True)
    form('b1', 'm64n8k256.s32.b1.b1.and.popc', None, 1, 's32', '', False,
         lambda x, y, c: (c + sum(p & q for p, q in zip(x, y))) & 0xFFFFFFFF, lambda rng, r: rng.getrandbits(1),
         lambda rng, r: rng.getrandbits(32))


if __name__ == '__main__':
    main()

"""Writes tests/ptx/mma.sync/*.case: one warp's worth of lanes per form, expected bits by exact arithmetic.

Inputs: rows 0 to 7 of A (and what they meet in B) hold small integers, so that a swapped index shows; in forms whose
sums an H200 has vouched for, rows 8 to 15 hold values far apart, cancelling pairs, subnormals and specials, so that
the width and the direction of the cut show. Forms of other targets hold only values whose sums are exact.

    python3 tests/ptx/generate/mma.py        # rewrites the files
"""
import os
import random
from fractions import Fraction
from exact import (FORMATS, add_nearest, encode, parts, power, product, step, value, width, write_case)

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'mma.sync')


# Fragment maps, one per shape, as the PTX manual lists them: (row or column, k) of element i of a lane.
def f16_a(k):
    if k == 8:
        return lambda g, q, i: (g + (8 if i >= 2 else 0), 2 * q + (i & 1))
    return lambda g, q, i: (g if i in (0, 1, 4, 5) else g + 8, 2 * q + (i & 1) + (8 if i >= 4 else 0))


def f16_b(k):
    return lambda g, q, i: (g, 2 * q + (i & 1) + (8 if i >= 2 else 0))


def tf32_a(k):
    return lambda g, q, i: (g + (8 if i & 1 else 0), q + (4 if i >= 2 else 0))


def tf32_b(k):
    return lambda g, q, i: (g, q + 4 * i)


def f64_a(m, k):
    return lambda g, q, i: (g + (8 if m == 16 and i & 1 else 0), q + 4 * (i // 2 if m == 16 else i))


def byte_a(m, k):
    if k == 16:
        return lambda g, q, i: (g + (8 if i >= 4 else 0), 4 * q + (i & 3))
    return lambda g, q, i: (g if i < 4 or 8 <= i < 12 else g + 8, 4 * q + (i & 3) + (16 if i >= 8 else 0))


def byte_b(k):
    return lambda g, q, i: (g, 4 * q + (i & 3) + (16 if i >= 4 else 0))


def nibble_a(m, k):
    if k == 32:
        return lambda g, q, i: (g + (8 if i >= 8 else 0), 8 * q + (i & 7))
    return lambda g, q, i: (g if i < 8 or 16 <= i < 24 else g + 8, 8 * q + (i & 7) + (32 if i >= 16 else 0))


def nibble_b(k):
    return lambda g, q, i: (g, 8 * q + (i & 7) + (32 if i >= 8 else 0))


def bit_a(m, k):
    if k == 128:
        return lambda g, q, i: (g + (8 if i >= 32 else 0), 32 * q + (i & 31))
    return lambda g, q, i: (g if i < 32 or 64 <= i < 96 else g + 8, 32 * q + (i & 31) + (128 if i >= 64 else 0))


def bit_b(k):
    return lambda g, q, i: (g, 32 * q + (i & 31) + (128 if i >= 32 else 0))


def c_map(g, q, i):
    return (g + (8 if i >= 2 else 0), 2 * q + (i & 1))


class Form:
    """A form's shape; a, b: matrices of codes; registers are packed with the first element in the low bits."""

    def __init__(self, name, opcode, m, k, bits, a_map, b_map, c_bits=32, register=32, target=None, tail=None):
        self.name, self.opcode, self.m, self.k, self.bits = name, opcode, m, k, bits
        self.a_map, self.b_map, self.c_bits, self.register = a_map, b_map, c_bits, register
        self.target, self.tail = target, tail or []
        self.a_elements, self.b_elements, self.c_elements = m * k // 32, 8 * k // 32, m * 8 // 32

    def pack(self, elements, bits, register):
        per = register // bits
        return [sum(elements[r * per + e] << (bits * e) for e in range(per)) for r in range(len(elements) // per)]

    def rows(self, a, b, c, d, scales=lambda lane: []):
        out = []
        c_register = max(self.c_bits, 32)
        for lane in range(32):
            g, q = lane >> 2, lane & 3
            pick = lambda mat, where: mat[where[0]][where[1]]
            av = [pick(a, self.a_map(g, q, i)) for i in range(self.a_elements)]
            bv = [pick(b, self.b_map(g, q, i)) for i in range(self.b_elements)]
            cv = [pick(c, c_map(g, q, i)) for i in range(self.c_elements)]
            dv = [pick(d, c_map(g, q, i)) for i in range(self.c_elements)]
            out.append((self.pack(av, self.bits, self.register) + self.pack(bv, self.bits, self.register) +
                        self.pack(cv, self.c_bits, c_register) + scales(lane), self.pack(dv, self.c_bits, c_register)))
        return out

    def write(self, about, a, b, c, d, scales=lambda lane: []):
        c_register = max(self.c_bits, 32)
        na = self.a_elements * self.bits // self.register
        nb = self.b_elements * self.bits // self.register
        nc = self.c_elements * self.c_bits // c_register
        names = lambda p, n: ['%s%d' % (p, i) for i in range(n)]
        braces = lambda p, n: '{' + ', '.join(names(p, n)) + '}'
        lines = ['op mma.sync.aligned.%s %s, %s, %s, %s%s;' % (
            self.opcode, braces('d', nc), braces('a', na), braces('b', nb), braces('c', nc),
            ''.join(', ' + t for t in self.tail))]
        lines += ['out %s b%d' % (n, c_register) for n in names('d', nc)]
        lines += ['in %s b%d' % (n, self.register) for n in names('a', na) + names('b', nb)]
        lines += ['in %s b%d' % (n, c_register) for n in names('c', nc)]
        if self.tail:
            lines += ['in sa b32', 'in sb b32']
        if self.target:
            lines.append('target ' + self.target)
        write_case(os.path.join(HERE, self.name + '.case'), about, lines, self.rows(a, b, c, d, scales))


def small(rng, fmt):
    """A small integer or half, whose products and sums are exact everywhere."""
    largest = {'e2m1': 3, 'e3m2': 4, 'e2m3': 3, 'e5m2': 4, 'e4m3': 8}.get(fmt, 8)
    return encode(fmt, Fraction(rng.randint(-2 * largest, 2 * largest), 2 if fmt in ('e2m1', 'e3m2', 'e2m3') else 1))


def wild(rng, fmt, spread):
    """Values far apart; sometimes subnormal or zero."""
    ebits, fbits, bias, special = FORMATS[fmt]
    sign = rng.getrandbits(1) << (ebits + fbits)
    if rng.random() < 0.08:
        return sign | rng.getrandbits(fbits)
    middle = bias
    field = min(max(middle + rng.randint(-spread, spread), 1), (1 << ebits) - 2)
    return sign | field << fbits | rng.getrandbits(fbits)


def specials(fmt):
    ebits, fbits, bias, special = FORMATS[fmt]
    top = ((1 << ebits) - 1) << fbits
    if special == 'ieee':
        return [top, top | 1, top | 1 << (ebits + fbits)]
    return [top | ((1 << fbits) - 1)] if special == 'nan' else []


def float_inputs(rng, form, fa, fb, result, is_wild):
    m, k = form.m, form.k
    spread = 6 if FORMATS[fa][0] <= 5 else 20
    a = [[small(rng, fa) if r < 8 or not is_wild else wild(rng, fa, spread) for _ in range(k)] for r in range(m)]
    b = [[small(rng, fb) if n < 4 or not is_wild else wild(rng, fb, spread) for _ in range(k)] for n in range(8)]
    c = [[encode(result, Fraction(rng.randint(-64, 64))) if r < 8 or not is_wild else wild(rng, result, spread)
          for _ in range(8)] for r in range(m)]
    if not is_wild:
        return a, b, c
    sign = 1 << (width(fa) - 1)
    for i in range(0, k - 1, 2):  # row 12 against column 5: every odd product undoes the even one but one bit
        a[12][i + 1] = a[12][i] ^ sign
        b[5][i + 1] = b[5][i] ^ (1 if i == 0 else 0)
    for r in (13,):  # C alone, and larger than everything
        c[r] = [encode(result, Fraction(3) * power(12 if result == 'f16' else 30)) for _ in range(8)]
    b[6] = [0] * k  # zeros: C passes through, but for its zero's sign
    c[9][6] = 1 << (31 if result == 'f32' else 15)
    for j, code in enumerate(specials(fa)[:2]):
        a[14 + j][k - 1 - j] = code
    if specials(fb):
        b[7][0] = specials(fb)[0]
    return a, b, c


def dot(a, b, c, fa, fb, result, width_bits, group, order=None, c_last=False):
    k = len(a)
    order = order or list(range(k))
    running = 0 if c_last else c
    take = parts if not c_last else lambda fmt, code: parts('f16', to_f16(fmt, code))
    for first in range(0, k, group):
        terms = [product(take(fa, a[i]), take(fb, b[i])) for i in order[first:first + group]]
        terms.append(parts(result, running))
        running = step(terms, width_bits, result)
    return add_nearest(result, running, c) if c_last else running


def to_f16(fmt, code):
    """fp8 without hardware of its own is multiplied as f16: every value fits."""
    v = value(fmt, code)
    if v == 'nan':
        return 0x7FFF
    if isinstance(v, str):
        return 0x7C00 if v == '+inf' else 0xFC00
    return encode('f16', v, negative_zero=bool(code >> 7))


def widened_order(k):
    return [i for i in range(k) if i % 4 < 2] + [i for i in range(k) if i % 4 >= 2]


def float_form(name, opcode, k, fa, fb, result, bits, a_map, b_map, is_wild=True, target=None, widened=False, shift=None):
    form = Form(name, opcode, 16, k, bits, a_map, b_map, 32 if result == 'f32' else 16, target=target)
    rng = random.Random(name)
    a, b, c = float_inputs(rng, form, fa, fb, result, is_wild)
    group = k // 2 if widened else k
    d = [[dot(a[r], b[n], c[r][n], fa, fb, result, 25, group, widened_order(k) if widened else None, widened)
          for n in range(8)] for r in range(16)]
    container = lambda fmt, mat: [[code << (13 if fmt == 'tf32' else 2 if fmt == 'e2m1' else 0) for code in line]
                                  for line in mat]
    form.write(['%s: exact rational sums' % opcode + (', cut to 25 fraction bits' if is_wild else '')],
               container(fa, a), container(fb, b), c, d)


def f64_form(m, k):
    name = 'f64_m%dn8k%d' % (m, k)
    form = Form(name, 'm%dn8k%d.row.col.f64.f64.f64.f64' % (m, k), m, k, 64, f64_a(m, k), lambda g, q, i: (g, q + 4 * i),
                64, 64)
    rng = random.Random(name)
    a, b, c = [[[small(rng, 'f64') if r < 4 else wild(rng, 'f64', 30) for _ in range(n)] for r in range(rows)]
               for rows, n in ((m, k), (8, k), (m, 8))]
    d = [[0] * 8 for _ in range(m)]
    for r in range(m):
        for n in range(8):
            running = c[r][n]
            for i in range(k):  # fused multiply-adds, one rounding each
                x = value('f64', a[r][i]) * value('f64', b[n][i]) + value('f64', running)
                running = encode('f64', x)
            d[r][n] = running
    form.write(['%s: a chain of fused multiply-adds, lowest k first' % form.opcode], a, b, c, d)


def integer_form(name, opcode, m, k, bits, a_signed, b_signed, a_map, b_map, saturate):
    form = Form(name, opcode, m, k, bits, a_map, b_map)
    rng = random.Random(name)
    draw = lambda rows: [[rng.getrandbits(bits) for _ in range(k)] for _ in range(rows)]
    number = lambda code, signed: code - (1 << bits) if signed and code >> (bits - 1) else code
    a, b = draw(m), draw(8)
    c = [[rng.choice([rng.getrandbits(32), rng.randint(0, 99), 0x7FFFFFFF, 0x80000000]) for _ in range(8)]
         for _ in range(m)]
    d = [[0] * 8 for _ in range(m)]
    for r in range(m):
        for n in range(8):
            total = c[r][n] - (1 << 32 if c[r][n] >> 31 else 0)
            total += sum(number(x, a_signed) * number(y, b_signed) for x, y in zip(a[r], b[n]))
            if saturate:
                total = max(min(total, 2 ** 31 - 1), -2 ** 31)
            d[r][n] = total & 0xFFFFFFFF
    form.write(['%s: exact sums, %s at 32 bits' % (opcode, 'clamped' if saturate else 'wrapping')], a, b, c, d)


def bit_form(m, k, operation):
    name = 'b1_%s_m%dn8k%d' % (operation, m, k)
    form = Form(name, 'm%dn8k%d.row.col.s32.b1.b1.s32.%s.popc' % (m, k, operation), m, k, 1, bit_a(m, k), bit_b(k))
    rng = random.Random(name)
    a, b = [[[rng.getrandbits(1) for _ in range(k)] for _ in range(rows)] for rows in (m, 8)]
    c = [[rng.getrandbits(32) for _ in range(8)] for _ in range(m)]
    meet = (lambda x, y: x & y) if operation == 'and' else (lambda x, y: x ^ y)
    d = [[(c[r][n] + sum(meet(x, y) for x, y in zip(a[r], b[n]))) & 0xFFFFFFFF for n in range(8)] for r in range(m)]
    form.write(['%s: population count of the joined strings' % form.opcode], a, b, c, d)


def scaled_form(name, opcode, k, bits, fa, fb, a_map, b_map, scale_type, per_row, byte_a, thread_a, byte_b, thread_b):
    """Scales with ids; values and scales such that every sum is exact in f32. What other lanes and bytes hold is noise."""
    form = Form(name, opcode, 16, k, bits, a_map, b_map, target='sm_120a',
                tail=['{sa}', '{%d, %d}' % (byte_a, thread_a), '{sb}', '{%d, %d}' % (byte_b, thread_b)])
    rng = random.Random(name)
    a = [[small(rng, fa) for _ in range(k)] for _ in range(16)]
    b = [[small(rng, fb) for _ in range(k)] for _ in range(8)]
    c = [[encode('f32', Fraction(rng.randint(-64, 64))) for _ in range(8)] for _ in range(16)]
    draw = (lambda: rng.randint(125, 129)) if scale_type == 'ue8m0' else (lambda: rng.randint(0x30, 0x44))
    weigh = (lambda s: power(s - 127)) if scale_type == 'ue8m0' else (lambda s: value('e4m3', s))
    sa = [[draw() for _ in range(per_row)] for _ in range(16)]
    sb = [[draw() for _ in range(per_row)] for _ in range(8)]
    block = k // per_row
    d = [[encode('f32', value('f32', c[r][n]) + sum(
        value(fa, a[r][i]) * value(fb, b[n][i]) * weigh(sa[r][i // block]) * weigh(sb[n][i // block])
        for i in range(k)), 'cut') for n in range(8)] for r in range(16)]

    def scales(lane):
        g, q = lane >> 2, lane & 3
        wa, wb = rng.getrandbits(32), rng.getrandbits(32)
        put = lambda word, byte, code: word & ~(255 << (8 * byte)) | code << (8 * byte)
        for j in range(per_row):
            if q == 2 * thread_a:
                wa = put(wa, byte_a + j, sa[g][j])
            if q == 2 * thread_a + 1:
                wa = put(wa, byte_a + j, sa[g + 8][j])
            if q == thread_b:
                wb = put(wb, byte_b + j, sb[g][j])
        return [wa, wb]

    shift = lambda fmt, mat: [[code << (2 if fmt == 'e2m1' and bits == 8 else 0) for code in line] for line in mat]
    form.write(['%s: values and scales whose sums are exact; bytes and lanes that no id names are noise' % opcode],
               shift(fa, a), shift(fb, b), c, d, scales)


def main():
    os.makedirs(HERE, exist_ok=True)
    for k in (8, 16):
        for fmt, result in (('f16', 'f32'), ('f16', 'f16'), ('bf16', 'f32')):
            float_form('%s_%s_k%d' % (fmt, result, k), 'm16n8k%d.row.col.%s.%s.%s.%s' % (k, result, fmt, fmt, result), k,
                       fmt, fmt, result, 16, f16_a(k), f16_b(k))
    for k in (4, 8):
        float_form('tf32_k%d' % k, 'm16n8k%d.row.col.f32.tf32.tf32.f32' % k, k, 'tf32', 'tf32', 'f32', 32, tf32_a(k),
                   tf32_b(k))
    for k in (16, 32):
        for fa, fb, result in (('e4m3', 'e4m3', 'f32'), ('e5m2', 'e4m3', 'f32'), ('e4m3', 'e5m2', 'f16')):
            float_form('%s_%s_%s_k%d' % (fa, fb, result, k), 'm16n8k%d.row.col.%s.%s.%s.%s' % (k, result, fa, fb, result),
                       k, fa, fb, result, 8, byte_a(16, k), byte_b(k), widened=True)
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)):
        f64_form(m, k)
    for m, k in ((8, 16), (16, 16), (16, 32)):
        for a, b, tail in (('s8', 's8', ''), ('u8', 's8', '.satfinite')):
            integer_form('%s_%s_m%dn8k%d' % (a, b, m, k), 'm%dn8k%d.row.col%s.s32.%s.%s.s32' % (m, k, tail, a, b), m, k, 8,
                         a == 's8', b == 's8', byte_a(m, k), byte_b(k), tail != '')
    for m, k in ((8, 32), (16, 32), (16, 64)):
        for a, b, tail in (('s4', 'u4', ''), ('s4', 's4', '.satfinite')):
            integer_form('%s_%s_m%dn8k%d' % (a, b, m, k), 'm%dn8k%d.row.col%s.s32.%s.%s.s32' % (m, k, tail, a, b), m, k, 4,
                         a == 's4', b == 's4', nibble_a(m, k), nibble_b(k), tail != '')
    for m, k in ((8, 128), (16, 128), (16, 256)):
        for operation in ('and', 'xor'):
            bit_form(m, k, operation)
    for fa, fb, result in (('e2m1', 'e3m2', 'f32'), ('e2m3', 'e4m3', 'f32'), ('e5m2', 'e2m1', 'f16'),
                           ('e3m2', 'e2m3', 'f16')):
        float_form('f8f6f4_%s_%s_%s' % (fa, fb, result), 'kind::f8f6f4.m16n8k32.row.col.%s.%s.%s.%s' % (result, fa, fb,
                   result), 32, fa, fb, result, 8, byte_a(16, 32), byte_b(32), False, 'sm_120a')
    float_form('f8f6f4_e4m3_e5m2_k16', 'm16n8k16.row.col.kind::f8f6f4.f32.e4m3.e5m2.f32', 16, 'e4m3', 'e5m2', 'f32', 8,
               byte_a(16, 16), byte_b(16), False, 'sm_120a')
    mx = 'kind::mxf8f6f4.block_scale%s.m16n8k32.row.col.f32.%s.%s.f32.ue8m0'
    for fa, fb, spell, ids in (('e4m3', 'e4m3', '.scale_vec::1X', (0, 0, 0, 0)), ('e2m1', 'e5m2', '', (3, 1, 1, 2)),
                               ('e3m2', 'e2m3', '.scale_vec::1X', (1, 0, 2, 3))):
        scaled_form('mxf8f6f4_%s_%s' % (fa, fb), mx % (spell, fa, fb), 32, 8, fa, fb, byte_a(16, 32), byte_b(32), 'ue8m0',
                    1, *ids)
    for name, spell, scale, per_row, ids in (
            ('mxf4', 'kind::mxf4.block_scale', 'ue8m0', 2, (0, 0, 2, 1)),
            ('mxf4_2x', 'kind::mxf4.block_scale.scale_vec::2X', 'ue8m0', 2, (2, 1, 0, 3)),
            ('mxf4nvf4_2x', 'kind::mxf4nvf4.block_scale.scale_vec::2X', 'ue8m0', 2, (0, 1, 0, 0)),
            ('mxf4nvf4_4x', 'kind::mxf4nvf4.block_scale.scale_vec::4X', 'ue4m3', 4, (0, 0, 0, 0)),
            ('mxf4nvf4_4x_ids', 'kind::mxf4nvf4.block_scale.scale_vec::4X', 'ue4m3', 4, (0, 1, 0, 2))):
        scaled_form(name, '%s.m16n8k64.row.col.f32.e2m1.e2m1.f32.%s' % (spell, scale), 64, 4, 'e2m1', 'e2m1',
                    nibble_a(16, 64), nibble_b(64), scale, per_row, *ids)


if __name__ == '__main__':
    main()

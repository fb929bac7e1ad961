"""Writes the case files of what only Blackwell has beside matrices: cvt of 4- and 6-bit formats and ue8m0, pairs of f32,
f32 with half sources, three-operand min and max. Expected bits by exact arithmetic from the manual's text.

    python3 tests/ptx/generate/narrow.py
"""
import os
import random
from fractions import Fraction
from exact import FORMATS, encode, floor_log2, value, write_case

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
NAN16, NAN32 = 0x7FFF, 0x7FFFFFFF


def maximum(fmt):
    ebits, fbits, bias, special = FORMATS[fmt]
    ones = (1 << (ebits + fbits)) - 1
    return ones if special == 'none' else ones - 1 if special == 'nan' else (((1 << ebits) - 1) << fbits) - 1


def saturated(fmt, v, negative, relu):
    """rn.satfinite{.relu}: NaN becomes the format's NaN, or its largest value where it has none."""
    ebits, fbits, bias, special = FORMATS[fmt]
    if v == 'nan':
        return maximum(fmt) if special == 'none' else 0x7F
    if relu and negative:
        return 0
    top = maximum(fmt)
    sign = negative << (ebits + fbits)
    if isinstance(v, str):
        return sign | top
    code = encode(fmt, abs(v))
    return sign | min(code, top)


def scale_code(v, mode, satfinite):
    if v == 'nan':
        return 0xFF
    if isinstance(v, str):
        return 0xFE if satfinite else 0xFF
    m = abs(v)
    if m == 0:
        return 0
    e = floor_log2(m)
    if mode == 'rp' and m != Fraction(2) ** e:
        e += 1
    code = e + 127
    return 0 if code < 0 else (0xFE if satfinite else 0xFF) if code > 254 else code


def singles(rng, count):
    """f32 bits around the narrow formats' ranges: ties, ends, specials."""
    special = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x00000001, 0x7F7FFFFF, 0x3E800000, 0x3F400000,
               0x3FA00000, 0x40200000, 0x40A00000, 0x40E00000, 0xC0A00000, 0x00800000, 0x7F000000]
    values = []
    for i in range(count):
        if i < len(special):
            values.append(special[i])
        elif i % 3 == 0:  # a multiple of a sixteenth: ties
            values.append(encode('f32', Fraction(rng.randint(-640, 640), 32)))
        else:
            values.append(rng.getrandbits(1) << 31 | rng.randint(119, 133) << 23 | rng.getrandbits(23))
    rng.shuffle(values)
    return values


def sign(bits, at):
    return bits >> at & 1


def to_narrow(fmt, source, relu):
    """From f32 pairs, f16x2 or bf16x2."""
    rng = random.Random('%s %s %s' % (fmt, source, relu))
    step = 4 if fmt == 'e2m1' else 8
    word = 'cvt.rn.satfinite%s.%sx2.%s' % ('.relu' if relu else '', fmt, source if source == 'f32' else source + 'x2')
    one = lambda bits, f, top: saturated(fmt, value(f, bits), sign(bits, top), relu)
    rows = []
    if source == 'f32':
        for a, b in zip(singles(rng, 32), singles(rng, 32)):
            rows.append(([a, b], [one(a, 'f32', 31) << step | one(b, 'f32', 31)]))
        ins = ['in a b32', 'in b b32']
    else:
        for _ in range(32):
            halves = [rng.choice([rng.getrandbits(16), rng.getrandbits(1) << 15 | (
                rng.randint(11, 19) << 10 | rng.getrandbits(10) if source == 'f16' else
                rng.randint(122, 131) << 7 | rng.getrandbits(7)), 0x7C00, 0x8000, 0x7FFF]) for _ in range(2)]
            rows.append(([halves[0] << 16 | halves[1]], [one(halves[0], source, 15) << step | one(halves[1], source, 15)]))
        ins = ['in a b32']
    operands = 'a, b' if source == 'f32' else 'a'
    lines = ['op %s d, %s;' % (word, operands), 'out d b16'] + ins
    if fmt == 'e2m1':
        lines = ['reg .b8 h;', 'op %s h, %s;' % (word, operands), 'op mov.b16 d, {h, 0};', 'out d b16'] + ins
    name = '%sx2_%s%s' % (fmt, source if source == 'f32' else source + 'x2', '_relu' if relu else '')
    write_case(os.path.join(ROOT, 'cvt', name + '.case'), ['%s: document only' % word], lines + ['target sm_120a'], rows)


def from_narrow(fmt, relu):
    rng = random.Random('from %s' % fmt)
    bits = 1 + FORMATS[fmt][0] + FORMATS[fmt][1]
    step = 4 if fmt == 'e2m1' else 8
    word = 'cvt.rn%s.f16x2.%sx2' % ('.relu' if relu else '', fmt)

    def one(code):
        negative = bool(sign(code, bits - 1))
        return 0 if relu and negative else encode('f16', value(fmt, code), negative_zero=negative)
    rows = []
    for a in range(1 << bits):
        b = rng.getrandbits(bits)
        rows.append(([a << step | b], [one(a) << 16 | one(b)]))
    lines = ['op %s d, a;' % word, 'out d b32', 'in a b16']
    if fmt == 'e2m1':
        lines = ['reg .b8 h, z;', 'op mov.b16 {h, z}, a;', 'op %s d, h;' % word, 'out d b32', 'in a b16']
    write_case(os.path.join(ROOT, 'cvt', 'f16x2_%sx2%s.case' % (fmt, '_relu' if relu else '')),
               ['%s: every code; document only' % word], lines + ['target sm_120a'], rows)


def scales():
    for mode in ('rz', 'rp'):
        for sat in (False, True):
            rng = random.Random('%s %s' % (mode, sat))
            word = 'cvt.%s%s.ue8m0x2.f32' % (mode, '.satfinite' if sat else '')
            draw = lambda: rng.choice([rng.getrandbits(32), 0, 0x7F800000, 0x7FC00000, 0x00000001, 0x00400000, 0x00400001,
                                       0x3F800000, 0x3F800001, 0x7F000000, 0x7F000001, 0x7F7FFFFF, 0xC0000000])
            pairs = [(draw(), draw()) for _ in range(32)]
            one = lambda bits: scale_code(value('f32', bits), mode, sat)
            write_case(os.path.join(ROOT, 'cvt', 'ue8m0x2_f32_%s%s.case' % (mode, '_satfinite' if sat else '')),
                       ['%s: document only' % word], ['op %s d, a, b;' % word, 'out d b16', 'in a b32', 'in b b32',
                                                      'target sm_120a'],
                       [([a, b], [one(a) << 8 | one(b)]) for a, b in pairs])
            word = word.replace('.f32', '.bf16x2')
            halves = [(a >> 16, b >> 16) for a, b in pairs]
            one = lambda bits: scale_code(value('bf16', bits), mode, sat)
            write_case(os.path.join(ROOT, 'cvt', 'ue8m0x2_bf16x2_%s%s.case' % (mode, '_satfinite' if sat else '')),
                       ['%s: document only' % word], ['op %s d, a;' % word, 'out d b16', 'in a b32', 'target sm_120a'],
                       [([a << 16 | b], [one(a) << 8 | one(b)]) for a, b in halves])
    # Back: every code; 255 is NaN.
    back = lambda c: NAN16 if c == 255 else encode('bf16', Fraction(2) ** (c - 127))
    rows = [([c << 8 | (c * 37 & 255)], [back(c) << 16 | back(c * 37 & 255)]) for c in range(256)]
    write_case(os.path.join(ROOT, 'cvt', 'bf16x2_ue8m0x2.case'), ['cvt.rn.bf16x2.ue8m0x2: every code; document only'],
               ['op cvt.rn.bf16x2.ue8m0x2 d, a;', 'out d b32', 'in a b16', 'target sm_120a'], rows)


def directed(x, mode, negative_zero):
    """f32 code of an exact value in a direction."""
    if x == 0:
        return encode('f32', x, negative_zero=negative_zero)
    code = encode('f32', x, 'cut')
    exact = value('f32', code) == x
    if mode == 'rn':
        return encode('f32', x)
    up = (mode == 'rp' and x > 0) or (mode == 'rm' and x < 0)
    return code + 1 if up and not exact else code


def pairs_and_mixed():
    rng = random.Random('pairs')
    near = lambda: rng.getrandbits(1) << 31 | rng.randint(100, 150) << 23 | rng.getrandbits(23)
    half = lambda: rng.getrandbits(1) << 15 | rng.randint(8, 22) << 10 | rng.getrandbits(10)
    meet = {'add': lambda a, b: a + b, 'sub': lambda a, b: a - b, 'mul': lambda a, b: a * b}
    join = lambda low, high: low | high << 32
    f = lambda bits: value('f32', bits)
    for name, op in meet.items():
        for mode in ('rn', 'rz', 'rm', 'rp'):
            rows = []
            for _ in range(12):
                a, b, c, d = near(), near(), near(), near()
                rows.append(([join(a, b), join(c, d)],
                             [join(directed(op(f(a), f(c)), mode, False), directed(op(f(b), f(d)), mode, False))]))
            write_case(os.path.join(ROOT, name, '%s_f32x2.case' % mode), ['two sums, products in one register'],
                       ['op %s.%s.f32x2 d, a, b;' % (name, mode), 'out d b64', 'in a b64', 'in b b64', 'target sm_100a'], rows)
    for mode in ('rn', 'rz', 'rm', 'rp'):
        rows = []
        for _ in range(12):
            v = [near() for _ in range(6)]
            rows.append(([join(v[0], v[1]), join(v[2], v[3]), join(v[4], v[5])],
                         [join(directed(f(v[0]) * f(v[2]) + f(v[4]), mode, False),
                               directed(f(v[1]) * f(v[3]) + f(v[5]), mode, False))]))
        write_case(os.path.join(ROOT, 'fma', '%s_f32x2.case' % mode), ['two products and sums in one register'],
                   ['op fma.%s.f32x2 d, a, b, c;' % mode, 'out d b64', 'in a b64', 'in b b64', 'in c b64',
                    'target sm_100a'], rows)
    for name in ('add', 'sub'):
        rows = [([a, c], [directed(meet[name](value('f16', a), f(c)), 'rn', False)])
                for a, c in ((half(), near()) for _ in range(12))]
        write_case(os.path.join(ROOT, name, 'f32_f16.case'), ['an f16 source is widened first'],
                   ['op %s.f32.f16 d, a, c;' % name, 'out d b32', 'in a b16', 'in c b32', 'target sm_100a'], rows)
    rows = [([a, b, c], [directed(value('f16', a) * value('f16', b) + f(c), 'rz', False)])
            for a, b, c in ((half(), half(), near()) for _ in range(12))]
    write_case(os.path.join(ROOT, 'fma', 'rz_f32_f16.case'), ['f16 factors, f32 sum'],
               ['op fma.rz.f32.f16 d, a, b, c;', 'out d b32', 'in a b16', 'in b b16', 'in c b32', 'target sm_100a'], rows)
    for name, pick in (('min', min), ('max', max)):
        rows = []
        for i in range(16):
            v = [near() for _ in range(3)]
            if i % 4 == 0:
                v[i // 4 % 3] = 0x7FC00001
            known = [x for x in v if value('f32', x) != 'nan']
            rows.append((v, [pick(known, key=f), pick((x & 0x7FFFFFFF for x in known), key=f)]))
        write_case(os.path.join(ROOT, name, 'three_f32.case'), ['three sources; NaN loses'],
                   ['op %s.f32 d, a, b, c;' % name, 'op %s.abs.f32 e, a, b, c;' % name, 'out d b32', 'out e b32',
                    'in a b32', 'in b b32', 'in c b32', 'target sm_100a'], rows)


for narrow in ('e2m1', 'e2m3', 'e3m2'):
    for use_relu in (False, True):
        for kind in ('f32', 'f16') if narrow == 'e2m1' else ('f32',):  # what CUDA 13.0 assembles
            to_narrow(narrow, kind, use_relu)
        from_narrow(narrow, use_relu)
scales()
pairs_and_mixed()

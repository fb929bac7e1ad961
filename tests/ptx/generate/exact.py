"""Number formats and matrix sums in exact rational arithmetic, for the generators beside this file.

Written from the PTX manual's tables, apart from the emulator's own code: the case files that come out judge that code.
A value is a Fraction, or one of the strings 'nan', '+inf', '-inf'. Run with Python 3.8 or later, no packages.
"""
from fractions import Fraction
import random

# name: exponent bits, fraction bits, bias, what the top codes mean
FORMATS = {
    'f64': (11, 52, 1023, 'ieee'), 'f32': (8, 23, 127, 'ieee'), 'tf32': (8, 10, 127, 'ieee'),
    'f16': (5, 10, 15, 'ieee'), 'bf16': (8, 7, 127, 'ieee'), 'e5m2': (5, 2, 15, 'ieee'),
    'e4m3': (4, 3, 7, 'nan'), 'e3m2': (3, 2, 3, 'none'), 'e2m3': (2, 3, 1, 'none'), 'e2m1': (2, 1, 1, 'none'),
}


def width(name):
    return 1 + FORMATS[name][0] + FORMATS[name][1]


def power(exponent):
    return Fraction(2) ** exponent


def parts(name, code):
    """(sign, significand with 1.0 = one unit, exponent), or a special's name."""
    ebits, fbits, bias, special = FORMATS[name]
    sign = -1 if code >> (ebits + fbits) & 1 else 1
    field = code >> fbits & ((1 << ebits) - 1)
    fraction = code & ((1 << fbits) - 1)
    top = field == (1 << ebits) - 1
    if special == 'ieee' and top:
        return 'nan' if fraction else ('+inf' if sign > 0 else '-inf')
    if special == 'nan' and top and fraction == (1 << fbits) - 1:
        return 'nan'
    significand = Fraction(fraction + ((1 << fbits) if field else 0), 1 << fbits)
    return sign, significand, max(field, 1) - bias


def value(name, code):
    p = parts(name, code)
    return p if isinstance(p, str) else p[0] * p[1] * power(p[2])


def floor_log2(x):
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


def encode(name, x, mode='rn', negative_zero=False):
    """The code of an exact value; beyond the largest finite one: infinity (also when cut: the tensor core's rule)."""
    ebits, fbits, bias, special = FORMATS[name]
    sign = 1 if x < 0 or (x == 0 and negative_zero) else 0
    m = abs(x)
    if m == 0:
        return sign << (ebits + fbits)
    exponent = max(floor_log2(m), 1 - bias)
    scaled = m / power(exponent - fbits)
    kept = scaled.numerator // scaled.denominator
    rest = scaled - kept
    if mode == 'rn' and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and kept & 1)):
        kept += 1
    field = exponent + bias
    code = ((field - 1) << fbits) + kept if kept >= 1 << fbits or field > 1 else kept
    if field == 1 and kept < 1 << fbits:
        code = kept
    ones = (1 << (ebits + fbits)) - 1
    beyond = {'ieee': ((1 << ebits) - 1) << fbits, 'nan': ones, 'none': ones}[special]
    return min(code, beyond) | sign << (ebits + fbits)


def step(terms, width_bits, result):
    """One step of the tensor core over (sign, significand, exponent) terms; result 'f32' or 'f16' code."""
    nan = 0x7FFFFFFF if result == 'f32' else 0x7FFF
    specials = [t for t in terms if isinstance(t, str)]
    if 'nan' in specials or ('+inf' in specials and '-inf' in specials):
        return nan
    if specials:
        code = 0x7F800000 if result == 'f32' else 0x7C00
        return code if specials[0] == '+inf' else code | (0x80000000 if result == 'f32' else 0x8000)
    finite = [t for t in terms if t[1] != 0]
    if not finite:
        return 0
    largest = max(t[2] for t in finite)
    total = 0
    for sign, significand, exponent in finite:
        scaled = significand * power(width_bits + exponent - largest)
        total += sign * (scaled.numerator // scaled.denominator)
    code = encode(result, total * power(largest - width_bits), 'cut' if result == 'f32' else 'rn')
    return 0 if code in (0x80000000, 0x8000) and total == 0 or code & (0x7FFFFFFF if result == 'f32' else 0x7FFF) == 0 \
        else code


def product(x, y):
    for a, b in ((x, y), (y, x)):
        if a == 'nan':
            return 'nan'
    if isinstance(x, str) or isinstance(y, str):
        other = [p for p in (x, y) if not isinstance(p, str)]
        if other and other[0][1] == 0:
            return 'nan'
        signs = [(-1 if p == '-inf' else 1) if isinstance(p, str) else p[0] for p in (x, y)]
        return '+inf' if signs[0] * signs[1] > 0 else '-inf'
    return x[0] * y[0], x[1] * y[1], x[2] + y[2]


def add_nearest(result, a, b):
    """An ordinary addition of two codes."""
    x, y = value(result, a), value(result, b)
    nan = 0x7FFFFFFF if result == 'f32' else 0x7FFF
    if 'nan' in (x, y) or {x, y} == {'+inf', '-inf'}:
        return nan
    for one, code in ((x, a), (y, b)):
        if isinstance(one, str):
            return code
    top = 31 if result == 'f32' else 15
    return encode(result, x + y, 'rn', (a >> top) & (b >> top) & 1)


def shuffle_seed(name):
    return random.Random(name)


def write_case(path, about, lines, rows):
    with open(path, 'w') as out:
        for text in about:
            out.write('# %s\n' % text)
        for text in lines:
            out.write(text + '\n')
        for inputs, outputs in rows:
            out.write('case %s -> %s\n' % (' '.join('0x%x' % v for v in inputs), ' '.join('0x%x' % v for v in outputs)))

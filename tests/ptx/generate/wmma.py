"""Writes tests/ptx/wmma.load, wmma.store and wmma.mma: one warp per form, expected bits by exact arithmetic.

The manual leaves open which element of a matrix a fragment's register holds. The maps below were read off the machine
code that ptxas makes for sm_90, and an H200 has since given every bit of the files. Every product is one or two
mma.sync m16n8k16 (or of the type's shape), whose fragments stand side by side; with m8n32k16 it is the transposed product. Registers beyond those (8 of f16 in every
shape) repeat the first ones when they are loaded, and the product ignores them: here they hold noise.

Rows hold small integers in one half of A and values far apart, cancelling pairs and specials in the other, as in
mma.py.

    python3 tests/ptx/generate/wmma.py        # rewrites the files
"""
import os
import random
from fractions import Fraction
from exact import encode, power, value, width, write_case
from mma import dot, small, specials, wild

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
SHAPES = {'m16n16k16': (16, 16, 16), 'm8n32k16': (8, 32, 16), 'm32n8k16': (32, 8, 16), 'm16n16k8': (16, 16, 8),
          'm8n8k4': (8, 8, 4), 'm8n8k32': (8, 8, 32), 'm8n8k128': (8, 8, 128)}


def places(shape, matrix, bits):
    """For every lane the (row, column) of its elements, in the order of registers and of bits in them."""
    m, n, k = SHAPES[shape]
    per = max(32 // bits, 1)  # neighbours in a register
    lanes = []
    for lane in range(32):
        g, q = lane >> 2, lane & 3
        got = []
        if matrix in 'cd':
            for tile in range(max(m // 16, n // 8 if m != 8 or n == 8 else n // 16)):
                for i in range(4 if m > 8 or n > 8 else 2):
                    row, column = g + 8 * (i // 2), 2 * q + i % 2
                    got.append((column, row + 16 * tile) if (m, n) == (8, 32) else
                               (row + 16 * tile, column) if m == 32 else (row, column + 8 * tile))
        else:
            extent = m if matrix == 'a' else n  # of the side that is not k
            is_wide = (matrix == 'a' and m > 8) or extent == 32  # laid out as A of mma.sync
            for tile in range(extent // (16 if is_wide else 8)):
                for step in range(max(k // (4 * per), 1)):
                    for half in range(2 if is_wide else 1):
                        for e in range(per):
                            side = g + 8 * half + (16 if is_wide else 8) * tile
                            along = q * per + e + 4 * per * step
                            got.append((side, along) if matrix == 'a' else (along, side))
        lanes.append(got)
    return lanes


def register_bits(bits):
    return max(bits, 32)


def pack(codes, bits):
    per = max(32 // bits, 1)
    return [sum(c << (bits * i) for i, c in enumerate(codes[at:at + per])) for at in range(0, len(codes), per)]


def extent_of(shape, matrix):
    m, n, k = SHAPES[shape]
    return {'a': (m, k), 'b': (k, n), 'c': (m, n), 'd': (m, n)}[matrix]


def names(letter, count):
    return ['%s%d' % (letter, i) for i in range(count)]


def braces(letter, count):
    return '{' + ', '.join(names(letter, count)) + '}'


def bits_of(fmt):
    return {'tf32': 32, 's32': 32, 's8': 8, 'u8': 8, 's4': 4, 'u4': 4, 'b1': 1}.get(fmt) or width(fmt)


def registers_of(shape, matrix, fmt):
    if fmt == 'f16' and matrix in 'ab':
        return 8
    rows, columns = extent_of(shape, matrix)
    return max(rows * columns * bits_of(fmt) // 32 // 32, 1) if fmt != 'f64' else rows * columns // 32


WORDS = 6  # of 64 bits that a lane puts into memory


def load_file(shape, matrix, fmt):
    bits, count = bits_of(fmt), registers_of(shape, matrix, fmt)
    rows, columns = extent_of(shape, matrix)
    rng = random.Random('load' + shape + matrix + fmt)
    data = [[rng.getrandbits(64) for _ in range(WORDS)] for _ in range(32)]
    memory = b''.join(word.to_bytes(8, 'little') for lane in data for word in lane)
    whole = int.from_bytes(memory, 'little')
    where = places(shape, matrix, bits)
    pad = 128 // bits
    layouts = ['row', 'col'] if bits >= 8 else ['row' if matrix == 'a' else 'col'] if matrix in 'ab' else ['row', 'col']
    ops = ['mov.u32 r, %tid.x;', 'mul.wide.u32 t, r, %d;' % (8 * WORDS), 'sub.u64 g, %in, t;', 'mov.u32 s, scratch;',
           'mad.lo.u32 r, r, %d, s;' % (8 * WORDS)]
    ops += ['st.shared.v2.b64 [r%s], {x%d, x%d};' % ('+%d' % (8 * i) if i else '', i, i + 1) for i in range(0, WORDS, 2)]
    ops.append('bar.sync 0;')
    lines, outputs = [], [[] for _ in range(32)]
    for layout in layouts:
        length = columns if layout == 'row' else rows
        # Dense and padded, from shared, global and generic addresses.
        for space, address, stride in ((('.shared', 's', None), ('.global', 'g', length + pad)) if layout == 'row' or
                                       len(layouts) == 1 else (('', 'g', None), ('.shared::cta', 's', length + pad))):
            letter = 'defh'[len(outputs[0]) // count]
            if stride and space == '.global':
                ops.append('mov.u32 ld, %d;' % stride)
            ops.append('wmma.load.%s.sync.aligned.%s.%s%s.%s %s, [%s]%s;' % (
                matrix, layout, shape, space, fmt, braces(letter, count), address,
                '' if stride is None else ', ld' if space == '.global' else ', %d' % stride))
            lines += ['out %s b%d' % (name, register_bits(bits)) for name in names(letter, count)]
            for lane in range(32):
                got = pack([whole >> (bits * ((r * (stride or length) + c) if layout == 'row' else
                                              (c * (stride or length) + r))) & ((1 << bits) - 1)
                            for r, c in where[lane]], bits)
                outputs[lane] += [got[i % len(got)] for i in range(count)]
    write_case(os.path.join(HERE, 'wmma.load', '%s_%s_%s.case' % (matrix, shape, fmt)),
               ['wmma.load.%s, %s of %s: dense and padded, from shared, global and generic addresses' % (matrix, shape, fmt)],
               ['reg .b64 g, t;', 'reg .b32 s, r, ld;'] + ['op ' + op for op in ops] + lines + ['in x%d b64' % i for i in range(WORDS)], list(zip(data, outputs)))


def store_file(shape, fmt):
    bits, count = bits_of(fmt), registers_of(shape, 'd', fmt)
    rows, columns = extent_of(shape, 'd')
    rng = random.Random('store' + shape + fmt)
    width_bits = register_bits(bits)
    data = [[rng.getrandbits(width_bits) for _ in range(count)] for _ in range(32)]
    where = places(shape, 'd', bits)
    pad, region = 128 // bits, 8 * count * 32
    dense = rows * columns * bits // 8

    def put(memory, start, layout, stride):
        for lane in range(32):
            codes = [data[lane][i // (width_bits // bits)] >> (bits * (i % (width_bits // bits))) & ((1 << bits) - 1)
                     for i in range(len(where[lane]))]
            for code, (r, c) in zip(codes, where[lane]):
                at = start + (r * stride + c if layout == 'row' else c * stride + r) * bits // 8
                memory[at:at + bits // 8] = code.to_bytes(bits // 8, 'little')

    shared, glob = bytearray(4096), bytearray(b''.join(v.to_bytes(8, 'little') for lane in data for v in lane))
    put(shared, 0, 'row', columns + pad)
    put(shared, 2048, 'col', rows + pad)
    ops = ['mov.u32 r, %tid.x;', 'mul.wide.u32 t, r, %d;' % (8 * count), 'sub.u64 g, %in, t;', 'mov.u32 s, scratch;',
           'mad.lo.u32 r, r, 48, s;', 'mov.b64 z, 0;', 'mov.u32 ld, %d;' % (columns + pad)]
    ops += ['st.shared.v2.b64 [r+%d], {z, z};' % at for base in (0, 2048) for at in range(base, base + 48, 16)]
    ops.append('bar.sync 0;')
    store = lambda layout, space, address, tail: 'wmma.store.d.sync.aligned.%s.%s%s.%s [%s], %s%s;' % (
        layout, shape, space, fmt, address, braces('c', count), tail)
    ops += [store('row', '.shared', 's', ', ld'), store('col', '.shared', 's+2048', ', %d' % (rows + pad)),
            store('col', '', 'g', '')]
    put(glob, 0, 'col', rows)
    if 2 * dense <= region:
        ops.append(store('row', '.global', 'g+%d' % (region // 2), ''))
        put(glob, region // 2, 'row', columns)
    ops.append('bar.sync 0;')
    ops += ['ld.shared.v2.b64 {y%d, y%d}, [r+%d];' % (i, i + 1, at)
            for i, at in zip(range(0, 12, 2), [0, 16, 32, 2048, 2064, 2080])]
    ops += ['ld.global.b64 h%d, [%%in+%d];' % (i, 8 * i) for i in range(count)]
    word = lambda memory, at: int.from_bytes(memory[at:at + 8], 'little')
    table = [(data[lane], [word(shared, base + 48 * lane + 8 * i) for base in (0, 2048) for i in range(6)] +
              [word(glob, 8 * count * lane + 8 * i) for i in range(count)]) for lane in range(32)]
    write_case(os.path.join(HERE, 'wmma.store', 'd_%s_%s.case' % (shape, fmt)),
               ['wmma.store.d, %s of %s: what stands between padded lines stays' % (shape, fmt)],
               ['reg .b64 g, t, z;', 'reg .b32 s, r, ld;'] + ['op ' + op for op in ops] +
               ['out %s b64' % name for name in names('y', 12) + names('h', count)] +
               ['in %s b%d' % (name, width_bits) for name in names('c', count)], table)


def product_file(name, opcode, shape, formats, a, b, c, d):
    """a: m x k codes, b: k x n, c and d: m x n; formats of D, A, B, C."""
    fd, fa, fb, fc = formats
    counts = [registers_of(shape, matrix, fmt) for matrix, fmt in zip('dabc', formats)]
    where = {x: places(shape, x, bits_of(fmt)) for x, fmt in (('d', fd), ('a', fa), ('b', fb), ('c', fc))}
    rng = random.Random('noise' + name)

    def registers(letter, matrix, fmt, lane, count):
        got = pack([matrix[r][col] for r, col in where[letter][lane]], bits_of(fmt))
        return got + [rng.getrandbits(32) for _ in range(count - len(got))]

    table = [(registers('a', a, fa, lane, counts[1]) + registers('b', b, fb, lane, counts[2]) +
              registers('c', c, fc, lane, counts[3]), registers('d', d, fd, lane, counts[0])) for lane in range(32)]
    slot = lambda letter, fmt, count: ['%s b%d' % (x, register_bits(bits_of(fmt))) for x in names(letter, count)]
    write_case(os.path.join(HERE, 'wmma.mma', name + '.case'), [opcode],
               ['op %s %s, %s, %s, %s;' % (opcode, braces('d', counts[0]), braces('a', counts[1]), braces('b', counts[2]),
                                           braces('c', counts[3]))] +
               ['out ' + s for s in slot('d', fd, counts[0])] + ['in ' + s for s in slot('a', fa, counts[1])] +
               ['in ' + s for s in slot('b', fb, counts[2])] + ['in ' + s for s in slot('c', fc, counts[3])], table)


def convert(fmt_from, fmt_to, code):
    """f16 and f32 into each other."""
    v = value(fmt_from, code)
    if v == 'nan':
        return 0x7FFF if fmt_to == 'f16' else 0x7FFFFFFF
    if isinstance(v, str):
        return (0x7C00 if fmt_to == 'f16' else 0x7F800000) | (1 << (width(fmt_to) - 1) if v == '-inf' else 0)
    return encode(fmt_to, v, negative_zero=bool(code >> (width(fmt_from) - 1)))


def float_product(name, opcode, shape, fmt, fd, fc, group):
    m, n, k = SHAPES[shape]
    rng = random.Random(name)
    spread = 6 if fmt == 'f16' else 20
    is_tame = lambda i, extent: i < extent // 2
    a = [[small(rng, fmt) if is_tame(r, m) else wild(rng, fmt, spread) for _ in range(k)] for r in range(m)]
    b = [[small(rng, fmt) if is_tame(j, n) else wild(rng, fmt, spread) for _ in range(k)] for j in range(n)]
    c = [[encode(fc, Fraction(rng.randint(-64, 64))) if is_tame(r, m) else wild(rng, fc, 6 if fc == 'f16' else spread)
          for _ in range(n)] for r in range(m)]
    sign = 1 << (width(fmt) - 1)
    for i in range(0, k - 1, 2):  # every odd product undoes the even one but one bit
        a[m - 3][i + 1] = a[m - 3][i] ^ sign
        b[n - 3][i + 1] = b[n - 3][i] ^ (1 if i == 0 else 0)
    c[m - 2] = [encode(fc, Fraction(3) * power(12 if fc == 'f16' else 30)) for _ in range(n)]
    b[n - 2] = [0] * k
    c[m - 3][n - 2] = 1 << (width(fc) - 1)
    a[m - 1][k - 1], b[n - 1][0] = specials(fmt)[0], specials(fmt)[1]
    inner = 'f16' if fd == fc == 'f16' else 'f32'
    d = [[convert(inner, fd, dot(a[r], b[j], convert(fc, inner, c[r][j]) if fc != inner else c[r][j], fmt, fmt, inner,
                                 25, group)) if fd != inner else
          dot(a[r], b[j], convert(fc, inner, c[r][j]) if fc != inner else c[r][j], fmt, fmt, inner, 25, group)
          for j in range(n)] for r in range(m)]
    shift = 13 if fmt == 'tf32' else 0
    product_file(name, opcode, shape, (fd, fmt, fmt, fc), [[x << shift for x in line] for line in a],
                 [[b[j][i] << shift for j in range(n)] for i in range(k)], c, d)


def encode_directed(x, mode):
    """f64 with a direction: cut toward zero, down or up."""
    cut = encode('f64', x, 'cut')
    if value('f64', cut) == x or mode == 'rz' or (mode == 'rm') == (x > 0):
        return cut
    return cut + 1  # away from zero


def f64_product(tail):
    name = 'f64_m8n8k4' + tail.replace('.', '_')
    rng = random.Random(name)
    draw = lambda rows, columns: [[small(rng, 'f64') if r < 4 else wild(rng, 'f64', 30) for _ in range(columns)]
                                  for r in range(rows)]
    a, b, c = draw(8, 4), draw(8, 4), draw(8, 8)
    d = [[0] * 8 for _ in range(8)]
    for r in range(8):
        for j in range(8):
            running = c[r][j]
            for i in range(4):  # fused multiply-adds, one rounding each
                x = value('f64', a[r][i]) * value('f64', b[j][i]) + value('f64', running)
                running = encode('f64', x) if tail in ('', '.rn') or x == 0 else encode_directed(x, tail[1:])
                if x == 0 and tail == '.rm':
                    running = 1 << 63
            d[r][j] = running
    product_file(name, 'wmma.mma.sync.aligned.%s.m8n8k4%s.f64.f64.f64.f64' % (
        {'': 'row.col', '.rn': 'row.row', '.rz': 'col.col', '.rm': 'col.row', '.rp': 'row.col'}[tail], tail), 'm8n8k4',
        ('f64',) * 4, a, [[b[j][i] for j in range(8)] for i in range(4)], c, d)


def integer_product(shape, fmt, layout, tail):
    m, n, k = SHAPES[shape]
    bits = bits_of(fmt)
    name = '%s_%s%s' % (fmt, shape, '_sat' if tail else '')
    rng = random.Random(name)
    number = lambda code: code - (1 << bits) if fmt[0] == 's' and code >> (bits - 1) else code
    a = [[rng.getrandbits(bits) for _ in range(k)] for _ in range(m)]
    b = [[rng.getrandbits(bits) for _ in range(n)] for _ in range(k)]
    c = [[rng.choice([rng.getrandbits(32), rng.randint(0, 99), 0x7FFFFFFF, 0x80000000]) for _ in range(n)]
         for _ in range(m)]
    d = [[0] * n for _ in range(m)]
    for r in range(m):
        for j in range(n):
            total = c[r][j] - (1 << 32 if c[r][j] >> 31 else 0)
            total += sum(number(a[r][i]) * number(b[i][j]) for i in range(k))
            d[r][j] = (max(min(total, 2 ** 31 - 1), -2 ** 31) if tail else total) & 0xFFFFFFFF
    product_file(name, 'wmma.mma.sync.aligned.%s.%s.s32.%s.%s.s32%s' % (layout, shape, fmt, fmt, tail), shape,
                 ('s32', fmt, fmt, 's32'), a, b, c, d)


def bit_product(operation):
    name = 'b1_%s_m8n8k128' % operation
    rng = random.Random(name)
    a = [[rng.getrandbits(1) for _ in range(128)] for _ in range(8)]
    b = [[rng.getrandbits(1) for _ in range(8)] for _ in range(128)]
    c = [[rng.getrandbits(32) for _ in range(8)] for _ in range(8)]
    meet = (lambda x, y: x & y) if operation == 'and' else (lambda x, y: x ^ y)
    d = [[(c[r][j] + sum(meet(a[r][i], b[i][j]) for i in range(128))) & 0xFFFFFFFF for j in range(8)] for r in range(8)]
    product_file(name, 'wmma.mma.%s.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32' % operation, 'm8n8k128',
                 ('s32', 'b1', 'b1', 's32'), a, b, c, d)


def main():
    for folder in ('wmma.load', 'wmma.store', 'wmma.mma'):
        os.makedirs(os.path.join(HERE, folder), exist_ok=True)
    wide = ('m16n16k16', 'm8n32k16', 'm32n8k16')
    for shape in wide:
        for matrix in 'ab':
            for fmt in ('f16', 'bf16', 's8', 'u8'):
                load_file(shape, matrix, fmt)
        for fmt in ('f16', 'f32', 's32'):
            load_file(shape, 'c', fmt)
            store_file(shape, fmt)
    for shape, fmt, sums in (('m16n16k8', 'tf32', 'f32'), ('m8n8k4', 'f64', 'f64'), ('m8n8k32', 's4', 's32'),
                             ('m8n8k32', 'u4', ''), ('m8n8k128', 'b1', 's32')):
        load_file(shape, 'a', fmt)
        load_file(shape, 'b', fmt)
        if sums:
            load_file(shape, 'c', sums)
            store_file(shape, sums)
    layouts = ['row.col', 'col.row', 'row.row', 'col.col']
    for i, shape in enumerate(wide):
        for j, (fd, fc) in enumerate((('f32', 'f32'), ('f16', 'f16'), ('f32', 'f16'), ('f16', 'f32'))):
            float_product('f16_%s_%s_%s' % (shape, fd, fc), 'wmma.mma.sync.aligned.%s.%s.%s.%s' % (
                layouts[(i + j) % 4], shape, fd, fc), shape, 'f16', fd, fc, 16)
        float_product('bf16_' + shape, 'wmma.mma.sync.aligned.%s.%s.f32.bf16.bf16.f32' % (layouts[i], shape), shape, 'bf16',
                      'f32', 'f32', 16)
        integer_product(shape, 's8', layouts[i], '')
        integer_product(shape, 'u8', layouts[i + 1], '.satfinite')
        integer_product(shape, 's8', layouts[i + 1], '.satfinite')
    float_product('tf32_m16n16k8', 'wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32', 'm16n16k8', 'tf32', 'f32',
                  'f32', 4)
    for tail in ('', '.rn', '.rz', '.rm', '.rp'):
        f64_product(tail)
    for fmt, tail in (('s4', ''), ('u4', '.satfinite'), ('s4', '.satfinite')):
        integer_product('m8n8k32', fmt, 'row.col', tail)
    for operation in ('and', 'xor'):
        bit_product(operation)


if __name__ == '__main__':
    main()

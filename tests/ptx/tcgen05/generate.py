#!/usr/bin/env python3
"""Writes the one-instruction files of tcgen05 beside itself. Expected bits come from the PTX manual's layout formulas,
written out here a second time, and from exact sums; nothing of the emulator is used. Deterministic: run it again after
a change and review the difference.

Every file is a kernel of 128 threads per CTA: allocate Tensor Memory, fill shared or Tensor Memory from the inputs, run
the instruction, load the result with tcgen05.ld.32x32b (thread t of warp w: lane 32 w + t, register r: column r)."""
import os
import random
import struct
from fractions import Fraction

HERE = os.path.dirname(os.path.abspath(__file__))
MASK = 0xFFFFFFFF


def f32_bits(value):
    bits = struct.unpack("<I", struct.pack("<f", float(value)))[0]
    assert struct.unpack("<f", struct.pack("<I", bits))[0] == value, "not exact in f32"
    return bits


def f16_bits(value):
    return struct.unpack("<H", struct.pack("<e", float(value)))[0]


def narrow_codes(exponent_bits, fraction_bits, bias):
    """value -> code of a small floating-point format."""
    codes = {}
    for code in range(1 << (1 + exponent_bits + fraction_bits)):
        fraction = code & ((1 << fraction_bits) - 1)
        exponent = code >> fraction_bits & ((1 << exponent_bits) - 1)
        sign = -1 if code >> (exponent_bits + fraction_bits) else 1
        if exponent == 0:
            value = Fraction(fraction, 1 << fraction_bits) * Fraction(2) ** (1 - bias)
        else:
            value = (1 + Fraction(fraction, 1 << fraction_bits)) * Fraction(2) ** (exponent - bias)
        codes.setdefault(sign * value, code)
    return codes


NARROW = {"e4m3": narrow_codes(4, 3, 7), "e5m2": narrow_codes(5, 2, 15), "e2m3": narrow_codes(2, 3, 1),
          "e3m2": narrow_codes(3, 2, 3), "e2m1": narrow_codes(2, 1, 1)}
# Sums of products of these and of scale factors have far fewer bits than a float: exact, and fast.
MAGNITUDES = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
WIDTH = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "e2m3": 6, "e3m2": 6, "e2m1": 4}


def random_value(fmt, rng):
    if fmt == "s8":
        return rng.randrange(-128, 128)
    if fmt == "u8":
        return rng.randrange(256)
    return rng.choice(MAGNITUDES) * rng.choice([1, -1]) + 0.0  # no -0


def encode(fmt, value):
    if fmt in ("s8", "u8"):
        return value & 255
    if fmt == "f16":
        return f16_bits(value)
    if fmt == "bf16":
        return f32_bits(value) >> 16
    if fmt == "tf32":
        return f32_bits(value)
    return NARROW[fmt][value]


def container_bits(fmt, packed_fp4):
    return 4 if packed_fp4 else max(WIDTH[fmt], 8)


def chunk_bytes(fmt, values, packed_fp4):
    """Neighbouring elements as 16 bytes of shared memory; 4- and 6-bit ones of the 8-bit kinds are packed and padded."""
    width = WIDTH[fmt]
    bits = 0
    for i, value in enumerate(values):
        bits |= encode(fmt, value) << (width * i)
    assert packed_fp4 or width * len(values) <= 128
    return bits.to_bytes(16, "little")


# Shared-memory layouts: name -> (descriptor code, span in bytes, XOR on the address).
LAYOUTS = {
    "none": (0, 16, lambda a: a),
    "128B_32B": (1, 128, lambda a: a ^ (a >> 7 & 3) << 5),
    "128B": (2, 128, lambda a: a ^ (a >> 7 & 7) << 4),
    "64B": (4, 64, lambda a: a ^ (a >> 7 & 3) << 4),
    "32B": (6, 32, lambda a: a ^ (a >> 7 & 1) << 4),
}


class Tile:
    """A matrix operand in shared memory: its descriptor and its 16-byte chunks."""

    def __init__(self, fmt, values, major, layout, start, packed_fp4=False):
        # values[index][k]; start is an absolute shared address, a multiple of 1024
        code, span, xor = LAYOUTS[layout]
        count, k_extent = len(values), len(values[0])
        bits = container_bits(fmt, packed_fp4)
        per = 128 // bits
        self.chunks = {}
        group = 4 if layout == "128B_32B" else 8
        if major == "k":
            leading, stride = (count * 16, 128) if layout == "none" else (16, 8 * span)
            for r in range(count):
                for c in range(k_extent * bits // 128):
                    if layout == "none":
                        address = start + r // 8 * stride + r % 8 * 16 + c * leading
                    else:
                        address = start + r // 8 * stride + r % 8 * span + c * 16
                    self.chunks[xor(address)] = chunk_bytes(fmt, values[r][c * per:(c + 1) * per], packed_fp4)
        else:
            chunks = count // per
            if layout == "none":
                stride, leading = 128, chunks * 128
            else:
                stride, leading = group * span, (k_extent + group - 1) // group * group * span
            for k in range(k_extent):
                for c in range(chunks):
                    if layout == "none":
                        address = start + c * stride + k // 8 * leading + k % 8 * 16
                    else:
                        address = start + c * 16 // span * leading + c * 16 % span + k // group * stride + k % group * span
                    values_here = [values[c * per + i][k] for i in range(per)]
                    self.chunks[xor(address)] = chunk_bytes(fmt, values_here, packed_fp4)
        self.descriptor = (start >> 4 & 0x3FFF) | (leading >> 4 & 0x3FFF) << 16 | (stride >> 4 & 0x3FFF) << 32 | \
            1 << 46 | code << 61
        self.end = max(self.chunks) + 16


SHARED = 0x400  # of the array `scratch`: the first byte that a CTA owns


class Case:
    def __init__(self, name, title, columns=128, group=1, smem=4096):
        self.name, self.title, self.group, self.smem, self.columns = name, title, group, smem, columns
        self.target = "sm_100a"
        self.ops, self.regs, self.inputs, self.outputs = [], [], [], []
        self.hazard = ""
        self.rows = [[] for _ in range(128 * group)]
        self.results = [[] for _ in range(128 * group)]
        self.regs += [".pred pw, pe, pt;", ".b32 ta, tq, w, l, sa, bar, par;"]
        self.op("mov.u32 w, %tid.x;", "and.b32 l, w, 31;", "shr.u32 w, w, 5;", "setp.eq.u32 pw, w, 0;",
                "mov.u32 sa, scratch;", f"add.u32 bar, sa, {smem - 16};", "setp.eq.u32 pe, l, 0;",
                "and.pred pe, pe, pw;", "@pe mbarrier.init.shared::cta.b64 [bar], 1;")
        self.alloc = f"@pw tcgen05.alloc.cta_group::{group}.sync.aligned.shared::cta.b32 [bar+8], {columns};"
        self.op(self.alloc)
        self.sync()
        self.op("ld.shared.b32 ta, [bar+8];", "shl.b32 tq, w, 21;", "add.u32 tq, tq, ta;")

    def op(self, *lines):
        self.ops += lines

    def reg(self, line):
        self.regs.append(line)

    def sync(self):
        if self.group == 1:
            self.op("bar.sync 0;")
        else:
            self.op("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")

    def add_input(self, name, kind, values):
        self.inputs.append((name, kind))
        for row, value in zip(self.rows, values):
            row.append(value)

    def add_output(self, name, kind, values):
        self.outputs.append((name, kind))
        for row, value in zip(self.results, values):
            row.append(value)

    def fill_shared(self, tiles_of_cta):
        """tiles_of_cta[c]: tiles in CTA c's shared memory. Every thread stores the same number of chunks."""
        lists = []
        for tiles in tiles_of_cta:
            chunks = [item for tile in tiles for item in sorted(tile.chunks.items())]
            lists.append(chunks)
        per_thread = max((len(chunks) + 127) // 128 for chunks in lists)
        self.reg(".b32 at;")
        for i in range(per_thread):
            offsets, low, high = [], [], []
            for chunks in lists:
                for t in range(128):
                    index = i * 128 + t
                    # What is left over goes to a place of its own behind the tiles.
                    address, data = chunks[index] if index < len(chunks) else (SHARED + self.smem - 32, bytes(16))
                    offsets.append(address - SHARED)
                    low.append(int.from_bytes(data[:8], "little"))
                    high.append(int.from_bytes(data[8:], "little"))
            self.add_input(f"o{i}", "b32", offsets)
            self.add_input(f"x{i}", "b64", low)
            self.add_input(f"y{i}", "b64", high)
            self.op(f"add.u32 at, sa, o{i};", f"st.shared.v2.b64 [at], {{x{i}, y{i}}};")
        self.op("fence.proxy.async.shared::cta;")
        self.sync()

    def store_columns(self, name, column, words):
        """words[row]: a 32-bit word for lane row, at a column; by tcgen05.st.32x32b."""
        self.add_input(name, "b32", words)
        self.reg(f".b32 t{name};")
        self.op(f"add.u32 t{name}, tq, {column};", f"tcgen05.st.sync.aligned.32x32b.x1.b32 [t{name}], {{{name}}};",
                "tcgen05.wait::st.sync.aligned;")

    def issue(self, *lines):
        """Runs the lines in one thread (of the even CTA), commits and waits."""
        self.op("tcgen05.fence::before_thread_sync;")
        self.sync()
        self.op("tcgen05.fence::after_thread_sync;")
        if self.group == 1:
            self.op("mov.pred pt, pe;")
            commit = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];"
        else:
            self.reg(".pred pr;")
            self.reg(".b32 rank;")
            self.reg(".b16 both;")
            self.op("mov.u32 rank, %cluster_ctarank;", "setp.eq.u32 pr, rank, 0;", "and.pred pt, pe, pr;",
                    "mov.b16 both, 3;")
            commit = ("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], "
                      "both;")
        for line in lines:
            self.op("@pt " + line)
        self.op("@pt " + commit, "mov.b32 par, 0;", "WAIT: mbarrier.try_wait.parity.shared::cta.b64 pt, [bar], par;",
                "@!pt bra WAIT;", "tcgen05.fence::after_thread_sync;")

    def load_checksum(self, column, expected, name="sum", mask=None):
        """expected[row]: the words of lane row from `column` on; their weighted sum, and the first and last."""
        count = len(expected[0])
        self.reg(f".b32 a{name}, q{name}<{count}>;")
        registers = ", ".join(f"q{name}{i}" for i in range(count))
        self.op(f"add.u32 a{name}, tq, {column};",
                f"tcgen05.ld.sync.aligned.32x32b.x{count}.b32 {{{registers}}}, [a{name}];",
                "tcgen05.wait::ld.sync.aligned;")
        if mask is not None:
            for i in range(count):
                self.op(f"and.b32 q{name}{i}, q{name}{i}, {mask};")
        self.op(f"mov.b32 {name}, q{name}0;")
        for i in range(1, count):
            self.op(f"mad.lo.u32 {name}, q{name}{i}, {2 * i + 1}, {name};")
        self.op(f"mov.b32 {name}f, q{name}0;", f"mov.b32 {name}l, q{name}{count - 1};")
        self.add_output(name, "b32", [sum(v * (2 * i + 1) for i, v in enumerate(row)) & MASK for row in expected])
        self.add_output(name + "f", "b32", [row[0] for row in expected])
        self.add_output(name + "l", "b32", [row[-1] for row in expected])

    def write(self, folder):
        self.op("tcgen05.fence::before_thread_sync;")
        self.sync()
        self.op("tcgen05.fence::after_thread_sync;",
                f"@pw tcgen05.dealloc.cta_group::{self.group}.sync.aligned.b32 ta, {self.columns};",
                f"@pw tcgen05.relinquish_alloc_permit.cta_group::{self.group}.sync.aligned;")
        text = f"# {self.title}\ntarget {self.target}\nsmem {self.smem}\n"
        if self.group == 2:
            text += "cluster 2\n"
        if self.hazard:
            text += f"hazard {self.hazard}\n"
        text += "".join(f"reg {r}\n" for r in self.regs) + "".join(f"op {o}\n" for o in self.ops)
        text += "".join(f"out {n} {k}\n" for n, k in self.outputs) + "".join(f"in {n} {k}\n" for n, k in self.inputs)

        def number(value):
            return str(value) if value < 10 else hex(value)

        for inputs, outputs in zip(self.rows, self.results):
            text += "case " + " ".join(map(number, inputs)) + " -> " + " ".join(map(number, outputs)) + "\n"
        path = os.path.join(HERE, folder)
        os.makedirs(path, exist_ok=True)
        with open(os.path.join(path, self.name + ".case"), "w") as file:
            file.write(text)


# ---- tcgen05.ld and .st -------------------------------------------------------------------------------------------
# Register r of thread t: (lane, column), PTX ISA, "Matrix fragments for shape ...".
SHAPES = {
    "32x32b": (1, lambda t, r: (t, r)),
    "16x64b": (1, lambda t, r: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * r)),
    "16x128b": (2, lambda t, r: (t // 4 + 8 * (r % 2), t % 4 + 4 * (r // 2))),
    "16x256b": (4, lambda t, r: (t // 4 + 8 * (r // 2 % 2), 2 * (t % 4) + r % 2 + 8 * (r // 4))),
}


def word_of(seed, r):
    return (seed * (2 * r + 1) + 0x9E3779B9 * r) & MASK


def transfer_case(shape, n, is_store, packs=False, lane16=False):
    """A store of the shape read back by 32x32b, or the other way round. Register r of a thread: a function of its
    seed."""
    per, place = SHAPES[shape]
    count = per * n
    whole = shape == "32x32b"
    width = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8}[shape] * n * (2 if packs else 1)
    name = f"{shape}_x{n}" + ("_16b" if packs else "") + ("_upper" if lane16 else "")
    verb = "st" if is_store else "ld"
    case = Case(name, f"tcgen05.{verb}.{shape}.x{n}: where every register goes", columns=max(32, 1 << (width - 1).bit_length()))
    rng = random.Random(name + verb)
    seeds = [rng.randrange(1 << 32) for _ in range(128)]
    words = [{} for _ in range(128)]  # lane -> column -> word
    extra = f", {0}" if False else ""
    lane_offset = 16 if lane16 else 0
    case.add_input("s", "b32", seeds)
    qualifier = (".unpack::16b" if is_store else ".pack::16b") if packs else ""
    address = "tq"
    if lane16:
        case.reg(".b32 tu;")
        case.op("add.u32 tu, tq, 0x100000;")
        address = "tu"
    if is_store:
        # Every word first: what the store leaves alone must be known.
        case.reg(f".b32 z<{width}>;")
        for r in range(width):
            case.op(f"mov.b32 z{r}, {r};")
        case.op(f"tcgen05.st.sync.aligned.32x32b.x{width}.b32 [tq], {{{', '.join(f'z{r}' for r in range(width))}}};",
                "tcgen05.wait::st.sync.aligned;")
        case.reg(f".b32 v<{count}>;")
        for r in range(count):
            case.op(f"mad.lo.u32 v{r}, s, {2 * r + 1}, {0x9E3779B9 * r & MASK};")
        case.op(f"tcgen05.st.sync.aligned.{shape}.x{n}{qualifier}.b32 [{address}], "
                f"{{{', '.join(f'v{r}' for r in range(count))}}};", "tcgen05.wait::st.sync.aligned;")
        for lane in range(128):
            words[lane] = {c: c for c in range(width)}
        for warp in range(4):
            for t in range(32):
                for r in range(count):
                    lane, column = place(t, r)
                    lane += 32 * warp + lane_offset
                    value = word_of(seeds[32 * warp + t], r)
                    if packs:
                        words[lane][2 * column] = value & 0xFFFF
                        words[lane][2 * column + 1] = value >> 16
                    else:
                        words[lane][column] = value
        case.load_checksum(0, [[words[lane][c] for c in range(width)] for lane in range(128)])
    else:
        case.reg(f".b32 v<{width}>;")
        for r in range(width):
            case.op(f"mad.lo.u32 v{r}, s, {2 * r + 1}, {0x9E3779B9 * r & MASK};")
        case.op(f"tcgen05.st.sync.aligned.32x32b.x{width}.b32 [tq], {{{', '.join(f'v{r}' for r in range(width))}}};",
                "tcgen05.wait::st.sync.aligned;")
        case.reg(f".b32 q<{count}>;")
        case.op(f"tcgen05.ld.sync.aligned.{shape}.x{n}{qualifier}.b32 {{{', '.join(f'q{r}' for r in range(count))}}}, "
                f"[{address}];", "tcgen05.wait::ld.sync.aligned;", "mov.b32 sum, q0;")
        for r in range(1, count):
            case.op(f"mad.lo.u32 sum, q{r}, {2 * r + 1}, sum;")
        sums, lasts = [], []
        for warp in range(4):
            for t in range(32):
                values = []
                for r in range(count):
                    lane, column = place(t, r)
                    seed = seeds[lane + 32 * warp + lane_offset]
                    if packs:
                        values.append(word_of(seed, 2 * column) & 0xFFFF | (word_of(seed, 2 * column + 1) & 0xFFFF) << 16)
                    else:
                        values.append(word_of(seed, column))
                sums.append(sum(v * (2 * i + 1) for i, v in enumerate(values)) & MASK)
                lasts.append(values[-1])
        case.op(f"mov.b32 last, q{count - 1};")
        case.add_output("sum", "b32", sums)
        case.add_output("last", "b32", lasts)
    del whole, extra
    case.write(verb)


def split_case(is_store):
    """16x32bx2: threads 0 to 15 at the address, 16 to 31 immHalfSplitoff columns further, both lanes 0 to 15."""
    verb = "st" if is_store else "ld"
    case = Case("16x32bx2_x4", f"tcgen05.{verb}.16x32bx2.x4 with a second half 8 columns further", columns=32)
    rng = random.Random("split" + verb)
    seeds = [rng.randrange(1 << 32) for _ in range(128)]
    case.add_input("s", "b32", seeds)
    case.reg(".b32 v<16>;")
    for r in range(16):
        case.op(f"mad.lo.u32 v{r}, s, {2 * r + 1}, {0x9E3779B9 * r & MASK};")
    case.op(f"tcgen05.st.sync.aligned.32x32b.x16.b32 [tq], {{{', '.join(f'v{r}' for r in range(16))}}};",
            "tcgen05.wait::st.sync.aligned;")
    words = [[word_of(seeds[lane], c) for c in range(16)] for lane in range(128)]
    if is_store:
        case.reg(".b32 n<4>;")
        for r in range(4):
            case.op(f"xor.b32 n{r}, v{r}, 0x5A5A5A5A;")
        case.op("tcgen05.st.sync.aligned.16x32bx2.x4.b32 [tq], 8, {n0, n1, n2, n3};", "tcgen05.wait::st.sync.aligned;")
        for warp in range(4):
            for t in range(32):
                for r in range(4):
                    value = word_of(seeds[32 * warp + t], r) ^ 0x5A5A5A5A
                    words[32 * warp + t % 16][r + (8 if t >= 16 else 0)] = value
        case.load_checksum(0, words)
    else:
        case.reg(".b32 q<4>;")
        case.op("tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {q0, q1, q2, q3}, [tq], 8;", "tcgen05.wait::ld.sync.aligned;",
                "mov.b32 first, q0;", "mov.b32 last, q3;")
        lane = [32 * (i // 32) + i % 16 for i in range(128)]
        case.add_output("first", "b32", [words[lane[i]][8 * (i % 32 // 16)] for i in range(128)])
        case.add_output("last", "b32", [words[lane[i]][8 * (i % 32 // 16) + 3] for i in range(128)])
    case.write(verb)


# ---- tcgen05.mma --------------------------------------------------------------------------------------------------
TYPE_CODES = {"f16": {"f16": 0, "bf16": 1}, "tf32": {"tf32": 2}, "i8": {"u8": 0, "s8": 1},
              "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}}
TYPE_CODES["mxf8f6f4"] = TYPE_CODES["f8f6f4"]
TYPE_CODES["mxf4"] = TYPE_CODES["mxf4nvf4"] = {"e2m1": 1}
K_OF = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}
SCALE_VEC = {"1X": 1, "2X": 2, "4X": 4}


def plain_descriptor(kind, a, b, result, m, n, a_major, b_major, negate=0, saturate=0):
    return saturate << 3 | {"f16": 0, "f32": 1, "s32": 2}[result] << 4 | TYPE_CODES[kind][a] << 7 | \
        TYPE_CODES[kind][b] << 10 | negate << 13 | (a_major == "mn") << 15 | (b_major == "mn") << 16 | n >> 3 << 17 | \
        m >> 4 << 24


def scaled_descriptor(kind, a, b, m, n, scale, id_a, id_b):
    return id_b << 4 | TYPE_CODES[kind][a] << 7 | TYPE_CODES[kind][b] << 10 | n >> 3 << 17 | (scale == "ue8m0") << 23 | \
        m >> 7 << 27 | id_a << 29


def d_place(m, n, m_total, n_total, group, ws=False):
    """(CTA, lane, column) of D[m][n]. PTX ISA, "Data Path Layout Organization"."""
    if group == 2 and m_total == 256:
        return m // 128, m % 128, n
    if group == 2:
        return m // 64, m % 64 + 64 * (n // (n_total // 2)), n % (n_total // 2)
    if m_total == 128:
        return 0, m, n
    if not ws:
        return 0, m % 16 + 32 * (m // 16), n
    parts = 128 // m_total
    return 0, m + m_total * (n // (n_total // parts)), n % (n_total // parts)


UE4M3 = {code: float(value) for value, code in NARROW["e4m3"].items() if value >= 0}


def scale_value(fmt, code):
    return 2.0 ** (code - 127) if fmt == "ue8m0" else UE4M3[code]


def mma_case(name, title, kind, a="", b="", result="f32", m=128, n=16, group=1, a_layout="128B", b_layout="128B",
             a_major="k", b_major="k", a_tmem=False, accumulate=False, scale_d=None, disabled=False, negate=0, ws=False,
             scale=None, vec=None, spelling="", ids=(0, 0), by_copy=False, collector="", saturate=0, products=1):
    """products: of how many matrices A in Tensor Memory, one for each part of D's columns (parts, below)."""
    rng = random.Random(name)
    k = K_OF[kind]
    fp4 = kind in ("mxf4", "mxf4nvf4")
    # B of .ws with M = 128 takes all of the first 24 KiB.
    case = Case(name, title, columns=256, group=group, smem=25600 if ws and m == 128 else 24576)
    if products > 1:
        case.hazard = "tmem-replicas-differ"
    va = [[random_value(a, rng) for _ in range(k)] for _ in range(m)]
    of_parts = [va] + [[[random_value(a, rng) for _ in range(k)] for _ in range(m)] for _ in range(products - 1)]
    vb = [[random_value(b, rng) for _ in range(k)] for _ in range(n)]
    rows, share = m // group, n // group
    tiles = []
    for cta in range(group):
        here = []
        start = SHARED
        if not a_tmem:
            tile_a = Tile(a, va[cta * rows:(cta + 1) * rows], a_major, a_layout, start, fp4)
            here.append(tile_a)
            start = (tile_a.end + 1023) // 1024 * 1024
        tile_b = Tile(b, vb[cta * share:(cta + 1) * share], b_major, b_layout, start, fp4)
        here.append(tile_b)
        tiles.append(here)
    # Scale factors: code[row or column][block].
    codes_a = codes_b = None
    if scale is not None:
        vec_n = SCALE_VEC[vec]
        pick = [124, 126, 127, 128, 129] if scale == "ue8m0" else [0x30, 0x34, 0x38, 0x3C, 0x40, 0x44]
        codes_a = [[rng.choice(pick) for _ in range(vec_n)] for _ in range(m)]
        codes_b = [[rng.choice(pick) for _ in range(vec_n)] for _ in range(n)]

        def cells(codes, first, identity):
            """128 lanes x 4 columns: the cell of index i is lane i % 32 of column i // 32, four times."""
            out = [[rng.randrange(1 << 32) for _ in range(4)] for _ in range(32)]
            for i in range(128):
                row = codes[first + i] if first + i < len(codes) else [0x38] * vec_n
                word = out[i % 32][i // 32]
                for v, code in enumerate(row):
                    shift = 8 * (identity + v)
                    word = word & ~(255 << shift) & MASK | code << shift
                out[i % 32][i // 32] = word
            return out

        cells_a = [cells(codes_a, cta * rows, ids[0]) for cta in range(group)]
        cells_b = [cells(codes_b, 0, ids[1]) for _ in range(group)]
    if by_copy:
        # 32 rows of 16 bytes, no swizzle: 512 bytes, then tcgen05.cp.32x128b.warpx4.
        for cta in range(group):
            for which, table in enumerate((cells_a[cta], cells_b[cta])):
                start = SHARED + 20480 + 512 * which
                tile = Tile.__new__(Tile)
                tile.chunks = {start + 16 * r: struct.pack("<4I", *table[r]) for r in range(32)}
                tiles[cta].append(tile)
    case.fill_shared(tiles)
    # D before, A and scales in Tensor Memory.
    before = [[rng.choice([-3, -1, 0, 2, 5]) for _ in range(n)] for _ in range(m)]

    def cell_words(matrix_word, columns):
        words = [[0] * columns for _ in range(128 * group)]
        for i in range(m):
            for j in range(n):
                cta, lane, column = d_place(i, j, m, n, group, ws)
                words[cta * 128 + lane][column] = matrix_word(i, j)
        return words

    def bits(value):
        return {"f32": f32_bits, "s32": lambda v: v & MASK, "f16": f16_bits}[result](value)

    parts = {(1, 64, True): 2, (1, 32, True): 4, (2, 128, False): 2}.get((group, m, ws), 1)
    d_columns = n // parts
    if accumulate or disabled:
        words = cell_words(lambda i, j: bits(before[i][j]), d_columns)
        for column in range(d_columns):
            case.store_columns(f"d{column}", column, [row[column] for row in words])
    else:
        words = [[MASK] * d_columns for _ in range(128 * group)]
    if a_tmem:
        # K runs along the columns, from column 64 on; rows as D's, in all lanes that hold columns of a row of D.
        width = container_bits(a, fp4)
        for column in range(8):
            lanes = [0] * (128 * group)
            for i in range(m):
                for part in range(parts):
                    word = 0
                    for e in range(32 // width):
                        word |= encode(a, of_parts[part % products][i][column * (32 // width) + e]) << (width * e)
                    cta, lane, _ = d_place(i, part * d_columns, m, n, group, ws)
                    lanes[cta * 128 + lane] = word
            case.store_columns(f"a{column}", 64 + column, lanes)
    lines = []
    if scale is not None and not by_copy:
        for which, tables in enumerate((cells_a, cells_b)):
            for column in range(4):
                case.store_columns(f"{'ef'[which]}{column}", 80 + 4 * which + column,
                                   [tables[i // 128][i % 32][column] for i in range(128 * group)])
    case.reg(".b64 da, db, dc;")
    case.reg(".b32 di, ts, tu, tp;")
    case.reg(".pred pi;")
    case.op("add.u32 tp, ta, 64;", "add.u32 ts, ta, 80;", "add.u32 tu, ta, 84;")
    tile_b = tiles[0][0 if a_tmem else 1]
    case.op(f"mov.b64 da, {0 if a_tmem else tiles[0][0].descriptor};", f"mov.b64 db, {tile_b.descriptor};")
    case.op(f"setp.ne.u32 pi, {1 if accumulate else 0}, 0;")
    if by_copy:
        for which, name_ in enumerate(("ts", "tu")):
            start = SHARED + 20480 + 512 * which
            descriptor = start >> 4 | (128 >> 4) << 32 | 1 << 46
            lines.append(f"mov.b64 dc, {descriptor};")
            lines.append(f"tcgen05.cp.cta_group::{group}.32x128b.warpx4 [{name_}], dc;")
    operand_a = "[tp]" if a_tmem else "da"
    if scale is not None:
        case.op(f"mov.b32 di, {scaled_descriptor(kind, a, b, m, n, scale, *ids)};")
        lines.append(f"tcgen05.mma.cta_group::{group}.kind::{kind}.block_scale{spelling}{collector} [ta], {operand_a}, db, "
                     "di, [ts], [tu], pi;")
    else:
        case.op(f"mov.b32 di, "
                f"{plain_descriptor(kind, a, b, result, m, n, a_major, b_major, negate, saturate)};")
        form = "mma.ws" if ws else "mma"
        middle = ""
        if disabled:
            masks = ["0x0000FFFF", "0x80000001", "0", "0xF0F0F0F0"]
            middle = "{" + ", ".join((masks * group)[:4 * group]) + "}, "
            case.reg(f".b32 dm<{4 * group}>;")
            for i in range(4 * group):
                case.op(f"mov.b32 dm{i}, {masks[i % 4]};")
            middle = "{" + ", ".join(f"dm{i}" for i in range(4 * group)) + "}, "
        tail = "" if scale_d is None else f", {scale_d}"
        lines.append(f"tcgen05.{form}.cta_group::{group}.kind::{kind}{collector} [ta], {operand_a}, db, di, {middle}pi{tail};")
    case.issue(*lines)

    def product(i, j):
        total = 0.0
        for x in range(k):
            term = of_parts[j // d_columns % products][i][x] * vb[j][x]
            if scale is not None:
                block = x * SCALE_VEC[vec] // k
                term *= scale_value(scale, codes_a[i][block]) * scale_value(scale, codes_b[j][block])
            total += term
        if negate & 1:
            total = -total
        if negate & 2:
            total = -total
        if accumulate:
            total += before[i][j] / (1 << (scale_d or 0))
        return bits(int(total) if result == "s32" else total + 0.0)

    masks = [0x0000FFFF, 0x80000001, 0, 0xF0F0F0F0]
    for i in range(m):
        for j in range(n):
            cta, lane, column = d_place(i, j, m, n, group, ws)
            if disabled and masks[lane // 32] >> lane % 32 & 1:
                continue
            words[cta * 128 + lane][column] = product(i, j)
    # Lanes that D does not cover (M = 64) are not read: their words are unknown.
    covered = [any(word != MASK for word in row) for row in words]
    for row, is_covered in zip(words, covered):
        if not is_covered:
            row[:] = [MASK] * d_columns
    if not all(covered):
        # Only 16 lanes of every quarter: written first, so that the load reads nothing unknown.
        case_ops_before = [f"tcgen05.st.sync.aligned.32x32b.x1.b32 [tq+{c}], {{fill}};" for c in range(d_columns)]
        case.reg(".b32 fill;")
        position = next(i for i, o in enumerate(case.ops) if o.startswith("add.u32 tq"))
        case.ops[position + 1:position + 1] = ["mov.b32 fill, 0xFFFFFFFF;"] + case_ops_before + \
            ["tcgen05.wait::st.sync.aligned;"]
    case.load_checksum(0, words)
    case.write("mma")


def reduce_case(operation, kind):
    """tcgen05.ld.red.32x32b: the smallest or largest of a lane's columns."""
    case = Case(f"{operation}_{kind}".replace(".", "_"), f"tcgen05.ld.red.{operation}.{kind}: over a lane's columns", columns=32)
    case.target = "sm_103a"
    rng = random.Random(operation + kind)
    count = 8
    if kind.startswith("f32"):
        rows = [[f32_bits(Fraction(rng.randrange(-4000, 4000), 8)) for _ in range(count)] for _ in range(128)]
    else:
        rows = [[rng.randrange(1 << 32) for _ in range(count)] for _ in range(128)]
    for c in range(count):
        case.store_columns(f"c{c}", c, [row[c] for row in rows])
    case.reg(f".b32 q<{count}>;")
    case.op(f"tcgen05.ld.red.sync.aligned.32x32b.x{count}.{operation} "
            f"{{{', '.join(f'q{c}' for c in range(count))}}}, red, [tq];", "tcgen05.wait::ld.sync.aligned;",
            f"mov.b32 last, q{count - 1};")
    choose = max if operation.startswith("max") else min

    def number(bits):
        if kind == "s32":
            return bits - (1 << 32) if bits >> 31 else bits
        if kind == "u32":
            return bits
        return struct.unpack("<f", struct.pack("<I", bits & (0x7FFFFFFF if "abs" in operation else MASK)))[0]

    results = []
    for row in rows:
        bits = choose(row, key=number)
        results.append(bits & 0x7FFFFFFF if "abs" in operation else bits)
    case.add_output("red", "b32", results)
    case.add_output("last", "b32", [row[-1] for row in rows])
    case.write("ld")


def copy_case(shape, multicast, group=1):
    """tcgen05.cp: rows of 16 or 32 bytes behind a K-major descriptor, to lanes."""
    rows = int(shape.split("x")[0])
    words = 8 if shape.endswith("256b") else 4
    name = shape + (multicast.replace("::", "_").replace(".", "_") if multicast else "") + (f"_cg{group}" if group > 1 else "")
    case = Case(name, f"tcgen05.cp.{shape}{multicast}: which lane every row reaches", columns=32, group=group, smem=8192)
    rng = random.Random(name)
    tiles, tables = [], []
    for _ in range(group):
        table = [[rng.randrange(1 << 32) for _ in range(words)] for _ in range(rows)]
        tile = Tile.__new__(Tile)
        # No swizzle: 8 rows of 16 bytes follow each other, groups of rows 128 bytes apart, then the second 16 bytes.
        tile.chunks = {SHARED + r * 16 + c * max(rows, 8) * 16: struct.pack("<4I", *table[r][4 * c:4 * c + 4])
                       for r in range(rows) for c in range(words // 4)}
        tiles.append([tile])
        tables.append(table)
    case.fill_shared(tiles)
    for column in range(words):
        case.store_columns(f"z{column}", column, [column] * (128 * group))
    case.reg(".b64 dc;")
    descriptor = SHARED >> 4 | (max(rows, 8) * 16 >> 4) << 16 | (128 >> 4) << 32 | 1 << 46
    case.op(f"mov.b64 dc, {descriptor};")
    case.issue(f"tcgen05.cp.cta_group::{group}.{shape}{multicast} [ta], dc;")
    expected = []
    for cta in range(group):
        table = tables[cta]
        for lane in range(128):
            if rows == 128:
                row = table[lane]
            elif rows == 32:
                row = table[lane % 32]
            elif rows == 64 and "02_13" in multicast:
                row = table[lane % 64]
            elif rows == 64:
                row = table[lane % 32 + 32 * (lane // 64)]
            else:
                row = table[lane // 32] if lane % 32 == 0 else list(range(words))
            expected.append(row)
    case.load_checksum(0, expected)
    case.write("cp")


def main():
    for shape, sizes in {"32x32b": [1, 8, 64], "16x64b": [1, 4, 32], "16x128b": [1, 4, 16], "16x256b": [1, 2, 8]}.items():
        for n in sizes:
            for is_store in (True, False):
                transfer_case(shape, n, is_store)
    for is_store in (True, False):
        transfer_case("16x256b", 1, is_store, lane16=True)
        transfer_case("16x64b", 2, is_store, packs=True)
        transfer_case("32x32b", 4, is_store, packs=True)
        split_case(is_store)
    for layout in ("none", "32B", "64B", "128B"):
        mma_case(f"f16_{layout}", f"bf16, K-major, layout {layout}", "f16", "bf16", "bf16", m=64, a_layout=layout,
                 b_layout=layout)
        mma_case(f"f16_mn_{layout}", f"f16, both operands MN-major, layout {layout}", "f16", "f16", "f16", m=64, n=64,
                 a_layout=layout, b_layout=layout, a_major="mn", b_major="mn")
    mma_case("f16_m128_d", "M = 128, D = A B + D", "f16", "bf16", "bf16", accumulate=True)
    mma_case("f16_scale_d", "D = A B + D / 8", "f16", "f16", "f16", accumulate=True, scale_d=3)
    mma_case("f16_lanes", "lanes that are not written", "f16", "f16", "f16", disabled=True)
    mma_case("f16_half", "f16 accumulator: low half of every word", "f16", "f16", "f16", result="f16")
    mma_case("f16_negate", "negated A, a collector hint", "f16", "bf16", "bf16", negate=1,
             collector=".collector::a::fill")
    mma_case("f16_tmem", "A from Tensor Memory, M = 128", "f16", "bf16", "bf16", a_tmem=True)
    mma_case("f16_tmem_m64", "A from Tensor Memory, M = 64", "f16", "bf16", "bf16", m=64, a_tmem=True)
    mma_case("tf32", "tf32, K-major", "tf32", "tf32", "tf32", m=64)
    mma_case("tf32_mn", "tf32, MN-major: 128B with 32-byte atoms", "tf32", "tf32", "tf32", m=64, n=32, a_major="mn",
             b_major="mn", a_layout="128B_32B", b_layout="128B_32B")
    mma_case("tf32_tmem", "tf32, A from Tensor Memory", "tf32", "tf32", "tf32", a_tmem=True)
    for a, b in (("e4m3", "e5m2"), ("e2m3", "e3m2"), ("e2m1", "e4m3")):
        mma_case(f"f8f6f4_{a}_{b}", f"{a} times {b}", "f8f6f4", a, b, m=64)
    mma_case("f8f6f4_mn", "e4m3, MN-major A", "f8f6f4", "e4m3", "e4m3", m=64, a_major="mn", a_layout="64B")
    mma_case("f8f6f4_tmem", "e5m2 from Tensor Memory", "f8f6f4", "e5m2", "e4m3", a_tmem=True)
    mma_case("i8", "s8 times u8", "i8", "s8", "u8", result="s32", m=64, accumulate=True)
    mma_case("i8_tmem", "u8 from Tensor Memory", "i8", "u8", "s8", result="s32", a_tmem=True)
    mma_case("mxf8f6f4", "scales by tcgen05.st, ids 0 and 3", "mxf8f6f4", "e4m3", "e2m1", scale="ue8m0", vec="1X",
             ids=(0, 3))
    mma_case("mxf8f6f4_cp", "scales by tcgen05.cp, ids 2 and 1, block32", "mxf8f6f4", "e5m2", "e3m2", scale="ue8m0",
             vec="1X", spelling=".block32", ids=(2, 1), by_copy=True)
    mma_case("mxf4", "block 32, ids 2 and 0", "mxf4", "e2m1", "e2m1", scale="ue8m0", vec="2X",
             spelling=".scale_vec::2X", ids=(2, 0))
    mma_case("mxf4nvf4_2x", "ue8m0, block 32, scales by cp", "mxf4nvf4", "e2m1", "e2m1", scale="ue8m0", vec="2X",
             spelling=".block32", ids=(0, 2), by_copy=True)
    mma_case("mxf4nvf4_4x", "ue4m3, block 16", "mxf4nvf4", "e2m1", "e2m1", scale="ue4m3", vec="4X",
             spelling=".scale_vec::4X", by_copy=True)
    mma_case("mxf4nvf4_4x_tmem", "ue4m3, block 16, A from Tensor Memory, D = A B + D", "mxf4nvf4", "e2m1", "e2m1",
             scale="ue4m3", vec="4X", spelling=".block16", a_tmem=True, accumulate=True)
    mma_case("mxf4nvf4_4x_ue8m0", "ue8m0, block 16", "mxf4nvf4", "e2m1", "e2m1", scale="ue8m0", vec="4X",
             spelling=".block16")
    mma_case("cg2_m256", "two CTAs, M = 256", "f16", "bf16", "bf16", m=256, n=32, group=2)
    mma_case("cg2_m128", "two CTAs, M = 128: halves of N in two lane halves", "f16", "bf16", "bf16", m=128, n=32, group=2)
    mma_case("cg2_m256_tmem", "two CTAs, A from Tensor Memory, some lanes not written", "f16", "bf16", "bf16", m=256,
             n=32, group=2, a_tmem=True, disabled=True)
    mma_case("cg2_m128_tmem", "two CTAs, M = 128, A from Tensor Memory, repeated in the upper lanes", "f16", "f16", "f16",
             m=128, n=32, group=2, a_tmem=True, accumulate=True)
    mma_case("cg2_nvf4", "two CTAs, block-scaled, scales by cp", "mxf4nvf4", "e2m1", "e2m1", m=256, n=32, group=2,
             scale="ue4m3", vec="4X", spelling=".scale_vec::4X", by_copy=True)
    mma_case("cg2_i8", "two CTAs, integers", "i8", "s8", "s8", result="s32", m=256, n=32, group=2)
    for m in (32, 64, 128):
        mma_case(f"ws_m{m}", f"weight stationary, M = {m}", "f16", "bf16", "bf16", m=m, n=64, ws=True,
                 collector=".collector::b0::discard")
    mma_case("cg2_m128_tmem_products", "two CTAs, M = 128: A in the upper lanes multiplies the second half of N", "f16",
             "f16", "f16", m=128, n=32, group=2, a_tmem=True, accumulate=True, products=2)
    mma_case("ws_m64_tmem", "weight stationary, M = 64, A from Tensor Memory in both halves", "f16", "bf16", "bf16", m=64,
             n=64, ws=True, a_tmem=True)
    mma_case("ws_m64_tmem_products", "weight stationary, M = 64, each half of A's lanes by its half of N", "f16", "bf16",
             "bf16", m=64, n=64, ws=True, a_tmem=True, accumulate=True, products=2)
    mma_case("ws_m32_tmem_products", "weight stationary, M = 32, each quarter by its quarter of N", "f16", "bf16", "bf16",
             m=32, n=64, ws=True, a_tmem=True, products=4)
    for shape, multicast in (("128x256b", ""), ("128x128b", ""), ("4x256b", ""), ("64x128b", ".warpx2::02_13"),
                             ("64x128b", ".warpx2::01_23"), ("32x128b", ".warpx4")):
        copy_case(shape, multicast)
    copy_case("128x128b", "", group=2)
    for operation, kind in (("min.f32", "f32"), ("max.abs.f32", "f32"), ("max.s32", "s32"), ("min.u32", "u32")):
        reduce_case(operation, kind)


if __name__ == "__main__":
    main()

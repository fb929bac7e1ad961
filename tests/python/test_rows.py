"""Row operators in the emulator against their formulas in NumPy, written from the formulas alone."""

import os

import ml_dtypes
import numpy
import pytest

import tessera


def normal(random, shape, dtype=numpy.float32):
    return random.standard_normal(shape).astype(dtype)


def rmsnorm(v, weight):
    return v / numpy.sqrt((v * v).mean(-1, keepdims=True) + 1e-6) * weight


def turned(v, positions, base=10000.0, halves=False, inverse=False):
    """Columns as complex numbers, each turned by position * base^(-2 i / d)."""
    count = v.shape[-1] // 2
    pairs = v[:, :count] + 1j * v[:, count:] if halves else v[:, ::2] + 1j * v[:, 1::2]
    angle = positions[:, None].astype(numpy.float64) * base ** (-numpy.arange(count) / count)
    pairs = pairs * numpy.exp(-1j * angle if inverse else 1j * angle)
    if halves:
        return numpy.concatenate((pairs.real, pairs.imag), -1)
    return numpy.stack((pairs.real, pairs.imag), -1).reshape(v.shape)


def close(found, expected, relative, absolute=1e-5):
    found = numpy.asarray(found).astype(numpy.float64)
    assert (numpy.abs(found - expected) <= relative * numpy.abs(expected) + absolute).all()


def test_residual_norm_and_8_bits(random):
    x, residual, weight = normal(random, (9, 512)), normal(random, (9, 512)), normal(random, 512)
    made = tessera.rows(x, "residual(store)+rmsnorm+e4m3", residual=residual, weight=weight, device="emulator")
    total = x.astype(numpy.float64) + residual
    close(made["residual_out"], total, 1e-6)
    blocks = rmsnorm(total, weight.astype(numpy.float64)).reshape(9, 4, 128)
    scales = numpy.maximum(numpy.abs(blocks).max(-1), 1e-4) / 448
    close(made["y_scales"], scales, 1e-5, 0)
    values = numpy.asarray(made["y"]).view(ml_dtypes.float8_e4m3fn).astype(numpy.float64).reshape(9, 4, 128)
    close(values * scales[..., None], blocks, 1 / 16, 1e-3)


@pytest.mark.parametrize("limit", [None, 1])
def test_swiglu(random, limit):
    x = normal(random, (5, 256))
    chain = f"gate(silu,limit={limit})+f32" if limit else "silu_mul+f32"
    gate, up = (half.astype(numpy.float64) for half in numpy.split(x, 2, axis=-1))
    if limit:
        gate, up = numpy.minimum(gate, limit), numpy.clip(up, -limit, limit)
    close(tessera.rows(x, chain, device="emulator")["y"], gate / (1 + numpy.exp(-gate)) * up, 1e-5)


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("inverse", [False, True])
def test_rope(random, halves, inverse):
    x = normal(random, (12, 128))
    positions = numpy.array([0, 1, 77, 131071], dtype=numpy.int32)
    options = ",".join(word for word, is_set in (("halves", halves), ("inverse", inverse), ("64..127", True)) if is_set)
    made = tessera.rows(x, f"rope({options})+f32", positions=positions, heads=3, device="emulator")
    expected = x.astype(numpy.float64)
    expected[:, 64:] = turned(expected[:, 64:], numpy.repeat(positions, 3), halves=halves, inverse=inverse)
    close(made["y"], expected, 0, 2e-5)


def yarn(columns, base, factor, trained, fast=32, slow=1):
    """YaRN, section 3.2: pairs that turn more than `fast` times in training stay, below `slow` they are interpolated, a ramp between."""
    frequency = base ** (-numpy.arange(0, columns, 2) / columns)

    def pair(turns):
        return columns * numpy.log(trained / (2 * numpy.pi * turns)) / (2 * numpy.log(base))

    low, high = max(numpy.floor(pair(fast)), 0), min(numpy.ceil(pair(slow)), columns - 1)
    ramp = numpy.clip((numpy.arange(columns // 2) - low) / (high - low), 0, 1)
    return frequency / factor * ramp + frequency * (1 - ramp)


def llama3(columns, base, factor, trained, low=1, high=4):
    """Llama 3.1: long waves / factor, short ones kept, smoothly between, as its own code says."""
    made = []
    for frequency in base ** (-numpy.arange(0, columns, 2) / columns):
        wave = 2 * numpy.pi / frequency
        smooth = (trained / wave - low) / (high - low)
        if wave < trained / high:
            made.append(frequency)
        elif wave > trained / low:
            made.append(frequency / factor)
        else:
            made.append((1 - smooth) * frequency / factor + smooth * frequency)
    return numpy.array(made)


def turned_by(v, positions, frequencies, magnitude=1.0):
    pairs = (v[:, ::2] + 1j * v[:, 1::2]) * magnitude * numpy.exp(1j * positions[:, None] * frequencies)
    return numpy.stack((pairs.real, pairs.imag), -1).reshape(v.shape)


@pytest.mark.parametrize(
    "options, frequencies, magnitude",
    [
        ("base=160000,yarn=16,trained=65536", yarn(64, 160000.0, 16, 65536), 1),  # base and factor of DeepSeek-V4's compressed entries
        ("yarn=40,trained=4096,magnitude=yarn", yarn(64, 10000.0, 40, 4096), 0.1 * numpy.log(40) + 1),
        ("yarn=4,trained=32768,low=2,high=48,magnitude=1.5", yarn(64, 10000.0, 4, 32768, 48, 2), 1.5),
        ("base=500000,llama3=8", llama3(64, 500000.0, 8, 8192), 1),
        ("base=500000,llama3=32,trained=4096,low=2,high=5", llama3(64, 500000.0, 32, 4096, 2, 5), 1),
        ("linear=4", 10000.0 ** (-numpy.arange(32) / 32) / 4, 1),
    ],
)
def test_stretched_rope(random, options, frequencies, magnitude):
    """Positions at which each pair's angle tells one scaling from another; the inverse gives back what went in."""
    x, positions = normal(random, (5, 64)), numpy.array([1, 500, 9999, 131072, 1 << 20], dtype=numpy.int32)
    made = tessera.rows(x, f"rope({options})+f32+rope(inverse,{options})+f32", positions=positions, device="emulator")
    close(made["y"], turned_by(x.astype(numpy.float64), positions, frequencies, magnitude), 0, 4e-5)
    close(made["y2"], x, 0, 4e-5)


@pytest.mark.parametrize("columns", [72, 80, 96])
def test_halves_of_any_width(random, columns):
    x, positions = normal(random, (6, columns)), numpy.array([3, 1 << 17], dtype=numpy.int32)
    made = tessera.rows(x, "rope(halves)+f32", positions=positions, heads=3, device="emulator")
    close(made["y"], turned(x.astype(numpy.float64), numpy.repeat(positions, 3), halves=True), 0, 2e-5)


def test_layernorm(random):
    x, weight, bias = 3 * normal(random, (7, 192)) + 5, normal(random, 192), normal(random, 192)
    v = x.astype(numpy.float64)
    norm = (v - v.mean(-1, keepdims=True)) / numpy.sqrt(v.var(-1, keepdims=True) + 1e-6)
    close(tessera.rows(x, "layernorm+f32", weight=weight, bias=bias, device="emulator")["y"], norm * weight + bias, 1e-5)
    plus_one = tessera.rows(x, "layernorm(plus_one)+f32", weight=weight, bias=bias, device="emulator")["y"]
    close(plus_one, norm * (1 + weight.astype(numpy.float64)) + bias, 1e-5)


@pytest.mark.parametrize("block", [64, 128, 256])
def test_hadamard(random, block):
    """Sylvester's: H of 2 n is H of n four times, the last with the other sign."""
    matrix = numpy.ones((1, 1))
    while len(matrix) < block:
        matrix = numpy.block([[matrix, matrix], [matrix, -matrix]])
    x = normal(random, (5, 512))
    expected = x.reshape(5, -1, block).astype(numpy.float64) @ matrix / numpy.sqrt(block)
    close(tessera.rows(x, f"hadamard({block})+f32", device="emulator")["y"], expected.reshape(5, 512), 1e-5)


def test_softcap_and_softmax(random):
    x = 40 * normal(random, (6, 136))
    v = x.astype(numpy.float64)
    made = tessera.rows(x, "softcap(limit=20)+f32+softmax+f32", device="emulator")
    capped = 20 * numpy.tanh(v / 20)
    close(made["y"], capped, 1e-5)
    share = numpy.exp(capped - capped.max(-1, keepdims=True))
    close(made["y2"], share / share.sum(-1, keepdims=True), 1e-4, 1e-9)


def test_a_token_of_656_bytes(random):
    """FlashMLA's for DeepSeek-V3.2: 512 e4m3, a power of two in fp32 for each 128 of them, 64 bf16."""
    x = normal(random, (3, 576), ml_dtypes.bfloat16)
    x[2, 128:256] = 0
    slots = numpy.array([5, -1, 2], dtype=numpy.int32)
    page = tessera.rows(x, "mla_656", slots=slots, pages=1, page_size=8, device="emulator")["cache"][0]
    for row, slot in ((0, 5), (2, 2)):
        blocks = x[row, :512].astype(numpy.float64).reshape(4, 128)
        scales = numpy.exp2(numpy.ceil(numpy.log2(numpy.maximum(numpy.abs(blocks).max(-1) / 448, 1e-4))))
        token = page[656 * slot :][:656]
        assert (token[512:528].view(numpy.float32) == scales).all()
        expected = (blocks / scales[:, None]).astype(ml_dtypes.float8_e4m3fn).reshape(512)
        assert (token[:512].view(ml_dtypes.float8_e4m3fn) == expected).all()
        assert (token[528:].view(ml_dtypes.bfloat16) == x[row, 512:]).all()


@pytest.mark.parametrize("halves", [False, True])
def test_rope_of_a_table(random, halves):
    """Cosines in front of sines, a row for each position; a position that the table has not turns nothing."""
    x, positions = normal(random, (4, 64)), numpy.array([2, 0, 9, 1], dtype=numpy.int32)
    angle = numpy.arange(3)[:, None] * 100.0 ** (-numpy.arange(32) / 32)
    table = numpy.concatenate((numpy.cos(angle), numpy.sin(angle)), -1).astype(numpy.float32)
    made = tessera.rows(x, f"rope(table{',halves' if halves else ''})+f32", positions=positions, rope_table=table, device="emulator")
    expected = turned(x.astype(numpy.float64), positions, base=100.0, halves=halves)
    expected[2] = x[2]
    close(made["y"], expected, 0, 2e-6)


def test_the_gate_of_gpt_oss(random):
    """As the model writes it: gate and up alternate; (up + 1) * gate * sigmoid(1.702 gate)."""
    x = 3 * normal(random, (5, 128))
    gate, up = numpy.minimum(x[:, ::2], 2).astype(numpy.float64), numpy.clip(x[:, 1::2], -2, 2).astype(numpy.float64)
    expected = (up + 1) * gate / (1 + numpy.exp(-1.702 * gate))
    close(tessera.rows(x, "gate(gpt_oss,interleaved,limit=2)+f32", device="emulator")["y"], expected, 1e-5)


def test_rows_are_added_where_slots_say(random):
    x, slots = normal(random, (6, 64)), numpy.array([1, 3, 1, -1, 9, 1], dtype=numpy.int32)
    y, half = normal(random, (4, 64)), normal(random, (4, 64), ml_dtypes.bfloat16)
    expected = y.astype(numpy.float64)
    numpy.add.at(expected, [1, 3, 1, 1], x[[0, 1, 2, 5]])
    of_half, terms = half.astype(numpy.float64), numpy.abs(half.astype(numpy.float64))
    numpy.add.at(of_half, [1, 3, 1, 1], x[[0, 1, 2, 5]])
    numpy.add.at(terms, [1, 3, 1, 1], numpy.abs(x[[0, 1, 2, 5]]))
    tessera.rows(x, "f32(scatter,add)+bf16(scatter,add)", slots=slots, y=y, y2=half, placed_rows=4, device="emulator")
    close(y, expected, 1e-6)
    # Each row is rounded to bf16, and each sum.
    assert (numpy.abs(half.astype(numpy.float64) - of_half) <= 4.1 * 2**-8 * terms).all()
    with pytest.raises(tessera.UsageError, match="y is missing: the kernel adds to what it holds"):
        tessera.rows(x, "f32(scatter,add)", slots=slots, placed_rows=4, device="emulator")


def test_a_token_of_a_cache(random):
    """FlashMLA's 584 bytes: 448 e4m3 and 64 bf16, and behind all tokens of the page 7 powers of two each."""
    x = normal(random, (3, 512), ml_dtypes.bfloat16)
    slots = numpy.array([5, -1, 2], dtype=numpy.int32)
    page = tessera.rows(x, "mla_584", slots=slots, pages=1, page_size=8, device="emulator")["cache"][0]
    for row, slot in ((0, 5), (2, 2)):
        v = x[row].astype(numpy.float64)
        blocks = v[:448].reshape(7, 64)
        scales = numpy.exp2(numpy.ceil(numpy.log2(numpy.maximum(numpy.abs(blocks).max(-1) / 448, 1e-4))))
        token = page[slot * 576 : (slot + 1) * 576]
        assert (page[8 * 576 + 8 * slot :][:7] == numpy.log2(scales) + 127).all()
        expected = (blocks / scales[:, None]).astype(ml_dtypes.float8_e4m3fn).reshape(448)
        assert (token[:448].view(ml_dtypes.float8_e4m3fn) == expected).all()
        assert (token[448:].view(ml_dtypes.bfloat16) == x[row, 448:]).all()


def test_hyperconnections(random):
    """X'_j = post_j f + sum_i comb_ij X_i; the next layer's input is sum_j pre_j X'_j."""
    x, streams = normal(random, (4, 64)), normal(random, (4, 256))
    mix, next_mix = normal(random, (4, 24)), normal(random, (4, 24))
    made = tessera.rows(x, "mhc_post+f32", streams=streams, mix=mix, next_mix=next_mix, device="emulator")
    of_streams = streams.reshape(4, 4, 64).astype(numpy.float64)
    after = mix[:, 4:8, None] * x[:, None] + numpy.einsum("rij,rid->rjd", mix[:, 8:].reshape(4, 4, 4), of_streams)
    close(made["streams_out"], after.reshape(4, 256), 1e-5)
    close(made["y"], numpy.einsum("rj,rjd->rd", next_mix[:, :4], after), 1e-4, 1e-4)
    mixed = tessera.rows(streams, "mhc_pre+f32", mix=mix, device="emulator")["y"]
    close(mixed, numpy.einsum("rj,rjd->rd", mix[:, :4], of_streams), 1e-5)


def test_sinkhorn(random):
    """24 coefficients: sigmoids, and a 4 x 4 whose rows and columns are divided by their sums in turn."""
    m, squares = normal(random, (6, 24)), (1000 * random.random(6) + 10).astype(numpy.float32)
    base, scale = normal(random, 24), normal(random, 3)
    found = tessera.rows(m, "mhc_mix(hidden=256,iterations=4)+f32", sum_squares=squares, mix_base=base, mix_scale=scale, device="emulator")
    v = m.astype(numpy.float64) / numpy.sqrt(squares[:, None].astype(numpy.float64) / 256 + 1e-6)
    v = v * numpy.repeat(scale, [4, 4, 16]) + base
    comb = numpy.exp(v[:, 8:].reshape(6, 4, 4))
    comb = comb / comb.sum(-1, keepdims=True) + 1e-6
    comb = comb / (comb.sum(-2, keepdims=True) + 1e-6)
    for _ in range(3):
        comb = comb / (comb.sum(-1, keepdims=True) + 1e-6)
        comb = comb / (comb.sum(-2, keepdims=True) + 1e-6)
    sigmoid = 1 / (1 + numpy.exp(-v[:, :8]))
    expected = numpy.concatenate((sigmoid[:, :4] + 1e-6, 2 * sigmoid[:, 4:], comb.reshape(6, 16)), -1)
    close(found["y"], expected, 1e-4, 1e-6)


def test_keys_and_values_in_pages(random):
    """k's columns turn, k and v go to place slot of [pages, page_size, heads, columns]; the second cache has heads before tokens."""
    k, v = normal(random, (4, 2, 64)), normal(random, (4, 2, 64))
    positions, slots = numpy.array([3, 9, 0, 70], dtype=numpy.int32), numpy.array([6, -1, 0, 3], dtype=numpy.int32)
    of_v = numpy.zeros((2, 2, 4, 64), dtype=numpy.float32)  # [pages, heads, page_size, columns]
    made = tessera.rows(
        k, "append_kv(64,halves)", x2=v, y2=of_v.transpose(0, 2, 1, 3), positions=positions, slots=slots, rows=8, device="emulator"
    )
    expected = turned(k.reshape(8, 64).astype(numpy.float64), numpy.repeat(positions, 2), halves=True).reshape(4, 2, 64)
    for token, slot in enumerate(slots):
        if slot < 0:
            continue
        close(made["y"][slot // 4, slot % 4], expected[token], 0, 2e-5)
        assert (of_v[slot // 4, :, slot % 4] == v[token]).all()
    assert numpy.isfinite(of_v).sum() == 3 * 2 * 64  # the emulator poisons what is not written


def test_rows_that_are_added(random):
    x, weights = normal(random, (7, 64)), normal(random, (5, 3))
    indices = random.integers(-1, 8, (5, 3)).astype(numpy.int32)
    made = tessera.rows(x, "combine(3)+f32", rows=5, indices=indices, weights=weights, device="emulator")
    padded = numpy.concatenate((x, numpy.zeros((2, 64)))).astype(numpy.float64)
    close(made["y"], numpy.einsum("rj,rjd->rd", weights, padded[indices]), 1e-5)


def test_compressed_entries(random):
    """DeepSeek-V4's compressor with overlap: softmax over the entry's own four tokens and the four before, column by column."""
    x, scores, ape = normal(random, (12, 128)), normal(random, (12, 128)), normal(random, (4, 128))
    tokens = numpy.array([[-1] * 4 + [0, 1, 2, 3], range(8), range(4, 12)], dtype=numpy.int32)
    made = tessera.rows(x, "compress(4,overlap)+f32", rows=3, scores=scores, ape=ape, tokens=tokens, device="emulator")
    # As the model writes it: blocks of four tokens, the block before in front with its first half of columns.
    value, score = x.reshape(3, 4, 128).astype(numpy.float64), scores.reshape(3, 4, 128) + ape.astype(numpy.float64)
    wide, weight = numpy.zeros((3, 8, 64)), numpy.full((3, 8, 64), -numpy.inf)
    wide[:, 4:], weight[:, 4:] = value[..., 64:], score[..., 64:]
    wide[1:, :4], weight[1:, :4] = value[:-1, :, :64], score[:-1, :, :64]
    share = numpy.exp(weight - weight.max(1, keepdims=True))
    close(made["y"], (wide * share / share.sum(1, keepdims=True)).sum(1), 1e-5, 1e-5)


def test_values_and_scales_are_read(random):
    x = normal(random, (6, 256), ml_dtypes.bfloat16)
    quantised = tessera.rows(x, "mxfp8+e4m3(columns)", device="emulator")
    y = numpy.asarray(quantised["y"]).view(ml_dtypes.float8_e4m3fn).astype(numpy.float64).reshape(6, 8, 32)
    expected = (y * numpy.exp2(numpy.asarray(quantised["y_scales"]).astype(numpy.float64) - 127)[..., None]).reshape(6, 256)
    read = tessera.rows(quantised["y"], "dequant(mxfp8)+f32", x_scales=quantised["y_scales"], device="emulator")["y"]
    assert (numpy.asarray(read) == expected).all()
    y2 = numpy.asarray(quantised["y2"]).view(ml_dtypes.float8_e4m3fn)
    scales = numpy.asarray(quantised["y2_scales"]).T[:6].astype(numpy.float64)
    read = tessera.rows(y2, "dequant(e4m3,columns)+f32", x_scales=quantised["y2_scales"], device="emulator")["y"]
    close(read, (y2.astype(numpy.float64).reshape(6, 2, 128) * scales[..., None]).reshape(6, 256), 1e-6)


def test_heads_in_a_wider_row(random):
    """Queries and keys of one product's rows are normalised and turned head by head, where they lie."""
    qkv, weight = normal(random, (5, 6, 64)), normal(random, 64)  # [tokens, 3 heads of queries, 2 of keys, 1 of values]
    positions = numpy.array([0, 7, 31, 4095, 9], dtype=numpy.int32)
    before = qkv.copy()
    for first, heads in ((0, 3), (3, 2)):
        part = qkv[:, first : first + heads]
        tessera.rows(part, "heads+rmsnorm+rope(halves)+same", positions=positions, weight=weight, rows=5 * heads, y=part, device="emulator")
        norm = rmsnorm(before[:, first : first + heads].astype(numpy.float64), weight.astype(numpy.float64)).reshape(-1, 64)
        expected = turned(norm, numpy.repeat(positions, heads), halves=True).reshape(5, heads, 64)
        close(part, expected, 0, 4e-5)
    assert (qkv[:, 5] == before[:, 5]).all()


def test_packed_scales(random):
    """DeepGEMM's for Blackwell: int32 [k / 512, rows padded to 4], of which byte b is the exponent of block 4 k + b."""
    x = normal(random, (6, 896), ml_dtypes.bfloat16)
    made = tessera.rows(x, "e4m3(packed)", device="emulator")
    blocks = x.astype(numpy.float64).reshape(6, 7, 128)
    exponents = numpy.ceil(numpy.log2(numpy.maximum(numpy.abs(blocks).max(-1), 1e-4) / 448))
    words = numpy.asarray(made["y_scales"])
    assert words.dtype == numpy.int32 and words.shape == (2, 8)
    found = words.view(numpy.uint8).reshape(2, 8, 4)[:, :6].transpose(1, 0, 2).reshape(6, 8)
    assert (found[:, :7] == exponents + 127).all() and (found[:, 7] == 0).all()
    values = (blocks / numpy.exp2(exponents)[..., None]).astype(ml_dtypes.float8_e4m3fn)
    assert (numpy.asarray(made["y"]).view(ml_dtypes.float8_e4m3fn).reshape(6, 7, 128) == values).all()


@pytest.mark.parametrize("scale", ["row", "tensor"])
def test_values_under_one_scale(random, scale):
    x, scales = normal(random, (5, 72), ml_dtypes.float8_e4m3fn), (0.1 + random.random(5 if scale == "row" else 1)).astype(numpy.float32)
    given = {"x_scales" if scale == "row" else "x_scale": scales}
    made = tessera.rows(x, f"dequant(e4m3,{scale})+f32", device="emulator", **given)["y"]
    close(made, x.astype(numpy.float64) * scales.astype(numpy.float64)[:, None], 1e-6)


def test_a_chain_in_an_operators_place(random):
    kernel = tessera.Kernel("append_kv(64,halves)", dtype="f32")
    assert kernel.fields == {"dtype": "f32"} and "_c128_" in kernel.name
    x, weight = normal(random, (3, 64)), normal(random, 64)
    y = tessera.Kernel("rms_norm", dtype="f32", columns=64)(device="emulator", x=x, weight=weight)["y"]
    close(y, rmsnorm(x.astype(numpy.float64), weight.astype(numpy.float64)), 1e-5)


E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


@pytest.mark.parametrize("cache, columns, data, tail", [("mla_384", 448, 352, 32), ("mla_288", 512, 256, 32)])
def test_a_token_of_four_bits(random, cache, columns, data, tail):
    """e2m1 under ue4m3 of 16 columns: amax / 6, behind the data of all tokens of the page."""
    x = normal(random, (2, 512), ml_dtypes.bfloat16)
    page = tessera.rows(x, cache, slots=numpy.array([1, 3], dtype=numpy.int32), pages=1, page_size=4, device="emulator")["cache"][0]
    for row, slot in ((0, 1), (1, 3)):
        blocks = x[row, :columns].astype(numpy.float32).reshape(-1, 16)
        scales = (numpy.abs(blocks).max(-1) / numpy.float32(6)).astype(ml_dtypes.float8_e4m3fn)
        found = page[4 * data + tail * slot :][:tail]
        assert (found[: columns // 16].view(ml_dtypes.float8_e4m3fn) == scales).all() and (found[columns // 16 :] == 0).all()
        nibbles = page[data * slot :][: columns // 2]
        codes = numpy.stack((nibbles & 15, nibbles >> 4), -1).reshape(-1, 16)
        values = numpy.where(codes & 8, -1, 1) * E2M1[codes & 7]
        nearest = numpy.abs(blocks / scales.astype(numpy.float32)[:, None])[..., None] - E2M1
        assert (numpy.abs(numpy.abs(values) - numpy.abs(blocks) / scales.astype(numpy.float32)[:, None]) <= numpy.abs(nearest).min(-1) + 1e-6).all()
        assert (numpy.sign(values) * numpy.sign(blocks) >= 0).all()
        if cache == "mla_384":
            assert (page[data * slot + 224 :][:128].view(ml_dtypes.bfloat16) == x[row, 448:]).all()


@pytest.mark.parametrize("scoring, grouping", [("softmax", "masked"), ("sigmoid", "contiguous"), ("sqrt_softplus", "contiguous")])
def test_a_router(random, scoring, grouping):
    m, experts, top_k = 70, 32, 4
    logits, bias = normal(random, (m, experts)), normal(random, experts)
    more = {"rows_of_group": m} if grouping == "masked" else {"alignment": 8}
    made = tessera.moe_route(logits, top_k=top_k, scoring=scoring, bias=bias, scale=1.5, grouping=grouping, device="emulator", **more)
    made = {name: numpy.asarray(array) for name, array in made.items()}
    x = logits.astype(numpy.float64)
    score = {"softmax": numpy.exp(x) / numpy.exp(x).sum(-1, keepdims=True), "sigmoid": 1 / (1 + numpy.exp(-x)), "sqrt_softplus": numpy.sqrt(numpy.log1p(numpy.exp(x)))}[scoring]
    chosen = numpy.argsort(-(score + bias), axis=-1, kind="stable")[:, :top_k]
    assert (made["topk_experts"] == chosen).all()
    weights = numpy.take_along_axis(score, chosen, -1)
    close(made["topk_weights"], 1.5 * weights / weights.sum(-1, keepdims=True), 1e-5)
    # Pairs by expert, then by token.
    start = 0
    for expert in range(experts):
        tokens, slots = numpy.nonzero(chosen == expert)
        first = expert * m if grouping == "masked" else start
        assert made["groups"][expert] == (len(tokens) if grouping == "masked" else start)
        rows = numpy.arange(first, first + len(tokens))
        assert (made["slots"][tokens, slots] == rows).all()
        assert (made["indices"].reshape(-1)[rows] == tokens).all()
        assert (made["row_weights"].reshape(-1)[rows] == made["topk_weights"][tokens, slots]).all()
        start += (len(tokens) + 7) // 8 * 8
    assert (made["indices"].reshape(-1) >= 0).sum() == m * top_k


MIXTURES = [("sm_120a", "contiguous"), ("sm_100a", "masked")]


@pytest.mark.parametrize("arch, grouping", MIXTURES if os.environ.get("TESSERA_ALL_CASES") == "1" else MIXTURES[:1])
def test_a_mixture_of_experts(random, arch, grouping):
    """Router, rows by expert, grouped product, sum by token: each takes the lists as the router writes them."""
    m, experts, top_k, hidden, inner = 20, 8, 2, 64, 128
    emulator = tessera.Emulator(arch=arch)
    x, logits = normal(random, (m, hidden), ml_dtypes.bfloat16), normal(random, (m, experts))
    weight = (random.standard_normal((experts, inner, hidden)) / 8).astype(ml_dtypes.bfloat16)
    more = {"rows_of_group": m} if grouping == "masked" else {}
    lists = tessera.moe_route(logits, top_k=top_k, scoring="sqrt_softplus", grouping=grouping, device=emulator, **more)
    lists = {name: numpy.asarray(array) for name, array in lists.items()}
    indices = lists["indices"].reshape(-1)
    a = numpy.asarray(tessera.rows(x, "gather+same", rows=len(indices), indices=indices, device=emulator)["y"])
    product = tessera.Kernel("gemm", arch=arch, dtype="bf16", d_dtype="bf16", grouping=grouping)
    d = product(device=emulator, a=a.reshape(-1 if grouping == "masked" else 1, m if grouping == "masked" else len(indices), hidden), b=weight, groups=lists["groups"])
    d = numpy.asarray(d["d"]).reshape(-1, inner)
    y = tessera.rows(d, "combine(2)+f32", rows=m, indices=lists["slots"], weights=lists["topk_weights"], device=emulator)["y"]
    score = numpy.sqrt(numpy.log1p(numpy.exp(logits.astype(numpy.float64))))
    chosen = numpy.argsort(-score, -1, kind="stable")[:, :top_k]
    share = numpy.take_along_axis(score, chosen, -1)
    share /= share.sum(-1, keepdims=True)
    expected = numpy.einsum("tk,tkid,td->ti", share, weight.astype(numpy.float64)[chosen], x.astype(numpy.float64))
    # Each row of d is rounded to bf16 once, by at most 2^-8 of it; shares add up to 1.
    close(y, expected, 1e-5, 1.01 * 2**-8 * numpy.abs(d[lists["slots"].reshape(-1)].astype(numpy.float64)).max())


def test_a_router_with_groups_of_experts(random):
    """DeepSeek-V3: the two largest of each group's scores with the bias choose four of eight groups."""
    logits, bias = normal(random, (33, 256)), normal(random, 256)
    made = tessera.moe_route(logits, top_k=8, bias=bias, expert_groups=8, topk_groups=4, grouping="none", device="emulator")
    choice = 1 / (1 + numpy.exp(-logits.astype(numpy.float64))) + bias
    sums = numpy.sort(choice.reshape(33, 8, 32), -1)[..., -2:].sum(-1)
    taken = numpy.argsort(-sums, -1)[:, :4]
    kept = numpy.full((33, 8, 32), -numpy.inf)
    numpy.put_along_axis(kept, taken[..., None], numpy.take_along_axis(choice.reshape(33, 8, 32), taken[..., None], 1), 1)
    assert (numpy.asarray(made["topk_experts"]) == numpy.argsort(-kept.reshape(33, 256), -1, kind="stable")[:, :8]).all()


def test_a_chain_that_is_misspelled(random):
    with pytest.raises(tessera.UsageError, match="character 9.*did you mean rope"):
        tessera.rows(normal(random, (2, 64)), "rmsnorm+ropee", device="emulator")

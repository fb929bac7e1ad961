"""Operators on NumPy arrays in the emulator, against float64."""

import threading

import ml_dtypes
import numpy
import pytest
import tessera
from reference import attention

bf16 = ml_dtypes.bfloat16


def normal(random, shape, dtype):
    return random.standard_normal(shape).astype(dtype)


def worst(found, expected):
    """The largest error; infinite where a NaN is found."""
    error = numpy.abs(found.astype(numpy.float64) - expected).max()
    return numpy.inf if numpy.isnan(error) else error


@pytest.fixture
def qkv(random):
    return normal(random, (2, 37, 4, 64), bf16), *(normal(random, (2, 90, 2, 64), bf16) for _ in range(2))


def test_fmha(qkv):
    q, k, v = qkv
    o, lse = tessera.fmha(q, k, v, causal=True, return_lse=True, device="emulator")
    expected, expected_lse = attention(q, k, v, causal=True)
    assert (o.dtype, o.shape, lse.dtype, lse.shape) == (bf16, q.shape, numpy.float32, (2, 4, 37))
    assert worst(o, expected) < 0.02  # bf16 of numbers around 1, and of the weights
    assert worst(lse, expected_lse) < 1e-3
    # Tensors that are no dense ones, bits in place of numbers, an output that is given; another device's schedule.
    spread = numpy.zeros((2, 90, 2, 128), bf16)
    spread[..., ::2] = k
    out = numpy.zeros((2, 74, 4, 64), bf16)
    emulator = tessera.Emulator(seed=7, schedule="adversarial", detects_races=True)
    given = tessera.fmha(q, spread[..., ::2], v, causal=True, out=out[:, ::2], device=emulator)
    assert given.base is out and emulator.findings == []
    assert (out[:, ::2] == o).all() and (out[:, 1::2] == 0).all()
    bits = tessera.fmha(*(x.view(numpy.uint16) for x in qkv), causal=True, dtype="bf16", device="emulator")
    assert (bits.view(bf16) == o).all()


def test_fmha_decode_over_pages(random):
    """A step of decoding: pages in any order, lengths on the device, keys split between CTAs, a workspace."""
    batch, page, max_pages, heads = 3, 16, 80, 2
    lengths = numpy.array([1100, 1, 777], numpy.int32)
    pool_k, pool_v = (normal(random, (batch * max_pages, page, heads, 64), bf16) for _ in range(2))
    table = random.permutation(batch * max_pages).astype(numpy.int32).reshape(batch, max_pages)
    q = normal(random, (batch, 1, 4, 64), bf16)
    o = tessera.fmha(q, pool_k, pool_v, causal=True, block_table=table, seqused_k=lengths, device="emulator")
    k, v = (pool[table].reshape(batch, max_pages * page, heads, 64) for pool in (pool_k, pool_v))
    assert worst(o, attention(q, k, v, causal=True, lengths=lengths)[0]) < 0.02


def cosine(found, expected):
    found = found.astype(numpy.float64)
    return (found * expected).sum() / numpy.sqrt((found**2).sum() * (expected**2).sum())


def rms(values):
    return numpy.sqrt((values.astype(numpy.float64) ** 2).mean())


def test_fmha_nvfp4(random):
    """Both steps, near attention of what came: dense with a column that all rows have in common, and over pages."""
    q, k, v = normal(random, (2, 40, 4, 64), bf16), *(normal(random, (2, 150, 2, 64), bf16) for _ in range(2))
    q[..., 7] += bf16(15)
    k[..., 7] += bf16(15)
    operands = tessera.attention_quantize(q, k, v, device="emulator")
    o, lse = tessera.fmha_nvfp4(operands, causal=True, return_lse=True, device="emulator")
    expected, expected_lse = attention(q, k, v, causal=True)
    assert (o.dtype, o.shape, lse.dtype, lse.shape) == (bf16, q.shape, numpy.float32, (2, 4, 40))
    # A value in e2m1 with a scale for 16 is off by 0.095 of it in the root mean square. So a score, 64 products of two
    # such values over 8, is off by 0.134; an LSE, whose error is a weighted mean of scores', by less.
    assert cosine(o, expected) > 0.97 and rms(lse - expected_lse) < 0.134
    sink = numpy.full(4, 200, numpy.float32)  # far above all scores but those of the common column, which are 28
    assert worst(tessera.fmha_nvfp4(operands, sink=sink, device="emulator"), 0) == 0

    page, max_pages, lengths = 16, 12, numpy.array([190, 33], numpy.int32)
    pool_k, pool_v = (normal(random, (2 * max_pages, page, 2, 64), bf16) for _ in range(2))
    table = random.permutation(2 * max_pages).astype(numpy.int32).reshape(2, max_pages)
    emulator = tessera.Emulator(arch="sm_120a", detects_races=True)
    q = normal(random, (2, 1, 4, 64), bf16)
    operands = tessera.attention_quantize(q, pool_k, pool_v, block_table=table, seqused_k=lengths, device=emulator)
    o = tessera.fmha_nvfp4(operands, causal=True, split_kv="on", device=emulator)
    k, v = (pool[table].reshape(2, max_pages * page, 2, 64) for pool in (pool_k, pool_v))
    assert emulator.findings == []
    assert cosine(o, attention(q, k, v, causal=True, lengths=lengths)[0]) > 0.97

    q, queries = normal(random, (2, 140, 4, 64), bf16), numpy.array([3, 0], numpy.int32)
    q[0, 3:] = q[1] = numpy.nan
    places = {"block_table": table, "seqused_k": lengths, "seqused_q": queries}
    o = tessera.fmha_nvfp4(tessera.attention_quantize(q, pool_k, pool_v, **places, device=emulator), device=emulator)
    assert emulator.findings == []
    assert cosine(o[:1, :3], attention(q[:1, :3], k[:1], v[:1], lengths=lengths[:1])[0]) > 0.97
    assert (o[0, 3:] == 0).all() and (o[1] == 0).all()
    with pytest.raises(tessera.UsageError, match="seqused_q goes with seqused_k"):
        tessera.attention_quantize(q, q, q, seqused_q=queries, device=emulator)


def test_kernel_is_bound_once_and_launched_often(qkv, random):
    q, k, v = qkv
    kernel = tessera.Kernel("fmha", head_dim=64, mask="causal")
    kernel.prepare("emulator")
    launch = kernel.bind(q=q, k=k, v=v, device="emulator")
    assert launch.sizes["batch"] == 2 and launch.sizes["heads_kv"] == 2 and launch.sizes["seqlen_k"] == 90
    launch.launch()
    assert worst(launch.outputs["o"], attention(q, k, v, causal=True)[0]) < 0.02
    other = normal(random, q.shape, bf16)
    into = numpy.zeros_like(q)
    launch.launch(q=other, o=into)
    assert launch.outputs["o"] is into
    assert worst(into, attention(other, k, v, causal=True)[0]) < 0.02
    with pytest.raises(tessera.UsageError, match=r"q: bf16 \[2, 36, 4, 64\] .* bind it anew"):
        launch.launch(q=other[:, 1:])


def test_threads_share_kernels(qkv):
    q, k, v = qkv
    expected = tessera.fmha(q, k, v, causal=True, device="emulator")
    compiles = tessera.default_jit().stats()["compiles"]
    found = [None] * 4

    def run(i):
        found[i] = tessera.fmha(q, k, v, causal=True, device="emulator")

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert all((one == expected).all() for one in found)
    assert tessera.default_jit().stats()["compiles"] == compiles


def test_gemm(random):
    a, b, bias = (normal(random, shape, numpy.float16) for shape in ((50, 96), (72, 96), (72,)))
    d = tessera.gemm(a, b, bias=bias, activation="relu", alpha=0.5, device="emulator")
    product = a.astype(numpy.float64) @ b.astype(numpy.float64).T
    assert (d.dtype, d.shape) == (numpy.float16, (50, 72))
    assert worst(d, numpy.maximum(0.5 * product + bias.astype(numpy.float64), 0)) < 0.02
    batched = tessera.gemm(a[None], b[None], bias=bias, activation="relu", alpha=0.5, device="emulator")
    assert batched.shape == (1, 50, 72) and (batched[0] == d).all()


def test_quantize_and_back(random):
    x = normal(random, (5, 64), numpy.float32)
    values, scales = tessera.quantize(x, "mxfp8_e4m3", device="emulator")
    assert (values.shape, scales.shape) == ((5, 64), (5, 2))
    y = tessera.dequantize(values, scales, "mxfp8_e4m3", out_dtype="f32", device="emulator")
    numbers = values.view(ml_dtypes.float8_e4m3fn).astype(numpy.float64)
    powers = numpy.exp2(scales.astype(numpy.float64) - 127)
    assert (y == numbers * numpy.repeat(powers, 32, axis=1)).all()
    assert (numpy.abs(y - x) <= numpy.abs(x) / 16 + numpy.repeat(powers, 32, axis=1) * 2.0**-10).all()


def six_bits(x, format):
    """(codes, powers, numbers) of x [rows, k] by the formula of OCP's MX specification: of each 32 the scale is
    2^(floor(log2 amax) - exponent of the largest value), values are rounded to nearest even and saturate."""
    mantissa, bias = (2, 3) if format == "mxfp6_e3m2" else (3, 1)
    exponent, fraction = numpy.arange(32) >> mantissa, numpy.arange(32) & 2**mantissa - 1  # of each code, without sign
    numbers = (fraction + 2**mantissa * (exponent > 0)) * 2.0 ** (numpy.maximum(exponent, 1) - bias - mantissa)
    blocks = x.astype(numpy.float64).reshape(*x.shape[:-1], -1, 32)
    amax = numpy.abs(blocks).max(-1, keepdims=True)
    powers = 2 ** (numpy.floor(numpy.log2(amax)) - numpy.floor(numpy.log2(numbers[-1])))
    sizes = numpy.minimum(numpy.abs(blocks) / powers, numbers[-1])
    exponents = numpy.maximum(numpy.floor(numpy.log2(numpy.maximum(sizes, 1e-30))), 1 - bias)
    steps = 2.0 ** (exponents - mantissa)
    rounded = numpy.minimum(numpy.rint(sizes / steps) * steps, numbers[-1])  # rint: to even
    codes = numpy.searchsorted(numbers, rounded)
    assert (numbers[codes] == rounded).all()
    signed = numpy.where(numpy.signbit(blocks), -1, 1) * rounded * powers
    return (codes | numpy.signbit(blocks) * 32).reshape(x.shape), powers[..., 0], signed.reshape(x.shape)


@pytest.mark.parametrize("target", ["sm_90a", "sm_120a"])
@pytest.mark.parametrize("format", ["mxfp6_e3m2", "mxfp6_e2m3"])
def test_six_bits(random, format, target):
    x = normal(random, (7, 96), numpy.float32) * numpy.exp2(random.integers(-20, 20, (7, 1))).astype(numpy.float32)
    x[2, 5] = 0
    codes, powers, numbers = six_bits(x, format)
    run = {"device": tessera.Emulator(arch=target)}
    values, scales = tessera.quantize(x, format, scale_rounding="floor", **run)
    assert (values.shape, scales.shape) == ((7, 72), (7, 3))
    bits = (codes[..., None] >> numpy.arange(6) & 1).astype(numpy.uint8).reshape(7, -1)  # the lowest first
    assert (values == numpy.packbits(bits, axis=-1, bitorder="little")).all()
    assert (scales == numpy.log2(powers) + 127).all()
    assert (tessera.dequantize(values, scales, format, out_dtype="f32", **run) == numbers).all()


@pytest.mark.parametrize("kv_format", ["nvfp4", "mxfp8"])
def test_fmha_over_pages_with_scales(random, kv_format):
    """Codes and scales of e2m1 by ue4m3, or of e4m3 by ue8m0, in pages; factors of whole tensors beside them."""
    heads, head_dim, page_size, pages = 2, 128, 16, 9
    of_scale = 16 if kv_format == "nvfp4" else 32
    lengths, table = numpy.array([37, 50], numpy.int32), random.permutation(8).reshape(2, 4).astype(numpy.int32)
    caches, scales, widened = [], [], []
    for _ in range(2):
        if kv_format == "nvfp4":
            codes = random.integers(0, 16, (pages, page_size, heads, head_dim), numpy.uint8)
            numbers = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])[codes & 7] * numpy.where(codes & 8, -1, 1)
            cache = codes[..., ::2] | codes[..., 1::2] << 4
            scale = random.uniform(0.05, 0.5, (pages, heads, page_size, head_dim // of_scale)).astype(ml_dtypes.float8_e4m3fn)
        else:
            cache = random.standard_normal((pages, page_size, heads, head_dim)).astype(ml_dtypes.float8_e4m3fn)
            numbers = cache.astype(numpy.float64)
            exponents = random.integers(-3, 2, (pages, heads, page_size, head_dim // of_scale))
            scale = numpy.exp2(exponents).astype(ml_dtypes.float8_e8m0fnu)
        of_key = scale.astype(numpy.float64).transpose(0, 2, 1, 3).repeat(of_scale, 3)
        caches.append(cache)
        scales.append(scale.view(numpy.uint8))
        widened.append((numbers * of_key)[table].reshape(2, 4 * page_size, heads, head_dim))
    q = normal(random, (2, 3, 4, head_dim), bf16)
    o = tessera.fmha(
        q,
        *caches,
        causal=True,
        block_table=table,
        seqused_k=lengths,
        k_scale=scales[0],
        v_scale=scales[1],
        device=tessera.Emulator(detects_races=True),
    )
    for i, length in enumerate(lengths):
        k, v = (t[i : i + 1, :length] for t in widened)
        assert worst(o[i : i + 1], attention(q[i : i + 1], k, v, causal=True)[0]) < 0.03

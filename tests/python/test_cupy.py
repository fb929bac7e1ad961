"""CuPy's arrays on a GPU, against float64. Skipped where CuPy or a GPU is missing."""

import numpy
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")

import tessera  # noqa: E402
from reference import attention  # noqa: E402


def has_gpu():
    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


pytestmark = pytest.mark.skipif(not has_gpu(), reason="there is no GPU")


def normal(random, shape):
    return cupy.asarray(random.standard_normal(shape).astype(numpy.float16))


def test_attention_on_the_current_stream(random):
    q = normal(random, (2, 40, 4, 64))
    k, v = (normal(random, (2, 50, 2, 64)) for _ in range(2))
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        o, lse = tessera.fmha(q * 2, k, v, causal=True, return_lse=True)
        o = o.astype(cupy.float64)
    stream.synchronize()
    expected, expected_lse = attention((q * 2).get(), k.get(), v.get(), causal=True)
    assert isinstance(o, cupy.ndarray)
    assert numpy.abs(o.get() - expected).max() < 0.005 and numpy.abs(lse.get() - expected_lse).max() < 1e-3


def test_strided_views_and_given_outputs(random):
    both = normal(random, (33, 2, 64))
    a, b = both[:, 0], normal(random, (48, 64))
    d = cupy.full((33, 48), cupy.nan, cupy.float16)
    for _ in range(2):
        assert tessera.gemm(a, b, out=d) is d
    expected = a.get().astype(numpy.float64) @ b.get().astype(numpy.float64).T
    assert numpy.abs(d.get() - expected).max() < 0.05
    values, scales = tessera.quantize(b, "nvfp4")
    assert isinstance(values, cupy.ndarray) and values.shape == (48, 32) and scales.shape == (48, 4)

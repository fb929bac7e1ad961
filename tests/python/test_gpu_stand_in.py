"""What a launch hands to the driver, on a stand-in for it (tests/fake_cuda): pointers, strides, streams. It computes nothing."""

import ctypes
import time

import pytest
import tessera

try:
    _driver = ctypes.CDLL("libcuda.so.1")
    _driver.fake_cuda_record.restype = ctypes.c_char_p
except (OSError, AttributeError):
    pytest.skip("the driver's stand-in is not what is loaded", allow_module_level=True)


def record():
    return _driver.fake_cuda_record().decode().splitlines()


class OnGpu:
    """fp16 at an address, as CuPy and Numba describe theirs."""

    def __init__(self, address, shape, strides=None, typestr="<f2"):
        strides = None if strides is None else tuple(stride * 2 for stride in strides)
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (address, False),
            "shape": shape,
            "typestr": typestr,
            "strides": strides,
        }


@pytest.fixture
def qkvo():
    """Two of three dense tensors, and k as every second token of a longer one."""
    return (
        OnGpu(0x10000, (2, 40, 4, 64)),
        OnGpu(0x20000, (2, 50, 2, 64), (100 * 128, 2 * 128, 64, 1)),
        OnGpu(0x30000, (2, 50, 2, 64)),
        OnGpu(0x40000, (2, 40, 4, 64)),
    )


def test_pointers_strides_and_streams_reach_the_driver(qkvo):
    q, k, v, o = qkvo
    record()
    assert tessera.fmha(q, k, v, causal=True, out=o, stream=0x1230) is o
    lines = record()
    assert [line.split()[:1] for line in lines].count(["launch"]) == 1
    assert lines[-1].startswith("launch tessera_fmha_sm90a_d64_") and lines[-1].endswith("stream 0x1230")
    maps = {line.split()[1]: line for line in lines if line.startswith("map")}
    assert {"0x10000", "0x20000", "0x30000"} <= set(maps)
    # Bytes from one token to the next, one head to the next and one sequence to the next, in any order.
    assert set(map(int, maps["0x20000"].split("strides ")[1].split(","))) == {512, 128, 100 * 256}
    assert set(map(int, maps["0x30000"].split("strides ")[1].split(","))) == {256, 128, 50 * 256}
    # Tensors of the same shapes elsewhere: their addresses arrive, and another output is written.
    other = OnGpu(0x60000, (2, 40, 4, 64))
    assert tessera.fmha(OnGpu(0x50000, (2, 40, 4, 64)), k, v, causal=True, out=other, stream=0x1230) is other
    lines = record()
    assert {line.split()[1] for line in lines if line.startswith("map")} & {"0x10000", "0x50000"} == {"0x50000"}
    tessera.fmha(q, OnGpu(0x20000, (2, 50, 2, 64)), v, causal=True, out=o)  # other strides
    again = [line for line in record() if line.startswith("map 0x20000")][0]
    assert set(map(int, again.split("strides ")[1].split(","))) == {256, 128, 50 * 256}
    # Bound once: another pointer, the same strides; only its map is encoded.
    launch = tessera.Kernel("fmha", head_dim=64, mask="causal", dtype="f16").bind(q=q, k=k, v=v, o=o)
    launch.launch()
    record()
    launch.launch(q=OnGpu(0x50000, (2, 40, 4, 64)))
    lines = record()
    assert [line.split()[1] for line in lines if line.startswith("map")] == ["0x50000"]
    assert lines[-1].endswith("stream 0")
    with pytest.raises(tessera.UsageError, match="bind it anew"):
        launch.launch(k=OnGpu(0x20000, (2, 50, 2, 64)))


def test_what_the_driver_must_not_see_is_refused(qkvo):
    q, k, v, o = qkvo
    record()
    for call, message in (
        (lambda: tessera.fmha(q, k, v), "outputs cannot be made in arrays of test_gpu_stand_in: give them"),
        (lambda: tessera.fmha(OnGpu(0x10008, (2, 40, 4, 64)), k, v, out=o), "must be a multiple of 16"),
        (lambda: tessera.fmha(OnGpu(0x10000, (2, 40, 4, 64), (20480, 256, 64, 2)), k, v, out=o), "q: strides"),
        (lambda: tessera.fmha(OnGpu(0x10000, (2, 40, 4, 64), typestr="<c8"), k, v, out=o), "q: element type <c8"),
    ):
        with pytest.raises(tessera.UsageError, match=message):
            call()
    assert record() == []


def test_a_workspace_that_is_needed_is_asked_for():
    """Decode over long keys: they are split, and their parts lie in the workspace between two kernels."""
    q, o = (OnGpu(address, (1, 1, 8, 64)) for address in (0x10000, 0x40000))
    k, v = (OnGpu(address, (1, 8192, 2, 64)) for address in (0x20000000, 0x30000000))
    with pytest.raises(tessera.UsageError, match="outputs cannot be made"):
        tessera.fmha(q, k, v, out=o)
    record()
    tessera.fmha(q, k, v, out=o, workspace=OnGpu(0x50000000, (1 << 24,), typestr="|u1"))
    assert len([line for line in record() if line.startswith("launch")]) == 2


def test_what_a_call_costs(qkvo, capsys):
    """Printed, not judged: time of the host with a driver that does nothing."""
    q, k, v, o = qkvo
    launch = tessera.Kernel("fmha", head_dim=64, mask="causal", dtype="f16").bind(q=q, k=k, v=v, o=o)
    ways = {
        "Launch.launch(stream)": lambda: launch.launch(0x1230),
        "Launch.launch(stream, q=...)": lambda: launch.launch(0x1230, q=q),
        "fmha": lambda: tessera.fmha(q, k, v, causal=True, out=o, stream=0x1230),
    }
    for name, call in ways.items():
        best = float("inf")
        for _ in range(20):
            start = time.perf_counter()
            for _ in range(100):
                call()
            best = min(best, (time.perf_counter() - start) / 100)
        record()
        with capsys.disabled():
            print(f"\n{name}: {best * 1e6:.2f} us", end="")

"""What a launch hands to the driver, on a stand-in for it (tests/fake_cuda): pointers, strides, streams. It computes nothing."""

import ctypes
import gc
import time

import pytest
import tessera
from tessera import _core, arrays

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


@pytest.mark.parametrize("name", ["q", "k", "v", "o"])
def test_tensors_of_two_gpus_are_refused(qkvo, name):
    """Eagerly, in a kernel that is bound, and bound before with others: nothing reaches the driver."""
    kernel = tessera.Kernel("fmha", head_dim=64, mask="causal", dtype="f16")
    views = {at: arrays.view(at, tensor) for at, tensor in zip("qkvo", qkvo)}
    launch = kernel.bind(**views)
    of_first = views[name]
    views[name] = arrays.View(of_first.address, of_first.shape, of_first.strides, of_first.dtype, 1, of_first.library, of_first.tensor)
    record()
    for call in (
        lambda: kernel(**views),
        lambda: tessera.fmha(views["q"], views["k"], views["v"], causal=True, out=views["o"]),
        lambda: launch.launch(**{name: views[name]}),
        lambda: launch.taking("q", "k", "v", "o")(*views.values()),
    ):
        with pytest.raises(tessera.UsageError, match="lies on GPU [01], . on GPU [01]: one GPU is expected|bind it anew"):
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


def words(*values):
    """A structure of XLA's interface: numbers and pointers of eight bytes each."""
    return (ctypes.c_uint64 * len(values))(*(ctypes.addressof(v) if isinstance(v, ctypes.Array) else v for v in values))


class Xla:
    """The part of XLA that calls a handler, with buffers at addresses."""

    def __init__(self):
        self.errors = []

        def make_error(arguments):
            self.errors.append(ctypes.string_at(ctypes.c_char_p.from_address(arguments + 16).value).decode())
            return 1

        def get_stream(arguments):
            ctypes.c_uint64.from_address(arguments + 24).value = 0x1230
            return 0

        kind = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
        self.functions = [kind(make_error), kind(get_stream)]
        error, stream = (ctypes.cast(function, ctypes.c_void_p).value for function in self.functions)
        self.api = words(0, 0, 0, 0, 0, 0, error, 0, 0, 0, stream)

    def call(self, what, operands, results, **attributes):
        """The words of what it failed with, or None."""
        kept = []

        def made(*values):
            kept.append(words(*values))
            return kept[-1]

        def buffers(addresses):
            all_of_them = [made(0, 0, 0, address, 0, 0) for address in addresses]
            types = (ctypes.c_int * len(all_of_them))(*[1] * len(all_of_them))
            kept.append(types)
            return 0, 0, len(all_of_them), types, made(*all_of_them)

        def span(text):
            kept.append(ctypes.create_string_buffer(text.encode()))
            return made(kept[-1], len(text))

        types = (ctypes.c_int * len(attributes))(*[4] * len(attributes))
        names, values = ([span(text) for text in texts] for texts in (attributes, attributes.values()))
        frame = made(0, 0, self.api, 0, 0, *buffers(operands), *buffers(results), 0, 0, len(values), types, made(*names), made(*values))
        take = ctypes.pythonapi.PyCapsule_GetPointer
        take.restype, take.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(take(_core.xla_handler(what), None))
        self.errors.clear()
        return self.errors[0] if handler(ctypes.addressof(frame)) else None


def test_a_launch_that_xla_makes_keeps_its_kernel(tmp_path):
    """Whoever asked for it first, and whatever became of that one's jit."""
    xla = Xla()

    def remember():
        kernel = tessera.Kernel("fmha", head_dim=64, dtype="f16", jit=tessera.Jit(cache_dir=tmp_path))
        q, k, v, o = (OnGpu(address << 16, (2, 40, 4, 64)) for address in (1, 2, 3, 4))
        launch = kernel.bind(q=q, k=k, v=v, o=o)
        places = [kernel._buffers[name].index for name in "qkvo"]
        _core.xla_remember("a launch", launch._core, places[:3], places[3:], False)
        return kernel

    first = remember()
    second = remember()
    name, scale = first.name, list(first._scalars).index("softmax_scale")
    del first
    gc.collect()
    record()
    bits = 0x3FE0000000000000  # of 0.5
    for q in (0x50000, 0x90000):
        assert xla.call("launch", (q, 0x60000, 0x70000), (0x80000,), launch="a launch", scalars=f"{scale}={bits}") is None
        lines = record()
        assert lines[-1].startswith(f"launch {name}") and lines[-1].endswith("stream 0x1230")
        assert hex(q) in [line.split()[1] for line in lines if line.startswith("map")]
        second = None
        gc.collect()
    for wrong in ("x", f"{scale}", f"{scale}=", "99=1", f"{scale}=1,"):
        failure = xla.call("launch", (0x50000, 0x60000, 0x70000), (0x80000,), launch="a launch", scalars=wrong)
        assert "'scalars' is not one of tessera's" in failure
    assert "operands and results are not those" in xla.call("launch", (0x50000,), (), launch="a launch")
    assert xla.call("refuse", (), ()).startswith("tessera: [usage] arrays lie on the CPU: give device='emulator'")


def test_what_python_raises_for_xla_is_told():
    class Silent(Exception):
        def __str__(self):
            raise ValueError("no words")

    def emulate(text, scalars, operands, results):
        raise Silent() if text == "silent" else tessera.DeviceError(f"{text} {scalars} {operands} {results}", ["a note"])

    xla = Xla()
    try:
        _core.xla_set_functions(str, emulate)
        assert xla.call("emulate", (1, 2), (3,), launch="a", scalars="b") == "tessera: [device] a b [1, 2] [3]\na note"
        assert "[internal] an exception that cannot say what it is" in xla.call("emulate", (), (), launch="silent")
    finally:
        import sys

        if "tessera.jax" in sys.modules:
            sys.modules["tessera.jax"]._register()

"""Launches of tensors that come by DLPack's table of functions, on a stand-in for such a library and for the driver (tests/fake_cuda)."""

import ctypes
import time

import pytest
import tessera

try:
    _driver = ctypes.CDLL("libcuda.so.1")
    _driver.fake_cuda_record.restype = ctypes.c_char_p
except (OSError, AttributeError):
    pytest.skip("the driver's stand-in is not what is loaded", allow_module_level=True)


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Tensor:
    """fp16 (or what code and bits say) at an address of a GPU."""

    asked = 0

    def __init__(self, address, shape, strides=None, code=2, bits=16, device=0):
        dense, step = [], 1
        for extent in reversed(shape):
            dense.insert(0, step)
            step *= extent
        self.address, self.shape, self.strides, self.device = address, shape, strides or tuple(dense), device
        self.code, self.bits = code, bits
        self.c_shape = (ctypes.c_int64 * len(shape))(*shape)
        self.c_strides = (ctypes.c_int64 * len(shape))(*self.strides)

    @property
    def __cuda_array_interface__(self):
        Tensor.asked += 1
        size = self.bits // 8
        return {
            "version": 3,
            "data": (self.address, False),
            "shape": self.shape,
            "typestr": {2: "<f", 1: "<u"}[self.code] + str(size),
            "strides": tuple(stride * size for stride in self.strides),
        }


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_DLTensor))
def _read(tensor, out):
    at = out.contents
    at.data, at.device_type, at.device_id, at.ndim = tensor.address, 2, tensor.device, len(tensor.shape)
    at.code, at.bits, at.lanes, at.byte_offset = tensor.code, tensor.bits, 1, 0
    at.shape, at.strides = tensor.c_shape, tensor.c_strides
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
def _stream(device_type, device, out):
    out[0] = 0x7770
    return 0


class _Table(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32)] + [
        (name, ctypes.c_void_p) for name in ("previous", "allocator", "managed", "object", "read", "stream")
    ]


_table = _Table(1, 3, read=ctypes.cast(_read, ctypes.c_void_p), stream=ctypes.cast(_stream, ctypes.c_void_p))
_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype, _capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
_name = ctypes.create_string_buffer(b"dlpack_exchange_api")  # a capsule keeps no copy of its name
Tensor.__dlpack_c_exchange_api__ = _capsule(ctypes.addressof(_table), ctypes.addressof(_name), None)


class Traced(Tensor):
    """A type derived from one with a table, whose tensors have no memory: as those of a graph that is traced."""


def record():
    return _driver.fake_cuda_record().decode().splitlines()


def tensors(*addresses, seqlen_q=40, seqlen_k=50, of=Tensor):
    q, k, v, o = addresses
    return (
        of(q, (2, seqlen_q, 4, 64)),
        of(k, (2, seqlen_k, 2, 64)),
        of(v, (2, seqlen_k, 2, 64)),
        of(o, (2, seqlen_q, 4, 64)),
    )


def bound():
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    kernel = tessera.Kernel("fmha", head_dim=64, mask="causal", dtype="f16")
    return kernel.bind(q=q, k=k, v=v, o=o)


def maps(lines):
    return {line.split()[1] for line in lines if line.startswith("map")}


def test_tensors_by_position_reach_the_driver_without_being_asked_in_python():
    step = bound().taking("q", "k", "v", "o")
    others = tensors(0x50000, 0x60000, 0x70000, 0x80000)
    record()
    before = Tensor.asked
    step(*others)
    lines = record()
    assert Tensor.asked == before
    assert maps(lines) == {"0x50000", "0x60000", "0x70000", "0x80000"} and lines[-1].endswith("stream 0x7770")
    step(*others, stream=0x1230)
    assert record()[-1].endswith("stream 0x1230")


@pytest.mark.parametrize(
    "at, wrong, message",
    [
        (1, Tensor(0x60000, (2, 51, 2, 64)), "k: f16 .2, 51, 2, 64. .*bind it anew"),
        (1, Tensor(0x60000, (2, 50, 2, 64), (100 * 128, 2 * 128, 64, 1)), "k: .* bind it anew"),
        (3, Tensor(0x60000, (2, 40, 4, 64), code=1), "o: u16 .* bind it anew"),
        (0, 7, "q is a int: must be a tensor"),
    ],
)
def test_what_was_not_bound_so_is_refused(at, wrong, message):
    step = bound().taking("q", "k", "v", "o")
    given = list(tensors(0x50000, 0x60000, 0x70000, 0x80000))
    given[at] = wrong
    record()
    with pytest.raises(tessera.UsageError, match=message):
        step(*given)
    with pytest.raises(tessera.UsageError, match="3 tensors given, 4 expected: q, k, v, o"):
        step(*given[:3])
    assert record() == []


def test_strides_of_single_rows_are_not_looked_at():
    q, o = (Tensor(address, (1, 1, 4, 64)) for address in (0x10000, 0x40000))
    k, v = (Tensor(address, (1, 50, 2, 64)) for address in (0x20000, 0x30000))
    step = tessera.Kernel("fmha", head_dim=64, dtype="f16").bind(q=q, k=k, v=v, o=o).taking("q", "k", "v", "o")
    before = Tensor.asked
    step(Tensor(0x50000, (1, 1, 4, 64), (8192, 4096, 64, 1)), k, v, o)
    assert Tensor.asked == before


def test_functions_remember_calls_of_the_same_shapes():
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    assert tessera.fmha(q, k, v, causal=True, out=o) is o
    others = tensors(0x50000, 0x60000, 0x70000, 0x80000)
    record()
    before = Tensor.asked
    assert tessera.fmha(*others[:3], causal=True, out=others[3]) is others[3]
    assert Tensor.asked == before
    lines = record()
    assert maps(lines) == {"0x50000", "0x60000", "0x70000", "0x80000"} and "causal" in lines[-1]
    # Other values, shapes and types are other calls.
    tessera.fmha(*others[:3], out=others[3])
    assert Tensor.asked > before and "full" in record()[-1]
    longer = tensors(0x50000, 0x60000, 0x70000, 0x80000, seqlen_k=60)
    before = Tensor.asked
    tessera.fmha(*longer[:3], causal=True, out=longer[3])
    assert Tensor.asked > before
    with pytest.raises(tessera.UsageError, match="outputs cannot be made"):
        tessera.fmha(*others[:3], causal=True)
    # A second Jit has calls of its own.
    kept = tessera.default_jit()
    tessera.set_default_jit(tessera.Jit())
    before = Tensor.asked
    tessera.fmha(*others[:3], causal=True, out=others[3])
    tessera.set_default_jit(kept)
    assert Tensor.asked > before


def test_a_tensor_that_was_given_twice_is_not_two_later():
    """Keys that are values too, and then values of their own, of the same shape."""
    tessera.set_default_jit(tessera.Jit())
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    for given in ((q, k, k), (q, k, k), (q, k, v), (q, k, v), (q, v, k), (q, k, k)):
        record()
        tessera.fmha(*given, out=o)
        assert maps(record()) <= {hex(tensor.address) for tensor in (*given, o)}
    others = tensors(0x50000, 0x60000, 0x70000, 0x80000)
    record()
    tessera.fmha(*others[:3], out=others[3])
    assert maps(record()) == {"0x50000", "0x60000", "0x70000", "0x80000"}


def test_tensors_of_derived_types_are_not_read_by_the_table():
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000, of=Traced)
    before = Tensor.asked
    for _ in range(2):
        tessera.fmha(q, k, v, causal=True, out=o)
    assert Tensor.asked >= before + 6


def test_what_a_call_costs(capsys):
    """Printed, not judged: time of the host with a driver that does nothing; reading a tensor is Python's here, some 2 us."""
    launch = bound()
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    step = launch.taking("q", "k", "v", "o")
    ways = {
        "Launch.launch(stream)": lambda: launch.launch(0x1230),
        "taking(q, k, v, o)": lambda: step(q, k, v, o),
        "fmha": lambda: tessera.fmha(q, k, v, causal=True, out=o),
        "reading four tensors": lambda: [_read(tensor, ctypes.pointer(_DLTensor())) for tensor in (q, k, v, o)],
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


def test_a_scalar_or_size_that_a_tensor_holds_is_read_in_every_call(monkeypatch):
    """Its value is not in what calls are told apart by: the second one must not be served with the first one's."""
    monkeypatch.setattr(Tensor, "__float__", lambda self: self.value, raising=False)
    monkeypatch.setattr(Tensor, "__index__", lambda self: self.value, raising=False)
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    scale = Tensor(0x90000, ())
    for value in (0.5, 0.25):
        scale.value = value
        tessera.fmha(q, k, v, out=o, softmax_scale=scale)
        record()
    scale.value = float("inf")
    with pytest.raises(tessera.UsageError, match="softmax_scale.*inf"):
        tessera.fmha(q, k, v, out=o, softmax_scale=scale)
    kernel = tessera.Kernel("fmha", head_dim=64, dtype="f16")
    left = Tensor(0x90000, ())
    for value in (3, -7):
        left.value = value
        arguments = {"q": q, "k": k, "v": v, "o": o, "heads_q": left}
        with pytest.raises(tessera.UsageError, match=f"heads_q is {value} by the call"):
            kernel(**arguments)


def test_a_refused_launch_leaves_what_is_bound():
    launch = bound()
    with pytest.raises(tessera.UsageError, match="k: .*bind it anew"):
        launch.launch(q=Tensor(0x50000, (2, 40, 4, 64)), k=Tensor(0x60000, (2, 51, 2, 64)))
    record()
    launch.launch()
    assert "0x50000" not in maps(record())


class Interface:
    """A tensor that has nothing but __cuda_array_interface__."""

    def __init__(self, address, shape=(2, 40, 4, 64), read_only=False, typestr="<f2", **more):
        self.__cuda_array_interface__ = {"version": 3, "data": (address, read_only), "shape": shape, "typestr": typestr, **more}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"o": Interface(0x40000, read_only=True)}, "o is read-only"),
        ({"q": Interface(0x10000, strides=(20481, 513, 129, 2))}, "q: strides .* no multiples of its elements' 2 bytes"),
        ({"q": Interface(0x10000, typestr=">f2")}, "q: element type >f2"),
        ({"q": Interface(0x10000, mask=object())}, "q has a mask"),
    ],
)
def test_interfaces_are_read_to_the_end(given, message):
    q, k, v, o = tensors(0x10000, 0x20000, 0x30000, 0x40000)
    with pytest.raises(tessera.UsageError, match=message):
        tessera.Kernel("fmha", head_dim=64, dtype="f16").bind(**({"q": q, "k": k, "v": v, "o": o} | given))


@pytest.mark.parametrize("workspace", [Interface(0x50000000, (1 << 24,), typestr="|u1", strides=(2,)), None])
def test_a_workspace_is_dense_memory_of_the_gpu(workspace):
    import numpy

    q, o = (Tensor(address, (1, 1, 8, 64)) for address in (0x10000, 0x40000))
    k, v = (Tensor(address, (1, 8192, 2, 64)) for address in (0x20000000, 0x30000000))
    with pytest.raises(tessera.UsageError, match="workspace: dense memory of GPU 0"):
        tessera.fmha(q, k, v, out=o, workspace=numpy.zeros(1 << 22, numpy.uint8) if workspace is None else workspace)


def test_each_tensor_is_taken_once():
    with pytest.raises(tessera.UsageError, match="each once"):
        bound().taking("q", "q")

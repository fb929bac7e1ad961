"""Tensors of any library as address, shape and strides, and memory where outputs go.

NumPy, PyTorch and CuPy are looked at through their own attributes, which is quickest; anything else by
`__cuda_array_interface__` or `__dlpack__`. None of them is imported here.
"""

from __future__ import annotations

import sys

from . import _core
from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

# Names of element types in other libraries -> the plan's.
DTYPES = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "int8": "s8",
    "int32": "s32",
    "int64": "s64",
    "bool": "u8",
}
_NAMES = {ours: theirs for theirs, ours in DTYPES.items() if theirs != "bool"}
_BYTES = {"f64": 8, "u64": 8, "s64": 8, "f32": 4, "u32": 4, "s32": 4, "bf16": 2, "f16": 2, "u16": 2}
_DLPACK = {(0, 8): "s8", (0, 32): "s32", (0, 64): "s64", (1, 8): "u8", (1, 16): "u16", (1, 32): "u32", (1, 64): "u64"}
_DLPACK |= {(2, 16): "f16", (2, 32): "f32", (2, 64): "f64", (4, 16): "bf16", (10, 8): "e4m3", (12, 8): "e5m2"}
_CODES = {name: code for code, name in _DLPACK.items()}
_TYPESTRS = {"f2": "f16", "f4": "f32", "f8": "f64", "u1": "u8", "u2": "u16", "u4": "u32", "i1": "s8", "i4": "s32"}
_TYPESTRS |= {"u8": "u64", "i8": "s64", "b1": "u8"}
_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13

_torch_dtypes: dict[Any, str] = {}


def bytes_of(dtype: str) -> int:
    """Bytes of an element."""
    return _BYTES.get(dtype, 1)


def name_of(dtype: str) -> str:
    """As PyTorch, CuPy and ml_dtypes name it."""
    return _NAMES[dtype]


def dlpack_code(dtype: str) -> tuple[int, int] | None:
    """DLPack's type code and bits."""
    return _CODES.get(dtype)


class View:
    """What a launch needs of a tensor. Strides in elements; ordinal: of its GPU, None on the host."""

    __slots__ = ("address", "shape", "strides", "dtype", "ordinal", "library", "source", "is_read_only")

    def __init__(
        self,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: str,
        ordinal: int | None,
        library: str,
        source: Any,
        is_read_only: bool = False,
    ) -> None:
        self.is_read_only = is_read_only
        self.address, self.shape, self.strides, self.dtype = address, shape, strides, dtype
        self.ordinal, self.library, self.source = ordinal, library, source

    @property
    def tensor(self) -> Any:
        """The caller's."""
        return self.source[0] if isinstance(self.source, tuple) else self.source

    @property
    def nbytes(self) -> int:
        """Of a dense tensor of this shape."""
        count = bytes_of(self.dtype)
        for extent in self.shape:
            count *= extent
        return count

    def is_dense(self) -> bool:
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _refuse_dtype(name: str, dtype: object) -> NoReturn:
    raise UsageError(f"{name}: element type {dtype} is none that tessera has")


def _torch_view(name: str, tensor: Any) -> View:
    dtype = _torch_dtypes.get(tensor.dtype)
    if dtype is None:
        dtype = DTYPES.get(str(tensor.dtype).removeprefix("torch."))
        if dtype is None:
            _refuse_dtype(name, tensor.dtype)
        _torch_dtypes[tensor.dtype] = dtype
    device = tensor.device
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"{name} lies on {device}: tensors of CUDA devices and of the host are taken")
    ordinal = (device.index or 0) if device.type == "cuda" else None
    if tensor.layout is not sys.modules["torch"].strided or tensor.is_neg():
        raise UsageError(f"{name}: a dense tensor is expected, as it lies in memory (sparse: to_dense(); negated: resolve_neg())")
    return View(tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), dtype, ordinal, "torch", tensor)


def _numpy_view(name: str, array: Any) -> View:
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None or not array.dtype.isnative:
        _refuse_dtype(name, array.dtype)
    if hasattr(array, "mask"):
        raise UsageError(f"{name} is a masked array: its mask would be lost; give filled() or data")
    size = array.dtype.itemsize
    if any(stride % size for stride in array.strides):
        raise UsageError(f"{name}: strides {array.strides} are no multiples of its elements' {size} bytes")
    strides = tuple(stride // size for stride in array.strides)
    return View(array.__array_interface__["data"][0], array.shape, strides, dtype, None, "numpy", array, not array.flags.writeable)


def _cuda_interface_view(name: str, array: Any, library: str) -> View:
    interface = array.__cuda_array_interface__
    dtype = _TYPESTRS.get(interface["typestr"][1:])
    if dtype is None or (interface["typestr"][0] == ">" and bytes_of(dtype) > 1):
        _refuse_dtype(name, interface["typestr"])
    shape = tuple(interface["shape"])
    size = bytes_of(dtype)
    in_bytes = interface.get("strides")
    if interface.get("mask") is not None:
        raise UsageError(f"{name} has a mask, which would be lost")
    if in_bytes is not None and any(stride % size for stride in in_bytes):
        raise UsageError(f"{name}: strides {tuple(in_bytes)} are no multiples of its elements' {size} bytes")
    strides = dense_strides(shape) if in_bytes is None else tuple(stride // size for stride in in_bytes)
    ordinal = array.device.id if library == "cupy" else 0
    return View(interface["data"][0], shape, strides, dtype, ordinal, library, array, bool(interface["data"][1]))


def _jax_view(name: str, array: Any) -> View:
    """Of an array or of what stands for one while a function is traced: without an address."""
    dtype = DTYPES.get(array.dtype.name)
    if dtype is None:
        _refuse_dtype(name, array.dtype)
    shape = tuple(array.shape)
    return View(0, shape, dense_strides(shape), dtype, 0, "jax", array)


def is_of_jax(value: Any) -> bool:
    """An array of JAX, traced or not, or a View of one."""
    return value.library == "jax" if type(value) is View else isinstance(value, sys.modules["jax"].Array)


def view(name: str, tensor: Any) -> View:
    """name: of the tensor, for messages. Raises UsageError for what is no tensor. A View is returned as it is."""
    if type(tensor) is View:
        return tensor
    library = type(tensor).__module__.partition(".")[0]
    if library in ("jax", "jaxlib") and isinstance(tensor, sys.modules["jax"].Array):
        return _jax_view(name, tensor)
    if library == "torch" or hasattr(tensor, "data_ptr"):
        return _torch_view(name, tensor)
    if library == "numpy" and hasattr(tensor, "__array_interface__"):
        return _numpy_view(name, tensor)
    if hasattr(tensor, "__cuda_array_interface__"):
        return _cuda_interface_view(name, tensor, library)
    if not hasattr(tensor, "__dlpack__"):
        raise UsageError(
            f"{name} is a {type(tensor).__name__}: must be a tensor (NumPy, PyTorch, CuPy, or with __dlpack__ or "
            "__cuda_array_interface__)"
        )
    address, shape, strides, code, bits, kind, ordinal, kept = _core.describe(tensor)
    dtype = _DLPACK.get((code, bits))
    if dtype is None:
        _refuse_dtype(name, f"DLPack code {code} of {bits} bits")
    if kind not in (_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED):
        raise UsageError(f"{name} lies on a device of DLPack kind {kind}: CUDA's and the host's are taken")
    is_gpu = kind in (_CUDA, _CUDA_MANAGED)
    is_read_only = _core.is_read_only(tensor)
    return View(address, shape, strides, dtype, ordinal if is_gpu else None, library, (tensor, kept), is_read_only)


def empty_like(like: View, shape: tuple[int, ...], dtype: str) -> Any:
    """An uninitialised dense tensor of the same library, where `like` lies."""
    if like.library == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, _NAMES[dtype]), device=like.source.device)
    if like.library == "cupy":
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(like.ordinal):
            return cupy.empty(shape, dtype=_NAMES[dtype])
    if like.library == "jax":  # made by XLA
        return View(0, shape, dense_strides(shape), dtype, like.ordinal, "jax", None)
    if like.ordinal is not None:
        raise UsageError(f"outputs cannot be made in arrays of {like.library}: give them (out=...)")
    import numpy

    if like.library == "numpy" and like.dtype == dtype:
        return numpy.empty(shape, like.source.dtype)
    try:
        return numpy.empty(shape, _NAMES[dtype])
    except TypeError:
        pass
    try:
        import ml_dtypes
    except ImportError:
        return numpy.empty(shape, {1: "uint8", 2: "uint16"}[bytes_of(dtype)])
    return numpy.empty(shape, getattr(ml_dtypes, _NAMES[dtype]))


def current_stream(of: View | None) -> int:
    """The stream that the tensor's library works on now, as a number."""
    if of is not None and of.library == "torch":
        return sys.modules["torch"].cuda.current_stream(of.ordinal).cuda_stream
    if of is not None and of.library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream().ptr
    return 0


def target_of(of: View) -> str | None:
    """The target of the tensor's GPU, "sm_90a", as far as its library says; None elsewhere."""
    if of.ordinal is None:
        return None
    if of.library == "torch":
        major, minor = sys.modules["torch"].cuda.get_device_capability(of.ordinal)
    elif of.library == "cupy":
        text = sys.modules["cupy"].cuda.Device(of.ordinal).compute_capability
        major, minor = int(text[:-1]), int(text[-1])
    elif of.library == "jax":
        gpus = [device for device in sys.modules["jax"].devices() if device.platform == "gpu"]
        if not gpus:
            return None
        major, minor = gpus[0].compute_capability.split(".")
    else:
        return None
    return f"sm_{major}{minor}a"


class HostCopy:
    """A dense copy of a tensor on the host, or the tensor itself where it is one."""

    def __init__(self, name: str, of: View) -> None:
        self._view = of
        if of.library == "torch":
            self._dense = of.source.detach().cpu().contiguous()
            self.address = self._dense.data_ptr()
        elif of.library == "numpy":
            import numpy

            self._dense = numpy.ascontiguousarray(of.source)
            self.address = self._dense.__array_interface__["data"][0]
        elif of.ordinal is None and of.is_dense():
            self._dense = of.source
            self.address = of.address
        else:
            raise UsageError(f"{name}: an array of {of.library} must be dense and on the host for the emulator")

    def write_back(self) -> None:
        """Into the tensor, where this is a copy."""
        if self.address == self._view.address:
            return
        if self._view.library == "torch":
            self._view.source.copy_(self._dense)
        else:
            self._view.source[...] = self._dense

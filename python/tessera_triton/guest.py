"""The emulator as a CUDA driver: libtessera_guest.so by ctypes."""

from __future__ import annotations

import ctypes
import json
import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

is_by_command = hasattr(ctypes.CDLL(None), "tessera_guest_last_report")  # `tessera emulate -- PROGRAM` preloads it
_library: ctypes.CDLL | None = None

MAP_BYTES = 128  # of a CUtensorMap
_CLUSTER, _COOPERATIVE, _DEPENDENT = 4, 2, 6  # CUlaunchAttributeID: cluster dimension, cooperative, PDL
_DYNAMIC_SMEM, _LARGE_CLUSTERS = 8, 14  # CUfunction_attribute
_MAX_THREADS, _REGISTERS = 0, 4
_ATTRIBUTES = {  # CUdevice_attribute by the names that Triton has for them
    "max_shared_mem": 97,
    "max_num_regs": 12,
    "multiprocessor_count": 16,
    "warpSize": 10,
    "sm_clock_rate": 13,
    "mem_clock_rate": 36,
    "mem_bus_width": 37,
}


class EmulatorError(RuntimeError):
    """A launch that failed, or a call that was refused. `findings`: of the launch, as dicts (docs/emulator.md)."""

    def __init__(self, message: str, found: list[dict[str, Any]] = ()) -> None:
        super().__init__(message)
        self.findings = list(found)


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16)]


class _Config(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("num_attributes", ctypes.c_uint),
    ]


def is_loaded() -> bool:
    return is_by_command or _library is not None


def _places() -> list[str]:
    found = []
    command = shutil.which("tessera")
    if command:
        folder = os.path.dirname(os.path.realpath(command))
        found += [os.path.join(folder, "..", place) for place in ("guest/lib", "lib/tessera", "lib64/tessera")]
        found += [os.path.join(folder, "..", "lib", "x86_64-linux-gnu", "tessera")]
    here = os.path.dirname(os.path.abspath(__file__))
    found.append(os.path.dirname(os.path.dirname(here)))  # of lib/tessera/python/tessera_triton, where it is a link too
    return [os.path.join(folder, "libtessera_guest.so") for folder in found]


def load(path: str | None = None) -> None:
    """OSError: there is no such library, with the places that were looked at."""
    global _library
    places = [path] if path else [os.environ["TESSERA_GUEST"]] if "TESSERA_GUEST" in os.environ else _places()
    for place in places:
        if os.path.exists(place):
            _library = ctypes.CDLL(place)
            _library.tessera_guest_leave_exit_code()
            return
    raise OSError("libtessera_guest.so is in none of: " + ", ".join(places) + "; TESSERA_GUEST names it")


def _driver() -> ctypes.CDLL:
    global _library
    if _library is None:
        if not is_by_command:
            raise RuntimeError("no emulated GPU: run by `tessera emulate -- python3 ...`, or call tessera_triton.use()")
        _library = ctypes.CDLL(None)
    if _library.tessera_guest_last_report.restype is not ctypes.c_char_p:
        _library.tessera_guest_last_report.restype = ctypes.c_char_p
        _library.cuInit(0)
    return _library


def _report() -> dict[str, Any]:
    return json.loads(_driver().tessera_guest_last_report())


def leave_out(names: str) -> None:
    """Hazards of these names, with commas between, are not reported from now on."""
    _driver().tessera_guest_leave_out(names.encode())


def findings() -> list[dict[str, Any]]:
    """What the last launch left: failures and hazards, each with `name`, `message`, `text`, lines and place."""
    return _report()["findings"]


def _check(code: int, call: str) -> None:
    if code == 0:
        return
    text = ctypes.c_char_p()
    _driver().cuGetErrorName(code, ctypes.byref(text))
    report = _report()
    raise EmulatorError(report["problem"] or f"{call}: {(text.value or b'').decode()} ({code})")


def capability() -> tuple[int, int]:
    return attribute(75), attribute(76)


def attribute(number: int) -> int:
    value = ctypes.c_int()
    _check(_driver().cuDeviceGetAttribute(ctypes.byref(value), number, 0), "cuDeviceGetAttribute")
    return value.value


def name() -> str:
    text = ctypes.create_string_buffer(256)
    _check(_driver().cuDeviceGetName(text, len(text), 0), "cuDeviceGetName")
    return text.value.decode()


def properties() -> dict[str, int]:
    return {name: attribute(number) for name, number in _ATTRIBUTES.items()}


def load_module(ptx: bytes) -> int:
    module = ctypes.c_void_p()
    _check(_driver().cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(ptx)), "cuModuleLoadData")
    return module.value


def unload_module(module: int) -> None:
    _driver().cuModuleUnload(ctypes.c_void_p(module))


def _function_attribute(function: int, number: int) -> int:
    value = ctypes.c_int()
    _check(_driver().cuFuncGetAttribute(ctypes.byref(value), number, ctypes.c_void_p(function)), "cuFuncGetAttribute")
    return value.value


def function(module: int, name: str, shared_bytes: int) -> int:
    found = ctypes.c_void_p()
    call = _driver().cuModuleGetFunction(ctypes.byref(found), ctypes.c_void_p(module), name.encode())
    _check(call, f"cuModuleGetFunction of {name}")
    set_attribute = _driver().cuFuncSetAttribute
    _check(set_attribute(found, _DYNAMIC_SMEM, shared_bytes), f"{shared_bytes} bytes of shared memory")
    _check(set_attribute(found, _LARGE_CLUSTERS, 1), "cuFuncSetAttribute")
    return found.value


def registers(function: int) -> int:
    return _function_attribute(function, _REGISTERS)


def max_threads(function: int) -> int:
    return _function_attribute(function, _MAX_THREADS)


def parameter_bytes(function: int) -> list[int]:
    """The size of each of the kernel's parameters."""
    sizes, offset, size = [], ctypes.c_size_t(), ctypes.c_size_t()
    query = _driver().cuFuncGetParamInfo
    while not query(ctypes.c_void_p(function), ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)):
        sizes.append(size.value)
    return sizes


def launch(
    function: int,
    grid: tuple[int, int, int],
    threads: int,
    shared_bytes: int,
    cluster: tuple[int, int, int],
    is_cooperative: bool,
    is_dependent: bool,
    parameters: list[bytes],
) -> None:
    """EmulatorError: the launch was refused, or failed; after it the device takes launches again."""
    values = []
    if tuple(cluster) != (1, 1, 1):
        values.append((_CLUSTER, cluster))
    if is_cooperative:
        values.append((_COOPERATIVE, (1,)))
    if is_dependent:
        values.append((_DEPENDENT, (1,)))
    attributes = (_Attribute * max(len(values), 1))()
    for made, (number, words) in zip(attributes, values):
        made.id = number
        made.value[: len(words)] = words
    config = _Config((ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(threads, 1, 1), shared_bytes, None)
    config.attributes, config.num_attributes = attributes, len(values)
    buffers = [ctypes.create_string_buffer(value, max(len(value), 1)) for value in parameters]
    pointers = (ctypes.c_void_p * max(len(buffers), 1))(*[ctypes.addressof(buffer) for buffer in buffers])
    driver = _driver()
    code = driver.cuLaunchKernelEx(ctypes.byref(config), ctypes.c_void_p(function), pointers, None)
    _check(code, f"cuLaunchKernelEx with grid {grid}, {threads} threads, {shared_bytes} bytes of shared memory")
    if driver.cuCtxSynchronize():
        driver.cuDevicePrimaryCtxReset_v2(0)
        found = findings()
        failures = [finding["text"] for finding in found if finding["is_failure"]]
        raise EmulatorError("\n".join(failures), found)


def allocate(size: int) -> int:
    pointer = ctypes.c_uint64()
    _check(_driver().cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)), f"cuMemAlloc of {size} bytes")
    return pointer.value


def free(pointer: int) -> None:
    _driver().cuMemFree_v2(ctypes.c_uint64(pointer))


def copy_to_device(pointer: int, host: int, size: int) -> None:
    code = _driver().cuMemcpyHtoD_v2(ctypes.c_uint64(pointer), ctypes.c_void_p(host), ctypes.c_size_t(size))
    _check(code, "cuMemcpyHtoD")


def copy_to_host(host: int, pointer: int, size: int) -> None:
    code = _driver().cuMemcpyDtoH_v2(ctypes.c_void_p(host), ctypes.c_uint64(pointer), ctypes.c_size_t(size))
    _check(code, "cuMemcpyDtoH")


def encode_tensor_map(
    pointer: int, data_type: int, shape: list[int], strides_bytes: list[int], box: list[int], swizzle: int, fill: int
) -> bytes:
    """A CUtensorMap; dimensions from the innermost, `strides_bytes` of all but that one."""
    rank = len(shape)
    made = (ctypes.c_uint64 * (MAP_BYTES // 8 + 8))()
    start = (ctypes.addressof(made) + 63) // 64 * 64
    code = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(start),
        data_type,
        rank,
        ctypes.c_void_p(pointer),
        (ctypes.c_uint64 * rank)(*shape),
        (ctypes.c_uint64 * max(rank - 1, 1))(*strides_bytes),
        (ctypes.c_uint32 * rank)(*box),
        (ctypes.c_uint32 * rank)(*[1] * rank),
        0,
        swizzle,
        2,  # L2 promotion: 128 bytes
        fill,
    )
    _check(code, f"the tensor map of a descriptor with shape {shape[::-1]}, box {box[::-1]}")
    return ctypes.string_at(start, MAP_BYTES)

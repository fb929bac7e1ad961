"""Triton's driver for the emulated GPU: what a launch of Triton's is in parameters and attributes of CUDA."""

from __future__ import annotations

import os
import struct
import sys
import time

import triton.backends.driver as _base

from . import guest
from .memory import DeviceMemory, empty

_INTEGERS = {"i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}
_FLOATS = {"fp16": "<e", "fp32": "<f", "f32": "<f", "fp64": "<d"}
_CPP = {1: "int8_t", 2: "int16_t", 4: "int32_t", 8: "int64_t"}
# Triton numbers float64, float32 and bfloat16 as the device's instructions do, the driver as CUtensorMapDataType.
_HOST_TYPE = {8: 10, 9: 8, 10: 9}
_TF32 = 11
# What Triton's compilers leave to ptxas and the hardware, beyond what PTX promises: nobody who writes Triton can change it.
# 3.9: no tcgen05.fence, conversions of what tcgen05.ld brings before tcgen05.wait::ld, scales copied over those of products
# under way; Tensor Memory read before the first round of a loop that may have none, and thrown away; barriers invalidated
# while an earlier commit than the last completes on them; warp-specialised for sm_90 a parity of -1. 3.4 and 3.6 also:
# commits to a shared address as if it were generic, one that tracks nothing, descriptors without a version.
_COMPILERS_HAZARDS = ",".join(
    [
        "missing-tcgen05-fence",
        "missing-tcgen05-wait",
        "tcgen05-copy-unordered",
        "tmem-uninitialised",
        "shared-address-as-generic",
        "tcgen05-commit-tracks-nothing",
        "descriptor-version",
        "mbarrier-parity",
        "mbarrier-invalidated",
    ]
)


def scalar_bytes(kind: str, value) -> bytes:
    """A scalar argument of Triton's type `kind` as the kernel reads it."""
    if kind in _INTEGERS:
        bits = 8 * _INTEGERS[kind]
        return (int(value) & ((1 << bits) - 1)).to_bytes(bits // 8, "little")
    if kind == "bf16":
        return struct.pack("<f", value)[2:]  # the upper half, as Triton's own launcher takes it
    return struct.pack(_FLOATS[kind], value)


class EmulatedLauncher:
    """Launches one compiled kernel. Triton calls it with the grid, its function, hooks and arguments."""

    def __init__(self, src, metadata):
        self._kinds = tuple(src.signature.values())
        self._metadata = metadata
        self._descriptors = getattr(metadata, "tensordesc_meta", None) or None
        ctas = getattr(metadata, "num_ctas", 1) or 1
        self._cluster = tuple(getattr(metadata, "cluster_dims", None) or (ctas, 1, 1))
        self._num_ctas = self._cluster[0] * self._cluster[1] * self._cluster[2]

    def __call__(self, grid_x, grid_y, grid_z, stream, function, packed, launch_metadata, enter, exit_, *arguments):
        if grid_x * grid_y * grid_z == 0:
            return
        if enter is not None:
            enter(launch_metadata)
        sizes = guest.parameter_bytes(function)
        with DeviceMemory() as memory:
            parameters = []
            self._descriptor = 0
            for kind, value in zip(self._kinds, arguments):
                self._add(parameters, memory, kind, value)
            ctas = grid_x * grid_y * grid_z * self._num_ctas
            for name in ("global_scratch", "profile_scratch")[: len(sizes) - len(parameters)]:
                scratch = self._scratch(name, ctas, stream)
                parameters.append(memory.pointer(scratch).to_bytes(8, "little"))
            if [len(value) for value in parameters] != sizes:
                found = [len(value) for value in parameters]
                raise RuntimeError(f"{self._metadata.name}: parameters of {sizes} bytes, Triton's arguments have {found}")
            grid = [count * ctas for count, ctas in zip((grid_x, grid_y, grid_z), self._cluster)]
            guest.launch(
                function,
                tuple(grid),
                32 * self._metadata.num_warps,
                self._metadata.shared,
                self._cluster,
                bool(getattr(self._metadata, "launch_cooperative_grid", False)),
                bool(getattr(self._metadata, "launch_pdl", False)),
                parameters,
            )
            memory.copy_back()
        if exit_ is not None:
            exit_(launch_metadata)

    def _add(self, parameters, memory, kind, value):
        if isinstance(kind, tuple):
            for part, inner in zip(kind, value):
                self._add(parameters, memory, part, inner)
        elif kind == "constexpr":
            return
        elif kind[0] == "*":
            parameters.append(memory.pointer(value).to_bytes(8, "little"))
        elif kind.startswith("tensordesc"):
            self._add_descriptor(parameters, memory, value)
        else:
            parameters.append(scalar_bytes(kind, value))

    def _add_descriptor(self, parameters, memory, value):
        sizes = b"".join(scalar_bytes("i64", size) for size in (*value.shape, *value.strides))
        words = [sizes[at : at + 8] for at in range(0, len(sizes), 8)]
        rounds = getattr(value, "round_f32_to_tf32", None)
        if self._descriptors is None:  # the kernel has no TMA: pointer, shape, strides, flags
            parameters += [memory.pointer(value.base).to_bytes(8, "little"), *words]
            if hasattr(value, "padding"):
                parameters.append(scalar_bytes("i1", value.padding == "nan"))
            if rounds is not None:
                parameters.append(scalar_bytes("i1", rounds))
        else:
            facts = self._descriptors[self._descriptor]
            self._descriptor += 1
            if facts.get("is_im2col"):
                raise NotImplementedError("im2col tensor maps made on the host are not provided")
            shape, element = list(value.shape), facts["elem_size"]
            if facts["fp4_padded"]:
                shape[-1] *= 2
            kind = _TF32 if rounds else _HOST_TYPE.get(facts["elem_type"], facts["elem_type"])
            strides = [stride * element for stride in value.strides[:-1]]
            fill = 1 if getattr(value, "padding", "zero") == "nan" else 0
            pointer = memory.pointer(value.base)
            box = list(facts["block_size"])
            swizzle = facts["swizzle"]
            parameters.append(
                guest.encode_tensor_map(pointer, kind, shape[::-1], strides[::-1], box[::-1], swizzle, fill)
            )
        parameters += [scalar_bytes("i32", size) for size in value.shape]
        parameters += words[len(value.shape) :]

    def _scratch(self, name, ctas, stream):
        size = getattr(self._metadata, f"{name}_size", 0) or 0
        if size == 0:
            return None
        from triton.runtime import _allocation

        if name == "global_scratch":
            allocator = _allocation._allocator
        elif _allocation.has_profile_allocator():
            allocator = _allocation._profile_allocator
        else:
            return empty(ctas * size).zero_()
        if hasattr(allocator, "get"):
            allocator = allocator.get()
        return allocator(ctas * size, getattr(self._metadata, f"{name}_align"), stream)


class EmulatedUtils:
    """What Triton's compiled helper offers its driver."""

    def load_binary(self, name, ptx, shared_bytes, device):
        """Module, function, registers, spills, threads. EmulatorError: PTX that does not run here, each line named."""
        module = guest.load_module(ptx)
        function = guest.function(module, name, shared_bytes)
        return module, function, guest.registers(function), 0, guest.max_threads(function)

    def unload_module(self, module):
        guest.unload_module(module)

    def get_device_properties(self, device):
        return guest.properties()

    def get_device_capability(self, device):
        return guest.capability()

    def get_current_device(self):
        return 0

    def set_current_device(self, device):
        pass

    def is_stream_capturing(self, stream):
        return False

    def set_printf_fifo_size(self, size):
        pass


class HostEvent:
    """torch.cuda.Event by the host's clock: how long the emulator took says nothing about a GPU."""

    def __init__(self, *_, **__):
        self._seconds = 0.0

    def record(self, stream=None):
        self._seconds = time.perf_counter()

    def synchronize(self):
        pass

    def query(self):
        return True

    def elapsed_time(self, later) -> float:
        return max((later._seconds - self._seconds) * 1e3, 1e-3)


class HostInterface:
    """What triton.testing asks torch.cuda for."""

    Event = HostEvent

    @staticmethod
    def synchronize(device=None):
        pass

    @staticmethod
    def current_device():
        return 0

    @staticmethod
    def set_device(device):
        pass

    @staticmethod
    def current_stream(device=None):
        return None

    @staticmethod
    def get_device_capability(device=None):
        return guest.capability()


class EmulatedDriver(_base.GPUDriver):
    """The emulated GPU, whose tensors are PyTorch's on the CPU."""

    def __init__(self):
        self.utils = EmulatedUtils()
        self.launcher_cls = EmulatedLauncher
        self.get_device_capability = self.utils.get_device_capability
        self.get_current_device = self.utils.get_current_device
        self.set_current_device = self.utils.set_current_device
        self.get_current_stream = lambda device: 0
        if os.environ.get("TESSERA_TRITON_AUTOTUNE", "first") != "all":
            take_first_config()
        if os.environ.get("TESSERA_TRITON_HAZARDS", "own") != "all":
            guest.leave_out(_COMPILERS_HAZARDS)

    @staticmethod
    def is_active():
        return guest.is_loaded()

    def get_current_target(self):
        from triton.backends.compiler import GPUTarget

        major, minor = guest.capability()
        return GPUTarget("cuda", 10 * major + minor, 32)

    def get_active_torch_device(self):
        import torch

        return torch.device("cpu")

    def get_device_interface(self):
        return HostInterface

    def map_python_to_cpp_type(self, kind):
        if kind[0] == "*":
            return "CUdeviceptr"
        if kind.startswith("tensordesc") or kind == "nvTmaDesc":
            return "CUtensorMap"
        if kind not in _INTEGERS:
            return "double"
        return ("u" if kind[0] == "u" else "") + _CPP[_INTEGERS[kind]]

    def get_benchmarker(self):
        def once(call, *, quantiles=None, **_):
            start = time.perf_counter()
            call()
            took = (time.perf_counter() - start) * 1e3
            return [took] * len(quantiles) if quantiles else took

        return once

    def get_empty_cache_for_benchmark(self):
        return None

    def clear_cache(self, cache):
        pass


def take_first_config() -> None:
    """Autotuning measures, which an emulator cannot: of the configurations the first that runs is taken."""
    from triton.runtime.autotuner import Autotuner

    if getattr(Autotuner, "is_tessera", False):
        return
    prune, bench = Autotuner.prune_configs, Autotuner._bench

    def prune_configs(self, *arguments, **options):
        self.tessera_has_one = False
        return prune(self, *arguments, **options)

    def bench_first(self, *arguments, **options):
        if getattr(self, "tessera_has_one", False):
            return [float("inf")] * 3
        took = bench(self, *arguments, **options)
        self.tessera_has_one = took[0] != float("inf")
        return took

    Autotuner.prune_configs, Autotuner._bench, Autotuner.is_tessera = prune_configs, bench_first, True
    # A process whose first launch is tuned makes its driver in the midst of that: the configuration under way is the one.
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "_bench" and isinstance(frame.f_locals.get("self"), Autotuner):
            frame.f_locals["self"].tessera_has_one = True
        frame = frame.f_back


def step_aside() -> None:
    """CUDA's PyTorch sees the emulated GPU too, so NVIDIA's driver would be a second active one."""
    from triton.backends.nvidia.driver import CudaDriver

    CudaDriver.is_active = staticmethod(lambda: False)


if guest.is_loaded():
    step_aside()

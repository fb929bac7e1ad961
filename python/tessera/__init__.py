"""GPU kernels for attention and matrix products, each compiled for exactly the types, head size and options asked for.

    import tessera
    o = tessera.fmha(q, k, v, causal=True)                          # PyTorch, CuPy: on their GPU and stream
    o = tessera.fmha(q, k, v, causal=True, device="emulator")       # NumPy too: on the CPU, faults are reported
    kernel = tessera.Kernel("fmha", head_dim=128, mask="causal")    # from the cache, else compiled now
    launch = kernel.bind(q=q, k=k, v=v)                             # shapes checked once
    launch.launch()                                                 # as often as you like; launch.outputs["o"]

Compiling takes NVRTC (CUDA's run-time compiler) and about half a second, once; after that kernels come from a cache on
disk. Importing needs neither a GPU nor PyTorch nor NumPy. docs/python.md says more.
"""

from . import _core
from .attention import Nvfp4Operands, attention_quantize, fmha, fmha_nvfp4
from .command import Picture, Timeline, layout, timeline
from .emulator import Emulator, Finding
from .errors import (
    CompileError,
    DeviceError,
    EmulatorWarning,
    InternalError,
    IoError,
    TesseraError,
    UnsupportedError,
    UsageError,
)
from .jit import Jit, check, default_jit, plan, set_default_jit, warm
from .kernel import Kernel, Launch
from .operators import dequantize, gemm, moe_route, quantize, rows, topk

__version__ = _core.version()
__all__ = [
    "CompileError",
    "DeviceError",
    "Emulator",
    "EmulatorWarning",
    "Finding",
    "InternalError",
    "IoError",
    "Jit",
    "Kernel",
    "Launch",
    "Nvfp4Operands",
    "Picture",
    "TesseraError",
    "Timeline",
    "UnsupportedError",
    "UsageError",
    "attention_quantize",
    "check",
    "default_jit",
    "dequantize",
    "fmha",
    "fmha_nvfp4",
    "gemm",
    "layout",
    "moe_route",
    "plan",
    "quantize",
    "rows",
    "set_default_jit",
    "timeline",
    "topk",
    "warm",
]

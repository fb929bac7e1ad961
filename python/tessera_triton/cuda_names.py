"""Scripts that say "cuda": their tensors are made on the CPU, where the emulated GPU's are.

PyTorch's own kernels are machine code, which the emulator does not run, so nothing is lost. TESSERA_TRITON_CUDA=keep
leaves the name alone: memory of the emulated device then, for programs that bring their own kernels alone.
"""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace


def _is_cuda(device) -> bool:
    return device is not None and not isinstance(device, int) and str(device).split(":")[0] == "cuda"


def _make_mode():
    import torch
    from torch.overrides import TorchFunctionMode

    class CudaIsCpu(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            options = dict(options or {})
            if _is_cuda(options.get("device")):
                options["device"] = "cpu"
            if function is torch.Tensor.cuda:
                return arguments[0]
            if function is torch.Tensor.to:
                arguments = tuple("cpu" if isinstance(a, (str, torch.device)) and _is_cuda(a) else a for a in arguments)
            return function(*arguments, **options)

    return CudaIsCpu()


def _stand_in(torch) -> None:
    """What scripts ask torch.cuda for, where PyTorch finds no CUDA."""
    from . import guest
    from .driver import HostInterface

    def properties(device=None):
        major, minor = guest.capability()
        count = guest.properties()["multiprocessor_count"]
        return SimpleNamespace(name=guest.name(), major=major, minor=minor, multi_processor_count=count, warp_size=32)

    names = ("Event", "synchronize", "current_device", "set_device", "current_stream", "get_device_capability")
    for name in names:
        setattr(torch.cuda, name, getattr(HostInterface, name))
    torch.cuda.get_device_properties = properties
    torch.cuda.get_device_name = lambda device=None: guest.name()


_mode = None


def take_over() -> None:
    """Once; where PyTorch is there and has been imported to its end."""
    global _mode
    if _mode is not None or os.environ.get("TESSERA_TRITON_CUDA", "cpu") == "keep":
        return
    try:
        import torch
    except ImportError:
        return
    if not hasattr(sys.modules["torch"], "overrides") or not hasattr(torch, "cuda"):
        return
    _mode = _make_mode()
    _mode.__enter__()
    if not torch.cuda.is_available():
        _stand_in(torch)

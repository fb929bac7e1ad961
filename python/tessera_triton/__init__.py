"""Triton's kernels on tessera's emulator: no GPU, tensors of PyTorch on the CPU.

`tessera emulate --gpu B200 -- python3 script.py` needs nothing else: Triton finds this backend by its entry point. In a
program of one's own, or in its tests, one line does the same:

    import tessera_triton
    tessera_triton.use(gpu="B200", races=True)

Kernels are compiled by Triton as it is, up to PTX, and launched on the emulator. What it finds wrong in a launch is an
EmulatorError with the finding's text. docs/triton.md says what works.
"""

from __future__ import annotations

import os

from . import guest
from .guest import EmulatorError, findings

__all__ = ["EmulatorError", "findings", "use"]


def use(
    gpu: str = "H100",
    *,
    races: bool = False,
    strict: bool = False,
    schedule: str = "fair",
    seed: int = 1,
    sms: int = 0,
    max_seconds: int = 600,
    library: str | None = None,
) -> None:
    """From now on Triton's kernels of this process run on an emulated GPU.

    gpu: H100, H200, B200, B300, RTX5090 or GB10. The others are the flags of `tessera emulate` (docs/guest-programs.md);
    sms = 0: as many multiprocessors as the GPU has. library: the path of libtessera_guest.so, which is otherwise found
    beside the `tessera` of PATH. Once in a process: a second call with another GPU is a RuntimeError. OSError: there is no
    library. The process keeps its own exit code, since failures are exceptions.
    """
    values = {
        "GPU": gpu,
        "RACES": int(races),
        "STRICT": int(strict),
        "SCHEDULE": schedule,
        "SEED": seed,
        "SMS": sms,
        "MAX_SECONDS": max_seconds,
    }
    environment = {f"TESSERA_EMULATE_{name}": str(value) for name, value in values.items()}
    if guest.is_loaded():
        if not guest.is_by_command and any(os.environ.get(name) != value for name, value in environment.items()):
            raise RuntimeError("tessera_triton.use: this process has an emulated GPU already, with other options")
    else:
        os.environ.update(environment)
        guest.load(library)
    from triton.runtime import driver

    from . import compiler, cuda_names
    from .driver import EmulatedDriver

    compiler.stop_at_ptx()
    cuda_names.take_over()
    if not isinstance(driver._active, EmulatedDriver):
        driver.set_active(EmulatedDriver())

"""GPUs that are none: kernels run on the CPU, and what is wrong with them is reported."""

from __future__ import annotations

import contextlib
import threading
import warnings

from . import _core
from .errors import DeviceError, EmulatorWarning, UsageError
from .jit import Jit, default_jit, parsed, require_jit
from .values import real, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class Finding:
    """What the emulator found. A failure ended the launch, a hazard did not."""

    __slots__ = ("name", "message", "is_failure")

    def __init__(self, name: str, message: str, is_failure: bool) -> None:
        self.name, self.message, self.is_failure = name, message, is_failure

    def __repr__(self) -> str:
        return f"Finding({self.name!r}, {self.message!r}, is_failure={self.is_failure})"


class Emulator:
    """A GPU of a target, emulated: `tessera.fmha(q, k, v, device=tessera.Emulator(detects_races=True))`.

    arch: the target that it is. schedule: "fair", "eager", "lazy", "adversarial", "split" or "weak", drawn by `seed`
    (docs/emulator.md). detects_races: report accesses that nothing orders; two to six times slower. max_seconds: of
    a launch, which then fails; 0: no limit. It measures no time. Launches on one Emulator follow one another.
    """

    def __init__(
        self,
        arch: str = "sm_90a",
        *,
        seed: int = 1,
        schedule: str = "fair",
        detects_races: bool = False,
        max_seconds: float = 0.0,
        num_sms: int = 0,
        jit: Jit | None = None,
    ) -> None:
        for name, text in (("arch", arch), ("schedule", schedule)):
            if not isinstance(text, str):
                raise UsageError(f"{name} = {text!r}: must be a word")
        if whole("seed", seed) < 0:
            raise UsageError(f"seed = {seed}: must be at least 0")
        self.jit = default_jit() if jit is None else require_jit(jit)
        self.arch = arch
        self.findings: list[Finding] = []
        self._core = _core.Device(
            self.jit._core, 0, 0, arch, seed, schedule, real("max_seconds", max_seconds), whole("num_sms", num_sms), detects_races
        )
        self._lock = threading.Lock()
        self._thread = 0  # which has the lock

    def __deepcopy__(self, memo: dict[int, Any]) -> Emulator:
        """It is a device: what holds one shares it."""
        return self

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One launch at a time. A signal's handler runs in the midst of one, and may not begin another."""
        if self._thread == threading.get_ident():
            raise UsageError("this Emulator is in the midst of a launch, of this thread: a signal's handler takes another one")
        with self._lock:
            self._thread = threading.get_ident()
            try:
                self._core.synchronize()  # what a launch that was interrupted may have left
                yield
            finally:
                self._thread = 0

    @property
    def info(self) -> dict[str, Any]:
        """Name, compute capability, multiprocessors, memory in bytes."""
        return parsed(self._core.info)

    def take_findings(self) -> None:
        """Waits, and puts what was found into `findings`. Hazards warn (EmulatorWarning), a failure is DeviceError."""
        text, failure = self._core.synchronize()
        self.findings = [Finding(one["name"], one["message"], one["is_failure"]) for one in parsed(text)]
        if failure is not None:
            raise DeviceError(failure, [one.message for one in self.findings[1:]])
        for one in self.findings:
            warnings.warn(f"{one.name}: {one.message}", EmulatorWarning, stacklevel=4)


def emulator_for(jit: Jit, arch: str) -> Emulator:
    """The Emulator that device="emulator" stands for."""
    with jit._lock:
        if arch not in jit._emulators:
            jit._emulators[arch] = Emulator(arch, jit=jit)
        return jit._emulators[arch]


class Memory:
    """An allocation, freed with the object."""

    def __init__(self, emulator: Emulator, nbytes: int) -> None:
        self.emulator = emulator
        self.nbytes = nbytes
        self.address = emulator._core.allocate(nbytes) if nbytes > 0 else 0

    def __del__(self) -> None:
        if getattr(self, "address", 0) and self.emulator._core is not None:
            self.emulator._core.free(self.address)

"""Why a call failed: one class for each kind that the library documents (docs/c.md)."""

from __future__ import annotations

from . import _core

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


class TesseraError(Exception):
    """Base of all errors of tessera. `message` is one sentence; `notes` holds further lines (a compiler's log, ...)."""

    kind = "unknown"

    def __init__(self, message: str, notes: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.notes = list(notes)
        if hasattr(self, "add_note"):  # Python 3.11: a traceback shows them
            for note in self.notes:
                self.add_note(note)


class UsageError(TesseraError, ValueError):
    """The call itself: an unknown name, shapes that do not fit, sizes outside the domain, a misaligned pointer."""

    kind = "usage"


class UnsupportedError(TesseraError):
    """Well-formed, but no kernel exists for it, or it is in no cache and compiling is forbidden."""

    kind = "unsupported"


class CompileError(TesseraError):
    """The compiler refused generated code; `notes` holds its log."""

    kind = "compile"


class DeviceError(TesseraError):
    """The driver or the device failed; in the emulator a kernel that hangs or touches what is not its."""

    kind = "device"


class IoError(TesseraError, OSError):
    """Files and folders; no NVRTC where a kernel has to be compiled."""

    kind = "io"


class InternalError(TesseraError):
    """Out of memory, or a bug of tessera."""

    kind = "internal"


class EmulatorWarning(UserWarning):
    """A hazard that the emulator found: a race, a read of what nobody has written. The run went on."""


_core.set_error_types(
    {2: UsageError, 3: UnsupportedError, 4: CompileError, 5: DeviceError, 6: IoError, 70: InternalError}
)

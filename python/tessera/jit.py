"""Where kernels come from: cache folders and a compiler."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

from . import _core
from .errors import IoError, UsageError
from .values import whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Union

    Shapes = Union[str, os.PathLike, Mapping[str, Any], Iterable[Mapping[str, Any]]]
    """A shape list: its JSON text, a path to it, the object itself, or its list of kernels."""

_POLICIES = {None: 0, "allow": 1, "warn": 2, "forbid": 3}


def _paths(paths: Iterable[str | os.PathLike] | None) -> str | None:
    if paths is None:
        return None
    if isinstance(paths, (str, os.PathLike)):
        raise UsageError(f"system_cache_dirs = {paths}: must be a list of folders")
    return ":".join(_path("system_cache_dirs", path) or "" for path in paths)


def _path(name: str, path: str | os.PathLike | None) -> str | None:
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"{name} = {path!r}: must be a path")
    return None if path is None else os.fsdecode(path)


def parsed(text: str) -> Any:
    """JSON as Python has it. Its module is imported here: importing tessera takes milliseconds."""
    import json

    return json.loads(text)


def _text_of(shapes: Shapes) -> str:
    import json

    if isinstance(shapes, os.PathLike) or (isinstance(shapes, str) and not shapes.lstrip().startswith(("{", "["))):
        try:
            with open(shapes, encoding="utf-8") as file:
                return file.read()
        except OSError as error:
            raise IoError(f"{os.fspath(shapes)}: {error.strerror}") from None
    if isinstance(shapes, str):
        return shapes if shapes.lstrip().startswith("{") else '{"kernels": ' + shapes + "}"
    is_list = isinstance(shapes, (list, tuple)) and all(isinstance(one, Mapping) for one in shapes)
    if not is_list and not isinstance(shapes, Mapping):
        raise UsageError(f"shapes = {shapes!r}: must be a shape list, its text, or a path to it")
    return json.dumps(dict(shapes) if isinstance(shapes, Mapping) else {"kernels": [dict(one) for one in shapes]})


class Jit:
    """Kernels by their operator's fields: from memory, from the cache folders in order, else compiled (about 0.5 s).

    Every argument is the command's flag and the environment variable of the same name; one that is left out takes the
    environment's value (`TESSERA_CACHE_DIR`, ...), else the default. All methods may be called from several threads.

    cache_dir: default ~/.cache/tessera. system_cache_dirs: read-only folders, searched after it. cache_max_bytes: of
    cache_dir; -1 for no limit. compile_policy: "allow", "warn" or "forbid". compile_time_limit_ms: a call gives up
    waiting after it. check_pointers: the driver is asked about every buffer before a launch (microseconds each).
    on_event(kind, kernel, tier, message, milliseconds): hits, compiles and warnings, on the thread where they happen;
    kind is "hit", "compile_started", "compile_finished", "compile_failed" or "warning".
    """

    def __init__(
        self,
        *,
        cache_dir: str | os.PathLike | None = None,
        system_cache_dirs: Iterable[str | os.PathLike] | None = None,
        cache_max_bytes: int = 0,
        nvrtc: str | os.PathLike | None = None,
        repro_dir: str | os.PathLike | None = None,
        compile_policy: str | None = None,
        compile_time_limit_ms: int = 0,
        no_disk_cache: bool = False,
        trust_cache_dir: bool = False,
        require_compiler: bool = False,
        check_pointers: bool = False,
        ignore_environment: bool = False,
        on_event: Callable[[str, str, str, str, float], None] | None = None,
    ) -> None:
        if not isinstance(compile_policy, (str, type(None))) or compile_policy not in _POLICIES:
            raise UsageError(f"compile_policy = {compile_policy}: must be one of allow, warn, forbid")
        if on_event is not None and not callable(on_event):
            raise UsageError(f"on_event = {on_event!r}: must be a function")
        self._core = _core.Jit(
            cache_dir=_path("cache_dir", cache_dir),
            system_cache_dirs=_paths(system_cache_dirs),
            cache_max_bytes=whole("cache_max_bytes", cache_max_bytes),
            nvrtc=_path("nvrtc", nvrtc),
            repro_dir=_path("repro_dir", repro_dir),
            compile_time_limit_ms=whole("compile_time_limit_ms", compile_time_limit_ms),
            compile_policy=_POLICIES[compile_policy],
            no_disk_cache=no_disk_cache,
            trust_cache_dir=trust_cache_dir,
            require_compiler=require_compiler,
            check_pointers=check_pointers,
            ignore_environment=ignore_environment,
            on_event=on_event,
        )
        self._kernels: dict[Any, Any] = {}  # of tessera.Kernel, by operator and fields
        self._calls: dict[Any, Any] = {}  # of functions over tensors: tessera/remembered.py
        self._emulators: dict[str, Any] = {}  # those of device="emulator", by target
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit:
        """A copy would be a second owner of the same caches: what holds one shares it."""
        return self

    def warm(
        self,
        shapes: Shapes,
        *,
        jobs: int = 0,
        dry_run: bool = False,
        on_progress: Callable[[int, int, float, float, str], Any] | None = None,
    ) -> dict[str, Any]:
        """Compiles what a shape list needs and no cache has; the report of `tessera warm --json` as a dict.

        shapes: {"kernels": [{"op": "fmha", "head_dim": [64, 128]}]}, its text, or a path to it (docs/cli.md).
        jobs: compiles at a time; 0: one a core. dry_run: plan and look up only.
        on_progress(done, total, seconds, seconds_left, kernel): after each kernel; what is true ends the warm-up.
        A kernel that failed has "error" among the report's "entries". Raises UsageError for a list with mistakes.
        """
        return parsed(self._core.warm(_text_of(shapes), jobs, dry_run, on_progress))

    def check(self, shapes: Shapes) -> dict[str, Any]:
        """Would the caches serve a shape list without compiling? Needs no GPU and no compiler.

        The dict has the counts "covered", "problems", "kernels" and "rejected", and the lists "missing" (each with the
        command that warms it) and "rejections". Everything is served where covered == problems.
        """
        return parsed(self._core.check(_text_of(shapes)))

    def stats(self) -> dict[str, Any]:
        """Hits of each cache tier, compiles and their milliseconds, since this Jit was made.

        Of a remote cache: "remote_hits", "remote_misses", "remote_stored", "remote_errors" (look-ups that it did not
        answer), "remote_failures" (entries that it did not take) and "remote_ms", in which callers waited for it.
        """
        return self._core.stats()


_default: Jit | None = None
_default_lock = threading.Lock()


def default_jit() -> Jit:
    """The Jit of calls that name none: made at the first of them, by the environment."""
    global _default
    if _default is None:
        with _default_lock:
            if _default is None:
                _default = Jit()
    return _default


def require_jit(jit: Jit) -> Jit:
    """What was given as jit=. UsageError for anything else."""
    if not isinstance(jit, Jit):
        raise UsageError(f"jit = {jit!r}: must be a tessera.Jit")
    return jit


def set_default_jit(jit: Jit) -> None:
    """Takes the place of the default Jit, for calls from here on."""
    global _default
    require_jit(jit)
    with _default_lock:
        _default = jit


def warm(shapes: Shapes, **options: Any) -> dict[str, Any]:
    """`Jit.warm` of the default Jit."""
    return default_jit().warm(shapes, **options)


def check(shapes: Shapes) -> dict[str, Any]:
    """`Jit.check` of the default Jit."""
    return default_jit().check(shapes)


def fields_of(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Fields as the library takes them: True and False are "on" and "off", None is left out."""
    words = {True: "on", False: "off"}
    return [
        (name, words[value] if isinstance(value, bool) else str(value))
        for name, value in fields.items()
        if value is not None
    ]


def plan(op: str, **fields: Any) -> dict[str, Any]:
    """The kernel that would be chosen, without compiling: what `tessera plan OP --json` prints, as a dict.

    `tessera.plan("fmha", head_dim=128, mask="causal")["kernel"]` is its name; "reason", "rejected" (every other
    candidate and why not), "smem_bytes" and "launch" are further keys (docs/plan.md).
    """
    return parsed(_core.plan(op, fields_of(fields)))

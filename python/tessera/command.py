"""The command `tessera` from Python: layouts and timelines as pictures for notebooks."""

from __future__ import annotations

import os
import sys

from .errors import CompileError, DeviceError, InternalError, TesseraError, UnsupportedError, UsageError
from .jit import fields_of, parsed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn


_KINDS: dict[int, type[TesseraError]] = {3: UnsupportedError, 4: CompileError, 5: DeviceError, 70: InternalError}  # docs/cli.md, exit codes


def command_path() -> str:
    """Of the command: beside the package, else the one that the shell finds. UnsupportedError where there is none."""
    import shutil

    own = os.path.join(os.path.dirname(__file__), "bin", "tessera")
    found = own if os.access(own, os.X_OK) else shutil.which("tessera")
    if found is None:
        raise UnsupportedError("this installation has no command 'tessera': build the package with it, or put it on the PATH")
    return found


def main() -> NoReturn:
    """What `tessera` of a wheel is: the command."""
    path = command_path()
    os.execv(path, [path, *sys.argv[1:]])


def _run(*arguments: str) -> str:
    import subprocess

    done = subprocess.run([command_path(), *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        message, *notes = (done.stderr or done.stdout).strip().removeprefix("tessera: ").splitlines() or ["the command failed"]
        raise _KINDS.get(done.returncode, UsageError)(message, notes)
    return done.stdout


def _flags(flags: dict[str, Any]) -> list[str]:
    all_flags = []
    for name, value in flags.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is True:
            all_flags.append(flag)
        elif isinstance(value, (tuple, list)):
            all_flags += [flag, ",".join(map(str, value))]
        elif value is not None and value is not False:
            all_flags += [flag, str(value)]
    return all_flags


class Picture:
    """A drawing that notebooks show inline; `text` is the same for a terminal, `svg` for a file."""

    def __init__(self, text: str, svg: str) -> None:
        self.text, self.svg = text, svg

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.svg)


def layout(*words: Any, **flags: Any) -> Picture:
    """What `tessera layout WORDS --FLAGS` prints and draws (docs/layouts.md).

    tessera.layout("fragment", "mma.m16n8k64.mxf4nvf4", operand="A"), tessera.layout("swizzle", "128B", access="ldmatrix"),
    tessera.layout("scale-factors", "nvfp4"). UsageError with the command's own words for what it refuses.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-layout-") as folder:
        path = os.path.join(folder, "page.svg")
        text = _run("layout", *map(str, words), *_flags(flags), "--svg", path)
        with open(path, encoding="utf-8") as file:
            return Picture(text, file.read())


class Timeline(Picture):
    """Which warp of a kernel ran, waited and for what, in the emulator's order: instructions, no clock.

    events: of the Chrome trace that `tessera run --timeline` writes (Perfetto opens it: `save_trace`).
    """

    def __init__(self, text: str, trace: str) -> None:
        made = parsed(trace)
        self.events: list[dict[str, Any]] = made["traceEvents"] if isinstance(made, dict) else made
        self._trace = trace
        super().__init__(text, _drawn(self.events))

    def save_trace(self, path: str | os.PathLike) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._trace)


def timeline(op: str, *, schedule: str = "fair", seed: int = 1, **fields: Any) -> Timeline:
    """A run of an operator on example inputs in the emulator, as a timeline: `tessera run OP --timeline` (docs/cli.md).

    fields: the operator's, and sizes: tessera.timeline("fmha", head_dim=64, seqlen_q=128, seqlen_k=256, heads_q=1, heads_kv=1).
    Keep them small: every instruction is drawn.
    """
    import tempfile

    with tempfile.TemporaryDirectory(prefix="tessera-timeline-") as folder:
        path = os.path.join(folder, "timeline.json")
        flags = _flags(dict(fields_of(fields)))
        text = _run("run", op, "--device", "emulator", "--schedule", schedule, "--seed", str(seed), *flags, "--timeline", path)
        with open(path, encoding="utf-8") as file:
            return Timeline(text, file.read())


_COLOURS = {"wait": "#d9d9d9", "TMA": "#e6a23c", "tensor core": "#5b8ff9", "": "#61a375"}
_ROW, _LEFT, _WIDTH = 16, 170, 900


def _spans(events: list[dict[str, Any]]) -> list[tuple[tuple[int, str], str, str, float, float]]:
    """(track, kind, name, begin, end): a warp's instructions and waits in its track, units in theirs."""
    spans, open_spans = [], {}
    for event in events:
        if event["ph"] == "X":
            track = (event["pid"], f"warp {event['tid']}")
            spans.append((track, "", event["name"], event["ts"], event["ts"] + event["dur"]))
        elif event["ph"] == "b":
            open_spans[(event["pid"], event["cat"], event["id"])] = event
        elif event["ph"] == "e":
            begun = open_spans.pop((event["pid"], event["cat"], event["id"]), None)
            if begun is None:
                continue
            kind, name = begun["cat"], begun["name"]
            owner, _, rest = name.partition(": ")
            is_wait = kind == "wait" and rest != ""
            track = (event["pid"], owner if is_wait else kind)
            spans.append((track, kind, rest if is_wait else name, begun["ts"], event["ts"]))
    return spans


def _drawn(events: list[dict[str, Any]]) -> str:
    import html

    spans = _spans(events)
    names = {event["pid"]: event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}

    def order(track: tuple[int, str]) -> tuple[int, int, int, str]:
        number = track[1].removeprefix("warp ")
        return (track[0], 0, int(number), "") if number.isdigit() else (track[0], 1, 0, track[1])

    tracks = sorted({span[0] for span in spans}, key=order)
    last = max((span[4] for span in spans), default=1.0) or 1.0
    rows, at, parts = {}, 0, []
    for pid in dict.fromkeys(track[0] for track in tracks):
        parts.append(f'<text x="4" y="{at + 12}" font-weight="bold">{html.escape(names.get(pid, str(pid)))}</text>')
        at += _ROW
        for track in tracks:
            if track[0] == pid:
                rows[track] = at
                parts.append(f'<text x="4" y="{at + 12}">{html.escape(track[1])}</text>')
                at += _ROW
    for track, kind, name, begin, end in sorted(spans, key=lambda span: span[1] == ""):
        x, width = _LEFT + begin / last * _WIDTH, max((end - begin) / last * _WIDTH, 0.5)
        parts.append(
            f'<rect x="{x:.1f}" y="{rows[track] + 2}" width="{width:.1f}" height="{_ROW - 4}" fill="{_COLOURS.get(kind, "#b37feb")}">'
            f"<title>{html.escape(name)}</title></rect>"
        )
    size = f'width="{_LEFT + _WIDTH + 10}" height="{at + 4}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="11">{"".join(parts)}</svg>'

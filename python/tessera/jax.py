"""tessera in JAX: the package's functions take its arrays, in `jax.jit` too, and return its arrays.

    o = jax.jit(lambda q, k, v: tessera.fmha(q, k, v, causal=True))(q, k, v)         # on a GPU, in XLA's stream
    o = tessera.fmha(q, k, v, causal=True, device="emulator")                        # arrays on the CPU

A launch becomes one call of XLA's foreign function interface, outputs and workspace are XLA's. Nothing of this module
is called by users. Shapes are those of the trace; what steers the kernel (causal=, softmax_scale=, sizes) are Python's
values. An output that is given (a cache to append to) is not written to: the result is a new array, its other elements
those of the given one; XLA copies it unless the caller donates it. There are no gradients, and `jax.vmap` is refused: the
functions take batches themselves.

What fails while a program of `jax.jit` runs is XLA's error (`jax.errors.JaxRuntimeError`), with tessera's words in it;
outside of it the functions raise their own, on the CPU when they are done.
"""

from __future__ import annotations

import re
import struct
import threading

import jax
import jax.numpy as jnp

from . import _core, arrays, errors
from .errors import InternalError, TesseraError, UnsupportedError, UsageError
from .kernel import Kernel, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .emulator import Emulator

_TARGETS = (("tessera_launch", "CUDA", "launch"), ("tessera_launch", "cpu", "refuse"), ("tessera_emulate", "cpu", "emulate"))
_lock = threading.Lock()
_kinds = {kind.kind: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, TesseraError)}


class _Call:
    """What a text that XLA hands back stands for, in the emulator. One that no program holds goes with its last call."""

    def __init__(self, kernel: Kernel, emulator: Emulator) -> None:
        self.kernel, self.emulator = kernel, emulator
        self.running = 0
        self.is_in_program = False


_calls: dict[str, _Call] = {}  # launches on a GPU are in _core's table


def _register() -> None:
    _core.xla_set_functions(_restore, _emulate)
    for name, platform, handler in _TARGETS:
        jax.ffi.register_ffi_target(name, _core.xla_handler(handler), platform=platform)


def call(kernel: Kernel, emulator: Emulator | None, stream: int | None, workspace: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """What Kernel.__call__ does, for arrays of JAX: outputs by name."""
    if stream is not None or workspace is not None:
        raise UsageError("stream and workspace are XLA's: leave them out with arrays of JAX")
    given = {name: value for name, value in arguments.items() if value is not None}
    views = {
        name: arrays.view(name, value)
        for name, value in given.items()
        if name in kernel._buffers and value is not True and value is not False
    }
    for name, view in views.items():
        if view.library != "jax":
            raise UsageError(f"{name} is an array of {view.library}: all must be JAX's where one is")
        if emulator is None and _is_on_host(view.source):
            raise UsageError(f"{name} lies on the CPU: give device='emulator', or arrays on a GPU")
        if emulator is None and jax.default_backend() == "cpu":
            raise UsageError(f"{name}: JAX has no GPU here: give device='emulator'")
    # A trace knows no addresses and no host: the launch is bound for its sizes, outputs and workspace.
    launch = Launch(kernel, emulator, None, {**given, **{name: _like(view, emulator) for name, view in views.items()}})
    text = _text_of(kernel, emulator, given, views)
    scalars = " ".join(f"{at}={_bits(given[name])}" for name, at in kernel._scalars.items() if name in given)
    operands = list(views)
    aliases = _written(kernel, operands)
    made = [(name, shape, dtype) for name, shape, dtype in launch._made_as]
    results = [jax.ShapeDtypeStruct(views[name].shape, views[name].source.dtype) for name in aliases]
    results += [jax.ShapeDtypeStruct(shape, jnp.dtype(arrays.name_of(dtype))) for _, shape, dtype in made]
    names = aliases + [name for name, _, _ in made]
    needed = launch._workspace_bytes if emulator is None else 0
    if emulator is None:
        indices = [kernel._buffers[name].index for name in operands], [kernel._buffers[name].index for name in names]
        launch._core.set_workspace(0, needed)
        _core.xla_remember(text, launch._core, *indices, needed > 0)
    if needed > 0:
        results.append(jax.ShapeDtypeStruct((needed,), jnp.uint8))
    launched = jax.ffi.ffi_call(
        "tessera_launch" if emulator is None else "tessera_emulate",
        results,
        input_output_aliases={operands.index(name): at for at, name in enumerate(aliases)},
    )
    function = _without_vmap(kernel.op, lambda *values: launched(*values, launch=text, scalars=scalars))
    values = [view.source for view in views.values()]
    try:
        outputs = function(*values) if emulator is None else _emulated(text, _Call(kernel, emulator), function, values)
    except getattr(jax.errors, "JaxRuntimeError", RuntimeError) as error:
        raise _own(error) from None
    return dict(zip(names, outputs))


def _emulated(text: str, new: _Call, function: Any, values: list[Any]) -> Any:
    """The outputs, of a trace or computed."""
    is_traced = True  # unless it is seen to be none: a program that is not known keeps what it needs
    with _lock:
        call = _calls.setdefault(text, new)
        call.kernel = new.kernel
        call.running += 1
    try:
        outputs = function(*values)
        is_traced = any(isinstance(output, jax.core.Tracer) for output in outputs)
        if not is_traced:
            jax.block_until_ready(outputs)
        return outputs
    except getattr(jax.errors, "JaxRuntimeError", RuntimeError):
        is_traced = False
        raise
    finally:
        with _lock:
            call.running -= 1
            call.is_in_program |= is_traced
            if call.running == 0 and not call.is_in_program:
                _calls.pop(text, None)


def _own(error: Exception) -> BaseException:
    """The library's error in XLA's words for it."""
    found = re.search(r"tessera: \[(\w+)\] (.*)", str(error), re.DOTALL)
    if found is None:
        return error
    message, *notes = found[2].splitlines() or [""]
    if message == "KeyboardInterrupt":
        return KeyboardInterrupt()
    return _kinds.get(found[1], InternalError)(message, notes)


def _is_on_host(array: Any) -> bool:
    if isinstance(array, jax.core.Tracer) or not isinstance(array, jax.Array):
        return False
    return all(device.platform == "cpu" for device in array.devices())


def _bits(number: Any) -> int:
    return struct.unpack("<Q", struct.pack("<d", float(number)))[0]


def _scalars_of(kernel: Kernel, text: str) -> dict[str, float]:
    names = list(kernel._scalars)
    pairs = (pair.split("=") for pair in text.split())
    return {names[int(at)]: struct.unpack("<d", struct.pack("<Q", int(bits)))[0] for at, bits in pairs}


def _written(kernel: Kernel, operands: list[str]) -> list[str]:
    """Operands that are results too: what a kernel adds to, and outputs of which it writes a part."""
    return [name for name in operands if kernel._buffers[name].role != "input"]


def _like(view: arrays.View, emulator: Emulator | None) -> arrays.View:
    ordinal = 0 if emulator is None else None
    return arrays.View(0, view.shape, view.strides, view.dtype, ordinal, "jax", None)


def _without_vmap(op: str, function: Any) -> Any:
    wrapped = jax.custom_batching.custom_vmap(function)

    @wrapped.def_vmap
    def rule(axis_size: int, in_batched: Any, *values: Any) -> Any:
        raise UnsupportedError(f"jax.vmap over tessera's {op}: give it the batch as a dimension of its arrays instead")

    return wrapped


def _text_of(kernel: Kernel, emulator: Emulator | None, given: dict[str, Any], views: dict[str, arrays.View]) -> str:
    """What another process needs to make the same call, but for the values of scalars."""
    import json

    buffers = {name: [list(view.shape), view.dtype] for name, view in views.items()}
    others = {name: value for name, value in given.items() if name not in views and name not in kernel._scalars}
    rest = {name: value if isinstance(value, bool) else int(value) for name, value in others.items()}
    known = {"op": kernel.op, "fields": {"arch": kernel.arch, **kernel.fields}, "buffers": buffers, "rest": rest}
    if emulator is not None:
        known["emulator"] = 0 if emulator is kernel._device("emulator") else id(emulator)
    return json.dumps(known, default=str)


def _restored(text: str) -> _Call:
    """A call in the emulator, of this process or another."""
    import json

    with _lock:
        if text in _calls:
            return _calls[text]
    known = json.loads(text)
    kernel = Kernel(known["op"], **known["fields"])
    found = _Call(kernel, kernel._device("emulator"))
    found.is_in_program = True
    with _lock:
        return _calls.setdefault(text, found)


def _restore(text: str) -> None:
    """A program that was compiled by another process, from JAX's cache on disk."""
    import json

    known = json.loads(text)
    kernel = Kernel(known["op"], **known["fields"])
    operands = list(known["buffers"])
    views: dict[str, arrays.View] = {}
    for name, (shape, dtype) in known["buffers"].items():
        views[name] = arrays.View(0, tuple(shape), arrays.dense_strides(shape), dtype, 0, "jax", None)
    launch = Launch(kernel, None, None, {**known["rest"], **views})
    names = _written(kernel, operands) + [made[0] for made in launch._made_as]
    launch._core.set_workspace(0, launch._workspace_bytes)
    indices = [kernel._buffers[name].index for name in operands], [kernel._buffers[name].index for name in names]
    _core.xla_remember(text, launch._core, *indices, launch._workspace_bytes > 0)


def _emulate(text: str, scalars: str, operands: list[int], results: list[int]) -> None:
    """A call on the host: operands and results are addresses of dense arrays."""
    import ctypes
    import json

    call = _restored(text)
    kernel, emulator = call.kernel, call.emulator
    known = json.loads(text)
    known["rest"].update(_scalars_of(kernel, scalars))
    views: dict[str, arrays.View] = {}
    for (name, (shape, dtype)), address in zip(known["buffers"].items(), operands):
        views[name] = arrays.View(address, tuple(shape), arrays.dense_strides(shape), dtype, None, "host", None)
    written = iter(results)
    for name in _written(kernel, list(views)):  # XLA gives the result as a copy of the operand, or as the same memory
        view, address = views[name], next(written)
        if address != view.address:
            ctypes.memmove(address, view.address, view.nbytes)
        view.address = address
    shapes = Launch(kernel, emulator, None, {**known["rest"], **views})._made_as
    for (name, shape, dtype), address in zip(shapes, written):
        views[name] = arrays.View(address, shape, arrays.dense_strides(shape), dtype, None, "host", None)
    rest = {name: value for name, value in known["rest"].items() if value is not True or name not in kernel._buffers}
    launch = Launch(kernel, emulator, None, {**rest, **views})
    launch._kept = frozenset(_written(kernel, list(known["buffers"])))
    launch.launch()


_register()

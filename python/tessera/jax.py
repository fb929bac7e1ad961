"""tessera in JAX: the package's functions take its arrays, in `jax.jit` too, and return its arrays.

    o = jax.jit(lambda q, k, v: tessera.fmha(q, k, v, causal=True))(q, k, v)         # on a GPU, in XLA's stream
    o = tessera.fmha(q, k, v, causal=True, device="emulator")                        # arrays on the CPU

A launch becomes one call of XLA's foreign function interface, outputs and workspace are XLA's. Nothing of this module
is called by users. Shapes are those of the trace; what steers the kernel (causal=, softmax_scale=, sizes) are Python's
values. An output that is given (a cache to append to) is not written to: the result is a new array, its other elements
those of the given one; XLA copies it unless the caller donates it. There are no gradients, and `jax.vmap` is refused: the
functions take batches themselves.
"""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp

from . import _core, arrays
from .errors import UnsupportedError, UsageError
from .kernel import Kernel, Launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .emulator import Emulator

_TARGETS = {"CUDA": "tessera_launch", "cpu": "tessera_emulate"}
_calls: dict[str, tuple[Kernel, Launch | None, Emulator | None]] = {}  # by the text that XLA hands back
_lock = threading.Lock()


def _register() -> None:
    _core.xla_set_functions(_restore, _emulate)
    for platform, name in _TARGETS.items():
        jax.ffi.register_ffi_target(name, _core.xla_handler(platform), platform=platform)


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
    # A trace knows no addresses and no host: the launch is bound for its sizes, outputs and workspace.
    launch = Launch(kernel, emulator, None, {**given, **{name: _like(view, emulator) for name, view in views.items()}})
    text = _text_of(kernel, emulator, launch, given, views)
    with _lock:
        _calls[text] = (kernel, launch, emulator)
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
        _TARGETS["CUDA" if emulator is None else "cpu"],
        results,
        input_output_aliases={operands.index(name): at for at, name in enumerate(aliases)},
    )
    outputs = _without_vmap(kernel.op, lambda *values: launched(*values, launch=text))(
        *(view.source for view in views.values())
    )
    return dict(zip(names, outputs))


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


def _text_of(
    kernel: Kernel, emulator: Emulator | None, launch: Launch, given: dict[str, Any], views: dict[str, arrays.View]
) -> str:
    """What another process needs to make the same call."""
    import json

    buffers = {name: [list(view.shape), view.dtype] for name, view in views.items()}
    rest = {name: value if isinstance(value, (bool, int)) else float(value) for name, value in given.items() if name not in views}
    known = {"op": kernel.op, "fields": {"arch": kernel.arch, **kernel.fields}, "buffers": buffers, "rest": rest}
    if emulator is not None:
        known["emulator"] = 0 if emulator is kernel._device("emulator") else id(emulator)
    return json.dumps(known, default=str)


def _restored(text: str) -> tuple[Kernel, Launch | None, Emulator | None]:
    import json

    with _lock:
        if text in _calls:
            return _calls[text]
    known = json.loads(text)
    kernel = Kernel(known["op"], **known["fields"])
    if "emulator" in known:
        found = (kernel, None, kernel._device("emulator"))
    else:
        views = {name: arrays.View(0, tuple(shape), arrays.dense_strides(shape), dtype, 0, "jax", None) for name, (shape, dtype) in known["buffers"].items()}
        found = (kernel, Launch(kernel, None, None, {**known["rest"], **views}), None)
    with _lock:
        return _calls.setdefault(text, found)


def _restore(text: str) -> None:
    """A program that was compiled by another process, from JAX's cache on disk."""
    import json

    kernel, launch, _ = _restored(text)
    operands = list(json.loads(text)["buffers"])
    names = _written(kernel, operands) + [made[0] for made in launch._made_as]
    launch._core.set_workspace(0, launch._workspace_bytes)
    indices = [kernel._buffers[name].index for name in operands], [kernel._buffers[name].index for name in names]
    _core.xla_remember(text, launch._core, *indices, launch._workspace_bytes > 0)


def _emulate(text: str, operands: list[int], results: list[int]) -> None:
    """A call on the host: operands and results are addresses of dense arrays."""
    import ctypes
    import json

    kernel, _, emulator = _restored(text)
    known = json.loads(text)
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

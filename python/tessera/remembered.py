"""Calls that are like an earlier one: same function, same values, tensors of the same types, shapes and strides.

What such a call works out (fields, kernel, sizes, checks) is known; its tensors' addresses, new outputs and the stream
are all that is left. Served are tensors of libraries with DLPack's table of functions (PyTorch 2.10 and later), on the
GPU, where the caller chooses neither device nor Jit, stream and workspace.
"""

from __future__ import annotations

import functools
import sys
import threading

from . import _core, arrays
from .jit import default_jit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from .kernel import Launch

    Function = TypeVar("Function", bound=Callable[..., Any])

_MAX_CALLS = 4096  # of a Jit, that are remembered
_OF_THE_CALLER = ("device", "jit", "stream", "workspace")
_noted = threading.local()


def note(launch: Launch) -> None:
    """Of the call that is under way: how its launch was bound."""
    launches = getattr(_noted, "launches", None)
    if launches is not None:
        launches.append(launch)


def remembers(function: Function) -> Function:
    """A function of tensors that launches one kernel and returns outputs of it: one, a tuple, or the dict of all."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        for name in _OF_THE_CALLER:
            if options.get(name) is not None:
                return function(*args, **options)
        signature = _core.signature(args, options)
        if signature is None:
            return function(*args, **options)
        calls = default_jit()._calls
        key = (function, signature)
        known = calls.get(key)
        if known is not None and (result := known.call(args, options)) is not None:
            return result
        if known is None:
            if len(calls) >= _MAX_CALLS:
                calls.clear()
            calls[key] = _NOT_SERVED
        outer = getattr(_noted, "launches", None)
        _noted.launches = []
        try:
            result = function(*args, **options)
            if known is None and len(_noted.launches) == 1:
                calls[key] = _remember(_noted.launches[0], args, options, result)
        finally:
            _noted.launches = outer
        return result

    return call  # type: ignore[return-value]


class _NotServed:
    def call(self, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        return None


_NOT_SERVED = _NotServed()


class _Call:
    __slots__ = ("prepared", "places", "made", "result", "kernel")

    def __init__(self, prepared: _core.Prepared, places: list[int | str], made: list[Any], result: Any, kernel: Any) -> None:
        self.prepared, self.places, self.made, self.result, self.kernel = prepared, places, made, result, kernel

    def call(self, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """None where it is not served after all: another device is current."""
        tensors = [args[place] if isinstance(place, int) else options[place] for place in self.places]
        if self.made:
            empty = sys.modules["torch"].empty
            tensors += [empty(shape, dtype=dtype, device=device) for shape, dtype, device in self.made]
        if not self.prepared.launch(tuple(tensors), None):
            return None
        if type(self.result) is int:
            return tensors[self.result]
        if type(self.result) is tuple:
            return tuple([tensors[at] for at in self.result])
        return {name: tensors[at] for name, at in self.result.items()}


def _is_known(value: Any, buffers: set[int]) -> bool:
    """Whether the key tells this argument from others: by its value, or as a buffer of the launch."""
    if isinstance(value, tuple):
        return all(_is_known(one, set()) for one in value)
    return value is None or isinstance(value, (bool, int, float, str)) or id(value) in buffers


def _remember(launch: Launch, args: tuple[Any, ...], options: dict[str, Any], result: Any) -> _Call | _NotServed:
    """What a next call needs; _NOT_SERVED where it cannot be told which argument a buffer is."""
    needed = launch._workspace_bytes
    is_of_torch = all(view.library == "torch" for view in launch._views.values())
    if launch._emulator is not None or not launch._views or not (is_of_torch or (needed == 0 and not launch._made_as)):
        return _NOT_SERVED
    # A tensor that is no buffer is a size or a scalar: another value is another call, and its value is not in the key.
    buffers = {id(view.tensor) for view in launch._views.values()}
    if not all(_is_known(value, buffers) for value in [*args, *options.values()]):
        return _NOT_SERVED
    of_argument: dict[int, int | str] = {id(value): place for place, value in [*enumerate(args), *options.items()]}
    shapes = {name: (shape, dtype) for name, shape, dtype in launch._made_as}
    names: list[str] = []
    places: list[int | str] = []
    made: list[Any] = []
    for name, view in launch._views.items():
        if name not in shapes:
            place = of_argument.get(id(view.tensor))
            if place is None:
                return _NOT_SERVED
            names.append(name)
            places.append(place)
    names += shapes
    if shapes or needed > 0:
        torch = sys.modules["torch"]
        device = next(iter(launch._views.values())).tensor.device
        made += [(shape, getattr(torch, arrays.name_of(dtype)), device) for shape, dtype in shapes.values()]
        if needed > 0:
            made.append(((needed,), torch.uint8, device))
    position = {id(launch._views[name].tensor): at for at, name in enumerate(names)}
    if isinstance(result, dict):
        returned: Any = {name: position.get(id(value)) for name, value in result.items()}
        places_known = returned.values()
    elif isinstance(result, tuple):
        returned = places_known = tuple(position.get(id(value)) for value in result)
    else:
        returned = position.get(id(result))
        places_known = (returned,)
    prepared = launch._prepared(names, needed > 0)
    if prepared is None or None in places_known:
        return _NOT_SERVED
    return _Call(prepared, places, made, returned, launch.kernel)

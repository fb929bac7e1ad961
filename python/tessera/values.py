"""Numbers and shapes as callers give them, to what the library takes; refused in the words of the call."""

from __future__ import annotations

import operator

from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .arrays import View


def whole(name: str, value: Any) -> int:
    """Of an int, or anything that is one, a tensor of one element too. UsageError for the rest, and beyond 64 bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} = {value!r}: must be a whole number") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise UsageError(f"{name} = {number}: must be a whole number of 64 bits")
    return number


def real(name: str, value: Any) -> float:
    """Of a number, a tensor of one element too. UsageError for the rest, and for NaN."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {value!r}: must be a number") from None
    if number != number:
        raise UsageError(f"{name} = nan: must be a number")
    return number


def pair(name: str, value: Any) -> tuple[int, int]:
    """Of two whole numbers."""
    try:
        left, right = value
    except (TypeError, ValueError):
        raise UsageError(f"{name} = {value!r}: must be two whole numbers, (left, right)") from None
    return whole(f"{name}[0]", left), whole(f"{name}[1]", right)


def require_dimensions(view: View, name: str, least: int) -> None:
    """Whether a shape can be read at all; what it must be in the end the kernel's plan says."""
    if len(view.shape) < least:
        raise UsageError(f"{name}: {len(view.shape)} dimensions given, {least} expected" + ("" if least == 2 else " at least"))

"""Checks of arguments: numbers in their range, and one of a few words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from driftnorm._internal.names import nearest


def check_number(
    name: str,
    value: Any,
    *,
    least: float | None = None,
    most: float | None = None,
    below: float = math.inf,
    whole: bool = False,
) -> None:
    """Refuse what is not a number, not whole where it must be, or out of range.

    Without ``least`` the number must be positive; without ``most``, less than ``below``.

    >>> check_number("share", 1.5, most=1)
    Traceback (most recent call last):
    ValueError: `share` must be in (0, 1], got 1.5.
    """
    if isinstance(value, bool) or not isinstance(value, Integral if whole else Real):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"`{name}` must be {kind}, got {value!r}.")
    number: Any = value
    high_enough = number > 0 if least is None else number >= least
    low_enough = number < below if most is None else number <= most
    if not (high_enough and low_enough):
        wanted = _range(least, most, below) + " and finite" * math.isinf(number)
        raise ValueError(f"`{name}` must be {wanted}, got {value}.")


def check_whole(name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """Refuse what is not a whole number in these bounds.

    >>> check_whole("size", 0)
    Traceback (most recent call last):
    ValueError: `size` must be at least 1, got 0.
    """
    check_number(name, value, least=least, most=most, whole=True)


def check_choice(name: str, value: object, allowed: Iterable[str]) -> None:
    """Refuse what is not one of a few words, and suggest the nearest.

    >>> check_choice("per", "Batch", ("kept", "batch"))
    Traceback (most recent call last):
    ValueError: `per` must be one of kept, batch; got 'Batch'. Did you mean 'batch'?
    """
    known = tuple(allowed)
    if value not in known:
        hint = nearest(str(value), known)
        raise ValueError(f"`{name}` must be one of {', '.join(known)}; got {value!r}.{hint}")


def _range(least: float | None, most: float | None, below: float) -> str:
    if (below if most is None else most) == math.inf:
        return "positive" if least is None else f"at least {least}"
    if least is not None and most is not None:
        return f"from {least} to {most}"
    low = "(0" if least is None else f"[{least}"
    return f"in {low}, {below})" if most is None else f"in {low}, {most}]"

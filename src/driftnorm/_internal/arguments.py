"""Checks of arguments that many functions share."""

from __future__ import annotations

__all__ = ["check_whole"]


def check_whole(name: str, value: object, low: int = 1, unit: str = "") -> None:
    """Refuse what is not a whole number of at least ``low``; ``unit`` is what it counts.

    >>> check_whole("size", 0, unit="pixels")
    Traceback (most recent call last):
    ValueError: `size` must be a positive whole number of pixels, got 0.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        wanted = "a positive whole number" if low == 1 else "a whole number"
        wanted += f" of {unit}" * bool(unit) + f" of at least {low}" * (low != 1)
        raise ValueError(f"`{name}` must be {wanted}, got {value!r}.")

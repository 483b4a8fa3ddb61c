"""What a corruption is called in a row: frost without its own pictures is something else.

The name is a part of the cell, so rows of the two never replace each other, and a table that wants
the 15 common corruptions does not take the stand-in for one of them.
"""

from __future__ import annotations

__all__ = ["corruption_of", "shift_name"]

_FROST = "frost"
_PICTURES = "overlays"


def shift_name(corruption: str, frost: str | None) -> str:
    """The corruption's name, with the stand-in's if frost's pictures are one.

    >>> shift_name("frost", "procedural"), shift_name("frost", "overlays")
    ('frost (procedural)', 'frost')
    """
    stands_in = corruption == _FROST and frost not in (None, _PICTURES)
    return f"{corruption} ({frost})" if stands_in else corruption


def corruption_of(shift: str) -> str:
    """The corruption that a row's shift is, whatever it was made with.

    >>> corruption_of("frost (procedural)")
    'frost'
    """
    return shift.partition(" (")[0]

"""One look a method, on the whole page: eight colours in three fillings."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["COLOURS", "looks_of", "slot_classes"]

COLOURS = 8
"""How many colours ``report.css`` defines as ``--c0``, ``--c1`` and so on."""

_FILLINGS = 3
# So that two reports show the methods that people compare most in the same colours.
_FIXED = {
    name: slot
    for slot, name in enumerate(
        ("source", "bn", "tent", "gprebn", "t3a", "gprebn+rt3a", "shot", "alpha-bn")
    )
}


def looks_of(methods: Iterable[str]) -> dict[str, int]:
    """A slot for each method: a colour, and once those are used up, another filling of it."""
    names = list(dict.fromkeys(methods))
    slots = {name: _FIXED[name] for name in names if name in _FIXED}
    unused = set(range(len(names) + COLOURS)) - set(slots.values())
    # Grey means the source; another method takes it only after the real colours.
    free = iter(sorted(unused, key=lambda slot: (slot // COLOURS, slot % COLOURS == 0, slot)))
    for name in names:
        if name not in slots:
            slots[name] = next(free)
    return slots


def slot_classes(slot: int) -> str:
    """The CSS classes of a slot.

    >>> slot_classes(9)
    's1 v1'
    """
    return f"s{slot % COLOURS} v{slot // COLOURS % _FILLINGS}"

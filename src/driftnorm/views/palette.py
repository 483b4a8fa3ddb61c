"""One look per method, the same in every figure and on every page.

A method has a slot: one of eight colours that colour-blind people can distinguish too. After those,
a page varies the filling and a figure uses further colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Colour(NamedTuple):
    """A colour for light and for dark backgrounds."""

    light: str
    dark: str


# Optimised for the largest perceived difference, also for colour-blind people; a colour has the
# same hue on both backgrounds.
COLOURS = (
    Colour("#655e6a", "#b0a5a7"),
    Colour("#3a29ad", "#8da4f0"),
    Colour("#7d520e", "#f06908"),
    Colour("#d27666", "#f0003f"),
    Colour("#0d502a", "#259a5b"),
    Colour("#9859fd", "#a352e5"),
    Colour("#0a9dba", "#61eeff"),
    Colour("#a09012", "#ccee28"),
)
_FURTHER = ("#66ccee", "#bbbbbb", "#ccbb44")  # of figures, which have a marker as a second sign
QUIET = "#cccccc"
"""Colour of methods that are only shown for comparison."""
MOST = len(COLOURS) + len(_FURTHER)
"""Number of methods that a figure has colours for."""
_FILLINGS = 3
# The most compared methods have the same colours in every report.
_FIXED = {
    name: slot
    for slot, name in enumerate(
        ("source", "bn", "tent", "gprebn", "t3a", "gprebn+rt3a", "shot", "alpha-bn")
    )
}


def slots_of(methods: Iterable[str]) -> dict[str, int]:
    """A slot for each method: its own if it has one, else the next free one.

    >>> slots_of(["gprebn:theta=0.5", "tent"])
    {'tent': 2, 'gprebn:theta=0.5': 1}
    """
    names = list(dict.fromkeys(methods))
    slots = {name: _FIXED[name] for name in names if name in _FIXED}
    unused = set(range(len(names) + len(COLOURS))) - set(slots.values())
    # Grey means the source; another method takes it only after the real colours.
    free = iter(sorted(unused, key=_rank))
    for name in names:
        if name not in slots:
            slots[name] = next(free)
    return slots


def _rank(slot: int) -> tuple[int, bool, int]:
    return slot // len(COLOURS), slot % len(COLOURS) == 0, slot


def colours_of(methods: Iterable[str]) -> dict[str, str]:
    """A distinct colour for each method of a figure.

    >>> colours_of(["gprebn:theta=0.5", "tent"])
    {'tent': '#7d520e', 'gprebn:theta=0.5': '#3a29ad'}
    """
    slots = slots_of(methods)
    beyond = sorted((slot for slot in slots.values() if slot >= len(COLOURS)), key=_rank)
    if len(beyond) > len(_FURTHER):
        raise ValueError(
            f"a figure has colours for {MOST} methods, got {len(slots)}: "
            f"choose some with `--methods`."
        )
    known = {slot: colour.light for slot, colour in enumerate(COLOURS)}
    known |= dict(zip(beyond, _FURTHER, strict=False))
    return {method: known[slot] for method, slot in slots.items()}


def slot_classes(slot: int) -> str:
    """The CSS classes of a slot.

    >>> slot_classes(9)
    's1 v1'
    """
    return f"s{slot % len(COLOURS)} v{slot // len(COLOURS) % _FILLINGS}"


def palette_css() -> str:
    """The colours as CSS."""
    pairs = enumerate(COLOURS)
    values = "".join(f"  --c{i}: light-dark({light}, {dark});\n" for i, (light, dark) in pairs)
    classes = "".join(f".s{i} {{ --c: var(--c{i}); }}\n" for i in range(len(COLOURS)))
    return f":root {{\n{values}}}\n{classes}"

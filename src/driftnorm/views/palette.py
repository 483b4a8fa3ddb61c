"""One look per method, the same in every figure and on every page.

A method has a slot: one of eight colours, which colour-blind eyes tell apart too, and after those a
page fills them differently and a figure takes further colours.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["COLOURS", "MOST", "QUIET", "colours_of", "palette_css", "slot_classes", "slots_of"]


class Colour(NamedTuple):
    """A colour on light and on dark ground."""

    light: str
    dark: str


# Searched for the largest difference to the eye, also without red, green or blue cones; a colour
# has one hue on both grounds, so that a method is known again.
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
"""Of methods that a figure shows for comparison only."""
MOST = len(COLOURS) + len(_FURTHER)
"""Methods that a figure has colours for."""
_FILLINGS = 3
# So that two reports show the methods that people compare most in the same colours.
_FIXED = {
    name: slot
    for slot, name in enumerate(
        ("source", "bn", "tent", "gprebn", "t3a", "gprebn+rt3a", "shot", "alpha-bn")
    )
}


def slots_of(methods: Iterable[str]) -> dict[str, int]:
    """A slot for each method: its own if it has one, else the next that none of them has.

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
    """A colour of its own for each method of a figure.

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
    """The colours as the style sheet of a page takes them."""
    pairs = enumerate(COLOURS)
    values = "".join(f"  --c{i}: light-dark({light}, {dark});\n" for i, (light, dark) in pairs)
    classes = "".join(f".s{i} {{ --c: var(--c{i}); }}\n" for i in range(len(COLOURS)))
    return f":root {{\n{values}}}\n{classes}"

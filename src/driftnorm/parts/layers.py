"""Select batch-norm layers: by name, by position in the forward pass, or by predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

from driftnorm._internal.arguments import check_number


@dataclass(frozen=True)
class First:
    """The first ``fraction`` of the layers in forward order, rounded down (the paper's 50 %)."""

    fraction: float

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, least=0, most=1)


@dataclass(frozen=True)
class Last:
    """The last ``fraction`` of the layers in forward order, rounded down."""

    fraction: float

    def __post_init__(self) -> None:
        check_number("fraction", self.fraction, least=0, most=1)


# A glob pattern on the dotted name, several of them, a position, or a predicate on the dotted name.
Selector: TypeAlias = str | tuple[str, ...] | First | Last | Callable[[str], bool]


def needs_forward_order(selector: Selector | None) -> bool:
    """Whether the selector can only be resolved once the order of execution is known."""
    return isinstance(selector, First | Last)


def leaves_out(selector: Selector | None, name: str) -> bool:
    """Whether the selector leaves out a layer by its name alone, whatever the order.

    >>> leaves_out("layer1.*", "layer2.0.bn1"), leaves_out(First(0.5), "layer2.0.bn1")
    (True, False)
    """
    if selector is None or isinstance(selector, First | Last):
        return False
    if callable(selector):
        return not selector(name)
    patterns = (selector,) if isinstance(selector, str) else selector
    return not any(fnmatchcase(name, pattern) for pattern in patterns)


def select(selector: Selector | None, order: Sequence[str]) -> set[str]:
    """The names among ``order`` (layer names in forward order) that ``selector`` means.

    >>> sorted(select("layer1.*", ["bn1", "layer1.0.bn1", "layer2.0.bn1"]))
    ['layer1.0.bn1']
    >>> sorted(select(First(0.5), ["a", "b", "c"]))
    ['a']
    """
    if selector is None:
        return set(order)
    if isinstance(selector, First):
        return set(order[: _share(selector.fraction, order)])
    if isinstance(selector, Last):
        return set(order[len(order) - _share(selector.fraction, order) :])
    if callable(selector):
        return {name for name in order if selector(name)}
    patterns = (selector,) if isinstance(selector, str) else selector
    if not isinstance(patterns, list | tuple) or not all(isinstance(p, str) for p in patterns):
        raise TypeError(
            f"`only` must be a name pattern, several of them, First, Last or a function, "
            f"got {selector!r}."
        )
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in order):
            shown = ", ".join(list(order)[:8]) + (", ..." if len(order) > 8 else "")
            raise ValueError(f"no batch-norm layer matches {pattern!r}; the layers are: {shown}.")
    return {name for name in order if any(fnmatchcase(name, p) for p in patterns)}


def _share(fraction: float, order: Sequence[str]) -> int:
    """Rounded down, with room for rounding errors: 5 / 77 * 77 is a little less than 5."""
    return math.floor(fraction * len(order) + 1e-9)

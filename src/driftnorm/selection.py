"""Say which batch-norm layers are meant: by name, by place in the forward pass, or by predicate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeAlias

__all__ = ["First", "Last", "Selector", "needs_forward_order", "select"]


@dataclass(frozen=True)
class First:
    """The first ``fraction`` of the layers in forward order, rounded down (the paper's 50 %)."""

    fraction: float

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)


@dataclass(frozen=True)
class Last:
    """The last ``fraction`` of the layers in forward order, rounded down."""

    fraction: float

    def __post_init__(self) -> None:
        _check_fraction(self.fraction)


# A glob pattern on the dotted name, several of them, a place, or a predicate on the dotted name.
Selector: TypeAlias = str | tuple[str, ...] | First | Last | Callable[[str], bool]


def needs_forward_order(selector: Selector | None) -> bool:
    """Whether the selector can only be resolved once the order of execution is known."""
    return isinstance(selector, First | Last)


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
        return set(order[: math.floor(selector.fraction * len(order))])
    if isinstance(selector, Last):
        return set(order[len(order) - math.floor(selector.fraction * len(order)) :])
    if callable(selector):
        return {name for name in order if selector(name)}
    patterns = (selector,) if isinstance(selector, str) else tuple(selector)
    chosen = {name for name in order if any(fnmatchcase(name, p) for p in patterns)}
    if not chosen:
        shown = ", ".join(list(order)[:8]) + (", ..." if len(order) > 8 else "")
        raise ValueError(f"no batch-norm layer matches {patterns!r}; the layers are: {shown}.")
    return chosen


def _check_fraction(fraction: float) -> None:
    if not 0 <= fraction <= 1:
        raise ValueError(f"`fraction` must be in [0, 1], got {fraction}.")

"""What comes when in a stream: fractions over windows, and how ordered its labels are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Doubles, Integers


@dataclass(frozen=True, eq=False)
class Timeline:
    """What each window of a stream holds.

    Attributes:
        start: First position of each window.
        domains: Share of each domain, (windows, domains).
        classes: Share of each class, (windows, classes).
        strength: Mean severity.
    """

    start: Integers
    domains: Doubles
    classes: Doubles
    strength: Doubles


def window_starts(count: int, window: int) -> Integers:
    """Where the windows of a stream begin.

    All but the last hold `window` positions. The last holds the rest as well if that is less than
    half a window: a handful of images would be the best and the worst window of every stream.

    >>> window_starts(10, 4), window_starts(9, 4), window_starts(3, 4)
    (array([0, 4, 8]), array([0, 4]), array([0]))
    """
    check_whole("window", window)
    starts = np.arange(0, count, window, dtype=np.int64)
    return starts[:-1] if len(starts) > 1 and 2 * (count - starts[-1]) < window else starts


def window_of(positions: Integers, starts: Integers) -> Integers:
    """The window that each position is in."""
    return np.asarray(np.searchsorted(starts, positions, side="right") - 1, dtype=np.int64)


def shares_in_windows(values: Integers, kinds: int, starts: Integers) -> Doubles:
    """The share of each value from 0 to ``kinds - 1`` in each window."""
    windows = window_of(np.arange(len(values)), starts)
    counts = np.bincount(windows * kinds + values, minlength=len(starts) * kinds)
    table = counts.reshape(len(starts), kinds).astype(np.float64)
    return np.asarray(table / table.sum(axis=1, keepdims=True))


def order_index(labels: Integers, images: int = 64) -> float:
    """How ordered labels are: mean over groups of neighbours of 1 - H(group) / H(all), in [0, 1].

    A group of 64 shuffled labels of 10 classes has about 0.03, sorted labels nearly 1. It rises as
    groups get smaller, so that streams are compared by groups of one size, whatever their batches.

    >>> order_index(np.arange(128) // 64), order_index(np.arange(128) % 2)
    (1.0, 0.0)
    """
    starts = window_starts(len(labels), images)
    classes, number = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        return 0.0  # a single class has no order
    whole = _entropy(np.bincount(number) / len(labels))
    groups = shares_in_windows(number, len(classes), starts)
    return float(np.mean([1 - _entropy(group) / whole for group in groups]))


def mean_run(labels: Integers) -> float:
    """Mean length of runs of equal labels.

    >>> mean_run(np.array([3, 3, 3, 1]))
    2.0
    """
    return len(labels) / (1 + int(np.count_nonzero(np.diff(labels))))


def _entropy(shares: Doubles) -> float:
    present = shares[shares > 0]
    return float(-(present * np.log(present)).sum())

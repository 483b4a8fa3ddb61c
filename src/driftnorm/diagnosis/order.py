"""Whether a stream is ordered by class, from the classes of neighbours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np

FOLDERS, LABELS = "folders", "labels"
# A sorted stream has an excess near the accuracy of the predictions; ResNet-20 on sorted images of
# CIFAR-10 gave 0.82 (clean), 0.36 (JPEG), 0.11 (noise); shuffled ones gave less than one z.
EXCESS, SURE = 0.1, 3.0
# Where a shift begins, predictions change at once: those after it are more like each other than
# like those before, in whatever order the images are. Compared with images of the same stretch
# alone, about 0.3 is left of that excess, and more than half of an order's (drawn predictions; less
# of two or three classes that are badly predicted, which change as seldom as a shift does).
LEFT = 0.45
STRETCH = 5  # a stretch is a fifth of the stream ...
LONGEST = 256  # ... and no more than this


@dataclass(frozen=True)
class Serial:
    """How much more often neighbours are of one class than in a shuffled stream.

    Attributes:
        excess: 0 where shuffled, 1 where fully sorted.
        z: By how many standard errors it is not 0.
        nearby: The excess over images of the same stretch of the stream alone.
    """

    excess: float
    z: float
    nearby: float = 0.0

    @property
    def ordered(self) -> bool:
        """Whether it is too much for chance, and for a shift that begins in mid-stream."""
        enough = self.excess > EXCESS and self.nearby > LEFT * self.excess
        return enough and self.z > SURE


def serial(classes: Sequence[Hashable]) -> Serial:
    """Measures a stream by the class, or any other group, of each image.

    >>> serial([0] * 50 + [1] * 50).ordered, serial([0, 1] * 50).ordered
    (True, False)
    """
    total = len(classes)
    if total < 2:
        return Serial(0.0, 0.0)
    expected = sum(n * (n - 1) for n in Counter(classes).values()) / (total * (total - 1))
    if expected >= 1:  # one class only: nothing that could be ordered
        return Serial(0.0, 0.0)
    same = sum(a == b for a, b in pairwise(classes)) / (total - 1)
    error = sqrt(max(expected * (1 - expected), 1 / total) / (total - 1))
    usual = _alike_nearby(classes)
    nearby = (same - usual) / (1 - usual) if usual < 1 else 0.0
    return Serial((same - expected) / (1 - expected), (same - expected) / error, nearby)


def _alike_nearby(classes: Sequence[Hashable]) -> float:
    """The share of pairs of one class among images of one stretch that are not neighbours."""
    number = {each: place for place, each in enumerate(dict.fromkeys(classes))}
    found = np.array([number[each] for each in classes])
    farthest = max(2, min(len(classes) // STRETCH, LONGEST))
    pairs = [found[lag:] == found[:-lag] for lag in range(2, farthest + 1)]
    return float(np.mean(np.concatenate(pairs))) if len(classes) > 2 else 1.0

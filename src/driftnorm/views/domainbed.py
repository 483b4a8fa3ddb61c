"""What DomainBed's tables print: average accuracies in %, by way of selection.

From results/2020_10_06_7df6f06, ResNet-50; MixStyle and SWAD, which are not in it, as the paper
cites them.
"""

from __future__ import annotations

from driftnorm.views.domain_paper import SETS, TRAINERS

__all__ = ["published"]

_DIGITS: dict[str, tuple[float, float]] = {
    "erm": (98.0, 51.5),
    "irm": (97.7, 52.0),
    "groupdro": (98.0, 52.1),
    "mixup": (98.0, 52.1),
    "coral": (98.0, 51.5),
    "mmd": (97.9, 51.5),
    "mtl": (97.9, 51.4),
    "sagnet": (98.0, 51.7),
    "arm": (98.2, 56.2),
    "rsc": (97.6, 51.7),
}
"""On RotatedMNIST and ColoredMNIST, with training-domain validation."""

_PICTURES: dict[str, tuple[float, float, float, float]] = {
    "erm": (85.5, 77.5, 66.5, 46.1),
    "irm": (83.5, 78.5, 64.3, 47.6),
    "groupdro": (84.4, 76.7, 66.0, 43.2),
    "mixup": (84.6, 77.4, 68.1, 47.9),
    "coral": (86.2, 78.8, 68.7, 47.6),
    "mmd": (84.6, 77.5, 66.3, 42.2),
    "mtl": (84.6, 77.2, 66.4, 45.6),
    "sagnet": (86.3, 77.8, 68.1, 48.6),
    "arm": (85.1, 77.6, 64.8, 45.5),
    "rsc": (85.2, 77.1, 65.5, 46.6),
    "mixstyle": TRAINERS["mixstyle"],
    "swad": TRAINERS["swad"],
}
"""On `SETS`, with training-domain validation."""

_OTHERS: dict[tuple[str, str, str], float] = {
    ("leave-one-out", "PACS", "erm"): 83.0,
    ("oracle", "PACS", "erm"): 86.7,
}
"""With the other selectors, where we know it."""


def published(selector: str, data: str, algorithm: str) -> float | None:
    """The printed average, or None.

    >>> published("training", "PACS", "coral")
    86.2
    """
    if selector != "training":
        return _OTHERS.get((selector, data, algorithm))
    digits = ("RotatedMNIST", "ColoredMNIST")
    if data in digits and algorithm in _DIGITS:
        return _DIGITS[algorithm][digits.index(data)]
    return (
        _PICTURES[algorithm][SETS.index(data)] if data in SETS and algorithm in _PICTURES else None
    )

"""The papers' numbers as data, and when they may be shown beside rows.

Robustness is in errors (%). The CIFAR tables are means over five severities of WRN-40-2 trained
with AugMix ("AM"), and of the standard WRN-28-10 where they say so. Some numbers are inconsistent:
17.7 and 42.1 (Tent on source statistics), 43.5 are those of severity 5, and on ImageNet-C
the mCE of BN (68.9) and of random AutoAugment (66.1) are not the means of their groups (53.6 and
76.1).

Domain generalization is in accuracies (%). The paper's averages are not the means of their columns
in nine of the twelve borrowed rows; ours are. DomainBed's are from results/2020_10_06_7df6f06,
ResNet-50; MixStyle and SWAD, which are not in it, are as the paper cites them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from driftnorm._internal.counts import agreeing, counted
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE, TENT_STOPPED
from driftnorm.shifts.registry import CORRUPTIONS
from driftnorm.views.compare import ALL_SEVERITIES, data_set, shifts_of

# ------------------------------------------------------------------ robustness: errors

SEVERITY_5 = (17.7, 42.1, 43.5)
"""Numbers that the paper prints among means over severities, but that seem to be for severity 5."""

# Mean over severities, corruption by corruption, in canonical order.
_METHODS = ("source", "tent", "t3a", "bn", "gprebn")
_CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
_CIFAR10 = (
    (19.1, 11.7, 17.3, 14.1, 11.3),
    (14.0, 9.9, 13.0, 11.9, 9.6),
    (13.3, 11.7, 13.0, 13.9, 11.5),
    (6.3, 6.3, 6.3, 7.2, 6.1),
    (17.1, 14.7, 16.4, 17.6, 14.3),
    (7.9, 7.6, 7.8, 8.7, 7.4),
    (7.0, 6.7, 6.8, 7.9, 6.6),
    (10.4, 9.1, 10.3, 10.8, 8.9),
    (10.6, 8.7, 10.4, 10.6, 8.5),
    (8.5, 7.7, 8.0, 9.1, 7.5),
    (5.9, 6.0, 5.9, 6.8, 5.8),
    (9.7, 7.6, 9.2, 9.0, 7.3),
    (9.2, 9.7, 9.1, 10.9, 9.4),
    (16.8, 8.2, 15.0, 10.1, 7.9),
    (11.9, 12.1, 11.9, 14.0, 11.8),
)
_CIFAR100 = (
    (52.1, 35.5, 51.1, 39.1, 35.0),
    (44.3, 33.2, 43.9, 36.6, 32.6),
    (40.3, 33.3, 40.4, 37.1, 32.8),
    (26.6, 26.7, 27.0, 28.7, 26.1),
    (45.9, 37.4, 44.2, 41.0, 36.7),
    (29.5, 28.4, 29.8, 30.6, 28.0),
    (28.2, 27.6, 28.4, 30.3, 27.0),
    (34.2, 31.6, 34.4, 34.7, 31.2),
    (36.3, 31.3, 36.3, 34.2, 30.8),
    (33.4, 30.5, 33.1, 34.1, 29.8),
    (26.5, 26.0, 26.9, 28.1, 25.5),
    (34.7, 28.6, 33.9, 31.2, 28.0),
    (31.9, 31.6, 32.1, 34.2, 31.0),
    (36.5, 28.9, 35.8, 31.8, 28.2),
    (37.9, 36.8, 38.1, 40.0, 36.2),
)

DETAILED: dict[str, dict[tuple[str, str], float]] = {
    data: {
        (corruption, method): error
        for corruption, errors in zip(_CORRUPTIONS, table, strict=True)
        for method, error in zip(_METHODS, errors, strict=True)
    }
    for data, table in (("cifar-10", _CIFAR10), ("cifar-100", _CIFAR100))
}
"""Error by data set and (corruption, method)."""

MEAN: dict[str, dict[str, float]] = {
    "cifar-10": {"source": 11.2, "tent": 9.2, "t3a": 10.7, "bn": 10.8, "gprebn": 8.9},
    "cifar-100": {"source": 35.9, "tent": 31.2, "t3a": 35.6, "bn": 34.1, "gprebn": 30.6},
}
"""Mean error by data set and method, as printed."""

AUGMENTED: dict[str, dict[str, float]] = {
    "cifar-10": {
        "cutout": 26.8,
        "mixup": 22.3,
        "cutmix": 27.1,
        "autoaugment": 23.9,
        "adversarial": 26.2,
        "augmix": 11.2,
    },
    "cifar-100": {
        "cutout": 53.5,
        "mixup": 50.4,
        "cutmix": 52.9,
        "autoaugment": 49.6,
        "adversarial": 55.1,
        "augmix": 35.9,
    },
}
"""Error of the augmentation baselines by data set and training recipe, without adaptation."""

IMAGENET: dict[str, tuple[float, float, float, float, float]] = {
    "AutoAugment": (69.7, 80.2, 68.5, 71.5, 72.7),
    "Random AA": (71.0, 82.2, 72.8, 77.0, 66.1),
    "MaxBlur pool": (74.3, 78.8, 67.0, 74.0, 73.4),
    "SIN": (69.7, 79.8, 70.8, 72.5, 73.3),
    "AM": (66.0, 70.5, 68.0, 68.8, 68.4),
    "AM (reproduced)": (65.2, 68.0, 65.7, 64.1, 65.8),
    "AM (reproduced) + tent": (49.7, 50.5, 46.4, 48.7, 48.7),
    "AM (reproduced) + t3a": (65.4, 69.1, 66.3, 64.5, 66.3),
    "AM (reproduced) + bn": (56.0, 56.4, 50.0, 52.7, 68.9),
    "AM (reproduced) + gprebn": (49.2, 50.0, 46.0, 48.3, 48.3),
}
"""CE on ImageNet-C by network: noise, blur, weather, digital, mCE; as printed."""

ALEXNET_ERRORS: dict[str, float] = dict(
    zip(
        _CORRUPTIONS,
        (
            *(0.886428, 0.894468, 0.922640),
            *(0.819880, 0.826268, 0.785948, 0.798360),
            *(0.866816, 0.826572, 0.819324, 0.564592),
            *(0.853204, 0.646056, 0.717840, 0.606500),
        ),
        strict=True,
    )
)
"""AlexNet's error on ImageNet-C by corruption, which CE is relative to; from AugMix's code."""

SETTINGS: dict[str, tuple[float | None, float | None]] = {
    TENT_ON_SOURCE: (42.1, 17.7),
    "gprebn:statistics=source": (27.3, 10.2),
    TENT_STOPPED: (13.8, 10.3),
    "tent": (13.2, 9.2),
    "gprebn": (13.1, 8.9),
    "gprebn:momentum=0.1": (13.0, 8.9),
    "source": (43.5, 11.2),
    "bn": (14.4, 10.9),
    "bn:only=first(0.5)": (14.6, None),
}
"""Error on CIFAR-10-C by setting: the standard network, the one trained with AugMix."""

FINE_TUNED: dict[tuple[str, str], tuple[float, float]] = {
    ("fine-tuned", "source"): (4.3, 4.6),
    ("fine-tuned", "target"): (4.8, 3.6),
    ("pre-trained", "source"): (43.5, 42.1),
    ("pre-trained", "target"): (14.4, 13.2),
}
"""Error on CIFAR-10-C by network and statistics: without and with Tent."""

# ------------------------------------------------------------------ domains: accuracies

SETS = ("PACS", "VLCS", "OfficeHome", "TerraIncognita")

TRAINERS: dict[str, tuple[float, float, float, float]] = {
    "erm": (85.5, 77.5, 66.5, 46.1),
    "groupdro": (84.4, 76.5, 66.0, 43.2),
    "mixup": (84.6, 77.4, 68.1, 47.9),
    "coral": (86.2, 78.8, 68.7, 47.7),
    "irm": (83.5, 78.6, 64.3, 47.6),
    "mmd": (84.7, 77.5, 66.4, 46.7),
    "arm": (85.1, 77.6, 64.8, 45.5),
    "mtl": (84.6, 77.2, 66.4, 45.6),
    "sagnet": (86.3, 77.8, 68.1, 48.6),
    "rsc": (85.2, 77.1, 65.5, 46.6),
    "mixstyle": (85.2, 77.9, 60.4, 44.0),
    "swad": (88.1, 79.1, 70.6, 50.0),
}
"""Accuracy by training algorithm on `SETS`, without adaptation, as the paper cites it."""

ADAPTED: dict[tuple[str, str], tuple[float, float, float, float]] = {
    ("erm", "source"): (84.7, 77.5, 64.9, 46.9),
    ("erm", "tent"): (90.2, 57.8, 61.4, 27.4),
    ("erm", "alpha-bn"): (87.6, 78.3, 62.2, 38.0),
    ("erm", "pl-c"): (82.4, 76.6, 64.4, 44.8),
    ("erm", "shot"): (86.3, 73.1, 66.6, 39.9),
    ("erm", "t3a"): (84.6, 79.0, 66.8, 47.0),
    ("erm", "gprebn"): (88.9, 80.3, 66.3, 45.7),
    ("erm", "gprebn+rt3a"): (86.2, 79.8, 67.4, 47.6),
    ("swad", "source"): (88.3, 78.9, 70.6, 50.5),
    ("swad", "tent"): (91.3, 56.9, 63.1, 31.0),
    ("swad", "alpha-bn"): (89.0, 78.2, 66.7, 45.4),
    ("swad", "pl-c"): (88.1, 76.9, 70.1, 51.4),
    ("swad", "shot"): (89.5, 76.2, 71.5, 41.7),
    ("swad", "t3a"): (88.6, 81.0, 71.9, 50.5),
    ("swad", "gprebn"): (90.5, 82.1, 71.1, 49.6),
    ("swad", "gprebn+rt3a"): (89.4, 81.2, 72.2, 51.8),
}
"""Accuracy by training algorithm and test-time method on `SETS`, the paper's own runs."""

ABLATION: dict[str, tuple[float, float, float, float, float]] = {
    "tent:gradient=detached,statistics=source": (86.4, 76.2, 95.7, 80.3, 84.6),
    "gprebn:statistics=source": (85.5, 79.6, 95.6, 82.7, 85.8),
    "tent:gradient=detached": (88.1, 84.9, 97.3, 80.3, 87.6),
    "tent": (91.3, 87.8, 98.1, 83.3, 90.2),
    "bn": (85.9, 82.7, 96.9, 76.8, 85.6),
    "bn:running=True": (86.4, 83.4, 97.2, 77.0, 86.0),
    "gprebn": (91.9, 88.9, 98.3, 82.7, 90.5),
    "gprebn:momentum=0.1": (92.0, 88.6, 98.3, 83.5, 90.6),
}
"""Accuracy on PACS by method: art, cartoon, photo, sketch, average (the paper's two ablations)."""

FINE_TUNED_DOMAINS: dict[tuple[str, str], tuple[float, float]] = {
    ("fine-tuned", "source"): (77.5, 77.2),
    ("fine-tuned", "target"): (56.4, 57.8),
    ("pre-trained", "source"): (70.0, 73.0),
    ("pre-trained", "target"): (70.1, 74.2),
}
"""Accuracy on VLCS by network and statistics: without and with Tent."""

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
"""With the other selectors, where known."""


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


def domain_accuracy(data: str, trainer: str, method: str) -> float | None:
    """The paper's average over a set's targets, or None."""
    if data not in SETS:
        return None
    cited = TRAINERS.get(trainer) if method == "source" else None
    found = ADAPTED.get((trainer, method), cited)
    return None if found is None else found[SETS.index(data)]


# ------------------------------------------------------------------ beside rows


class BesidePaper(NamedTuple):
    """Whether to show the paper's column, and how its streams differ from ours."""

    shown: bool
    note: str = ""


def beside_paper(rows: Sequence[Row], data_sets: Sequence[str] = ("cifar-10",)) -> BesidePaper:
    """Decide for rows of one table.

    The paper's means are over 15 corruptions at 5 severities. Means over fewer severities of the
    same data set and all 15 corruptions may be shown beside them, with a note.

    Args:
        rows: All rows in the table's means.
        data_sets: Data sets for which the paper has this table.
    """
    severities = sorted({row.severity for row in rows} - {0})
    met = {(row.shift, row.severity) for row in rows if row.severity}
    whole = met == {(c, s) for c in CORRUPTIONS for s in severities}
    if not severities or not whole or data_set(rows) not in data_sets:
        return BesidePaper(False)
    if tuple(severities) == ALL_SEVERITIES:
        return BesidePaper(True)
    which = agreeing(len(severities), "severity", "severities")
    return BesidePaper(
        True,
        f" Paper: mean over 5 severities; ours: {which} {' '.join(map(str, severities))}, "
        f"{counted(len(shifts_of(rows)), 'corruption')}.",
    )


def severity_5_note(printed: Iterable[float | None]) -> str:
    """A note on the paper's numbers that are not means over severities."""
    found = [f"{value:g}" for value in SEVERITY_5 if value in {*printed}]
    if not found:
        return ""
    seem = agreeing(len(found), "seems", "seem")
    return f" The paper's {' and '.join(found)} {seem} to be for severity 5."


def difference(ours: float, paper: float | None) -> float | None:
    """Ours minus the paper's, where the paper has a number."""
    return None if paper is None else ours - paper

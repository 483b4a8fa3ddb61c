"""The published picture sets of several domains, in DomainBed's layout.

The counts of PACS and VLCS were verified file by file. Those of OfficeHome and the newer
TerraIncognita are from memory and agree with the published totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from driftnorm._internal.arguments import check_choice

DIGIT_NAMES = ("rotated-mnist", "colored-mnist")
"""The sets made from MNIST's files, see `driftnorm.images.domains.mnist_domains`."""


@dataclass(frozen=True)
class KnownSet:
    """What a published set should hold.

    Attributes:
        name: Its name in papers.
        homes: Folders that contain it: DomainBed's, and its archive's where that differs.
        domains: Names of the domain folders, in DomainBed's order.
        class_count: How many classes there are.
        versions: For each published version, the number of pictures in each domain.
        classes: Their names, in order, if all are known.
        class_counts: For each domain, the number of pictures in each class, where known.
    """

    name: str
    homes: tuple[str, ...]
    domains: tuple[str, ...]
    class_count: int
    versions: Mapping[str, tuple[int, ...]]
    classes: tuple[str, ...] = ()
    class_counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def version_of(self, counts: tuple[int, ...]) -> str | None:
        """The version with these numbers of pictures, or None if no version has them."""
        return next((name for name, own in self.versions.items() if own == counts), None)

    def nearest_version(self, counts: tuple[int, ...]) -> str:
        """The version whose numbers of pictures are closest to these."""
        return min(self.versions, key=lambda name: _distance(self.versions[name], counts))


def _distance(ones: tuple[int, ...], others: tuple[int, ...]) -> int:
    return sum(abs(one - other) for one, other in zip(ones, others, strict=True))


_PACS = KnownSet(
    name="PACS",
    homes=("PACS", "kfold"),
    domains=("art_painting", "cartoon", "photo", "sketch"),
    class_count=7,
    versions={"as published": (2048, 2344, 1670, 3929)},
    classes=("dog", "elephant", "giraffe", "guitar", "horse", "house", "person"),
    class_counts={
        "art_painting": (379, 255, 285, 184, 201, 295, 449),
        "cartoon": (389, 457, 346, 135, 324, 288, 405),
        "photo": (189, 202, 182, 186, 199, 280, 432),
        "sketch": (772, 740, 753, 608, 816, 80, 160),
    },
)
_VLCS = KnownSet(
    name="VLCS",
    homes=("VLCS",),
    domains=("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    class_count=5,
    versions={"as published": (1415, 2656, 3282, 3376)},
    classes=("bird", "car", "chair", "dog", "person"),
    class_counts={
        "Caltech101": (237, 123, 118, 67, 870),
        "LabelMe": (80, 1209, 88, 42, 1237),
        "SUN09": (20, 932, 1036, 30, 1264),
        "VOC2007": (330, 699, 428, 420, 1499),
    },
)
_OFFICE_HOME = KnownSet(
    name="OfficeHome",
    homes=("office_home",),
    domains=("Art", "Clipart", "Product", "Real World"),
    class_count=65,
    versions={"as published": (2427, 4365, 4439, 4357)},
)
_TERRA_INCOGNITA = KnownSet(
    name="TerraIncognita",
    homes=("terra_incognita",),
    domains=("location_100", "location_38", "location_43", "location_46"),
    class_count=10,
    versions={
        "as published before July 2021": (4879, 9767, 4020, 6122),
        "as published since July 2021": (4741, 9736, 3970, 5883),
    },
    classes=(
        *("bird", "bobcat", "cat", "coyote", "dog"),
        *("empty", "opossum", "rabbit", "raccoon", "squirrel"),
    ),
)

KNOWN_SETS: Mapping[str, KnownSet] = {
    known.name.lower(): known for known in (_PACS, _VLCS, _OFFICE_HOME, _TERRA_INCOGNITA)
}


def find_known(name: str) -> KnownSet:
    """The published set of that name, in upper or lower case."""
    if name.lower() not in KNOWN_SETS:
        check_choice("name", name, [*(one.name for one in KNOWN_SETS.values()), "own"])
    return KNOWN_SETS[name.lower()]

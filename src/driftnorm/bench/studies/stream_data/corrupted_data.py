"""Corrupted images as domains: clean ones corrupted on the fly, CIFAR-10-C, ImageNet-C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from driftnorm._internal.counts import counted
from driftnorm._internal.types import Integers
from driftnorm.bench.cell import CLEAN, DataId, Shift
from driftnorm.bench.studies.corrupted_streams import Streams, open_streams
from driftnorm.bench.studies.corruption_checks import (
    check_corruptions,
    check_there,
    check_whole,
)
from driftnorm.bench.studies.stream_data.given_networks import GivenNetworks
from driftnorm.bench.studies.stream_data.stream_data import (
    CLEAN_DOMAIN,
    SOURCE_IMAGES,
    Pictures,
)
from driftnorm.errors import DataError
from driftnorm.images.image_set import Images
from driftnorm.images.labelled import load_clean
from driftnorm.streams import Domain

__all__ = ["CorruptedData"]


@dataclass(frozen=True)
class CorruptedData(GivenNetworks):
    """One set of images under corruptions.

    Attributes:
        data: As `open_streams` takes it.
        models: The networks.
        corruptions: Domains in the order of the course; ``clean`` means the images as they are.
        severity: Of all corruptions; a gradual stream rises to it.
        skip: Images that are left out at the beginning of the data.
        limit: At most this many of the rest: the next ones, or evenly spaced ones for image
            folders.
        frost: Where frost's overlay pictures are.
        subset: A list of ImageNet-C's pictures to take.
        source: Clean images, as `load_clean` takes them, for methods that must see some first (512
            of them); of official files, the training split.
        class_names: Of pictures: the folder names of all classes, in the order of the outputs.
    """

    corruptions: tuple[str, ...] = (CLEAN,)
    severity: int = 5
    skip: int = 0
    limit: int | None = None
    frost: str | None = None
    subset: str | None = None
    source: str | None = None
    class_names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if names := [name for name in self.corruptions if name != CLEAN]:
            check_corruptions(names)
        if not self.corruptions:
            raise ValueError("`corruptions` must name at least one; `clean` is one.")
        check_whole("severity", (self.severity,), 1, 5)
        check_whole("skip", (self.skip,), 0)
        if self.limit is not None:
            check_whole("limit", (self.limit,), 1)

    @cached_property
    def _streams(self) -> Streams:
        return open_streams(self.data, None, self.frost, self.subset, self.class_names)

    @cached_property
    def _example(self) -> Images:
        """The images, without or with a corruption: their number and labels."""
        streams, names = self._streams, [name for name in self.corruptions if name != CLEAN]
        severities = {domain.severity for domain in self.domains}
        if names:
            check_there(streams, self.data, names, sorted(severities - {0}))
        elif not self.has_clean():
            raise DataError(
                f"{self.data} holds corrupted images only: name some of them as `--corruptions`."
            )
        return streams.example(names[0] if names else "", max(severities))

    @cached_property
    def _positions(self) -> Integers:
        """Which images of the data take part."""
        example = self._example
        count = len(example) - self.skip
        if count < 1:
            raise ValueError(
                f"`skip` must leave some of the {counted(len(example), 'image')} of {self.data}, "
                f"got {self.skip}."
            )
        limit = None if self.limit is None else min(self.limit, count)
        return self.skip + example.take(slice(self.skip, None)).some_positions(limit)

    @property
    def data_id(self) -> DataId:
        """Names the images in use, if these are not all."""
        data, positions = self._streams.data_id, self._positions
        if len(positions) == len(self._example):
            return data
        ends = f"{positions[0]} to {positions[-1]}"
        some = f"{counted(len(positions), 'image')} of" if self._example.in_files else "images"
        return replace(data, subset=", ".join(filter(None, (data.subset, f"{some} {ends}"))))

    @property
    def classes(self) -> Sequence[str]:
        """Name of each class."""
        return self._example.classes

    @property
    def domains(self) -> list[Domain]:
        """Corruptions at the one severity."""
        names = self.corruptions
        return [CLEAN_DOMAIN if n == CLEAN else Domain(n, self.severity) for n in names]

    def graded(self) -> list[Domain]:
        """Severities from 1 on."""
        found = [
            Domain(domain.name, severity)
            for domain in self.domains
            for severity in range(min(1, domain.severity), domain.severity + 1)
        ]
        names = [domain.name for domain in found if domain.severity]
        if names:
            severities = sorted({domain.severity for domain in found} - {0})
            check_there(self._streams, self.data, [*dict.fromkeys(names)], severities)
        return found

    def has_clean(self) -> bool:
        """False for folders of corrupted images."""
        return self._streams.holds("", 0)

    def shift(self, domain: Domain) -> Shift:
        """Frost may be a stand-in."""
        if not domain.severity:
            return super().shift(domain)
        return Shift(domain.name, domain.severity, self._streams.variant(domain.name))

    def labels(self, domain: Domain, seed: int) -> Integers:
        """The same under every corruption."""
        return self._example.labels[self._positions]

    def images(self, domain: Domain, seed: int, chosen: Integers) -> Pictures:
        """Corrupted now, and only these."""
        part = self._positions[chosen]
        return self._streams.images(domain.name, domain.severity, seed, part).load().images

    @property
    def has_source(self) -> bool:
        """Where the user names some."""
        return self.source is not None

    def source_images(self, seed: int) -> Pictures | None:
        """The first ones, or evenly spaced ones for image folders."""
        if self.source is None:
            return None
        found = load_clean(self.source, "train")
        return found.some(min(SOURCE_IMAGES, len(found))).load().images

    @cached_property
    def image_shape(self) -> tuple[int, int, int]:
        """That of the first image."""
        height, width, channels = self._example.first(1).load().images.shape[1:]
        return channels, height, width

    @property
    def note(self) -> str:
        """That of frost, if it is a stand-in."""
        variant = self._streams.variant("frost") if "frost" in self.corruptions else ""
        return f"frost is {variant}" if variant else ""

"""What a stream is made from: images in domains, and networks that take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.description import Description
from driftnorm._internal.types import Integers
from driftnorm.bench.cell import CLEAN, DataId, NetworkId, Shift
from driftnorm.bench.runner import Task
from driftnorm.images.tensors import unit
from driftnorm.streams import Course, Domain, Gradual, Probes, Steady

__all__ = ["CLEAN_DOMAIN", "SOURCE_IMAGES", "Pictures", "StreamData"]

CLEAN_DOMAIN = Domain(CLEAN)
SOURCE_IMAGES = 512  # for methods that must see some first
Pictures: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]
"""Images (N, H, W, C): bytes, or numbers in [0, 1]."""


@dataclass(frozen=True)
class StreamData(Description, ABC):
    """Images in domains with networks. Subclasses are frozen dataclasses."""

    @property
    @abstractmethod
    def data_id(self) -> DataId:
        """Which data these are."""

    @property
    @abstractmethod
    def classes(self) -> Sequence[str]:
        """Name of each class."""

    @property
    @abstractmethod
    def domains(self) -> list[Domain]:
        """The domains in the order of the course."""

    @abstractmethod
    def graded(self) -> list[Domain]:
        """Every severity of each domain, for a course that rises and falls."""

    @abstractmethod
    def has_clean(self) -> bool:
        """Whether there are images without a shift, for probes."""

    @abstractmethod
    def labels(self, domain: Domain, seed: int) -> Integers:
        """The classes of a domain's images."""

    @abstractmethod
    def images(self, domain: Domain, seed: int, chosen: Integers) -> Pictures:
        """Some of a domain's images; the seed is that of noise or of a split."""

    @property
    @abstractmethod
    def networks(self) -> Sequence[NetworkId]:
        """The networks to measure."""

    @abstractmethod
    def network(self, known: NetworkId, seed: int) -> nn.Module:
        """One of them, opened."""

    @property
    @abstractmethod
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""

    def shift(self, domain: Domain) -> Shift:
        """A domain as a cell stores it."""
        return Shift(domain.name, domain.severity)

    def inputs(self, images: NDArray[Any]) -> Tensor:
        """A batch as the networks take it."""
        return unit(torch.from_numpy(images).permute(0, 3, 1, 2))

    @property
    def has_source(self) -> bool:
        """Whether there are source-domain images."""
        return False

    def source_images(self, seed: int) -> Pictures | None:
        """Source-domain images, for methods that must see some first; None if unknown."""
        return None

    def preparations(self, seeds: Sequence[int]) -> list[Task]:
        """What must be made first."""
        return []

    @property
    def note(self) -> str:
        """What must be said beside a result."""
        return ""

    def domains_of(self, course: Course) -> list[list[Domain]]:
        """The domains of each stream of a course: one stream per domain, or one with all."""
        if isinstance(course, Steady):
            return [[domain] for domain in self.domains]
        if isinstance(course, Gradual):
            return [self.graded()]
        probed = isinstance(course, Probes) and course.probe == CLEAN
        if probed and CLEAN_DOMAIN not in self.domains and self.has_clean():
            return [[*self.domains, CLEAN_DOMAIN]]
        return [self.domains]

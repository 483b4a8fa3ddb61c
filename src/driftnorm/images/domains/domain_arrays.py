"""Domains as arrays of bytes: whatever the source, training and evaluation see only this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from driftnorm._internal.types import Integers
from driftnorm.errors import DataError
from driftnorm.images.domains.augment import augment
from driftnorm.images.domains.splits import Split, split_domain
from driftnorm.images.image_set import ImageSet
from driftnorm.images.tensors import tensors, unit

EVALUATION_BATCH = 64


@dataclass(frozen=True, eq=False)
class DomainArrays:
    """Domains with the same classes and images of one shape.

    Attributes:
        name: The set's name.
        domains: In the set's order; splits depend on it.
        augmented: Whether DomainBed augments this set in training: pictures yes, digits no.
        content: A hash of what the images were made from, recorded with results.
        note: What results must mention.
    """

    name: str
    domains: tuple[ImageSet, ...]
    augmented: bool
    content: str
    note: str = ""

    def __post_init__(self) -> None:
        if len({domain.classes for domain in self.domains}) != 1:
            raise DataError(f"{self.name}: `domains` must have the same classes.")
        shapes = {domain.images.shape[1:] for domain in self.domains}
        if len(shapes) != 1:
            raise DataError(f"{self.name}: `domains` must agree in shape, got {sorted(shapes)}.")
        for domain in self.domains:
            if not len(domain):
                raise DataError(f"{self.name}: domain {domain.name} holds no images.")

    @property
    def classes(self) -> tuple[str, ...]:
        """Name of each class."""
        return self.domains[0].classes

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        height, width, channels = self.domains[0].images.shape[1:]
        return channels, height, width

    def index(self, name: str) -> int:
        """The position of a domain among the domains."""
        names = [domain.name for domain in self.domains]
        if name not in names:
            raise ValueError(f"{self.name} has the domains {', '.join(names)}; got {name!r}.")
        return names.index(name)

    def splits(self, trial_seed: int) -> tuple[Split, ...]:
        """DomainBed's split of every domain."""
        return tuple(self.split(place, trial_seed) for place in range(len(self.domains)))

    def split(self, place: int, trial_seed: int) -> Split:
        """DomainBed's split of the domain at this position."""
        return split_domain(len(self.domains[place]), trial_seed, place)


def evaluation_batches(
    domain: ImageSet,
    positions: Integers,
    batch_size: int = EVALUATION_BATCH,
    augmentation: np.random.Generator | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Some images of a domain in order, in [0, 1], with labels; the last batch may be smaller.

    Args:
        domain: The domain.
        positions: Which of its images.
        batch_size: Images per batch.
        augmentation: Augments with these random numbers, as DomainBed does with the held-out images
            of training domains. By default, and always for a target domain, images are unchanged.
    """
    for start in range(0, len(positions), batch_size):
        images, labels = tensors(domain, positions[start : start + batch_size])
        yield (unit(images) if augmentation is None else augment(images, augmentation)), labels

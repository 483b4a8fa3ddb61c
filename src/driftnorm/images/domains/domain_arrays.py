"""Domains as arrays of bytes: whatever a set was, training and evaluation see only this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from driftnorm._internal.types import Integers, Pixels
from driftnorm.errors import DataError
from driftnorm.images.domains.augment import augment
from driftnorm.images.domains.splits import Split, split_domain
from driftnorm.images.unit_range import unit

__all__ = ["EVALUATION_BATCH", "DomainArray", "DomainArrays", "evaluation_batches"]

EVALUATION_BATCH = 64


@dataclass(frozen=True, eq=False)
class DomainArray:
    """One domain.

    Attributes:
        name: Its name.
        images: Bytes, (N, H, W, C); often a read-only view of a file.
        labels: Class numbers, int64 (N,).
    """

    name: str
    images: Pixels
    labels: Integers

    def __post_init__(self) -> None:
        if self.images.ndim != 4 or self.images.dtype != np.uint8:
            raise DataError(
                f"{self.name}: `images` must be uint8 of shape (N, H, W, C), got "
                f"{self.images.dtype} of shape {self.images.shape}."
            )
        if self.labels.shape != (len(self.images),) or self.labels.dtype != np.int64:
            raise DataError(
                f"{self.name}: `labels` must be int64 with one entry for each of the "
                f"{len(self.images)} images, got {self.labels.dtype} of shape {self.labels.shape}."
            )

    def __len__(self) -> int:
        """How many images there are."""
        return len(self.labels)

    def tensors(self, positions: Integers) -> tuple[Tensor, Tensor]:
        """Copies of some images, bytes (N, C, H, W), channels last in memory, and their labels."""
        images = torch.from_numpy(np.asarray(self.images[positions]))
        return images.permute(0, 3, 1, 2), torch.from_numpy(self.labels[positions])


@dataclass(frozen=True, eq=False)
class DomainArrays:
    """Domains with the same classes and images of one shape.

    Attributes:
        name: Of the set.
        domains: In the set's order; splits depend on it.
        classes: Their names.
        augmented: Whether DomainBed augments this set in training: pictures yes, digits no.
        content: A hash of what the images were made from; a result stands beside it.
        note: What a result must say beside its number.
    """

    name: str
    domains: tuple[DomainArray, ...]
    classes: tuple[str, ...]
    augmented: bool
    content: str
    note: str = ""

    def __post_init__(self) -> None:
        shapes = {domain.images.shape[1:] for domain in self.domains}
        if len(shapes) != 1:
            raise DataError(f"{self.name}: `domains` must agree in shape, got {sorted(shapes)}.")
        for domain in self.domains:
            if not len(domain):
                raise DataError(f"{self.name}: domain {domain.name} holds no images.")
            low, high = int(domain.labels.min()), int(domain.labels.max())
            if low < 0 or high >= len(self.classes):
                raise DataError(
                    f"{self.name}: labels of {domain.name} must be from 0 to "
                    f"{len(self.classes) - 1}, got {low} to {high}."
                )

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        height, width, channels = self.domains[0].images.shape[1:]
        return channels, height, width

    def index(self, name: str) -> int:
        """The place of a domain among the domains."""
        names = [domain.name for domain in self.domains]
        if name not in names:
            raise ValueError(f"{self.name} has the domains {', '.join(names)}; got {name!r}.")
        return names.index(name)

    def splits(self, trial_seed: int) -> tuple[Split, ...]:
        """DomainBed's split of every domain."""
        return tuple(
            split_domain(len(domain), trial_seed, place)
            for place, domain in enumerate(self.domains)
        )


def evaluation_batches(
    domain: DomainArray,
    positions: Integers,
    batch_size: int = EVALUATION_BATCH,
    augmentation: np.random.Generator | None = None,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Some images of a domain in order, in [0, 1], with labels; the last batch may be smaller.

    Args:
        domain: Which.
        positions: Which of its images.
        batch_size: Images a batch.
        augmentation: Augments as DomainBed does to the held-out images of training domains, with
            these random numbers. By default, and for a target domain always, images stay as they
            are.
    """
    for start in range(0, len(positions), batch_size):
        images, labels = domain.tensors(positions[start : start + batch_size])
        yield (unit(images) if augmentation is None else augment(images, augmentation)), labels

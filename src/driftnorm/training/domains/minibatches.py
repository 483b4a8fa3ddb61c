"""The batches that training on domains draws."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Integers
from driftnorm.images.domains.augment import augment
from driftnorm.images.image_set import ImageSet
from driftnorm.images.tensors import tensors, unit
from driftnorm.training.batches import random_numbers


class Batches:
    """One batch per training domain for every step, drawn with replacement as DomainBed does.

    A batch follows from the seed and the step alone, so a resumed run sees what an uninterrupted
    one would have seen, bit for bit.

    Args:
        domains: Those to train on, in order.
        positions: For each of them, which images to draw from: its "in" split.
        batch_size: Images per domain and step.
        seed: Of the draws and of the augmentation.
        augmented: Whether to augment; see `driftnorm.images.domains.augment.augment`.
        side: Of augmented images, in pixels; that of the stored ones by default.
    """

    def __init__(
        self,
        domains: Sequence[ImageSet],
        positions: Sequence[Integers],
        batch_size: int,
        seed: int,
        *,
        augmented: bool,
        side: int | None = None,
    ) -> None:
        if not domains or len(domains) != len(positions):
            raise ValueError(
                "`domains` and `positions` must have the same length, at least 1, got "
                f"{len(domains)} and {len(positions)}."
            )
        check_whole("batch_size", batch_size)
        for domain, chosen in zip(domains, positions, strict=True):
            _check_positions(domain, chosen)
        if side is not None and not augmented:
            raise ValueError("`side` is of augmented images: set `augmented`, or cache that size.")
        random_numbers(seed, "order", 0)  # refuses a bad seed now rather than at the first step
        self.domains, self.positions = tuple(domains), tuple(positions)
        self.batch_size, self.seed = batch_size, seed
        self.augmented, self.side = augmented, side

    def batch(self, step: int) -> list[tuple[Tensor, Tensor]]:
        """Images in [0, 1], (N, C, H, W), and labels of each domain at a step, counted from 0."""
        order = random_numbers(self.seed, "order", step)
        changes = random_numbers(self.seed, "augmentation", step)
        batches = []
        for domain, positions in zip(self.domains, self.positions, strict=True):
            draws = positions[order.integers(0, len(positions), self.batch_size)]
            images, labels = tensors(domain, draws)
            pixels = augment(images, changes, self.side) if self.augmented else unit(images)
            batches.append((pixels, labels))
        return batches


def _check_positions(domain: ImageSet, positions: Integers) -> None:
    if not len(positions) or positions.min() < 0 or positions.max() >= len(domain):
        raise ValueError(
            f"`positions` of {domain.name} must be at least one, each from 0 to {len(domain) - 1}."
        )

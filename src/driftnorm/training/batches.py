"""Batches as a pure function of a seed and the number of the step.

Nothing is remembered from step to step: the order of an epoch follows from the seed and the epoch,
the augmentation of a step from the seed and the step. A run that is resumed at step k therefore
sees what an uninterrupted one would have seen, bit for bit, without any saved random state.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from driftnorm._internal.arguments import check_whole

PURPOSES = {
    "order": 0,
    "augmentation": 1,
    "network": 2,
    "algorithm": 3,
}  # independent streams of one seed


def random_numbers(
    seed: int, purpose: Literal["order", "augmentation", "network", "algorithm"], index: int
) -> np.random.Generator:
    """The random numbers that one seed gives for one purpose at one epoch or step."""
    check_whole("seed", seed, 0)
    return np.random.default_rng([seed, PURPOSES[purpose], index])


@dataclasses.dataclass(frozen=True)
class Batch:
    """Images and labels of one step, and the random numbers that belong to it.

    Attributes:
        images: Bytes (N, C, H, W), as stored.
        labels: Class numbers (N,).
        rng: Fresh for this step; the same for every visit to it.
    """

    images: Tensor
    labels: Tensor
    rng: np.random.Generator


class ShuffledBatches:
    """An endless stream of shuffled epochs, cut into batches of equal size.

    Every image comes once per epoch; a batch at the end of one takes its rest from the next, so
    that none is dropped and none is small.

    Args:
        images: Bytes (N, C, H, W).
        labels: Class numbers (N,).
        batch_size: Images per batch.
        seed: Of the order and of the batches' random numbers.
    """

    def __init__(self, images: Tensor, labels: Tensor, batch_size: int, seed: int) -> None:
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise TypeError(
                "`images` must be bytes of shape (N, C, H, W), got "
                f"{images.dtype} of shape {tuple(images.shape)}."
            )
        if not len(images) or len(images) != len(labels):
            raise ValueError(
                "`images` and `labels` must have the same length, at least 1, got "
                f"{len(images)} and {len(labels)}."
            )
        check_whole("batch_size", batch_size)
        self.images, self.labels = images, labels.long()
        self.batch_size, self.seed = batch_size, seed
        self._orders: dict[int, NDArray[np.int64]] = {}

    def __call__(self, step: int) -> Batch:
        """The batch of a step, counted from 0."""
        epochs, places = np.divmod(
            np.arange(step * self.batch_size, (step + 1) * self.batch_size), len(self.images)
        )
        picks = np.empty_like(places)
        for epoch in np.unique(epochs):
            picks[epochs == epoch] = self._order(int(epoch))[places[epochs == epoch]]
        chosen = torch.from_numpy(picks)
        rng = random_numbers(self.seed, "augmentation", step)
        return Batch(self.images[chosen], self.labels[chosen], rng)

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._orders:
            if len(self._orders) > 1:  # a batch spans two epochs at most, but for tiny data sets
                self._orders.clear()
            order = random_numbers(self.seed, "order", epoch).permutation(len(self.images))
            self._orders[epoch] = order
        return self._orders[epoch]

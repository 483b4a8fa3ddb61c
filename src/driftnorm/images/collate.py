"""From a stream of images to the batches that a network takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from driftnorm.images.contents import Pixels
from driftnorm.images.stream import Item

__all__ = ["as_batch", "in_batches"]


def in_batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Batches of ``size``; a remainder of less than half of it joins the last batch.

    Averages over batches weigh each batch equally, so a tiny last batch would count too much.

    >>> [len(batch) for batch in in_batches(iter([Item("", None)] * 9), 4)]
    [4, 5]
    """
    batch = [*islice(items, size)]
    while batch:
        following = [*islice(items, size)]
        if 2 * len(following) < size:
            batch, following = batch + following, []
        yield batch
        batch = following


def as_batch(images: Sequence[Pixels], device: torch.device | str = "cpu") -> Tensor:
    """Images (H, W, 3), bytes or floats in [0, 1], as a batch (N, 3, H, W) in [0, 1]."""
    stacked = torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2)
    return stacked if stacked.is_floating_point() else stacked.float().div_(255)

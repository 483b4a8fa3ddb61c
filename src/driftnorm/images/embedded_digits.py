"""The handwritten digits that come with the package (UCI, CC BY 4.0; see ``digits.LICENSE``)."""

from __future__ import annotations

from importlib.resources import files
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Digits(NamedTuple):
    """Images of shape ``(N, 1, 8, 8)`` in [0, 1], and labels 0 to 9."""

    images: Tensor
    labels: Tensor


def load_digits() -> Digits:
    """All 1,797 digits, in their published order."""
    with files("driftnorm.images").joinpath("digits.npz").open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        images, labels = stored["images"], stored["labels"]
    return Digits(
        torch.from_numpy(images).float().div(16).unsqueeze(1), torch.from_numpy(labels).long()
    )


def split_digits(seed: int) -> tuple[Digits, Digits]:
    """A random half for training and the other half for testing."""
    digits = load_digits()
    order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(seed))
    half = len(order) // 2
    parts = (order[:half], order[half:])
    train, test = (Digits(digits.images[part], digits.labels[part]) for part in parts)
    return train, test

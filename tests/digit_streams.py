"""The demo's network and its digits, clean and shifted, as streams."""

from __future__ import annotations

import warnings
from functools import cache

import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS
from driftnorm.bench.studies.digits import normalized_digits, train_digits
from driftnorm.images.embedded_digits import Digits, split_digits


@cache
def trained() -> tuple[nn.Module, Digits]:
    training, test = split_digits(0)
    return train_digits(training, 0), test


def shifted(name: str, severity: int = 1) -> Tensor:
    return DIGIT_SHIFTS[name](trained()[1].images, severity, torch.Generator().manual_seed(0))


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, batch: int = 32) -> float:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
        right = sum(
            int((model(normalized_digits(x)).argmax(1) == y).sum())
            for x, y in zip(images.split(batch), labels.split(batch), strict=True)
        )
    return right / len(labels)

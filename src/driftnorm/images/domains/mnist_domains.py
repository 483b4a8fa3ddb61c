"""RotatedMNIST and ColoredMNIST: domains made of MNIST's 70,000 digits.

All digits are shuffled and dealt to the domains in turn. DomainBed draws the shuffle, then each
domain's wrong labels and colours, from torch's global generator; here the same draws come from a
separate generator, so nothing else changes them. These sets are not augmented.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Integers, Pixels
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.image_set import ImageSet
from driftnorm.images.mnist import load_mnist

ANGLES = (0, 15, 30, 45, 60, 75)
COLOR_FLIPS = {"+90%": 0.1, "+80%": 0.2, "-90%": 0.9}
LABEL_NOISE = 0.25

Make = Callable[[Pixels, Integers, torch.Generator], tuple[Pixels, Integers]]


def rotated_mnist(folder: str | os.PathLike[str], seed: int = 0) -> DomainArrays:
    """Six domains: digits rotated counterclockwise by 0, 15, ..., 75 degrees on black.

    Args:
        folder: Where MNIST is; see `driftnorm.images.mnist.load_mnist`.
        seed: Seed of the shuffle.

    Returns:
        Bytes (N, 28, 28, 1) and the ten digits as classes.
    """

    def turned(angle: int) -> Make:
        return lambda images, labels, _: (_rotated(images, angle)[..., None], labels)

    makers = {str(angle): turned(angle) for angle in ANGLES}
    classes = tuple(str(digit) for digit in range(10))
    return _dealt("RotatedMNIST", folder, seed, makers, classes)


def colored_mnist(folder: str | os.PathLike[str], seed: int = 0) -> DomainArrays:
    """Three domains in which colour predicts the label better than shape, except in the last.

    The label is whether the digit is below 5, wrong for a quarter of the images; the colour is the
    label, wrong for 10, 20 and 90 % of them. Without the colour, the best accuracy is 75 %.

    Args:
        folder: Where MNIST is; see `driftnorm.images.mnist.load_mnist`.
        seed: Seed of the shuffle, the wrong labels and the colours.

    Returns:
        Bytes (N, 28, 28, 2), one of the two channels black, and two classes.
    """

    def colored(flips: float) -> Make:
        return lambda images, labels, random: _colored(images, labels, flips, random)

    makers = {name: colored(flips) for name, flips in COLOR_FLIPS.items()}
    return _dealt("ColoredMNIST", folder, seed, makers, ("5 to 9", "0 to 4"))


def _dealt(
    name: str,
    folder: str | os.PathLike[str],
    seed: int,
    makers: dict[str, Make],
    classes: tuple[str, ...],
) -> DomainArrays:
    check_whole("seed", seed, 0)
    parts = [load_mnist(folder, "train"), load_mnist(folder, "test")]
    images = np.concatenate([part.images[..., 0] for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    random = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(labels), generator=random).numpy()
    content, domains = hashlib.sha256(), []
    for number, (title, make) in enumerate(makers.items()):
        hand = order[number :: len(makers)]
        own_images, own_labels = make(images[hand], labels[hand], random)
        content.update(own_images.tobytes() + own_labels.tobytes())
        domains.append(ImageSet.whole(title, own_images, own_labels, classes))
    return DomainArrays(name, tuple(domains), False, content.hexdigest())


def _rotated(images: Pixels, angle: int) -> Pixels:
    turned = [Image.fromarray(each).rotate(angle, Image.Resampling.BILINEAR) for each in images]
    return np.stack([np.asarray(each) for each in turned])


def _colored(
    images: Pixels, labels: Integers, flips: float, random: torch.Generator
) -> tuple[Pixels, Integers]:
    def coin(probability: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        flipped: np.ndarray[tuple[int], np.dtype[np.bool_]] = (
            torch.rand(len(labels), generator=random) < probability
        ).numpy()
        return flipped

    noisy = (labels < 5) ^ coin(LABEL_NOISE)
    colors = noisy ^ coin(flips)
    shown = np.stack([images, images], axis=-1)
    shown[np.arange(len(shown)), ..., 1 - colors.astype(np.int64)] = 0
    return shown, noisy.astype(np.int64)

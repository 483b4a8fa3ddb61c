"""The image operations of AutoAugment and AugMix, applied to a batch in a handful of calls.

An operation has a level from 0 to 10. Both projects turn it into a magnitude in the same way:

=====================  ======================================================
rotate                 int(30 * level / 10) degrees, either way
shear_x, shear_y       0.3 * level / 10, either way
translate_x, _y        int(span * level / 10) pixels, either way
posterize              keep 4 - int(4 * level / 10) bits
solarize               invert from 256 - int(256 * level / 10) on
color, contrast,       Pillow's enhancement factor 0.1 + 1.8 * level / 10
brightness, sharpness
autocontrast,          no magnitude
equalize, invert
=====================  ======================================================

(tensorflow/models research/autoaugment and google-research/augmix; the AutoAugment paper prints
other ranges for posterize, 4 to 8 bits, and for translations of larger images.) Whatever moves
pixels is one `affine`, whatever maps values is one `apply_tables`, and the enhancements are one
`blend`, so a batch costs three calls however many operations it holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from driftnorm.training.augmentation import pixels

GEOMETRIC = ("rotate", "shear_x", "shear_y", "translate_x", "translate_y")
VALUE_MAPS = ("autocontrast", "equalize", "posterize", "solarize", "invert")
ENHANCEMENTS = ("color", "contrast", "brightness", "sharpness")
IDENTITY = "identity"
OPERATIONS = (*GEOMETRIC, *VALUE_MAPS, *ENHANCEMENTS, IDENTITY)


@dataclasses.dataclass(frozen=True)
class Distortion:
    """One operation for each image of a batch.

    Attributes:
        names: Operation of each image.
        levels: Its level, 0 to 10; ignored by operations without a magnitude.
        signs: -1 or 1, the direction of geometric operations.
    """

    names: NDArray[np.str_]
    levels: NDArray[np.float64]
    signs: NDArray[np.float64]

    def among(self, names: Sequence[str]) -> NDArray[np.intp]:
        """Numbers of the images that get one of these operations."""
        return np.flatnonzero(np.isin(self.names, names))

    def of(self, which: NDArray[np.intp]) -> Distortion:
        """The part of some images."""
        return Distortion(self.names[which], self.levels[which], self.signs[which])


def distort(
    images: Tensor,
    distortion: Distortion,
    *,
    translate_span: float,
    resample: pixels.Resample,
    fill: Tensor,
) -> Tensor:
    """Applies each image's operation.

    Args:
        images: Bytes (N, C, H, W).
        distortion: What to do with each.
        translate_span: Pixels of a translation at level 10.
        resample: How geometric operations read between pixels.
        fill: One byte per channel for what geometric operations uncover.

    Returns:
        Bytes of the same shape, a new tensor.
    """
    out = images.clone()
    moved = distortion.among(GEOMETRIC)
    if len(moved):
        matrices = _matrices(distortion.of(moved), translate_span, images.shape[-2:])
        part = _take(images, moved)
        out[moved] = pixels.affine(part, matrices.to(part.device), resample=resample, fill=fill)
    mapped = distortion.among(VALUE_MAPS)
    if len(mapped):
        part = _take(images, mapped)
        out[mapped] = pixels.apply_tables(part, _tables(part, distortion.of(mapped)))
    enhanced = distortion.among(ENHANCEMENTS)
    if len(enhanced):
        part, wanted = _take(images, enhanced), distortion.of(enhanced)
        factors = torch.from_numpy(wanted.levels * 1.8 / 10 + 0.1).to(part.device)
        out[enhanced] = pixels.blend(_degenerate(part, wanted), part, factors)
    return out


def _take(images: Tensor, which: NDArray[np.intp]) -> Tensor:
    return images[torch.from_numpy(which).to(images.device)]


def _whole(levels: NDArray[np.float64], most: float) -> NDArray[np.int64]:
    """The magnitude at a level where it must be a whole number: cut off, not rounded."""
    return (levels * most / 10).astype(np.int64)


def _matrices(wanted: Distortion, span: float, size: Sequence[int]) -> Tensor:
    """Output-to-input matrices in Pillow's convention; rotations are about the centre."""
    height, width = size
    matrices = np.tile(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]), (len(wanted.names), 1, 1))
    for row, column, name in ((0, 1, "shear_x"), (1, 0, "shear_y")):
        which = wanted.among([name])
        matrices[which, row, column] = wanted.signs[which] * wanted.levels[which] * 0.3 / 10
    for row, name in ((0, "translate_x"), (1, "translate_y")):
        which = wanted.among([name])
        matrices[which, row, 2] = wanted.signs[which] * _whole(wanted.levels[which], span)
    which = wanted.among(["rotate"])
    angle = np.deg2rad(wanted.signs[which] * _whole(wanted.levels[which], 30))
    cosine, sine = np.cos(angle), np.sin(angle)
    matrices[which, 0, 0], matrices[which, 0, 1] = cosine, -sine
    matrices[which, 1, 0], matrices[which, 1, 1] = sine, cosine
    matrices[which, 0, 2] = width / 2 - cosine * width / 2 + sine * height / 2
    matrices[which, 1, 2] = height / 2 - sine * width / 2 - cosine * height / 2
    return torch.from_numpy(matrices)


def _tables(images: Tensor, wanted: Distortion) -> Tensor:
    """The value map of each image as a table (N, C, 256)."""
    tables = torch.empty((*images.shape[:2], 256), dtype=torch.uint8, device=images.device)
    for name in VALUE_MAPS:
        which = wanted.among([name])
        if not len(which):
            continue
        levels = wanted.levels[which]
        if name == "autocontrast":
            tables[which] = pixels.autocontrast_tables(_take(images, which))
        elif name == "equalize":
            tables[which] = pixels.equalize_tables(_take(images, which))
        elif name == "posterize":
            bits = torch.from_numpy(4 - _whole(levels, 4)).to(images.device)
            tables[which] = pixels.posterize_tables(bits)
        else:  # inverting is solarizing from 0 on
            thresholds = 256 - _whole(levels, 256) if name == "solarize" else 0 * levels
            tables[which] = pixels.solarize_tables(torch.from_numpy(thresholds).to(images.device))
    return tables


def _degenerate(images: Tensor, wanted: Distortion) -> Tensor:
    """What an enhancement factor of 0 would leave of each image."""
    base = torch.zeros_like(images)  # brightness: black
    which = wanted.among(["color"])
    base[which] = pixels.grayscale(_take(images, which)).expand_as(_take(images, which))
    which = wanted.among(["contrast"])
    gray = pixels.grayscale(_take(images, which)).double()
    mean = (gray.mean(dim=(1, 2, 3), keepdim=True) + 0.5).to(torch.uint8)
    base[which] = mean.expand_as(_take(images, which))
    which = wanted.among(["sharpness"])
    base[which] = pixels.smooth(_take(images, which))
    return base

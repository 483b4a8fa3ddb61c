"""The input that a network takes, and the module that does the arithmetic part of it.

Every model of driftnorm takes RGB images in [0, 1]: subtracting the mean and dividing by the
standard deviation happens inside the model, so that corruptions, loaders and checkpoints never
have to agree about it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_number, check_whole

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos", "box", "hamming")
# What is subtracted from, and divides, images in [0, 1]. A network that was trained on bytes
# divides by 1/255; constants that are meant for bytes are far above.
MEANS, DEVIATIONS = (-0.5, 1.5), (0.002, 3.0)


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """How a picture becomes the input of a network.

    Attributes:
        mean: Mean per channel, for values in [0, 1].
        std: Standard deviation per channel, for values in [0, 1].
        size: Height and width of the square input in pixels.
        interpolation: Pillow's name of the resampling filter, in lower case.
        crop_ratio: Part of the resized picture that the centre crop keeps; 0.875 resizes the
            shorter side to 256 pixels for an input of 224.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    size: int
    interpolation: str = "bilinear"
    crop_ratio: float = 1.0

    def __post_init__(self) -> None:
        mean, std = checked_mean_std(self.mean, self.std)
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)
        check_whole("size", self.size)
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_number("crop_ratio", self.crop_ratio, most=1)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Builds it from a plain mapping such as `to_mapping` gives."""
        known = {field.name for field in dataclasses.fields(cls)}
        required = {"mean", "std", "size"}
        if set(values) - known or required - set(values):
            raise ValueError(
                f"`preprocessing` must hold {', '.join(sorted(required))} and may hold "
                f"{', '.join(sorted(known - required))}; got the keys {sorted(values)}."
            )
        return cls(**values)

    def to_mapping(self) -> dict[str, Any]:
        """Returns plain lists and numbers, fit for JSON."""
        values = dataclasses.asdict(self)
        return {**values, "mean": list(self.mean), "std": list(self.std)}


class Normalized(nn.Module):
    """A network that takes images in [0, 1] and normalises them itself.

    Args:
        network: The network proper, which expects normalised input.
        mean: Mean per channel (one value serves all channels).
        std: Standard deviation per channel.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        mean, std = checked_mean_std(mean, std)
        self.network = network
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Normalises a batch of images (N, C, H, W) and runs the network on it."""
        if not images.is_floating_point():
            raise TypeError(
                f"`images` must be floating point with values in [0, 1], got {images.dtype}; "
                "divide bytes by 255 first."
            )
        channels = self.mean.shape[0]
        if images.ndim != 4 or channels not in (1, images.shape[1]):
            raise ValueError(
                f"`images` must have the shape (batch, {channels}, height, width), "
                f"got {tuple(images.shape)}."
            )
        logits: Tensor = self.network((images - self.mean) / self.std)
        return logits

    def extra_repr(self) -> str:
        """Shows the constants when the module is printed."""
        mean, std = self.mean.flatten().tolist(), self.std.flatten().tolist()
        return f"mean={[round(m, 5) for m in mean]}, std={[round(s, 5) for s in std]}"


def checked_mean_std(
    mean: Sequence[float], std: Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns both as tuples of floats, or says what is wrong with them."""
    means, stds = tuple(float(m) for m in mean), tuple(float(s) for s in std)
    if not means or len(means) != len(stds):
        raise ValueError(
            "`mean` and `std` must hold one number per channel each, "
            f"got {len(means)} and {len(stds)}."
        )
    if not all(map(math.isfinite, means)):
        raise ValueError(f"`mean` must be finite, got {means}.")
    if not all(math.isfinite(s) and s > 0 for s in stds):
        raise ValueError(f"`std` must be finite and positive, got {stds}.")
    return means, stds


def doubt_of_constants(mean: Sequence[float], std: Sequence[float]) -> str | None:
    """Why these cannot be the mean and deviation of images in [0, 1]; None if they can."""
    (low, high), (least, most) = MEANS, DEVIATIONS
    if all(low <= m <= high for m in mean) and all(least <= d <= most for d in std):
        return None
    text = (
        f"the network subtracts {_numbers(mean)} and divides by {_numbers(std)}, which cannot be "
        "the mean and deviation of images in [0, 1]"
    )
    if max(mean) > high and max(std) > most:
        scaled = (_numbers([value / 255 for value in values]) for values in (mean, std))
        text += ": they seem to be for bytes; divide both by 255 ({} and {})".format(*scaled)
    return f"{text}."


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)

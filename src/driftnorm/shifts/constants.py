"""The severity constants of the 19 corruptions, at 32 px (``cifar``) and 224 px (``imagenet``).

Each entry holds five tuples, severity 1 to 5, which are passed in order to the corruption's
function. The comment above an entry names the members. Values of Hendrycks and Dietterich,
"Benchmarking Neural Network Robustness to Common Corruptions and Perturbations" (2019).
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Scale: TypeAlias = Literal["cifar", "imagenet"]
Severities: TypeAlias = tuple[tuple[float, ...], ...]

SCALES: tuple[Scale, ...] = ("cifar", "imagenet")

CONSTANTS: dict[str, dict[Scale, Severities]] = {
    # standard deviation, in units of the full range
    "gaussian_noise": {
        "cifar": ((0.04,), (0.06,), (0.08,), (0.09,), (0.10,)),
        "imagenet": ((0.08,), (0.12,), (0.18,), (0.26,), (0.38,)),
    },
    # photons at full brightness
    "shot_noise": {
        "cifar": ((500,), (250,), (100,), (75,), (50,)),
        "imagenet": ((60,), (25,), (12,), (5,), (3,)),
    },
    # share of values replaced
    "impulse_noise": {
        "cifar": ((0.01,), (0.02,), (0.03,), (0.05,), (0.07,)),
        "imagenet": ((0.03,), (0.06,), (0.09,), (0.17,), (0.27,)),
    },
    # disk radius, sigma of the blur that softens the disk's rim
    "defocus_blur": {
        "cifar": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "imagenet": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    },
    # sigma, largest displacement, iterations
    "glass_blur": {
        "cifar": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "imagenet": ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    },
    # radius, sigma
    "motion_blur": {
        "cifar": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "imagenet": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    },
    # stop and step of `np.arange(1, stop, step)`, whose rounding decides whether `stop` is included
    "zoom_blur": {
        "cifar": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
        "imagenet": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    },
    # mean, standard deviation, zoom, threshold, blur radius, blur sigma, weight of the image
    "snow": {
        "cifar": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "imagenet": (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    },
    # weight of the image, weight of the frost picture
    "frost": {
        "cifar": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "imagenet": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    },
    # strength, decay of the height map's roughness from level to level
    "fog": {
        "cifar": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "imagenet": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    },
    # added to the HSV value
    "brightness": {
        "cifar": ((0.05,), (0.1,), (0.15,), (0.2,), (0.3,)),
        "imagenet": ((0.1,), (0.2,), (0.3,), (0.4,), (0.5,)),
    },
    # factor around the channel's mean
    "contrast": {
        "cifar": ((0.75,), (0.5,), (0.4,), (0.3,), (0.15,)),
        "imagenet": ((0.4,), (0.3,), (0.2,), (0.1,), (0.05,)),
    },
    # amplitude, smoothing and affine jitter, as multiples of a size S (see `digital.py`)
    "elastic_transform": {
        "cifar": (
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "imagenet": (
            (2, 0.7, 0.1),
            (2, 0.08, 0.2),
            (0.05, 0.01, 0.02),
            (0.07, 0.01, 0.02),
            (0.12, 0.01, 0.02),
        ),
    },
    # factor by which the picture shrinks before it grows back
    "pixelate": {
        "cifar": ((0.95,), (0.9,), (0.85,), (0.75,), (0.65,)),
        "imagenet": ((0.6,), (0.5,), (0.4,), (0.3,), (0.25,)),
    },
    # JPEG quality
    "jpeg_compression": {
        "cifar": ((80,), (65,), (58,), (50,), (40,)),
        "imagenet": ((25,), (18,), (15,), (10,), (7,)),
    },
    # standard deviation of the factor
    "speckle_noise": {
        "cifar": ((0.06,), (0.1,), (0.12,), (0.16,), (0.2,)),
        "imagenet": ((0.15,), (0.2,), (0.35,), (0.45,), (0.6,)),
    },
    # sigma
    "gaussian_blur": {
        "cifar": ((0.4,), (0.6,), (0.7,), (0.8,), (1,)),
        "imagenet": ((1,), (2,), (3,), (4,), (6,)),
    },
    # mean, standard deviation, sigma, threshold, strength (water) or sigma (mud), 0 water or 1 mud
    "spatter": {
        "cifar": (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        "imagenet": (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
    },
    # factor and offset of the HSV saturation
    "saturate": {
        "cifar": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        "imagenet": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    },
}

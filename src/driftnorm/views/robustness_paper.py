"""What the paper prints for robustness: errors in %.

Its CIFAR tables are means over five severities of WRN-40-2 trained with AugMix ("AM"), and of the
standard WRN-28-10 where they say so. Some of its numbers do not fit each other: 17.7 and 42.1 (Tent
on source statistics), 43.5 are those of severity 5, and on ImageNet-C the mCE of BN (68.9) and of
random AutoAugment (66.1) are not the means of their groups (53.6 and 76.1).
"""

from __future__ import annotations

__all__ = ["ALEXNET_ERRORS", "AUGMENTED", "DETAILED", "IMAGENET", "MEAN", "SEVERITY_5"]

SEVERITY_5 = (17.7, 42.1, 43.5)
"""Numbers that the paper prints among means over severities, and that seem not to be ones."""

# Mean over severities, corruption by corruption, in canonical order.
_METHODS = ("source", "tent", "t3a", "bn", "gprebn")
_CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
_CIFAR10 = (
    (19.1, 11.7, 17.3, 14.1, 11.3),
    (14.0, 9.9, 13.0, 11.9, 9.6),
    (13.3, 11.7, 13.0, 13.9, 11.5),
    (6.3, 6.3, 6.3, 7.2, 6.1),
    (17.1, 14.7, 16.4, 17.6, 14.3),
    (7.9, 7.6, 7.8, 8.7, 7.4),
    (7.0, 6.7, 6.8, 7.9, 6.6),
    (10.4, 9.1, 10.3, 10.8, 8.9),
    (10.6, 8.7, 10.4, 10.6, 8.5),
    (8.5, 7.7, 8.0, 9.1, 7.5),
    (5.9, 6.0, 5.9, 6.8, 5.8),
    (9.7, 7.6, 9.2, 9.0, 7.3),
    (9.2, 9.7, 9.1, 10.9, 9.4),
    (16.8, 8.2, 15.0, 10.1, 7.9),
    (11.9, 12.1, 11.9, 14.0, 11.8),
)
_CIFAR100 = (
    (52.1, 35.5, 51.1, 39.1, 35.0),
    (44.3, 33.2, 43.9, 36.6, 32.6),
    (40.3, 33.3, 40.4, 37.1, 32.8),
    (26.6, 26.7, 27.0, 28.7, 26.1),
    (45.9, 37.4, 44.2, 41.0, 36.7),
    (29.5, 28.4, 29.8, 30.6, 28.0),
    (28.2, 27.6, 28.4, 30.3, 27.0),
    (34.2, 31.6, 34.4, 34.7, 31.2),
    (36.3, 31.3, 36.3, 34.2, 30.8),
    (33.4, 30.5, 33.1, 34.1, 29.8),
    (26.5, 26.0, 26.9, 28.1, 25.5),
    (34.7, 28.6, 33.9, 31.2, 28.0),
    (31.9, 31.6, 32.1, 34.2, 31.0),
    (36.5, 28.9, 35.8, 31.8, 28.2),
    (37.9, 36.8, 38.1, 40.0, 36.2),
)

DETAILED: dict[str, dict[tuple[str, str], float]] = {
    data: {
        (corruption, method): error
        for corruption, errors in zip(_CORRUPTIONS, table, strict=True)
        for method, error in zip(_METHODS, errors, strict=True)
    }
    for data, table in (("cifar-10", _CIFAR10), ("cifar-100", _CIFAR100))
}
"""Error by data set and (corruption, method)."""

MEAN: dict[str, dict[str, float]] = {
    "cifar-10": {"source": 11.2, "tent": 9.2, "t3a": 10.7, "bn": 10.8, "gprebn": 8.9},
    "cifar-100": {"source": 35.9, "tent": 31.2, "t3a": 35.6, "bn": 34.1, "gprebn": 30.6},
}
"""Mean error by data set and method, as printed."""

AUGMENTED: dict[str, dict[str, float]] = {
    "cifar-10": {
        "cutout": 26.8,
        "mixup": 22.3,
        "cutmix": 27.1,
        "autoaugment": 23.9,
        "adversarial": 26.2,
        "augmix": 11.2,
    },
    "cifar-100": {
        "cutout": 53.5,
        "mixup": 50.4,
        "cutmix": 52.9,
        "autoaugment": 49.6,
        "adversarial": 55.1,
        "augmix": 35.9,
    },
}
"""Error of the augmentation baselines by data set and training recipe, without adaptation."""

IMAGENET: dict[str, tuple[float, float, float, float, float]] = {
    "AutoAugment": (69.7, 80.2, 68.5, 71.5, 72.7),
    "Random AA": (71.0, 82.2, 72.8, 77.0, 66.1),
    "MaxBlur pool": (74.3, 78.8, 67.0, 74.0, 73.4),
    "SIN": (69.7, 79.8, 70.8, 72.5, 73.3),
    "AM": (66.0, 70.5, 68.0, 68.8, 68.4),
    "AM (reproduced)": (65.2, 68.0, 65.7, 64.1, 65.8),
    "AM (reproduced) + tent": (49.7, 50.5, 46.4, 48.7, 48.7),
    "AM (reproduced) + t3a": (65.4, 69.1, 66.3, 64.5, 66.3),
    "AM (reproduced) + bn": (56.0, 56.4, 50.0, 52.7, 68.9),
    "AM (reproduced) + gprebn": (49.2, 50.0, 46.0, 48.3, 48.3),
}
"""CE on ImageNet-C by network: noise, blur, weather, digital, mCE; as printed."""

ALEXNET_ERRORS: dict[str, float] = dict(
    zip(
        _CORRUPTIONS,
        (
            *(0.886428, 0.894468, 0.922640),
            *(0.819880, 0.826268, 0.785948, 0.798360),
            *(0.866816, 0.826572, 0.819324, 0.564592),
            *(0.853204, 0.646056, 0.717840, 0.606500),
        ),
        strict=True,
    )
)
"""AlexNet's error on ImageNet-C by corruption, which CE is relative to; from AugMix's code."""

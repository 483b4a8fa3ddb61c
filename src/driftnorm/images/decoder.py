"""From the bytes of one image to the pixels that a network takes; thread-safe."""

from __future__ import annotations

import io
import re
import stat
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from driftnorm.errors import UnusableImageError
from driftnorm.images.contents import Content, Pixels, Segment, Unreadable
from driftnorm.images.pictures import cropped
from driftnorm.models.normalized import Preprocessing

# Pillow warns above this limit and refuses above twice as many. Refuse at the limit: at three bytes
# per pixel, each thread may have to hold that much.
PIXEL_LIMIT = 89_478_485


def decoded(content: Content, wanted: Preprocessing) -> Pixels:
    """One image as (size, size, 3): bytes, or floats in [0, 1] if it came as floats.

    A picture that already has the wanted size is not resized; any other is resized so that the
    centre crop keeps ``crop_ratio`` of its shorter side.
    """
    if isinstance(content, Unreadable):
        raise UnusableImageError(content.reason)
    if isinstance(content, np.ndarray):
        return _from_array(content, wanted)
    with Image.open(_readable(content)) as picture:
        return np.asarray(_fitted(_colours(picture), wanted))


def described(error: Exception) -> str:
    """Why an image could not be decoded: one line, the same on every run."""
    if isinstance(error, UnidentifiedImageError):
        return "not a picture that Pillow can read"
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return f"more than {PIXEL_LIMIT:,} pixels: refused as a decompression bomb"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    lines = str(error).strip().splitlines()
    # Memory addresses differ from run to run.
    return re.sub(r" at 0x[0-9a-fA-F]+", "", lines[0]) if lines else type(error).__name__


def _readable(content: Path | Segment | bytes) -> Path | io.BytesIO:
    """What Pillow opens."""
    readable: Path | io.BytesIO
    if isinstance(content, Path):
        about = content.stat()
        if not stat.S_ISREG(about.st_mode):  # opening a pipe would wait forever
            raise UnusableImageError("not a regular file")
        readable, size = content, about.st_size
    else:
        data = _segment(content) if isinstance(content, Segment) else content
        readable, size = io.BytesIO(data), len(data)
    if not size:
        raise UnusableImageError("the file is empty")
    return readable


def _segment(segment: Segment) -> bytes:
    with segment.file.open("rb") as stream:
        stream.seek(segment.start)
        data = stream.read(segment.length)
    if len(data) < segment.length:
        raise UnusableImageError("the archive ends in the middle of this file")
    return data


def _colours(picture: Image.Image) -> Image.Image:
    """The picture upright and in RGB, whatever its mode."""
    _check_pixels(*picture.size)
    upright = _upright(picture)
    if upright.mode.startswith("I") or upright.mode == "F":
        upright = Image.fromarray(_as_bytes(np.asarray(upright)))
    if upright.mode in ("P", "PA"):  # via RGBA: a palette with transparency would warn
        upright = upright.convert("RGBA")
    return upright.convert("RGB")


def _upright(picture: Image.Image) -> Image.Image:
    try:
        turned = ImageOps.exif_transpose(picture)
    except Exception:  # damaged EXIF data can fail in any way, but the picture is fine
        picture.load()
        return picture
    return picture if turned is None else turned


def _check_pixels(width: int, height: int) -> None:
    if width * height > PIXEL_LIMIT:
        raise UnusableImageError(
            f"{width} x {height} pixels are more than {PIXEL_LIMIT:,}: refused as a "
            "decompression bomb"
        )


def _as_bytes(values: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """16-bit integers, or floats in [0, 1] or [0, 255], as bytes."""
    low, high = values.min(), values.max()
    unit = 1.0 if high <= 1 else 255.0
    most = unit if values.dtype.kind == "f" else 65535.0
    if not (low >= 0 and high <= most):  # also if one of them is NaN
        raise UnusableImageError(
            f"values from {low} to {high}; expected 0 to 65535, or floats from 0 to 1 or 255"
        )
    return np.rint(values * (255.0 / most)).astype(np.uint8)


def _from_array(image: npt.NDArray[Any], wanted: Preprocessing) -> Pixels:
    """An image (H, W, C) of an array."""
    if image.dtype.kind == "f":
        return _fitted_floats(image.astype(np.float32), wanted)
    if image.dtype == np.bool_:
        image = image.astype(np.uint8) * np.uint8(255)
    elif image.dtype.kind == "u" and image.dtype.itemsize == 2:  # either byte order
        image = _as_bytes(image)
    elif image.dtype != np.uint8:
        if image.min() < 0 or image.max() > 255:
            raise UnusableImageError(
                f"values from {image.min()} to {image.max()}; expected 0 to 255"
            )
        image = image.astype(np.uint8)
    return np.asarray(_fitted(Image.fromarray(_three_channels(image)), wanted))


def _three_channels(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    channels = image.shape[2]
    return np.repeat(image, 3, axis=2) if channels == 1 else np.ascontiguousarray(image[:, :, :3])


def _fitted_floats(image: npt.NDArray[np.float32], wanted: Preprocessing) -> Pixels:
    low, high = image.min(), image.max()
    if not (low >= 0 and high <= 1):  # also if one of them is NaN
        raise UnusableImageError(
            f"values from {low:.4g} to {high:.4g}; floats must lie in [0, 1], not normalised"
        )
    image = _three_channels(image)
    if image.shape[:2] == (wanted.size, wanted.size):
        return image
    # Pillow resizes floats one channel at a time; some filters overshoot.
    planes = [
        np.asarray(_fitted(Image.fromarray(plane), wanted)) for plane in image.transpose(2, 0, 1)
    ]
    stacked: Pixels = np.stack(planes, axis=2)
    return np.clip(stacked, 0, 1, out=stacked)


def _fitted(picture: Image.Image, wanted: Preprocessing) -> Image.Image:
    """Resize the shorter side, then crop the centre."""
    if picture.size == (wanted.size, wanted.size):
        return picture
    # The ratio may be a rounded fraction: 224 / (224 / 232) must give 232.
    side = int(wanted.size / wanted.crop_ratio + 1e-6)
    short, long = sorted(picture.size)
    _check_pixels(side, side * long // short)  # a line one pixel wide becomes huge
    resampling = Image.Resampling[wanted.interpolation.upper()]
    return cropped(picture, side, wanted.size, resampling)

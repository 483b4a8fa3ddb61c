"""Some images of every stream, stored beside the rows, for the examples in a report.

A row has its method's predictions for a fixed few images of the stream (``answers``). The images
are the same for every method: they are stored once per stream, in ``exhibits/KEY.json`` beside the
rows, and the row names the key.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from driftnorm._internal.files import write_atomically
from driftnorm.bench.cell import Cell
from driftnorm.bench.protocol import sampled_positions

Pixels: TypeAlias = NDArray[np.uint8] | NDArray[np.float32]

FOLDER = "exhibits"
SIDE = 96  # pixels


class Look(NamedTuple):
    """One image: its name, class number and pixels (H, W, C)."""

    name: str
    label: int
    pixels: Pixels


@dataclass(frozen=True)
class Exhibits:
    """The few images of a stream, in the order of a row's ``answers``.

    Attributes:
        classes: Name of each class of the stream.
        names: Name of each image.
        labels: Class numbers.
        images: Thumbnails as ``data:`` URIs.
    """

    classes: tuple[str, ...]
    names: tuple[str, ...]
    labels: tuple[int, ...]
    images: tuple[str, ...]

    def __post_init__(self) -> None:
        if not len(self.names) == len(self.labels) == len(self.images):
            raise ValueError("`names`, `labels` and `images` must have the same length.")

    def class_name(self, number: int) -> str:
        """Name of a class; its number if the network has more classes than the data."""
        return self.classes[number] if 0 <= number < len(self.classes) else f"class {number}"


def keep_exhibits(
    folder: Path, cell: Cell, classes: Sequence[str], look: Callable[[int], Look]
) -> str:
    """Store the images of a cell's stream, unless they exist, and return their key.

    Args:
        folder: The folder of the rows.
        cell: Any cell of the stream.
        classes: Name of each class.
        look: Returns the image at a position of the stream.
    """
    key = _stream_key(cell)
    path = folder / FOLDER / f"{key}.json"
    if not path.exists():
        looks = [look(position) for position in sampled_positions(cell.stream.count).tolist()]
        found = Exhibits(
            tuple(classes),
            tuple(each.name for each in looks),
            tuple(each.label for each in looks),
            tuple(thumbnail(each.pixels) for each in looks),
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(asdict(found)) + "\n")
    return key


def read_exhibits(folder: Path) -> Mapping[str, Exhibits]:
    """The images stored beside the rows of a folder, by key."""
    return {path.stem: _read(path) for path in sorted((folder / FOLDER).glob("*.json"))}


def thumbnail(pixels: Pixels) -> str:
    """A thumbnail as a ``data:`` URI; tiny images are enlarged."""
    scaled = pixels if pixels.dtype == np.uint8 else np.rint(pixels * 255)
    picture = Image.fromarray(_coloured(scaled.astype(np.uint8)))
    factor = SIDE // max(picture.size)
    kind = "JPEG"
    if factor > 1:  # PNG keeps the edges of its pixels, in fewer bytes
        kind = "PNG"
        size = (picture.width * factor, picture.height * factor)
        picture = picture.resize(size, Image.Resampling.NEAREST)
    picture.thumbnail((SIDE, SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, kind, quality=85)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _coloured(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Three channels: one is grey, of two (as in Colored MNIST) the blue one is missing."""
    missing = 3 - pixels.shape[2]
    if missing == 2:
        return pixels.repeat(3, axis=2)
    return np.concatenate([pixels, np.zeros_like(pixels[..., :missing])], axis=2)


def _stream_key(cell: Cell) -> str:
    """What decides which images come when, independent of the method."""
    stream = cell.record()["stream"]
    text = json.dumps([cell.study, cell.network.label, stream], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path) -> Exhibits:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return Exhibits(
            tuple(map(str, record["classes"])),
            tuple(map(str, record["names"])),
            tuple(map(int, record["labels"])),
            tuple(map(str, record["images"])),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} does not hold images that a driftnorm benchmark kept "
            f"({type(error).__name__}: {error}). Remove it: the report then shows none of them."
        ) from error

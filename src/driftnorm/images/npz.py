"""Small labelled images in one ``.npz`` file: arrays ``images``, ``labels`` and ``classes``."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path

import numpy as np

from driftnorm.errors import DataError
from driftnorm.images.cifar_classes import CIFAR10_CLASSES, CIFAR100_CLASSES
from driftnorm.images.image_set import ImageSet

_KEYS = ("images", "labels", "classes")
_KNOWN = {CIFAR10_CLASSES: "cifar-10", CIFAR100_CLASSES: "cifar-100"}


def load_npz(path: str | os.PathLike[str]) -> ImageSet:
    """Images, labels and class names of an ``.npz`` file, read into memory.

    Args:
        path: The file. ``images`` must be uint8 (N, H, W, 3), ``labels`` integers (N,), ``classes``
            the names.

    Returns:
        The images, named ``cifar-10`` or ``cifar-100`` if the classes are theirs, else like the
        file.
    """
    file = Path(path)
    check_zip(file)
    try:
        with np.load(file, allow_pickle=False) as stored:
            missing = [key for key in _KEYS if key not in stored.files]
            if missing:
                raise DataError(
                    f"{file} must hold the arrays {', '.join(_KEYS)}; it lacks "
                    f"{', '.join(missing)} and holds {', '.join(stored.files) or 'nothing'}."
                )
            images, labels, names = (stored[key] for key in _KEYS)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{file} is damaged: {error}.") from error
    if labels.dtype.kind not in "iu":
        raise DataError(f"{file}: `labels` must be integers, got {labels.dtype}.")
    classes = tuple(str(name) for name in names)
    name = _KNOWN.get(classes, file.stem)
    if images.ndim != 4 or images.shape[3] != 3:
        raise DataError(
            f"{name}: `images` must be uint8 of shape (N, H, W, 3), got {images.dtype} of shape "
            f"{images.shape}."
        )
    return ImageSet.whole(name, images, labels, classes)


def check_zip(file: Path) -> None:
    """Refuse what is not an ``.npz`` file."""
    with file.open("rb") as stream:
        whole = zipfile.is_zipfile(stream)
    if not whole:
        raise DataError(f"{file} is truncated, or not an .npz file: it lacks a zip directory.")

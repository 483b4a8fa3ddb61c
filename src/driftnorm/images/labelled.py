"""Clean data by path alone: the existing files decide which data set it is."""

from __future__ import annotations

import os
from pathlib import Path

from driftnorm._internal.files import check_regular
from driftnorm.errors import DataError
from driftnorm.images.cifar import (
    CIFAR10_FILES,
    CIFAR10_HOMES,
    CIFAR100_FILES,
    CIFAR100_HOMES,
    Split,
    load_cifar10,
    load_cifar100,
)
from driftnorm.images.image_set import ImageSet, find_home
from driftnorm.images.mnist import MNIST_FILES, MNIST_HOMES, load_mnist
from driftnorm.images.npz import load_npz
from driftnorm.images.pictures import PictureSet, load_pictures


def load_clean(path: str | os.PathLike[str], split: Split = "test") -> ImageSet | PictureSet:
    """Load clean images from wherever they are.

    Args:
        path: A folder of CIFAR-10's, CIFAR-100's or MNIST's official files, an ``.npz`` file with
            ``images``, ``labels`` and ``classes``, or any folder of pictures.
        split: For the official files: ``"train"`` or ``"test"``.

    Returns:
        An `ImageSet`, or a `PictureSet` for a folder of pictures.
    """
    place = Path(path)
    if place.is_file():
        if place.suffix == ".npz":
            return load_npz(place)
        raise DataError(
            f"{place} is neither a folder nor an .npz file. Unpack an archive with "
            "`driftnorm data get NAME --from FILE`."
        )
    check_regular(place)
    if not place.is_dir():
        raise FileNotFoundError(f"{place} does not exist: expected a folder or an .npz file.")
    if _holds(place, CIFAR10_HOMES, CIFAR10_FILES[split]):
        return load_cifar10(place, split)
    if _holds(place, CIFAR100_HOMES, (CIFAR100_FILES[split],)):
        return load_cifar100(place, split)
    images = MNIST_FILES[split][0]
    if _holds(place, MNIST_HOMES, (images, f"{images}.gz")):
        return load_mnist(place, split)
    return load_pictures(place)


def load_arrays(path: str | os.PathLike[str], split: Split) -> ImageSet:
    """As `load_clean`, but folders of pictures are refused: what trains on small images."""
    found = load_clean(path, split)
    if isinstance(found, ImageSet):
        return found
    raise DataError(
        f"{path} is a folder of pictures; expected CIFAR-10's or CIFAR-100's official binary "
        "files, or an .npz file with images, labels and classes."
    )


def _holds(folder: Path, homes: tuple[str, ...], names: tuple[str, ...]) -> bool:
    home = find_home(folder, homes, names)
    return any((home / name).is_file() for name in names)

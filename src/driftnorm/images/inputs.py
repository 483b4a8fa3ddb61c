"""From a path to a stream of images."""

from __future__ import annotations

import os
from pathlib import Path

from driftnorm._internal.files import check_regular
from driftnorm.errors import DataError
from driftnorm.images.archives import Archive
from driftnorm.images.arrays import ArrayFile
from driftnorm.images.contents import is_picture_name
from driftnorm.images.folders import Folder, Listing
from driftnorm.images.stream import Inputs

_ARRAYS = (".npy", ".npz")
_ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


def open_inputs(path: str | os.PathLike[str]) -> Inputs:
    """Open a folder of pictures, a list of paths, an array of images or an archive of pictures.

    Args:
        path: A folder; a text file with one path per line; an ``.npy`` or ``.npz`` file; a
            ``.tar``, compressed or not.

    Returns:
        The images, in a fixed order.
    """
    place = Path(path)
    if place.is_dir():
        return Folder(place)
    if not place.exists():
        raise FileNotFoundError(f"`DATA` {place} does not exist.")
    check_regular(place, "DATA")
    name = place.name.lower()
    if name.endswith(_ARRAYS):
        return ArrayFile(place)
    if name.endswith(_ARCHIVES):
        return Archive(place)
    if is_picture_name(place.name):
        raise DataError(f"{place} is a single picture; give its folder, or a list.")
    return Listing(place)

"""The one walk over folders of pictures: sorted, to any depth, safe from link loops."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from driftnorm.images.contents import Unreadable, is_picture_name

Identity: TypeAlias = tuple[int, int]  # device and inode: the same folder under any name


def files_below(root: Path) -> Iterator[tuple[str, Path | Unreadable, bool]]:
    """Name, place, and whether it is a picture, of each file; lazily, one folder at a time."""
    # A stack of open folders, each with its remaining entries, instead of recursion: folders may be
    # nested as deep as the system allows.
    trail: list[tuple[str, Iterator[str]]] = []
    around: dict[str, Identity] = {}
    entered = ""
    while True:
        folder = root / entered
        try:
            facts = os.stat(folder)
            here = (facts.st_dev, facts.st_ino)
            if here not in around.values():
                around[entered] = here
                trail.append((entered, iter(_sorted_names(folder))))
        except OSError as error:
            why = f"the folder cannot be listed: {error.strerror}"
            yield entered, Unreadable(why, and_more=True), True
        deeper = None
        while trail and deeper is None:
            prefix, names = trail[-1]
            name = next(names, None)
            if name is None:
                trail.pop()
                del around[prefix]
            elif name.endswith("/"):
                deeper = prefix + name
            else:
                yield prefix + name, root / (prefix + name), is_picture_name(name)
        if deeper is None:
            return
        entered = deeper


def _sorted_names(folder: Path) -> list[str]:
    """What is in a folder, except hidden entries; folders end in a slash."""
    with os.scandir(folder) as entries:
        # The slash makes entries sort as whole paths do.
        return sorted(e.name + "/" * _is_folder(e) for e in entries if e.name[0] != ".")


def _is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder; a link to itself is not, and fails when opened."""
    try:
        return entry.is_dir()
    except OSError:
        return False

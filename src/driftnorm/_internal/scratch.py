"""Folders for what is needed only for a while, removed even after a process was killed."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from driftnorm._internal.files import exclusive
from driftnorm.errors import BusyError

_HOME = ".scratch"
_LOCK = ".lock"


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """An empty folder below ``parent`` that is gone after the block.

    Its owner holds a lock beside it, which the system frees when the process dies.
    """
    home = parent / _HOME
    home.mkdir(parents=True, exist_ok=True)
    folder = home / uuid.uuid4().hex
    with exclusive(_lock_of(folder), f"Another process uses {folder}."):
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_leftovers(parent: Path) -> None:
    """Remove the scratch folders of processes that no longer exist."""
    home = parent / _HOME
    names = {path.name.removesuffix(_LOCK) for path in home.glob("*")}
    for folder in (home / name for name in sorted(names)):
        try:
            with exclusive(_lock_of(folder), "Its owner is at work."):
                shutil.rmtree(folder, ignore_errors=True)
        except BusyError:
            continue


def _lock_of(folder: Path) -> Path:
    return folder.with_name(folder.name + _LOCK)

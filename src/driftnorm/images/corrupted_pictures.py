"""The layout of ImageNet-C: a JPEG for each picture, corruption and severity."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from driftnorm._internal.counts import counted
from driftnorm._internal.processes import in_processes
from driftnorm._internal.progress import Report
from driftnorm.errors import DataError
from driftnorm.images.corruption import Corruption
from driftnorm.images.pictures import PictureSet, jpeg_bytes, read_cropped, unreadable_pictures

_SUFFIX = ".JPEG"
_MOST_NAMED = 5


def check_pictures(pictures: PictureSet, workers: int, progress: Report) -> None:
    """Read every picture once, which is cheap compared with corrupting it many times.

    Raises:
        DataError: Some cannot be read; the first ones are named, all are counted.
    """
    bad = unreadable_pictures(pictures.paths, workers, progress)
    if bad:
        named = " ".join(f"{path}: {why}." for path, why in bad[:_MOST_NAMED])
        more = f" And {len(bad) - _MOST_NAMED} more." if len(bad) > _MOST_NAMED else ""
        raise DataError(
            f"{len(bad)} of {counted(len(pictures), 'picture')} cannot be read. Repair or remove "
            f"them; nothing was written. {named}{more}"
        )


@dataclass(frozen=True)
class _Task:
    """One clean picture under one corruption, at the severities whose files are missing."""

    clean: Path
    index: int
    files: tuple[tuple[Corruption, Path], ...]


def write_pictures(
    pictures: PictureSet,
    root: Path,
    folder: Path,
    shifts: Sequence[Corruption],
    workers: int,
    progress: Report,
) -> None:
    """Write the missing JPEGs; a file under its final name is always complete.

    Args:
        pictures: The clean pictures.
        root: The folder that contains them.
        folder: Where the JPEGs go.
        shifts: What to generate.
        workers: Number of processes.
        progress: Called with the current activity, pictures done, and pictures in total.
    """
    names = _target_names(pictures, root)
    total, written = len(shifts) * len(pictures), 0
    missing = _Missing(pictures, names, folder, shifts)
    progress("", 0, total)
    for task, count in in_processes(_write_picture, missing, workers):
        written += count
        progress(task.files[0][0].name, missing.present + written, total)
    progress("", missing.present + written, total)


def _target_names(pictures: PictureSet, root: Path) -> list[Path]:
    taken: dict[Path, Path] = {}
    for path in pictures.paths:
        target = path.relative_to(root).with_suffix(_SUFFIX)
        if target in taken:
            raise DataError(
                f"{path} and {taken[target]} would both become {target}. Rename one of them."
            )
        taken[target] = path
    return list(taken)


class _Missing:
    """Tasks for the missing files, generated lazily, and a count of the existing ones.

    ImageNet-C has 3.75 million files: a list of them all would take gigabytes.
    """

    def __init__(
        self,
        pictures: PictureSet,
        names: Sequence[Path],
        folder: Path,
        shifts: Sequence[Corruption],
    ) -> None:
        self._pictures, self._names = pictures, names
        self._folder, self._shifts = folder, shifts
        self.present = 0

    def __iter__(self) -> Iterator[_Task]:
        # One corruption after another, so that an interrupted run has finished some of them.
        for corruption, group in groupby(self._shifts, key=attrgetter("name")):
            folders = [(s, self._folder / corruption / str(s.severity)) for s in group]
            pictures = zip(self._pictures.paths, self._pictures.indices, self._names, strict=True)
            for path, index, name in pictures:
                targets = [(shift, folder / name) for shift, folder in folders]
                missing = tuple(target for target in targets if not target[1].exists())
                self.present += len(targets) - len(missing)
                if missing:
                    yield _Task(path, int(index), missing)


def _write_picture(task: _Task) -> int:
    pixels = read_cropped(task.clean, task.index)[None]
    for shift, target in task.files:
        content = jpeg_bytes(shift.apply(pixels, [task.index])[0])
        target.parent.mkdir(parents=True, exist_ok=True)
        # A fixed name, so that leftovers of a killed run are overwritten.
        draft = target.with_name(f".{target.name}.part")
        draft.write_bytes(content)
        os.replace(draft, target)
    return len(task.files)

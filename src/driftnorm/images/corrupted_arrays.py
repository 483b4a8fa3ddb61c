"""The layout of CIFAR-10-C: an array for each corruption, and the labels."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy_format

from driftnorm._internal.files import write_atomically
from driftnorm._internal.processes import in_processes
from driftnorm._internal.progress import Report
from driftnorm._internal.types import Integers, Pixels
from driftnorm.images.corruption import SEVERITIES, Corruption, array_file, part_file
from driftnorm.images.image_set import ImageSet
from driftnorm.images.npy import npy_bytes, open_npy

_CHUNK = 1024  # images per task: short, so that the bar moves and all cores finish together


@dataclass(frozen=True)
class _Task:
    shift: Corruption
    start: int
    pixels: Pixels
    indices: Integers


def write_arrays(
    images: ImageSet,
    folder: Path,
    work: Path,
    shifts: Sequence[Corruption],
    workers: int,
    progress: Report,
) -> None:
    """Write the missing arrays; a file under its final name is always complete.

    Args:
        images: The clean images.
        folder: Where the arrays go.
        work: An empty folder on the same file system, for incomplete files.
        shifts: What to generate.
        workers: Number of processes.
        progress: Called with the current activity, images done, and images in total.
    """
    write_atomically(folder / "labels.npy", npy_bytes(_released_labels(images)))
    for name in {shift.name for shift in shifts}:
        _join_parts(folder, work, name)  # an earlier run may have been killed just before this
    missing = [shift for shift in shifts if not _is_done(folder, shift)]
    total = len(shifts) * len(images)
    done = total - len(missing) * len(images)
    progress("", done, total)
    drafts: dict[Corruption, ArrayDraft] = {}
    with ExitStack() as stack:
        for task, pixels in in_processes(_corrupt_chunk, _tasks(images, missing), workers):
            shift = task.shift
            file = part_file(folder, shift.name, shift.severity)
            if shift not in drafts:
                drafts[shift] = ArrayDraft(work / file.name, images.images.shape)
                stack.callback(drafts[shift].close)
            drafts[shift].put(task.start, pixels)
            if drafts[shift].is_full:
                drafts.pop(shift).publish(file)
                _join_parts(folder, work, shift.name)
            done += len(pixels)
            progress(f"{shift.name} {shift.severity}", done, total)


class ArrayDraft:
    """An array in a file that is filled in any order and then moved into place.

    It is written, not memory-mapped: a full disk then raises an error, not a fatal signal.
    """

    def __init__(self, file: Path, shape: tuple[int, ...]) -> None:
        self._path, self._left = file, shape[0]
        self._row_bytes = math.prod(shape[1:])
        self._file = file.open("wb")
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        npy_format.write_array_header_1_0(self._file, header)
        self._start = self._file.tell()

    @property
    def is_full(self) -> bool:
        """Whether every image is there."""
        return self._left == 0

    def put(self, start: int, pixels: Pixels) -> None:
        """Write images from this place on."""
        self._file.seek(self._start + start * self._row_bytes)
        self._file.write(np.ascontiguousarray(pixels).data)
        self._left -= len(pixels)

    def publish(self, target: Path) -> None:
        """Close the file and move it into place."""
        self._file.close()
        os.replace(self._path, target)

    def close(self) -> None:
        """Close the file; an unfinished one stays where it is."""
        self._file.close()


def _tasks(images: ImageSet, shifts: Sequence[Corruption]) -> Iterator[_Task]:
    for shift in shifts:
        for start in range(0, len(images), _CHUNK):
            chunk = images.take(slice(start, start + _CHUNK))
            yield _Task(shift, start, np.ascontiguousarray(chunk.images), chunk.indices)


def _corrupt_chunk(task: _Task) -> Pixels:
    return task.shift.apply(task.pixels, task.indices)


def _is_done(folder: Path, shift: Corruption) -> bool:
    whole = array_file(folder, shift.name)
    return whole.exists() or part_file(folder, shift.name, shift.severity).exists()


def _join_parts(folder: Path, work: Path, name: str) -> None:
    """Make the released file of a corruption once all five severities exist."""
    whole = array_file(folder, name)
    parts = [part_file(folder, name, severity) for severity in SEVERITIES]
    if not whole.exists():
        if not all(part.exists() for part in parts):
            return
        rows, *shape = open_npy(parts[0]).shape
        draft = ArrayDraft(work / whole.name, (len(parts) * rows, *shape))
        for number, part in enumerate(parts):
            draft.put(number * rows, open_npy(part))
        draft.publish(whole)
    for part in parts:
        part.unlink(missing_ok=True)


def _released_labels(images: ImageSet) -> np.ndarray[tuple[int], np.dtype[np.integer]]:
    kind = np.uint8 if len(images.classes) <= 256 else np.int64
    return np.tile(images.labels.astype(kind), len(SEVERITIES))

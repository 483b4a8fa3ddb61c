"""Whether a folder holds a complete, unchanged data set, and what is wrong with it if not."""

from __future__ import annotations

import gzip
import hashlib
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from driftnorm._internal.counts import counted
from driftnorm._internal.progress import Report, no_report
from driftnorm.images.download.data_sets import Dataset, File
from driftnorm.images.image_set import find_home

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a folder."""

    kind: Literal["missing", "stray", "damaged", "wrong size", "wrong checksum"]
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.name}" + f" ({self.detail})" * bool(self.detail)


def listed(problems: Sequence[object], most: int = 5) -> str:
    """The first problems in one line."""
    shown = "; ".join(map(str, problems[:most]))
    return shown + f"; and {len(problems) - most} more" * (len(problems) > most)


def check_folder(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    progress: Report = no_report,
) -> list[Problem]:
    """Compare every file of a folder with the data set's table.

    Args:
        dataset: What should be there.
        folder: Where; it may contain the folder in which archives keep the files. Files may be
            gzipped one by one; their content is what counts.
        progress: Called with the current activity, bytes done, and bytes in total.

    Returns:
        Everything that is missing, does not belong there, or has the wrong size or checksum;
        empty for a valid folder.
    """
    names = tuple(file.name + end for file in dataset.files for end in ("", ".gz"))
    home = find_home(Path(folder), dataset.homes, names)
    if not home.is_dir():
        return [Problem("missing", str(home), "the folder does not exist")]
    problems, expected, done = [], set(), 0
    for file in dataset.files:
        path = stored_path(home, file.name)
        expected.add(path.name)
        if path.is_file():
            problems += _check_file(path, file)
        elif file.required:
            problems.append(Problem("missing", file.name))
        done += file.size
        progress("checking", done, dataset.size)
    strays = sorted(path.name for path in home.iterdir() if path.name not in expected)
    return problems + [Problem("stray", name) for name in strays]


def stored_path(home: Path, name: str) -> Path:
    """The file itself, or its gzipped form if only that exists."""
    zipped = home / f"{name}.gz"
    return zipped if zipped.is_file() and not (home / name).is_file() else home / name


def _check_file(path: Path, file: File) -> list[Problem]:
    try:
        size, checksum = _measure(path)
    except (EOFError, OSError, zlib.error) as error:
        return [Problem("damaged", path.name, str(error))]
    if size != file.size:
        detail = f"expected {counted(file.size, 'byte')}, found {size:,}"
        return [Problem("wrong size", path.name, detail)]
    if checksum != file.sha256:
        detail = f"expected sha256 {file.sha256}, found {checksum}"
        return [Problem("wrong checksum", path.name, detail)]
    return []


def _measure(path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
            size += len(block)
    return size, digest.hexdigest()

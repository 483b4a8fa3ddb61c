"""Extracting a data set's files, and nothing else, from an archive or a folder."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path, PurePosixPath
from typing import IO

from driftnorm._internal.progress import Report
from driftnorm.errors import DataError
from driftnorm.images.checksums import stored_path
from driftnorm.images.download.data_sets import Dataset, File
from driftnorm.images.image_set import find_home
from driftnorm.images.tar_members import DAMAGE, damage_of, opened_tar, tar_members

_BLOCK = 1 << 20


def take_files(source: Path, dataset: Dataset, target: Path, progress: Report) -> None:
    """Copy the data set's files into a folder; gzipped ones are unzipped.

    A member of an archive is only ever written under a name from the data set's own table and never
    beyond that file's size, so no archive can write elsewhere or fill the disk. `check_folder`
    verifies the content.

    Args:
        source: A tar archive, compressed or not, or a folder.
        dataset: The data set whose files to extract.
        target: An existing, empty folder.
        progress: Called with the current activity, bytes done, and bytes in total.
    """
    copier = _Copier(dataset, target, progress)
    if source.is_dir():
        names = tuple(file.name + end for file in dataset.files for end in ("", ".gz"))
        home = find_home(source, dataset.homes, names)
        for file in dataset.files:
            path = stored_path(home, file.name)
            if path.is_file():
                with path.open("rb") as stream:
                    copier.copy(path.name, stream)
    else:
        _take_from_archive(source, copier)
    if not copier.taken:
        raise DataError(
            f"{source} holds none of the files of {dataset.name}: "
            f"{', '.join(file.name for file in dataset.files if file.required)}."
        )


def _take_from_archive(source: Path, copier: _Copier) -> None:
    try:
        with opened_tar(source) as archive:
            for member in tar_members(archive):
                stream = archive.extractfile(member) if member.isreg() else None
                if stream is not None:
                    copier.copy(PurePosixPath(member.name).name, stream)
    except (*DAMAGE, zlib.error, gzip.BadGzipFile) as error:  # the last from gzipped members
        raise damage_of(source, error) from error


class _Copier:
    """Copies files that the data set's table names, each once."""

    def __init__(self, dataset: Dataset, target: Path, progress: Report) -> None:
        self._files: dict[str, File] = {file.name: file for file in dataset.files}
        self._target, self._progress, self._total = target, progress, dataset.size
        self._done = 0
        self.taken: set[str] = set()

    def copy(self, name: str, stream: IO[bytes]) -> None:
        file = self._files.get(name.removesuffix(".gz"))
        if file is None or file.name in self.taken:
            return
        self.taken.add(file.name)
        content = gzip.GzipFile(fileobj=stream) if name.endswith(".gz") else stream
        left = file.size + 1  # one byte more, so that a file that is too long shows
        with (self._target / file.name).open("wb") as copy:
            while left and (block := content.read(min(_BLOCK, left))):
                copy.write(block)
                left -= len(block)
                self._done += len(block)
                self._progress("unpacking", self._done, self._total)

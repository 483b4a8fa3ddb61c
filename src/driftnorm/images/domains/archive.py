"""A tar archive of pictures in folders, safely unpacked."""

from __future__ import annotations

import hashlib
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from driftnorm._internal.cache_folder import made_once
from driftnorm._internal.progress import Report
from driftnorm.errors import DataError
from driftnorm.images.contents import PICTURE_SUFFIXES, no_pictures
from driftnorm.images.tar_members import DAMAGE, damage_of, opened_tar, tar_members

_BLOCK = 1 << 20


def unpacked(archive: Path, cache: Path, progress: Report) -> Path:
    """A folder with the pictures of an archive, unpacked at the first call.

    Only plain image files are unpacked, under their relative paths; links and other files are
    skipped, and paths that lead outside are refused.

    Args:
        archive: A tar archive, compressed or not.
        cache: Where to unpack it. The folder is named after the archive's name, size and time.
        progress: Called with the current activity, bytes done, and bytes in total or None.
    """
    state = archive.stat()
    key = hashlib.sha256(f"{archive.name} {state.st_size} {state.st_mtime_ns}".encode()).hexdigest()
    target = cache / "unpacked" / f"{archive.name.partition('.')[0]}-{key[:16]}"
    return made_once(target, lambda folder: _unpack(archive, folder, progress), progress)


def _unpack(archive: Path, folder: Path, progress: Report) -> None:
    done = 0
    try:
        with opened_tar(archive) as members:
            for path, stream in _pictures(members, archive):
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                with (folder / path).open("wb") as copy:
                    shutil.copyfileobj(stream, copy, _BLOCK)
                    done += copy.tell()
                progress("unpacking", done, None)
    except DAMAGE as error:
        raise damage_of(archive, error) from error
    if not any(folder.iterdir()):
        raise no_pictures(archive)


def _pictures(members: tarfile.TarFile, archive: Path) -> Iterator[tuple[PurePosixPath, IO[bytes]]]:
    for member in tar_members(members):
        path = PurePosixPath(member.name)
        if not member.isreg() or path.suffix.lower() not in PICTURE_SUFFIXES:
            continue
        # A colon or backslash would be a drive or a separator on some systems.
        if path.is_absolute() or ".." in path.parts or {":", "\\"} & set(member.name):
            raise DataError(f"{archive} would write {member.name!r} outside its folder.")
        stream = members.extractfile(member)
        if stream is not None:
            yield path, stream

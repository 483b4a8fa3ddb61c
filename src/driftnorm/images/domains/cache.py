"""Pictures decoded once, squashed to one size, and kept as one memory-mapped array of bytes.

A cache holds the pixels of a set by its content and size. Reading all files at every start would
take a noticeable part of the training time, so the cache is found by file metadata: paths, sizes,
times of change. If these are new, as in a folder that was copied, unpacked again or moved, and a
cache with the same number of pictures exists, the contents are read and compared, and equal sets
share its pixels. The hash of the contents is stored with the pixels, for results to name.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

import PIL

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.cache_folder import cache_folder, made_once
from driftnorm._internal.counts import counted
from driftnorm._internal.files import file_digest
from driftnorm._internal.processes import checked_workers, in_processes
from driftnorm._internal.progress import Report, no_report
from driftnorm._version import __version__
from driftnorm.errors import DataError
from driftnorm.images.corrupted_arrays import ArrayDraft
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.folder import DomainSet
from driftnorm.images.domains.squares import chunks, decode_chunk
from driftnorm.images.npy import open_npy

PIXELS_FILE, DESCRIPTION_FILE = "images.npy", "cache.json"
_FORMAT = 1  # increase when the same pictures would give other pixels


def cached_arrays(
    domains: DomainSet,
    side: int,
    *,
    folder: str | os.PathLike[str] | None = None,
    workers: int | None = None,
    progress: Report = no_report,
) -> DomainArrays:
    """A set's pictures as bytes, from the cache, which the first call makes.

    A killed call leaves no cache; of two processes, one makes it and the other waits.

    Args:
        domains: The set.
        side: Every picture is stretched to ``side`` x ``side`` px.
        folder: Where caches are; see `driftnorm._internal.cache_folder.cache_folder`.
        workers: Number of decoding processes; one per core by default.
        progress: Called with the current activity, pictures done, and pictures in total.

    Raises:
        DataError: A picture cannot be read, or the cache was damaged.
    """
    check_whole("side", side)
    count = checked_workers(workers)
    name = f"{domains.name}-{side}px-{_key(domains, side)[:16]}"
    place = made_once(
        cache_folder(folder) / "domains" / name,
        lambda draft: _build(domains, side, draft, count, progress),
        progress,
    )
    return _opened(place, domains, side)


def _key(domains: DomainSet, side: int) -> str:
    digest = hashlib.sha256(f"{_FORMAT} {side}\n".encode())
    for path in _paths(domains):
        state = path.stat()
        name = path.relative_to(domains.root).as_posix()
        # Size and date are not enough: archives give all files one date. These fields follow every
        # change of the content, and differ between two files.
        told = (state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_dev, state.st_ino)
        digest.update(f"{name}\0{told}\n".encode())
    return digest.hexdigest()


def _paths(domains: DomainSet) -> list[Path]:
    return [path for domain in domains.domains for path in domain.paths]


def _build(domains: DomainSet, side: int, folder: Path, workers: int, progress: Report) -> None:
    paths, done = _paths(domains), 0
    if _shared_with_twin(domains, paths, side, folder, progress):
        return
    digests = [b""] * len(paths)
    progress("decoding", done, len(paths))
    with closing(ArrayDraft(folder / PIXELS_FILE, (len(paths), side, side, 3))) as pixels:
        for chunk, decoded in in_processes(decode_chunk, chunks(paths, side), workers):
            pixels.put(chunk.start, decoded.pixels)
            digests[chunk.start : chunk.start + len(chunk.paths)] = decoded.digests
            done += len(chunk.paths)
            progress("decoding", done, len(paths))
    description = {
        "set": domains.name,
        "pictures": len(paths),
        "side": side,
        "format": _FORMAT,
        "content": _content(domains, paths, digests),
        "driftnorm": __version__,
        "pillow": PIL.__version__,
    }
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description, indent=1) + "\n")


def _shared_with_twin(
    domains: DomainSet, paths: Sequence[Path], side: int, folder: Path, progress: Report
) -> bool:
    """Link the pixels of a cache with the same content, if there is one."""
    wanted = {"format": _FORMAT, "side": side, "pictures": len(paths)}
    twins = {}
    for place in folder.parent.glob(f"*-{side}px-*"):
        with suppress(OSError, ValueError):
            described = json.loads((place / DESCRIPTION_FILE).read_text())
            if wanted.items() <= described.items():
                twins[described["content"]] = place
    if not twins:
        return False
    progress("looking for the same pictures", 0, None)
    try:
        found = twins.get(_content(domains, paths, [file_digest(path) for path in paths]))
        if found is None:
            return False
        for name in (PIXELS_FILE, DESCRIPTION_FILE):
            os.link(found / name, folder / name)
    except OSError:  # a missing picture is reported when decoding; without links, decode again
        for name in (PIXELS_FILE, DESCRIPTION_FILE):
            (folder / name).unlink(missing_ok=True)
        return False
    return True


def _content(domains: DomainSet, paths: Sequence[Path], digests: Sequence[bytes]) -> str:
    """A hash of names and bytes of all files, the same on every machine."""
    digest = hashlib.sha256()
    for path, own in zip(paths, digests, strict=True):
        digest.update(path.relative_to(domains.root).as_posix().encode() + b"\0" + own)
    return digest.hexdigest()


def _opened(place: Path, domains: DomainSet, side: int) -> DomainArrays:
    try:
        content = json.loads((place / DESCRIPTION_FILE).read_text())["content"]
        pixels = open_npy(place / PIXELS_FILE)
    except (DataError, OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{place} is damaged: {error} Remove it to have it made again.") from error
    if pixels.shape != (len(domains), side, side, 3):
        raise DataError(
            f"{place} is damaged: expected {counted(len(domains), 'picture')} of {side} px, found "
            f"an array of shape {pixels.shape}. Remove it to have it made again."
        )
    arrays, start = [], 0
    for domain in domains.domains:
        end = start + len(domain)
        arrays.append(domain.with_pixels(pixels[start:end]))
        start = end
    return DomainArrays(domains.name, tuple(arrays), True, content, domains.note)

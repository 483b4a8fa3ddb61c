"""Pictures of several domains in files: PACS, VLCS, OfficeHome, TerraIncognita, or your own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftnorm._internal.cache_folder import cache_folder
from driftnorm._internal.progress import Report, no_report
from driftnorm.errors import DataError
from driftnorm.images.checksums import listed
from driftnorm.images.domains.archive import unpacked
from driftnorm.images.domains.survey import DomainSurvey, survey_folder
from driftnorm.images.image_set import count_up
from driftnorm.images.pictures import PictureSet, read_stretched


@dataclass(frozen=True, eq=False)
class DomainSet:
    """Domains with the same classes.

    Attributes:
        name: That of the published set, else of the folder.
        classes: Their names, in the order of the labels.
        domains: Sorted by name, as in DomainBed; the pictures of each by class, then by path.
        root: The folder that contains all paths.
        version: Which published version it is, if any.
        note: What results must mention: how the set differs from the published one.
    """

    name: str
    classes: tuple[str, ...]
    domains: tuple[PictureSet, ...]
    root: Path
    version: str | None = None
    note: str = ""

    def __len__(self) -> int:
        """How many pictures there are."""
        return sum(map(len, self.domains))


def open_domains(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Report = no_report,
) -> DomainSet:
    """List the pictures of a set of domains; nothing is decoded.

    Args:
        path: A folder ``domain/class/picture``, its parent, or a tar archive of it.
        name: ``PACS``, ``VLCS``, ``OfficeHome`` or ``TerraIncognita`` if it must be that set,
            ``own`` for a set of your own. By default the published sets are recognised by the
            names of their domains and classes.
        cache: Where archives are unpacked; see `driftnorm._internal.cache_folder.cache_folder`.
        progress: Called while an archive is unpacked.

    Returns:
        The set. Fewer or more pictures than published are not an error; its ``note`` says so.

    Raises:
        FileNotFoundError: The path does not exist.
        DataError: A domain is missing or stray, a class is empty, or classes differ.
    """
    survey = survey_domains(path, name, cache=cache, progress=progress)
    if survey.faults:
        known = survey.known
        own = f" If it is not {known.name} but your own set: own:{survey.root}." if known else ""
        raise DataError(
            f"{survey.root} is not a valid set of domains (domain/class/picture): "
            f"{listed(survey.faults)}. `driftnorm data check` lists all problems.{own}"
        )
    classes = tuple(next(iter(survey.pictures.values())))
    domains = tuple(_domain(name, pictures) for name, pictures in survey.pictures.items())
    note = ""
    if survey.deviations:
        note = f"not {survey.name} as published: {listed(survey.deviations)}"
    return DomainSet(survey.name, classes, domains, survey.root, survey.version, note)


def _domain(name: str, classes: Mapping[str, tuple[Path, ...]]) -> PictureSet:
    counts = [len(paths) for paths in classes.values()]
    labels = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    paths = tuple(path for paths in classes.values() for path in paths)
    return PictureSet(name, paths, labels, tuple(classes), count_up(len(paths)), read_stretched)


def survey_domains(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    cache: str | os.PathLike[str] | None = None,
    progress: Report = no_report,
) -> DomainSurvey:
    """What a folder or archive holds and what is wrong with it; see `open_domains`."""
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"{place} does not exist: expected a folder or a tar archive.")
    if place.is_file():
        place = unpacked(place, cache_folder(cache), progress)
    return survey_folder(place, name)

"""Whether a folder ``domain/class/picture`` is valid: every picture is opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from driftnorm._internal.counts import counted
from driftnorm._internal.processes import checked_workers
from driftnorm._internal.progress import Report, no_report
from driftnorm.images.checksums import Problem
from driftnorm.images.domains.folder import survey_domains
from driftnorm.images.domains.survey import DomainSurvey
from driftnorm.images.folder_walk import files_below
from driftnorm.images.pictures import unreadable_pictures


@dataclass(frozen=True)
class DomainCheck:
    """What a folder holds, and what is wrong with it.

    Attributes:
        survey: The set's name, place and files.
        problems: All that is missing, stray or damaged; empty for a valid folder.
        place: What the user knows it by: its folder, or the archive that it was unpacked from.
    """

    survey: DomainSurvey
    problems: tuple[Problem, ...]
    place: Path

    def lines(self) -> list[str]:
        """Counts of every domain and class, as text."""
        survey = self.survey
        version = f", {survey.version}" if survey.version else ""
        version = ", not as published" if survey.deviations else version
        lines = [f"{survey.name} in {self.place}{version}"]
        for domain, classes in survey.pictures.items():
            counts = ", ".join(f"{name} {len(paths)}" for name, paths in classes.items())
            lines.append(
                f"  {domain}: {counted(sum(map(len, classes.values())), 'picture')} ({counts})"
            )
        return lines

    def advice(self) -> str:
        """What to do about a set that resembles a published one but differs, else empty."""
        known, root = self.survey.known, self.place
        if self.survey.deviations and known:
            said = f"It is not {known.name} as published; it can still be used for training."
            own = "To use it as a set of your own"
        elif self.survey.faults and known:
            said, own = f"It was taken for {known.name}.", "If it is a set of your own"
        else:
            return ""
        return f"{said} {own}: `driftnorm data check own {root}`, and `--data own:{root}`."


def check_domains(
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    workers: int | None = None,
    cache: str | os.PathLike[str] | None = None,
    progress: Report = no_report,
) -> DomainCheck:
    """Count the pictures of every domain and class, and open every one of them.

    Folders that would be mistaken for domains or classes are stray, and so are, within the domains,
    pictures outside class folders and files that are not pictures. Files next to the domains are
    fine: people keep their notes there.

    Args:
        path: See `driftnorm.images.domains.folder.open_domains`.
        name: Likewise.
        workers: Number of processes; one per core by default.
        cache: Where an archive is unpacked.
        progress: Called with the current activity, pictures done, and pictures in total.
    """
    survey = survey_domains(path, name, cache=cache, progress=progress)
    problems = [*survey.faults, *survey.deviations, *_stray_files(survey)]
    damaged = _damaged(survey, checked_workers(workers), progress)
    place = Path(path) if Path(path).is_file() else survey.root
    return DomainCheck(survey, (*problems, *damaged), place)


def _stray_files(survey: DomainSurvey) -> Iterator[Problem]:
    for domain, classes in survey.pictures.items():
        taken = {*chain(*classes.values())}
        for name, _, is_picture in files_below(survey.root / domain):
            if survey.root / domain / name not in taken:
                detail = "not in a class folder" if is_picture else "not a picture"
                yield Problem("stray", f"{domain}/{name}", detail)


def _damaged(survey: DomainSurvey, workers: int, progress: Report) -> Iterator[Problem]:
    paths = [path for classes in survey.pictures.values() for path in chain(*classes.values())]
    for path, reason in unreadable_pictures(paths, workers, progress):
        yield Problem("damaged", path.relative_to(survey.root).as_posix(), reason)

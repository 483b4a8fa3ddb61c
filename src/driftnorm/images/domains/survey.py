"""What a folder ``domain/class/picture`` holds, and what is wrong with it, as data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from driftnorm._internal.counts import counted
from driftnorm._internal.names import find_name
from driftnorm.errors import DataError
from driftnorm.images.checksums import Problem
from driftnorm.images.domains.known import KNOWN_SETS, KnownSet, find_known
from driftnorm.images.pictures import picture_paths

OWN = "own"
"""Marks a folder as a user's own set, even if it resembles a published set."""

_ENOUGH_DOMAINS = 2  # enough domains of a published set to recognise it
_MOST_WRAPPINGS = 8  # folders around the set's own, one in the other, as archives have them

Pictures = Mapping[str, Mapping[str, tuple[Path, ...]]]


@dataclass(frozen=True)
class DomainSurvey:
    """The pictures of a folder and its problems; no file is opened.

    Attributes:
        name: The published set's name, else the folder's; ``own-PACS`` for a folder with the name
            of a published set that it is not, so that its results are not mistaken for that set's.
        root: The folder of the domains, possibly inside the given one.
        known: Which published set it is, if any.
        pictures: For each domain and class, the files in DomainBed's order.
        faults: Why it cannot be used.
        deviations: How it differs from every published version, though it can be used.
        version: Which published version it is, if any.
    """

    name: str
    root: Path
    known: KnownSet | None
    pictures: Pictures
    faults: tuple[Problem, ...]
    deviations: tuple[Problem, ...] = ()
    version: str | None = None


def survey_folder(folder: Path, name: str | None = None) -> DomainSurvey:
    """List the pictures of every domain and class, and what is missing or does not belong.

    Args:
        folder: The set's folder, or its parent.
        name: A published set's name if it must be that one, ``"own"`` for a user's own set,
            None to recognise published sets by the names of their domains and classes.

    Raises:
        FileNotFoundError: The folder does not exist.
        DataError: It holds several published sets, or none of the named one.
    """
    root, known = _locate(folder, name)
    names = subfolders(root)
    faults = list(_domain_faults(root, names, known))
    domains = [one for one in names if known is None or one in known.domains]
    pictures = {one: _classes_of(root / one) for one in domains if subfolders(root / one)}
    faults += _class_faults(pictures, known)
    title = _own_title(root) if known is None else known.name
    if faults or known is None:
        return DomainSurvey(title, root, known, pictures, tuple(faults))
    counts = tuple(_total(pictures[domain]) for domain in known.domains)
    deviations = tuple(_deviations(pictures, counts, known))
    return DomainSurvey(title, root, known, pictures, (), deviations, known.version_of(counts))


def subfolders(folder: Path) -> list[str]:
    """Names of the folders in a folder, sorted, except hidden ones."""
    entries = (entry for entry in folder.iterdir() if entry.name[0] != ".")
    return sorted(entry.name for entry in entries if entry.is_dir())


def _own_title(root: Path) -> str:
    name = root.resolve().name
    return f"{OWN}-{name}" if find_name(name, KNOWN_SETS) else name


def _locate(
    folder: Path, name: str | None, deeper: int = _MOST_WRAPPINGS
) -> tuple[Path, KnownSet | None]:
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: expected one of domain/class/picture.")
    named = None if name in (None, OWN) else find_known(str(name))
    candidates = [] if name == OWN else [named] if named else list(KNOWN_SETS.values())
    found = [
        (place, known)
        for known in candidates
        for place in (folder, *(folder / home for home in known.homes))
        if (_domains_there(place, known) if named else _resembles(place, known))
    ]
    if len(found) > 1:
        places = ", ".join(f"{known.name} in {place}" for place, known in found)
        raise DataError(f"{folder} holds more than one set: {places}. Name the folder of one.")
    if found:
        return found[0]
    inner = subfolders(folder)
    if deeper and len(inner) == 1 and _has_classes(folder / inner[0]):
        return _locate(folder / inner[0], name, deeper - 1)  # the folder an archive was packed in
    if named:
        raise DataError(
            f"{folder} holds no folder of {named.name}: expected {', '.join(named.domains)}, found "
            f"{', '.join(inner) or 'no folder'}."
        )
    return folder, None


def _resembles(place: Path, known: KnownSet) -> bool:
    """Whether the names of domains and classes both match: those of domains alone are too common.

    A set that lost a domain or a class still matches, so that the loss is reported.
    """
    domains = _domains_there(place, known)
    classes = [name for domain in domains for name in subfolders(place / domain)]
    if known.classes:
        mostly = 2 * sum(name in known.classes for name in classes) > len(classes)
    else:
        mostly = 2 * len(set(classes)) > known.class_count
    return len(domains) >= _ENOUGH_DOMAINS and mostly


def _domains_there(place: Path, known: KnownSet) -> list[str]:
    return [domain for domain in known.domains if (place / domain).is_dir()]


def _has_classes(folder: Path) -> bool:
    return any(subfolders(folder / domain) for domain in subfolders(folder))


def _classes_of(domain: Path) -> dict[str, tuple[Path, ...]]:
    return {
        name: tuple(
            domain / name / path for path in sorted(picture_paths(domain / name), key=_rank)
        )
        for name in subfolders(domain)
    }


def _rank(path: PurePosixPath) -> tuple[str, str]:
    """DomainBed's order: folder by folder, a folder's own pictures before those of its folders.

    Splits are positions in this order, so it decides which pictures are held out.
    """
    parent = path.parent.as_posix()
    return ("" if parent == "." else parent, path.name)


def _domain_faults(root: Path, names: Sequence[str], known: KnownSet | None) -> Iterator[Problem]:
    if known:
        for name in known.domains:
            if name not in names:
                yield Problem("missing", name, f"a domain of {known.name}")
    elif len(names) < 2:
        detail = f"at least two are needed, found {', '.join(names) or 'none'}"
        yield Problem("missing", "domain folders", detail)
    for name in names:
        if known and name not in known.domains:
            detail = f"not a domain of {known.name}, but would be taken for one"
            yield Problem("stray", name, detail)
        elif not subfolders(root / name):
            yield Problem("stray", name, "it holds no class folders, so it is not a domain")


def _class_faults(pictures: Pictures, known: KnownSet | None) -> Iterator[Problem]:
    if known and known.classes:
        expected, whose = known.classes, known.name
    else:
        expected, whose = _common_classes(pictures), "the other domains"
    for domain, classes in pictures.items():
        for name in expected:
            if name not in classes:
                yield Problem("missing", f"{domain}/{name}", f"a class of {whose}")
            elif not classes[name]:
                yield Problem("missing", f"{domain}/{name}", "the class folder holds no pictures")
        for name in classes:
            if name not in expected:
                yield Problem("stray", f"{domain}/{name}", f"not a class of {whose}")
    if known and pictures and len(expected) != known.class_count:
        detail = f"{known.name} has {known.class_count}, found {len(expected)}"
        fewer = len(expected) < known.class_count
        yield Problem("missing" if fewer else "stray", "classes", detail)


def _common_classes(pictures: Pictures) -> tuple[str, ...]:
    """Those of at least half of the domains; others were added to a few, not lost from most."""
    held = Counter(name for classes in pictures.values() for name in classes)
    return tuple(sorted(name for name, times in held.items() if 2 * times >= len(pictures)))


def _deviations(pictures: Pictures, counts: tuple[int, ...], known: KnownSet) -> Iterator[Problem]:
    version = known.nearest_version(counts)
    for domain, found, expected in zip(known.domains, counts, known.versions[version], strict=True):
        per_class = known.class_counts.get(domain)
        if per_class:
            for name, number in zip(known.classes, per_class, strict=True):
                yield from _difference(f"{domain}/{name}", len(pictures[domain][name]), number)
        else:
            yield from _difference(domain, found, expected)


def _difference(name: str, found: int, expected: int) -> Iterator[Problem]:
    if found != expected:
        detail = f"expected {counted(expected, 'picture')}, found {found}"
        yield Problem("missing" if found < expected else "stray", name, detail)


def _total(classes: Mapping[str, tuple[Path, ...]]) -> int:
    return sum(map(len, classes.values()))

"""From a path or a word to the data of streams."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from driftnorm.bench.studies.corrupted_streams import open_streams, stored_corruptions
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.corrupted_data import CorruptedData
from driftnorm.bench.studies.stream_data.digit_data import DigitData
from driftnorm.bench.studies.stream_data.domain_data import DomainData
from driftnorm.bench.studies.stream_data.stream_data import StreamData
from driftnorm.images.contents import is_picture_name
from driftnorm.images.domains.named import kind_and_place
from driftnorm.shifts import CORRUPTIONS

DIGITS = "digits"
_ARCHIVES = (".tar", ".tgz", ".gz", ".bz2", ".xz")


def holds_domains(data: str) -> bool:
    """Whether a path or word names domains: ``kind:FOLDER``, an archive, or domain/class/image.

    A folder holds domains if all folders in it have an image folder of the same name, and none has
    images itself.
    """
    place = Path(data)
    if not place.exists():
        try:
            return kind_and_place(data)[0] is not None
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{error} Streams can also be of `{DIGITS}`, of clean images (CIFAR's files, an "
                ".npz, a folder) and of a folder of corrupted ones."
            ) from error
    if place.is_file():
        return place.suffix in _ARCHIVES
    firsts = [path for path in place.iterdir() if path.is_dir() and path.name[0] != "."]
    if len(firsts) < 2 or any(_has_picture(first) for first in firsts):
        return False
    held = [{p.name for p in first.iterdir() if p.is_dir() and _has_picture(p)} for first in firsts]
    return bool(set.intersection(*held))


def _has_picture(folder: Path) -> bool:
    return any(is_picture_name(path.name) for path in folder.iterdir() if path.is_file())


def open_stream_data(
    data: str,
    models: Sequence[MeasuredNetwork],
    *,
    domains: Sequence[str] | None = None,
    severity: int | None = None,
    skip: int = 0,
    limit: int | None = None,
    frost: str | None = None,
    subset: str | None = None,
    source: str | None = None,
    classes: Sequence[str] | None = None,
    networks: Path = Path("runs/streams/networks"),
) -> StreamData:
    """Detect which kind of data a path holds.

    Args:
        data: ``digits``; a folder of domains, an archive of one, or ``kind:FOLDER`` as
            `open_arrays` takes it; whatever `open_streams` takes.
        models: The networks; digits train their own.
        domains: Corruptions or domains in the order of the course; ``clean`` means the images as
            they are. By default all domains, or the corruptions that the data can have.
        severity: Of all corruptions; the strongest by default.
        skip: Images that are left out at the beginning.
        limit: At most this many of the others.
        frost: Where frost's overlay pictures are.
        subset: A list of ImageNet-C's pictures to take.
        source: Clean images for methods that must see some first.
        classes: Of pictures: the folder names of all classes, in the order of the outputs.
        networks: Folder for the networks of the digits.
    """
    named = None if domains is None else tuple(domains)
    if data == DIGITS:
        _refuse("digits", models=models, skip=skip, limit=limit, source=source)
        given = {} if named is None else {"corruptions": named}
        strength = {} if severity is None else {"severity": severity}
        return DigitData(networks, **given, **strength)  # type: ignore[arg-type]
    if not models:
        raise ValueError("`models` must name at least one network; only digits have their own.")
    if holds_domains(data) and not _holds_corruptions(data):
        _refuse("domains", severity=severity, skip=skip, source=source)
        return DomainData(data, tuple(models), named or (), limit)
    if named is None:
        named = stored_corruptions(data) or CORRUPTIONS
    return CorruptedData(
        data,
        tuple(models),
        named,
        5 if severity is None else severity,
        skip,
        limit,
        frost,
        subset,
        source,
        None if classes is None else tuple(classes),
    )


def _holds_corruptions(data: str) -> bool:
    """Whether a folder holds corrupted images: ImageNet-C's has nested folders too."""
    if not Path(data).is_dir():
        return False
    streams = open_streams(data)
    return not streams.holds("", 0)


def _refuse(what: str, **given: object) -> None:
    for name, value in given.items():
        if value:
            raise ValueError(f"`{name}` is not for {what}; leave it out.")

"""Domains by name: a folder, a tar file, or a digit set with the folder of MNIST."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from driftnorm._internal.names import find_name, nearest
from driftnorm._internal.progress import Report, no_report
from driftnorm.images.domains.cache import cached_arrays
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.folder import open_domains
from driftnorm.images.domains.known import DIGIT_NAMES
from driftnorm.images.domains.mnist_domains import colored_mnist, rotated_mnist
from driftnorm.images.domains.survey import OWN

_DIGIT_SETS = dict(zip(DIGIT_NAMES, (rotated_mnist, colored_mnist), strict=True))
_KINDS = (*DIGIT_NAMES, OWN)


@lru_cache(maxsize=4)
def open_arrays(
    data: str, side: int, cache: str | None = None, progress: Report = no_report
) -> DomainArrays:
    """The domains as arrays.

    Args:
        data: A folder ``domain/class/image`` (DomainBed's sets are recognised), a tar file of one,
            ``own:FOLDER`` for a set of your own, or ``rotated-mnist:FOLDER`` and
            ``colored-mnist:FOLDER`` with MNIST's folder.
        side: Height and width in pixels; the digits have their own.
        cache: Folder for decoded images.
        progress: Called with the progress of decoding.
    """
    kind, place = kind_and_place(data)
    if kind in _DIGIT_SETS:
        return _DIGIT_SETS[kind](place)
    domains = open_domains(place, kind, cache=cache, progress=progress)
    return cached_arrays(domains, side, folder=cache, progress=progress)


def kind_and_place(data: str) -> tuple[str | None, str]:
    """What is before the colon and after it; None for a plain folder or file.

    >>> kind_and_place("RotatedMNIST:data/mnist")
    ('rotated-mnist', 'data/mnist')
    """
    word, colon, place = data.partition(":")
    kind = find_name(word, _KINDS)
    if kind and place:
        return kind, place
    if Path(data).exists():
        return None, data
    expected = ", ".join(f"{each}:FOLDER" for each in _KINDS)
    hint = nearest(word, _KINDS) if colon and not kind else ""
    raise FileNotFoundError(
        f"`data` must be a folder domain/class/image, a tar file of one, or one of {expected}; "
        f"{data!r} does not exist.{hint}"
    )

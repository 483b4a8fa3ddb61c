"""Domains by one word: a folder, a tar file, or one of the digit sets with the place of MNIST."""

from __future__ import annotations

from functools import lru_cache

from driftnorm.data.reporting import Report, no_report
from driftnorm.domains.arrays import DomainArrays
from driftnorm.domains.cache import cached_arrays
from driftnorm.domains.digits import colored_mnist, rotated_mnist
from driftnorm.domains.sets import open_domains

__all__ = ["DIGIT_SETS", "open_arrays"]

DIGIT_SETS = {"rotated-mnist": rotated_mnist, "colored-mnist": colored_mnist}


@lru_cache(maxsize=4)
def open_arrays(
    data: str, side: int, cache: str | None = None, progress: Report = no_report
) -> DomainArrays:
    """The domains as arrays.

    Args:
        data: A folder ``domain/class/image`` (DomainBed's sets are recognised), a tar file of one,
            or ``rotated-mnist:FOLDER`` and ``colored-mnist:FOLDER`` with MNIST's folder.
        side: Height and width in pixels; the digits have their own.
        cache: Folder for decoded images.
        progress: Told how far decoding is.
    """
    kind, colon, folder = data.partition(":")
    if colon and kind in DIGIT_SETS:
        return DIGIT_SETS[kind](folder)
    domains = open_domains(data, cache=cache, progress=progress)
    return cached_arrays(domains, side, folder=cache, progress=progress)

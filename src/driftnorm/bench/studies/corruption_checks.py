"""Checks of a study before anything runs."""

from __future__ import annotations

from collections.abc import Sequence

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm._internal.counts import counted
from driftnorm.bench.studies.corrupted_streams import Streams
from driftnorm.errors import DataError
from driftnorm.images.corruption import SEVERITIES
from driftnorm.shifts import SHIFTS


def check_corruptions(names: Sequence[str]) -> None:
    """Refuse unknown names."""
    if not names:
        raise ValueError("`corruptions` must name at least one.")
    for name in names:
        check_choice("corruptions", name, SHIFTS)


def check_several(name: str, numbers: Sequence[int], least: int, most: int | None = None) -> None:
    """Refuse no numbers, and any that is not whole or out of range."""
    if not numbers:
        raise ValueError(f"`{name}` must have at least one number.")
    for number in numbers:
        check_whole(name, number, least, most)


def check_there(
    streams: Streams, data: str, corruptions: Sequence[str], severities: Sequence[int]
) -> None:
    """Refuse data that lack streams of the study."""
    if all(streams.holds(c, s) for c in corruptions for s in severities):
        return
    if 0 in severities and not streams.holds(corruptions[0], 0):
        raise DataError(
            f"{data} holds corrupted images only: severity 0, the clean images, is missing. "
            "Leave 0 out of `--severities`, or name the clean data as `--data`."
        )
    lacking = [(c, s) for c in corruptions for s in severities if not streams.holds(c, s)]
    there = {s for c in SHIFTS for s in SEVERITIES if streams.holds(c, s)}
    names = [c for c in SHIFTS if any(streams.holds(c, s) for s in SEVERITIES)]
    corruption, severity = lacking[0]
    raise DataError(
        f"{data} lacks {len(lacking)} of the "
        f"{counted(len(corruptions) * len(severities), 'stream')}, such as {corruption} at "
        f"severity {severity}. It holds {', '.join(names)} at severities "
        f"{' '.join(map(str, sorted(there)))}: select these by `--corruptions` and `--severities`, "
        "or generate the rest with `driftnorm corrupt`."
    )

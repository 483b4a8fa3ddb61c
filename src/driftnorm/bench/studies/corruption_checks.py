"""Checks of a study before anything runs."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index

from driftnorm._internal.counts import counted
from driftnorm._internal.names import nearest
from driftnorm.bench.studies.corrupted_streams import Streams
from driftnorm.errors import DataError
from driftnorm.images.corruption import SEVERITIES
from driftnorm.shifts import SHIFTS

__all__ = ["check_corruptions", "check_there", "check_whole"]


def check_corruptions(names: Sequence[str]) -> None:
    """Refuse unknown names."""
    if not names:
        raise ValueError("`corruptions` must name at least one.")
    for name in names:
        if name not in SHIFTS:
            raise ValueError(
                f"`corruptions`: there is no {name!r}.{nearest(name, SHIFTS)} "
                f"Known: {', '.join(SHIFTS)}."
            )


def check_whole(name: str, numbers: Sequence[int], lowest: int, highest: int | None = None) -> None:
    """Refuse numbers that are not whole, or not from ``lowest`` to ``highest``."""
    allowed = f"at least {lowest}" if highest is None else f"from {lowest} to {highest}"
    if not numbers:
        raise ValueError(f"`{name}` must have at least one number, {allowed}.")
    for number in numbers:
        try:
            whole = index(number)
        except TypeError:
            raise TypeError(f"`{name}` must be whole numbers, got {number!r}.") from None
        if whole < lowest or (highest is not None and whole > highest):
            raise ValueError(f"`{name}` must be {allowed}, got {number}.")


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

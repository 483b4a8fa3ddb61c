"""Whether the paper's numbers may stand beside rows, and what must be said if they do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from driftnorm.bench.rows import Row
from driftnorm.shifts.registry import CORRUPTIONS
from driftnorm.views.compare import ALL_SEVERITIES, data_set, shifts_of
from driftnorm.views.robustness_paper import SEVERITY_5

__all__ = ["BesidePaper", "beside_paper", "difference", "severity_5_note"]


class BesidePaper(NamedTuple):
    """Whether to show the paper's column, and how its streams differ from ours."""

    shown: bool
    note: str = ""


def beside_paper(rows: Sequence[Row], data_sets: Sequence[str] = ("cifar-10",)) -> BesidePaper:
    """Decide for rows of one table.

    The paper's means are over 15 corruptions at 5 severities. Of the same data set and over all 15
    corruptions, means over fewer severities may stand beside them, if that is said.

    Args:
        rows: All that the table's means are taken of.
        data_sets: Those of which the paper has this table.
    """
    severities = sorted({row.severity for row in rows} - {0})
    met = {(row.shift, row.severity) for row in rows if row.severity}
    whole = met == {(c, s) for c in CORRUPTIONS for s in severities}
    if not severities or not whole or data_set(rows) not in data_sets:
        return BesidePaper(False)
    if tuple(severities) == ALL_SEVERITIES:
        return BesidePaper(True)
    which = "severity" if len(severities) == 1 else "severities"
    return BesidePaper(
        True,
        f" Paper: mean over 5 severities; ours: {which} {' '.join(map(str, severities))}, "
        f"{len(shifts_of(rows))} corruptions.",
    )


def severity_5_note(printed: Iterable[float | None]) -> str:
    """Which of the paper's numbers are not means over severities, though they stand among such."""
    found = [f"{value:g}" for value in SEVERITY_5 if value in {*printed}]
    if not found:
        return ""
    seem = "seems" if len(found) == 1 else "seem"
    return f" The paper's {' and '.join(found)} {seem} to be of severity 5."


def difference(ours: float, paper: float | None) -> float | None:
    """Ours minus the paper's, where the paper has a number."""
    return None if paper is None else ours - paper

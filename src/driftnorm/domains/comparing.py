"""What every table of the domain study does with rows: check, select, average, compare.

Pure functions, no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from driftnorm.domains.selection import agrees, select_setting
from driftnorm.metrics import Interval, paired_interval, standard_error
from driftnorm.protocol import together
from driftnorm.records import Row
from driftnorm.robustness.comparing import MixedRowsError, check_protocol, right_by_image

__all__ = [
    "FIXED_FEATURES",
    "at_selected",
    "at_tents",
    "average",
    "change",
    "change_text",
    "check_protocol_of_streams",
    "interval_text",
    "mean_text",
    "note_of",
    "of_target",
    "on_targets",
    "place_of",
    "targets_of",
    "trained_by",
]

FIXED_FEATURES = ", fixed features"
"""How the algorithm of a network ends whose classifier alone was trained."""

_MODEL = re.compile(r"(?P<algorithm>.+) -> (?P<target>.+), trial (?P<trial>\d+)@(?P<weights>\w+)")


def trained_by(row: Row) -> tuple[str, int]:
    """The algorithm and the trial of a row's network."""
    found = _MODEL.fullmatch(row.cell.model)
    if found is None:
        raise MixedRowsError(f"{row.cell.model!r} is no network of `driftnorm train domains`.")
    return found["algorithm"], int(found["trial"])


def check_protocol_of_streams(rows: Sequence[Row]) -> None:
    """Refuse to mix data sets or batch sizes; streams may differ in length."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")
    by_stream = sorted(rows, key=lambda row: (row.cell.shift, row.cell.model))
    for _, own in groupby(by_stream, key=lambda row: (row.cell.shift, row.cell.model)):
        check_protocol([_without_options(row) for row in own])
    kinds = {(r.cell.protocol.data, r.cell.protocol.batch_size) for r in rows}
    if len(kinds) > 1:
        raise MixedRowsError(f"data and batch sizes cannot be mixed: {sorted(kinds)}.")


def _without_options(row: Row) -> Row:
    return replace(row, cell=replace(row.cell, options=()))


def at_selected(rows: Sequence[Row]) -> list[Row]:
    """For every network and method, the rows of the selected setting."""
    check_protocol_of_streams(rows)
    chosen = []
    for model in _models(rows):
        for method in dict.fromkeys(row.cell.method for row in model):
            chosen += select_setting([row for row in model if row.cell.method == method])
    return chosen


def at_tents(rows: Sequence[Row]) -> list[Row]:
    """For every network, the rows that share the setting selected for Tent."""
    check_protocol_of_streams(rows)
    shared = []
    for model in _models(rows):
        tents = [row for row in model if row.cell.method == "tent"]
        if not tents:
            raise MixedRowsError("the ablation shares the setting selected for `tent`: run it too.")
        chosen = select_setting(tents)[0].cell.options
        shared += [row for row in model if agrees(row.cell.options, chosen)]
    return shared


def _models(rows: Sequence[Row]) -> list[list[Row]]:
    ordered = sorted(rows, key=lambda row: row.cell.model)
    return [[*own] for _, own in groupby(ordered, key=lambda row: row.cell.model)]


def targets_of(rows: Sequence[Row]) -> list[str]:
    """The target domains that were met."""
    found = {row.cell.shift[: -len("/in")] for row in on_targets(rows)}
    if not found:
        raise MixedRowsError("no row is of a target domain: the run is not finished.")
    return sorted(found)


def of_target(rows: Sequence[Row], target: str) -> list[float]:
    """Accuracies on a target domain, in %."""
    return [100 - 100 * row.metrics["error"] for row in rows if row.cell.shift == f"{target}/in"]


def mean_text(scores: Sequence[float]) -> str | None:
    """Mean and DomainBed's standard error of accuracies in %; None without any.

    >>> mean_text([10, 20, 30])
    '20.0 +/- 4.7'
    """
    if not scores:
        return None
    spread = f" +/- {standard_error([*scores]):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread}"


def average(rows: Sequence[Row], targets: Sequence[str]) -> float | None:
    """Mean of the targets' means; None while a target is missing."""
    scores = [of_target(rows, target) for target in targets]
    return float(np.mean([np.mean(own) for own in scores])) if all(scores) else None


def change(rows: Sequence[Row], reference: Sequence[Row]) -> Interval:
    """Gain over another method, paired image by image on the targets both met, in points."""
    before = {place_of(row): right_by_image(row) for row in on_targets(reference)}
    both = [row for row in on_targets(rows) if place_of(row) in before]
    if not both:
        raise MixedRowsError("no target was met by both methods: the run is not finished.")
    gains = [right_by_image(row).astype(np.float64) - before[place_of(row)] for row in both]
    # Another order of a stream shows the same images; another trial splits them anew.
    images = [(row.cell.shift, trained_by(row)[1]) for row in both]
    return Interval(*(100 * value for value in paired_interval(gains, images)))


def change_text(rows: Sequence[Row], reference: Sequence[Row]) -> str:
    """Such as ``+1.3 [+0.9, +1.7]``."""
    return interval_text(change(rows, reference))


def interval_text(found: Interval) -> str:
    """A difference in points with its interval."""
    return f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"


def on_targets(rows: Sequence[Row]) -> list[Row]:
    """Those that are results, not validation."""
    return [row for row in rows if row.cell.shift.endswith("/in")]


def place_of(row: Row) -> tuple[str, str, int]:
    """What must agree between rows that are compared: network, stream, order."""
    return row.cell.model, row.cell.shift, row.cell.seed


def note_of(rows: Sequence[Row]) -> str:
    """The protocol, and whatever else must stand beside the numbers."""
    trials = sorted({trained_by(row)[1] for row in rows})
    protocol = together(row.cell.protocol for row in on_targets(rows)).text()
    return (
        f"Accuracy in % on the target's 80 % split. {protocol}; settings selected on the training "
        f"domains' held-out splits after adaptation; trials {trials}, +/- standard error. "
        "Intervals: paired bootstrap over images."
    )

"""What every table of the domain study does with rows: check, select, average, compare.

Pure functions, no torch.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from driftnorm.bench.metrics import Interval, standard_error
from driftnorm.bench.protocol import text_of
from driftnorm.bench.rows import Row
from driftnorm.bench.selection import agrees, select_setting, without_source
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import check_protocol, paired_change

__all__ = [
    "at_selected",
    "at_tents",
    "at_theta_one",
    "average",
    "change",
    "change_text",
    "check_protocol_of_streams",
    "interval_text",
    "mean_text",
    "network_of",
    "note_of",
    "of_target",
    "on_targets",
    "place_of",
    "targets_of",
    "trained_by",
]

"""How the algorithm of a network ends whose classifier alone was trained."""

_MODEL = re.compile(
    r"(?P<algorithm>.+) -> (?P<target>.+), trial (?P<trial>\d+)"
    r"(, (?P<network>.+))?@(?P<weights>\w+)"
)


def trained_by(row: Row) -> tuple[str, int]:
    """The algorithm and the trial of a row's network."""
    found = _parts_of(row)
    return found["algorithm"], int(found["trial"])


def network_of(row: Row) -> str:
    """Kind of a row's network: architecture, size of the images, how batch norm was trained."""
    return _parts_of(row)["network"] or ""


def _parts_of(row: Row) -> re.Match[str]:
    found = _MODEL.fullmatch(row.cell.model)
    if found is None:
        raise MixedRowsError(f"{row.cell.model!r} is no network of `driftnorm train domains`.")
    return found


def _check_networks(rows: Sequence[Row]) -> None:
    """Refuse to average over networks as if they were trials."""
    kinds: dict[str, str] = {}
    known: dict[tuple[str, str, int], str] = {}
    for row in rows:
        parts = _parts_of(row)
        algorithm, kind = parts["algorithm"], network_of(row)
        if kinds.setdefault(algorithm, kind) != kind:
            raise MixedRowsError(
                f"networks of two kinds, both trained by {algorithm}, cannot be mixed: "
                f"{kinds[algorithm]}, and {kind}."
            )
        trial = parts["algorithm"], parts["target"], int(parts["trial"])
        if known.setdefault(trial, row.cell.model) != row.cell.model:
            raise MixedRowsError(
                f"{known[trial]!r} and {row.cell.model!r} are two networks of one trial: a table "
                "has one. Take the rows of one of them (a folder that `driftnorm bench domains` "
                "gets as `--models` gives the one selected by validation)."
            )


def check_protocol_of_streams(rows: Sequence[Row]) -> None:
    """Refuse to mix data sets, batch sizes or networks; streams may differ in length."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")
    _check_networks(rows)
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


def at_theta_one(rows: Sequence[Row]) -> list[Row]:
    """For every network and method with theta, the best validated setting at theta 1."""
    target = without_source(rows)
    return at_selected(target) if target else []


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
    """Accuracies on a target domain in %, one a network: orders of a stream are no trials."""
    own = [row for row in rows if row.cell.shift == f"{target}/in"]
    return [
        100 - 100 * float(np.mean([row.metrics["error"] for row in model]))
        for model in _models(own)
    ]


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
    before = {place_of(row): row for row in on_targets(reference)}
    pairs = [(row, before[at]) for row in on_targets(rows) if (at := place_of(row)) in before]
    if not pairs:
        raise MixedRowsError("no target was met by both methods: the run is not finished.")
    trials = sorted({trained_by(row)[1] for row, _ in pairs})
    found = [
        paired_change([pair for pair in pairs if trained_by(pair[0])[1] == trial])
        for trial in trials
    ]
    # Splits of other trials share four images in five: the mean of their intervals, which is as
    # wide as if they shared all of them, errs on the safe side.
    return Interval(*(float(np.mean(ends)) for ends in zip(*found, strict=True)))


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
    protocol = text_of(row.cell.protocol for row in on_targets(rows))
    networks = ", ".join(sorted({kind for row in rows if (kind := network_of(row))}))
    settings = {(row.cell.model, row.cell.method, row.cell.options) for row in rows}
    several = len(settings) > len({(model, method) for model, method, _ in settings})
    held_out = {row.cell.protocol.count for row in rows if row.cell.shift.endswith("/out")}
    chosen = (
        "; settings selected on the training domains' held-out splits "
        f"({' or '.join(f'{count:,}' for count in sorted(held_out))} images each) after adaptation"
    )
    return (
        f"Accuracy in % on the target's 80 % split. {networks and networks + '. '}{protocol}"
        f"{chosen if several else ''}; trials {trials}, +/- standard error. "
        "Intervals: paired bootstrap over images, which says nothing about other trainings."
        + "".join(
            f" {note}" for note in sorted({row.metrics.get("note", "") for row in rows} - {""})
        )
    )

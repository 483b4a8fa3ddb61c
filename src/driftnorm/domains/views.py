"""Rows of the domain study as tables; pure functions, no torch.

A row of a table is a training algorithm with a test-time method, whose setting was selected on the
training domains; a column is a target domain. Trials become a mean and DomainBed's standard error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from driftnorm.domains.grids import ABLATIONS, MAIN
from driftnorm.domains.paper import ABLATION, ADAPTED, SETS, TRAINERS
from driftnorm.domains.selection import select_setting
from driftnorm.metrics import Interval, paired_interval, standard_error, unpack_bits
from driftnorm.protocol import together
from driftnorm.records import Row
from driftnorm.robustness.comparing import MixedRowsError, check_protocol
from driftnorm.robustness.views import View
from driftnorm.tables import Column, Table

__all__ = ["DOMAIN_VIEWS", "domains_ablation_table", "domains_table", "trained_by"]

_MODEL = re.compile(r"(?P<algorithm>.+) -> (?P<target>.+), trial (?P<trial>\d+)@(?P<weights>\w+)")


def trained_by(row: Row) -> tuple[str, int]:
    """The algorithm and the trial of a row's network."""
    found = _MODEL.fullmatch(row.cell.model)
    if found is None:
        raise MixedRowsError(f"{row.cell.model!r} is no network of `driftnorm train domains`.")
    return found["algorithm"], int(found["trial"])


def domains_table(rows: Sequence[Row], against: str = "source") -> Table:
    """Every algorithm with every method: accuracy by target domain, and the paper's."""
    selected = _selected(rows)
    targets = _targets(rows)
    lines: list[tuple[str | float | None, ...]] = []
    algorithms = list(dict.fromkeys(trained_by(row)[0] for row in rows))
    for algorithm in algorithms:
        mine = [row for row in selected if trained_by(row)[0] == algorithm]
        for method in dict.fromkeys(row.cell.method for row in mine):
            own = [row for row in mine if row.cell.method == method]
            reference = [row for row in mine if row.cell.method == against]
            change = "-" if method == against or not reference else _change_text(own, reference)
            paper = _paper(rows[0].cell.protocol.data, algorithm, method)
            cells = (_mean_text([r for r in own if r.cell.shift == f"{t}/in"]) for t in targets)
            lines.append((f"{algorithm} + {method}", *cells, _average(own, targets), change, paper))
    columns = (
        Column("training + method"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column(f"minus {against}, 95 %"),
        Column("paper's average"),
    )
    return Table("Domain generalization", columns, tuple(lines), _note(rows))


def domains_ablation_table(rows: Sequence[Row]) -> Table:
    """The paper's two PACS ablations; all methods share the setting that selection gives Tent."""
    check_protocol_of_streams(rows)
    targets = _targets(rows)
    shared = [row for model in _models(rows) for row in _with_tents_setting(model)]
    lines: list[tuple[str | float | None, ...]] = []
    tent = [row for row in shared if row.cell.method == "tent"]
    for method in (m for m in ABLATION if any(row.cell.method == m for row in shared)):
        own = [row for row in shared if row.cell.method == method]
        cells = (_mean_text([r for r in own if r.cell.shift == f"{t}/in"]) for t in targets)
        change = "-" if method == "tent" else _change_text(own, tent)
        lines.append((method, *cells, _average(own, targets), change, ABLATION[method][-1]))
    columns = (
        Column("method"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column("minus tent, 95 %"),
        Column("paper's average"),
    )
    return Table("Gradient preserving and running statistics", columns, tuple(lines), _note(rows))


def _with_tents_setting(rows: Sequence[Row]) -> list[Row]:
    tents = [row for row in rows if row.cell.method == "tent"]
    if not tents:
        raise MixedRowsError("the ablation shares the setting selected for `tent`: run it too.")
    chosen = dict(select_setting(tents)[0].cell.options)

    def agrees(row: Row) -> bool:
        own = dict(row.cell.options)
        return all(chosen[name] == own[name] for name in chosen.keys() & own.keys()) and (
            own.get("theta", 1.0) == 1.0
        )

    return [row for row in rows if agrees(row)]


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


def _models(rows: Sequence[Row]) -> list[list[Row]]:
    ordered = sorted(rows, key=lambda row: row.cell.model)
    return [[*own] for _, own in groupby(ordered, key=lambda row: row.cell.model)]


def _selected(rows: Sequence[Row]) -> list[Row]:
    """For every network and method, the rows of the selected setting."""
    check_protocol_of_streams(rows)
    chosen = []
    for model in _models(rows):
        for method in dict.fromkeys(row.cell.method for row in model):
            chosen += select_setting([row for row in model if row.cell.method == method])
    return chosen


def _targets(rows: Sequence[Row]) -> list[str]:
    found = {row.cell.shift[: -len("/in")] for row in rows if row.cell.shift.endswith("/in")}
    if not found:
        raise MixedRowsError("no row is of a target domain: the run is not finished.")
    return sorted(found)


def _accuracies(rows: Sequence[Row]) -> list[float]:
    return [100 - 100 * row.metrics["error"] for row in rows if row.cell.shift.endswith("/in")]


def _mean_text(rows: Sequence[Row]) -> str | None:
    scores = _accuracies(rows)
    if not scores:
        return None
    spread = f" +/- {standard_error(scores):.1f}" if len(scores) > 1 else ""
    return f"{np.mean(scores):.1f}{spread}"


def _average(rows: Sequence[Row], targets: Sequence[str]) -> float | None:
    """Mean of the targets' means; None while a target is missing."""
    means = [_accuracies([r for r in rows if r.cell.shift == f"{t}/in"]) for t in targets]
    return float(np.mean([np.mean(own) for own in means])) if all(means) else None


def _change(rows: Sequence[Row], reference: Sequence[Row]) -> Interval:
    """Gain over another method, paired image by image on the targets both met, in points."""
    before = {_place(row): _right(row) for row in reference if row.cell.shift.endswith("/in")}
    gains = [
        _right(row).astype(np.float64) - before[_place(row)]
        for row in rows
        if row.cell.shift.endswith("/in") and _place(row) in before
    ]
    return Interval(*(100 * value for value in paired_interval(gains)))


def _change_text(rows: Sequence[Row], reference: Sequence[Row]) -> str:
    change = _change(rows, reference)
    return f"{change.value:+.1f} [{change.low:+.1f}, {change.high:+.1f}]"


def _place(row: Row) -> tuple[str, str, int]:
    return row.cell.model, row.cell.shift, row.cell.seed


def _right(row: Row) -> NDArray[np.bool_]:
    return unpack_bits(row.metrics["correct"], row.metrics["count"])


def _paper(data: str, algorithm: str, method: str) -> float | None:
    if data not in SETS:
        return None
    own = "swad" if algorithm.startswith("swad") else algorithm
    found = ADAPTED.get((own, method))
    if found is None and method == "source":
        found = TRAINERS.get(own)
    return None if found is None else found[SETS.index(data)]


def _note(rows: Sequence[Row]) -> str:
    trials = sorted({trained_by(row)[1] for row in rows})
    protocol = together(row.cell.protocol for row in rows if row.cell.shift.endswith("/in")).text()
    return (
        f"Accuracy in % on the target's 80 % split. {protocol}; settings selected on the training "
        f"domains' held-out splits after adaptation; trials {trials}, +/- standard error. "
        "Intervals: paired bootstrap over images."
    )


DOMAIN_VIEWS = {
    "domains": View(domains_table, MAIN, "accuracy on unseen domains, beside the paper's"),
    "domains-ablation": View(
        domains_ablation_table, ABLATIONS, "the two ablations on PACS, at Tent's setting"
    ),
}

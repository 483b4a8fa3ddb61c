"""Rows of the robustness study as tables; pure functions, no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from driftnorm.metrics import paired_interval, unpack_bits
from driftnorm.protocol import Protocol
from driftnorm.records import Row
from driftnorm.robustness.paper import DETAILED, MEAN
from driftnorm.tables import Column, Table

__all__ = ["TABLES", "detailed_table", "severity_table", "summary_table"]


class MixedRowsError(ValueError):
    """Rows that were measured differently cannot stand in one table."""


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row.cell.method for row in rows))


def check_same(rows: Sequence[Row]) -> Sequence[Row]:
    """Refuse to mix models, data or protocols, or methods that met other streams."""
    if not rows:
        raise MixedRowsError("there are no rows to make a table of.")
    for what in ("model", "study"):
        found = {getattr(row.cell, what) for row in rows}
        if len(found) > 1:
            raise MixedRowsError(f"rows of several {what}s cannot stand in one table: {found}.")
    # Orders differ between seeds by design; everything else must agree.
    settings = {(p.data, p.count, p.batch_size, p.reset, p.predict) for p in _protocols(rows)}
    if len(settings) > 1:
        texts = sorted({p.text() for p in _protocols(rows)})
        raise MixedRowsError("these protocols cannot be mixed: " + " | ".join(texts))
    streams = {m: {_stream(r) for r in rows if r.cell.method == m} for m in _methods(rows)}
    every = set().union(*streams.values())
    for method, met in streams.items():
        if met != every:
            lacking = sorted(every - met)[0]
            raise MixedRowsError(
                f"{method!r} lacks {len(every - met)} of {len(every)} streams, such as {lacking}; "
                f"finish the run, or leave the method out."
            )
    return rows


def _protocols(rows: Sequence[Row]) -> list[Protocol]:
    return [row.cell.protocol for row in rows]


def _stream(row: Row) -> tuple[str, int, int]:
    return row.cell.shift, row.cell.severity, row.cell.seed


def _note(rows: Sequence[Row]) -> str:
    cell = rows[0].cell
    severities = sorted({r.cell.severity for r in rows if r.cell.severity})
    notes = sorted({str(r.metrics["note"]) for r in rows if "note" in r.metrics})
    return (
        f"Error in %. Model {cell.model}; {cell.protocol.text()}; severities {severities}; "
        f"{len({r.cell.seed for r in rows})} seed(s). {' '.join(notes)}".strip()
    )


def _errors(rows: Sequence[Row], method: str, shift: str | None = None) -> list[float]:
    return [
        100 * row.metrics["error"]
        for row in rows
        if row.cell.method == method and row.cell.severity and shift in (None, row.cell.shift)
    ]


def detailed_table(rows: Sequence[Row]) -> Table:
    """Mean error of each method on each corruption; the paper's value in brackets."""
    check_same(rows)
    paper = DETAILED.get(rows[0].cell.protocol.data, {})
    methods = _methods(rows)
    shifts = list(dict.fromkeys(row.cell.shift for row in rows if row.cell.severity))
    lines: list[tuple[str | float | None, ...]] = [
        (shift, *(float(np.mean(_errors(rows, m, shift))) for m in methods)) for shift in shifts
    ]
    lines.append(("mean", *(float(np.mean(_errors(rows, m))) for m in methods)))
    printed = [m for m in methods if any((shift, m) in paper for shift in shifts)]
    columns = [Column("corruption"), *(Column(m) for m in methods)]
    columns += [Column(f"{m}, paper") for m in printed]
    lines = [(*line, *(paper.get((str(line[0]), m)) for m in printed)) for line in lines]
    note = _note(rows) + (" Paper: WRN-40-2 trained with AugMix." if printed else "")
    return Table("Error by corruption", tuple(columns), tuple(lines), note)


def summary_table(rows: Sequence[Row], against: str = "tent") -> Table:
    """Mean error of each method, with a paired interval against one of them."""
    check_same(rows)
    methods = _methods(rows)
    reference = against if against in methods else methods[0]
    right = {
        (row.cell.method, _stream(row)): unpack_bits(row.metrics["correct"], row.metrics["count"])
        for row in rows
        if row.cell.severity
    }
    paper = MEAN.get(rows[0].cell.protocol.data, {})
    lines: list[tuple[str | float | None, ...]] = []
    for method in methods:
        gains = [
            _difference(right[(reference, stream)], correct)
            for (name, stream), correct in right.items()
            if name == method
        ]
        change = paired_interval(gains)
        shown = f"{100 * change.value:+.2f} [{100 * change.low:+.2f}, {100 * change.high:+.2f}]"
        scores = [
            float(np.mean([r.metrics[k] for r in rows if r.cell.method == method]))
            for k in ("nll", "ece")
        ]
        error = float(np.mean(_errors(rows, method)))
        lines.append(
            (method, error, "-" if method == reference else shown, *scores, paper.get(method))
        )
    columns = (
        Column("method"),
        Column("error", best="lowest", decimals=2),
        Column(f"error minus {reference}'s, 95 %"),
        Column("NLL", best="lowest", decimals=3),
        Column("ECE", best="lowest", decimals=3),
        Column("paper's error"),
    )
    note = f"{_note(rows)} Intervals: paired bootstrap over images. Paper: WRN-40-2, AugMix."
    return Table("Mean error over corruptions", columns, tuple(lines), note)


def _difference(reference: NDArray[np.bool_], correct: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Change of error image by image: 1 where only the reference was right."""
    return reference.astype(np.float64) - correct.astype(np.float64)


def severity_table(rows: Sequence[Row]) -> Table:
    """Mean error of each method at each severity."""
    check_same(rows)
    methods = _methods(rows)
    severities = sorted({row.cell.severity for row in rows})
    lines: list[tuple[str | float | None, ...]] = []
    for method in methods:
        mine = [row for row in rows if row.cell.method == method]
        means = [
            float(np.mean([100 * r.metrics["error"] for r in mine if r.cell.severity == severity]))
            for severity in severities
        ]
        lines.append((method, *means))
    titles = ("clean" if s == 0 else f"severity {s}" for s in severities)
    columns = (Column("method"), *(Column(title, best="lowest") for title in titles))
    return Table("Error by severity", columns, tuple(lines), _note(rows))


TABLES = {"summary": summary_table, "detailed": detailed_table, "severity": severity_table}

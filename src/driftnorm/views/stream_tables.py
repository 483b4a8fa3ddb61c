"""Rows of streams that change, as a table; pure functions, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.cell import CLEAN, NetworkId, StreamId
from driftnorm.bench.metrics import Bools, unpack_bits
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row
from driftnorm.bench.windows import WINDOW, Harm, harm_of
from driftnorm.errors import MixedRowsError
from driftnorm.views.compare import by_method, change_text, check_some, paired_change
from driftnorm.views.table import Column, Table

STREAM_METHODS = (
    *("source", "bn", "bn-prior", "bn-window", "tent", "gprebn", "eata", "sar", "cotta", "rdumb"),
    "steady",
)
SOURCE = "source"

Met: TypeAlias = tuple[NetworkId, StreamId, int]
"""What a method's row shares with the source's: network, stream, images per batch."""


def met(row: Row) -> Met:
    """Network, stream and batch size of a row."""
    return row.cell.network, row.cell.stream, row.cell.protocol.batch_size


def stream_name(row: Row) -> str:
    """The stream as written on the command line, with its domain if it has only one."""
    stream = row.cell.stream
    alone = f" {stream.label}" if len(stream.shifts) < 2 else ""
    return f"{stream.ordered}{alone}"


def answered(row: Row) -> Bools:
    """Which predictions along the stream were right."""
    return unpack_bits(row.metrics["correct"], row.metrics["count"])


def check_streams_of(rows: Sequence[Row]) -> Sequence[Row]:
    """Refuse an empty list, and rows that are not of `driftnorm bench streams`."""
    check_some(rows)
    others = sorted({row.cell.study for row in rows if "segments" not in row.metrics})
    if others:
        raise MixedRowsError(
            f"rows of {', '.join(others)} are not of streams; `driftnorm bench streams` measures "
            "some."
        )
    return rows


def window_of_rows(rows: Sequence[Row]) -> int:
    """Images per window, as the rows have it."""
    windows = {int(row.metrics.get("window", WINDOW)) for row in rows}
    if len(windows) > 1:
        raise MixedRowsError(f"rows have windows of {sorted(windows)} images: choose one of them.")
    return windows.pop()


def sources_of(rows: Sequence[Row]) -> dict[Met, Row]:
    """The source's row on each stream."""
    return {met(row): row for row in rows if row.method == SOURCE}


def harm_against_source(row: Row, source: Row) -> Harm:
    """How often, and by how much at worst, a row is below the source's on the same positions."""
    return harm_of(answered(row), answered(source), window_of_rows([row, source]))


def stream_table(rows: Sequence[Row]) -> Table:
    """Every method on every stream: accuracy, difference to the source, harm and cost."""
    check_streams_of(rows)
    window, sources = window_of_rows(rows), sources_of(rows)
    apart = _distinguishing(rows)
    guarded = any(row.cell.protocol.guard != "off" for row in rows)
    groups = partition(rows, lambda row: tuple(tell(row) for tell in apart.values()))
    lines: list[tuple[str | float | None, ...]] = []
    for words, together in sorted(groups.items(), key=lambda group: group[0][1:]):
        for method, own in by_method(together).items():
            alarms = (float(np.mean([row.metrics["alarms"] for row in own])),) if guarded else ()
            lines.append((*words, method, *_numbers(own, sources), *alarms))
    columns = (
        *(Column(title, align="left") for title in apart),
        Column("method", align="left"),
        Column("accuracy", decimals=1),
        Column("minus the source's, 95 %"),
        Column("windows below it, %", decimals=0, spare=4),
        Column("worst window", decimals=1, spare=5),
        Column("class mean", decimals=1, spare=2),
        Column("ECE", decimals=3, spare=1),
        Column("passes", spare=3),
        *([Column("alarms", decimals=1)] if guarded else []),
    )
    note = (
        f"Accuracy in %. {protocol_text(row.cell for row in rows)}. Windows of "
        f"{counted(window, 'image')}, against the source's on the same positions; worst window in "
        "points. Intervals: paired bootstrap over positions, which takes them for independent. "
        f"Order index {_order_indices(rows)}. Passes: forward + backward per batch."
        + (" Alarms: of the guard, per stream." if guarded else "")
    )
    return Table("Streams that change", columns, tuple(lines), note)


def _distinguishing(rows: Sequence[Row]) -> Mapping[str, Callable[[Row], str]]:
    """The stream, and whatever else differs between rows."""
    facts: dict[str, Callable[[Row], str]] = {
        "network": lambda row: row.network,
        "data": lambda row: row.cell.stream.data.label,
        "batch": lambda row: str(row.cell.protocol.batch_size),
        "guard": lambda row: row.cell.protocol.guard,
    }
    differing = {k: f for k, f in facts.items() if len({f(row) for row in rows}) > 1}
    return {"stream": stream_name, **differing}


def _numbers(own: Sequence[Row], sources: Mapping[Met, Row]) -> tuple[str | float | None, ...]:
    """A method's numbers, mean over the seeds."""
    pairs = [(row, sources[met(row)]) for row in own if met(row) in sources]
    harms = [harm_against_source(*pair) for pair in pairs]
    is_source = own[0].method == SOURCE

    def mean(name: str) -> float:
        return float(np.mean([row.metrics[name] for row in own]))

    forwards, backwards = own[0].metrics["passes"]
    known = bool(pairs) and not is_source
    return (
        100 - 100 * mean("error"),
        change_text(paired_change(pairs)) if known else None,
        100 * float(np.mean([harm.rate for harm in harms])) if known else None,
        min(harm.worst for harm in harms) if known else None,
        100 * mean("class_mean_accuracy"),
        mean("ece"),
        f"{forwards:g} + {backwards:g}",
    )


def _order_indices(rows: Sequence[Row]) -> str:
    indices = {
        order: np.mean([row.metrics["order_index"] for row in own])
        for order, own in partition(rows, lambda row: row.cell.stream.order).items()
    }
    return ", ".join(f"{mean:.2f} ({order})" for order, mean in sorted(indices.items()))


def domain_label(name: str, severity: int) -> str:
    """A domain as people call it: ``fog 5``, ``clean``."""
    return f"{name} {severity}" if severity and name != CLEAN else name

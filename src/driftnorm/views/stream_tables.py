"""Rows of streams that change, as a table; pure functions, no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from driftnorm._internal.arguments import check_whole
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
_MOST_DOMAINS = 20  # of which each severity has a number of its own

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
    """Images per window: the smallest of the rows', since every row holds all of its answers."""
    return min(int(row.metrics.get("window", WINDOW)) for row in rows)


def with_window(rows: Sequence[Row], window: int) -> list[Row]:
    """The rows as if they had been measured with this many images per window."""
    check_whole("window", window)
    check_streams_of(rows)
    return [Row(row.cell, {**row.metrics, "window": window}, row.environment) for row in rows]


def sources_of(rows: Sequence[Row]) -> dict[Met, Row]:
    """The source's row on each stream."""
    return {met(row): row for row in rows if row.method == SOURCE}


def harm_against_source(row: Row, source: Row, window: int | None = None) -> Harm:
    """How often, and by how much at worst, a row is below the source's on the same positions."""
    return harm_of(answered(row), answered(source), window or window_of_rows([row, source]))


def stream_table(rows: Sequence[Row]) -> Table:
    """Every method on every stream: accuracy, difference to the source, harm and cost."""
    check_streams_of(rows)
    window, sources = window_of_rows(rows), sources_of(rows)
    events = []  # that there can be, or were
    if any(row.cell.protocol.guard != "off" for row in rows):
        events.append("alarms")
    if any(row.metrics.get("resets", 0) for row in rows):
        events.append("resets")
    first, groups = _lines_of(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for words, own in groups:
        counts = (float(np.mean([row.metrics[event] for row in own])) for event in events)
        lines.append((*words, *_numbers(own, sources, window), *counts))
    columns = (
        *first,
        Column("accuracy", decimals=1),
        Column("minus the source's, 95 %"),
        Column("windows below it, %", decimals=0, spare=4),
        Column("worst window", decimals=1, spare=5),
        Column("class mean", decimals=1, spare=2),
        Column("ECE", decimals=3, spare=1),
        Column("passes", spare=3),
        *(Column(event, decimals=1) for event in events),
    )
    note = (
        f"Accuracy in %. {protocol_text(row.cell for row in rows)}. Windows of "
        f"{counted(window, 'image')}, against the source's on the same positions; worst window in "
        "points. Intervals: paired bootstrap over positions, which takes them for independent. "
        f"Order index {_order_indices(rows)}. Passes: forward + backward per batch, at most."
        + " Alarms: of the guard, per stream." * ("alarms" in events)
        + " Resets: how often the method went back to the source." * ("resets" in events)
    )
    return Table("Streams that change", columns, tuple(lines), note)


def stream_domain_table(rows: Sequence[Row]) -> Table:
    """Every method on every stream: accuracy on each domain, over all of its visits."""
    check_streams_of(rows)
    titles = dict.fromkeys(t for row in rows for t in domain_titles(row.metrics["domains"]))

    def of_domain(row: Row, title: str) -> float | None:
        named = domain_titles(row.metrics["domains"])
        errors = zip(named, row.metrics["error_per_domain"], strict=True)
        own = [error for name, error in errors if name == title and error is not None]
        return float(np.mean(own)) if own else None

    note = (
        "Accuracy in %, over all visits to a domain, and over its severities where there are many. "
        f"{protocol_text(row.cell for row in rows)}."
    )
    return _parts_table("Streams by domain", rows, [*titles], of_domain, note)


def stream_visit_table(rows: Sequence[Row]) -> Table:
    """Every method on every stream: accuracy on the first visit to domains, the second and so on.

    A stream that shows each domain once has one visit.
    """
    check_streams_of(rows)
    most = max(len(row.metrics["error_per_visit"]) for row in rows)
    titles = [f"visit {number}" for number in range(1, most + 1)]

    def of_visit(row: Row, title: str) -> float | None:
        errors, place = row.metrics["error_per_visit"], titles.index(title)
        return errors[place] if place < len(errors) else None

    note = (
        "Accuracy in %, over the domains that have so many visits: on a recurring stream all of "
        f"them, with the same images each time. {protocol_text(row.cell for row in rows)}."
    )
    return _parts_table("Streams by visit", rows, titles, of_visit, note)


def _parts_table(
    title: str,
    rows: Sequence[Row],
    titles: Sequence[str],
    error: Callable[[Row, str], float | None],
    note: str,
) -> Table:
    """Accuracy in parts of the streams, mean over the seeds; a dash where a stream has no such."""
    first, groups = _lines_of(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for words, own in groups:
        found = [[error(row, each) for row in own] for each in titles]
        known = [[value for value in values if value is not None] for values in found]
        means = (100 - 100 * float(np.mean(values)) if values else None for values in known)
        lines.append((*words, *means))
    return Table(
        title, (*first, *(Column(each, decimals=1) for each in titles)), tuple(lines), note
    )


def _lines_of(
    rows: Sequence[Row],
) -> tuple[list[Column], list[tuple[tuple[str, ...], list[Row]]]]:
    """The columns that say what a line is of; these words of each line, and its rows, by seed."""
    apart = _distinguishing(rows)
    groups = partition(rows, lambda row: tuple(tell(row) for tell in apart.values()))
    columns = [Column(title, align="left") for title in (*apart, "method")]
    return columns, [
        ((*words, method), own)
        for words, together in sorted(groups.items(), key=lambda group: group[0][1:])
        for method, own in by_method(together).items()
    ]


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


def _numbers(
    own: Sequence[Row], sources: Mapping[Met, Row], window: int
) -> tuple[str | float | None, ...]:
    """A method's numbers, mean over the seeds."""
    pairs = [(row, sources[met(row)]) for row in own if met(row) in sources]
    harms = [harm_against_source(*pair, window) for pair in pairs]
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


def domain_titles(domains: Sequence[tuple[str, int]]) -> list[str]:
    """What each domain is called: without its severity, where there are many."""
    many = len(domains) > _MOST_DOMAINS
    return [name if many else domain_label(name, severity) for name, severity in domains]

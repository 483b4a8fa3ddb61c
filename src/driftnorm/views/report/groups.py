"""Rows that can be compared, and the numbers of such a group."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product

import numpy as np

from driftnorm._internal.partition import partition
from driftnorm.bench.cell import CLEAN, Cell
from driftnorm.bench.metrics import Interval
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Failure, Row
from driftnorm.bench.vocabulary import METHOD_ORDER
from driftnorm.shifts import CORRUPTIONS
from driftnorm.views.compare import by_method, methods_of, paired_change, stream_of

_RANK = {name: rank for rank, name in enumerate(METHOD_ORDER)}


def mean_of(rows: Iterable[Row], metric: str) -> float | None:
    """The mean of a metric over the rows that have it."""
    values = [float(row.metrics[metric]) for row in rows if metric in row.metrics]
    return float(np.mean(values)) if values else None


def shared_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows of the streams that every method ran on, so that means are over the same images."""
    met = [{stream_of(row) for row in own} for own in by_method(rows).values()]
    common = set.intersection(*met) if met else set()
    return [row for row in rows if stream_of(row) in common]


@dataclass(frozen=True)
class Group:
    """Rows of one study, network and protocol.

    Attributes:
        rows: One for each method and stream.
        failures: The cells that failed.
        replaced: How many rows were left out because a later one is of the same method and stream.
        apart: What distinguishes the group from others of the same data and network, if any.
    """

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...] = ()
    replaced: int = 0
    apart: str = ""

    @cached_property
    def methods(self) -> list[str]:
        """The methods in the order of the method table, compositions last."""
        return sorted(methods_of(self.rows), key=_method_rank)

    @cached_property
    def shifts(self) -> list[str]:
        """The shifts without the clean data, common corruptions in their usual order."""
        found = sorted({row.shift for row in self.rows} - {CLEAN})
        usual = [shift for shift in CORRUPTIONS if shift in found]
        return usual if len(usual) == len(found) else found

    @cached_property
    def measured(self) -> list[Row]:
        """The rows that means are over: shifted streams that every method ran on."""
        shifted = [row for row in self.rows if row.shift != CLEAN]
        return shared_rows(shifted or self.rows)

    @cached_property
    def models(self) -> list[str]:
        """The networks; several where each target has its own."""
        return sorted({row.network for row in self.rows})

    @property
    def title(self) -> str:
        """The data and the network, and what else distinguishes it from other groups."""
        cell = self.rows[0].cell
        name = self.models[0] if len(self.models) == 1 else cell.network.name
        course = cell.stream.ordered if cell.stream.settings else ""
        return ", ".join(filter(None, (cell.stream.data.label, name, course, self.apart)))

    @property
    def order(self) -> tuple[str, str, int, str]:
        """The group's position on a page, independent of file names."""
        cell = self.rows[0].cell
        return cell.study, self.title, cell.protocol.batch_size, str(self.protocol_lines())

    @property
    def changes(self) -> bool:
        """Whether it is one stream on which domains follow each other, or are mixed."""
        shifts = {row.cell.stream.shifts for row in self.rows}
        return len(shifts) == 1 and all("segments" in row.metrics for row in self.rows)

    @property
    def kind(self) -> str:
        """What the streams differ in."""
        return "shift" if any(row.severity for row in self.rows) else "domain"

    @property
    def traits(self) -> dict[str, str]:
        """What may distinguish it from groups of the same data and network."""
        levels = sorted({row.severity for row in self.rows} - {0})
        protocol = self.rows[0].cell.protocol
        several = len(levels) > 1
        return {
            "study": self.rows[0].cell.study,
            "batch": f"batch {protocol.batch_size}",
            "severity": f"severities {levels[0]} to {levels[-1]}"
            if several
            else "".join(f"severity {level}" for level in levels),
            "reset": f"reset {protocol.reset}",
            "predict": f"scored {protocol.predict} the update",
            "guard": f"guard {protocol.guard}",
            "steps": self.optimising,
            "shifts": self.rows[0].shift if self.changes else "",
        }

    @cached_property
    def optimising(self) -> str:
        """The settings of gradient steps; empty if no method took any."""
        options = {f"{k} {v}" for row in self.rows for k, v in row.cell.method.settings}
        return ", ".join(sorted(options))

    @property
    def reference(self) -> str:
        """The method that others are compared with."""
        return "source" if "source" in self.methods else self.methods[0]

    def protocol_lines(self) -> list[str]:
        """How the numbers were measured; one line per stream length, as target domains differ."""
        lines = []
        for count in sorted({row.cell.stream.count for row in self.rows}):
            own = (row.cell for row in self.rows if row.cell.stream.count == count)
            lines.append(protocol_text(own))
        return lines

    def of(self, method: str, rows: Sequence[Row] | None = None) -> list[Row]:
        """The method's rows among the given ones, or among those that means are over."""
        return [r for r in (self.measured if rows is None else rows) if r.method == method]

    def of_shift(self, shift: str) -> list[Row]:
        """All rows of a shift."""
        return [row for row in self.rows if row.shift == shift]

    def error(self, method: str) -> float | None:
        """Mean error in % over the streams of `measured`."""
        mean = mean_of(self.of(method), "error")
        return None if mean is None else 100 * mean

    def pairs(self, method: str) -> list[tuple[Row, Row]]:
        """The reference's row and the method's on each stream of `measured`."""
        own = {stream_of(row): row for row in self.of(method)}
        return [(row, own[stream_of(row)]) for row in self.of(self.reference)]

    def change(self, method: str) -> Interval | None:
        """How much larger the error is than the reference's, paired image by image, in points."""
        pairs = self.pairs(method)
        if not pairs or any("correct" not in row.metrics for pair in pairs for row in pair):
            return None
        return paired_change(pairs)

    def missing(self) -> dict[str, list[str]]:
        """Streams that other methods ran on and this one did not, by method."""
        streams = sorted({stream_of(row) for row in self.rows})
        done = {(row.method, stream_of(row)) for row in self.rows}
        lacking: dict[str, list[str]] = defaultdict(list)
        for method, stream in product(self.methods, streams):
            if (method, stream) not in done:
                shift, severity, seed = stream
                lacking[method].append(f"{shift} {severity or ''}".strip() + f" (seed {seed})")
        return dict(lacking)


def group_rows(rows: Sequence[Row], failures: Sequence[Failure] = ()) -> list[Group]:
    """Group what can be compared, and separate what cannot.

    Networks whose names differ only in their weights' hash stay together as long as no stream has
    two of them: a domain benchmark has another network for every target.
    """
    groups = []
    alike = partition(rows, lambda row: (row.cell.network.name, *_setting(row.cell)))
    for together in alike.values():
        streams = [(r.method, stream_of(r), r.cell.method.settings) for r in together]
        networks = [together]
        if len(set(streams)) < len(streams):
            networks = [*partition(together, lambda row: row.network).values()]
        for own in networks:
            for part in (part for tuned in _tuned(own) for part in _by_severities(tuned)):
                last = {(row.method, stream_of(row)): row for row in part}
                once = tuple(last.values())
                groups.append(Group(once, _failures_of(once, failures), len(part) - len(once)))
    return _told_apart(sorted(groups, key=lambda group: group.order))


def _setting(cell: Cell) -> tuple[Hashable, ...]:
    """What must agree besides the network; target domains may differ in their number of images.

    The parameters of a stream that changes are part of it: another order of the same images is
    another stream.
    """
    stream = cell.stream
    count = stream.count if stream.has_severity else None
    several = stream.shifts if len(stream.shifts) > 1 else ()
    course = (stream.order, stream.settings, several) if stream.settings else ()
    return (cell.study, stream.data, cell.protocol, count, course)


def _tuned(rows: list[Row]) -> list[list[Row]]:
    """One part for each way of optimising; methods without a gradient belong to every part."""
    ways = list(dict.fromkeys(row.cell.method.settings for row in rows if row.cell.method.settings))
    if len(ways) < 2:
        return [rows]
    return [[row for row in rows if row.cell.method.settings in ((), way)] for way in ways]


def _by_severities(rows: list[Row]) -> list[list[Row]]:
    """All methods at the severities that all of them ran on, and separately those that ran on more.

    A mean over only the common severities would hide what most of them were measured on.
    """
    shifted = by_method(row for row in rows if row.shift != CLEAN)
    met = {method: {row.severity for row in own} for method, own in shifted.items()}
    common = frozenset(set.intersection(*met.values())) if met else frozenset[int]()
    if not common or all(levels == common for levels in met.values()):
        return [rows]
    parts = []
    for levels in {common, *map(frozenset, met.values())}:
        methods = {method for method, own in met.items() if own >= levels}
        if len(methods) > 1:
            of = [row for row in rows if row.method in methods]
            parts.append([r for r in of if r.shift == CLEAN or r.severity in levels])
    return parts


def _told_apart(groups: list[Group]) -> list[Group]:
    """Groups of the same title, with what differs added to their titles."""
    named = []
    for group in groups:
        traits = [other.traits for other in groups if other.title == group.title]
        differing = [key for key in group.traits if len({each[key] for each in traits}) > 1]
        apart = ", ".join(filter(None, (group.traits[key] for key in differing)))
        named.append(replace(group, apart=apart))
    return named


def _failures_of(rows: Sequence[Row], failures: Sequence[Failure]) -> tuple[Failure, ...]:
    known = {(row.network, _setting(row.cell)) for row in rows}
    return tuple(f for f in failures if (f.cell.network.label, _setting(f.cell)) in known)


def _method_rank(method: str) -> tuple[int, str]:
    return _RANK.get(method.split(":")[0], len(_RANK)), method

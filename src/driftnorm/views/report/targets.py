"""Rows of the domain study as a page compares them: targets as shifts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from driftnorm._internal.partition import partition
from driftnorm.bench.cell import Cell, NetworkId
from driftnorm.bench.rows import Failure, Row
from driftnorm.bench.selection import select_setting
from driftnorm.bench.vocabulary import TARGET
from driftnorm.errors import MixedRowsError
from driftnorm.views.domain_rows import published_set, training_of
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.paper import SETS
from driftnorm.views.table import Table

_STUDY = "domains"
_NOTE = (
    "Streams are the target domains' scored splits, seeds are the networks' trials; the setting of "
    "each method was selected on the training domains' held-out splits."
)


def compared_rows(rows: Sequence[Row]) -> list[Row]:
    """For the domain study, the target rows of the selected settings; other rows unchanged."""
    chosen: list[Row] = []
    measured = partition(
        filter(_is_domains, rows), lambda row: (row.network, row.method, *_data_and_batch(row))
    )
    for own in measured.values():
        with suppress(MixedRowsError):  # validation is not finished: there is no setting to show
            chosen += select_setting(own)
    targets = [
        Row(_compared(row), {**row.metrics, "note": _NOTE}, row.environment)
        for row in chosen
        if row.cell.stream.split == TARGET
    ]
    return [row for row in rows if not _is_domains(row)] + targets


def compared_failures(failures: Sequence[Failure]) -> list[Failure]:
    """The same for cells that failed."""
    return [Failure(_compared(f), f.error) if _is_domains(f) else f for f in failures]


def domain_tables(rows: Sequence[Row]) -> list[Table]:
    """The study's own tables, one of each for every data set and batch size."""
    tables = []
    for own in partition(filter(_is_domains, rows), _data_and_batch).values():
        # The paper's claims are about its sets; the user's own data get the table of accuracies.
        published = published_set(own) in SETS
        for name, view in DOMAIN_VIEWS.items():
            if not published and name == "domains-claims":
                continue
            try:
                tables.append(view.make(own))
            except MixedRowsError:  # an unfinished study, or not the methods of this table
                continue
    return tables


def _data_and_batch(row: Row) -> tuple[str, int]:
    return row.cell.stream.data.label, row.cell.protocol.batch_size


def _is_domains(found: Row | Failure) -> bool:
    return found.cell.study == _STUDY


def _compared(found: Row | Failure) -> Cell:
    """The networks of all targets count as one, named by algorithm; a trial counts as a seed."""
    cell = found.cell
    training = training_of(Row(cell, {}))
    seed = (training.trial or 0) + 1000 * cell.stream.seed  # orders of one trial stay apart
    return replace(
        cell,
        network=NetworkId(training.trainer.label),
        stream=replace(cell.stream, seed=seed),
        method=replace(cell.method, settings=()),
    )

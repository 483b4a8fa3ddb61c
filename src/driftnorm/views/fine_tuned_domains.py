"""Fine-tuned and pre-trained networks on unseen domains: which statistics suit which.

The paper's study on VLCS: where all of a network was trained on the source domains, target
statistics no longer fit what its layers learned; where only its classifier was, they do.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.cell import Trainer
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE
from driftnorm.errors import MixedRowsError
from driftnorm.views.domain_rows import (
    at_selected,
    average,
    change_text,
    note_of,
    on_targets,
    published_set,
    targets_of,
    trainer_of,
    trial_of,
)
from driftnorm.views.paper import FINE_TUNED_DOMAINS, SETS
from driftnorm.views.table import Column, Table

METHODS = ("source", TENT_ON_SOURCE, "bn", "tent")

_STATISTICS = {"source": METHODS[:2], "target": METHODS[2:]}


def domains_fine_tuned_table(rows: Sequence[Row]) -> Table:
    """Source and target statistics, without and with Tent, on both kinds of networks."""
    rows = [row for row in rows if row.method in METHODS]
    selected, targets = at_selected(rows), targets_of(rows)
    printed = published_set(rows) in SETS
    lines: list[tuple[str | float | None, ...]] = []
    trained = partition(selected, trainer_of)
    for trainer in _with_both_settings([*trained]):
        fixed = trainer._replace(features="fixed")
        networks = {"fine-tuned": trained[trainer], "pre-trained": trained[fixed]}
        _check_pair(trainer.label, *networks.values())
        for setting, own in networks.items():
            for statistics, pair in _STATISTICS.items():
                plain, tent = ([r for r in own if r.method == word] for word in pair)
                measured = (average(plain, targets), average(tent, targets))
                change = change_text(tent, plain)
                label = f"{trainer.label}, {setting}"
                paper = FINE_TUNED_DOMAINS[setting, statistics] if printed else ()
                lines.append((label, statistics, *measured, change, *paper))
    columns = (
        Column("network"),
        Column("statistics", align="left"),
        Column("accuracy"),
        Column("+ Tent"),
        Column("change, 95 %"),
        *((Column("paper, VLCS"), Column("paper, + Tent")) if printed else ()),
    )
    note = f"Pre-trained: only the classifier was trained on the source domains. {note_of(rows)}"
    return Table("Fine-tuned and pre-trained, on unseen domains", columns, tuple(lines), note)


def _with_both_settings(found: Sequence[Trainer]) -> list[Trainer]:
    trained = [trainer for trainer in found if trainer.features == "trained"]
    both = [trainer for trainer in trained if trainer._replace(features="fixed") in found]
    if not both:
        raise MixedRowsError(
            "this table compares fine-tuned networks with those trained with --features fixed; "
            f"these rows are of {', '.join(trainer.label for trainer in found)} only."
        )
    return both


def _check_pair(algorithm: str, tuned: Sequence[Row], pretrained: Sequence[Row]) -> None:
    """Both must have run on the same targets, in the same trials and orders, with every method."""
    wanted = {_stream(row) for row in on_targets([*tuned, *pretrained])}
    for name, own in (("fine-tuned", tuned), ("pre-trained", pretrained)):
        for method in METHODS:
            lacking = wanted - {_stream(row) for row in own if row.method == method}
            if lacking:
                raise MixedRowsError(
                    f"{name} {algorithm} with {method!r} lacks {len(lacking)} of "
                    f"{counted(len(wanted), 'stream')}, such as {sorted(lacking)[0]}; finish the "
                    "run."
                )


def _stream(row: Row) -> tuple[str, int, int]:
    """Domain and split, trial, order."""
    return row.cell.stream.label, trial_of(row), row.seed

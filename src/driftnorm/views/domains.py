"""Rows of the domain study as tables, by name; pure functions, no torch.

A row of a table is a training algorithm with a test-time method, whose setting was selected on the
training domains; a column is a target domain. Trials become a mean and DomainBed's standard error.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import ABLATIONS, MAIN
from driftnorm.views.domain_claims import METHODS as CLAIMED
from driftnorm.views.domain_claims import domains_claims_table
from driftnorm.views.domain_paper import ABLATION, ADAPTED, SETS, TRAINERS
from driftnorm.views.domain_rows import (
    at_selected,
    at_tents,
    average,
    change_text,
    mean_text,
    note_of,
    of_target,
    targets_of,
    trainer_of,
    with_trained_features,
)
from driftnorm.views.fine_tuned_domains import METHODS as FINE_TUNED
from driftnorm.views.fine_tuned_domains import domains_fine_tuned_table
from driftnorm.views.robustness import View
from driftnorm.views.table import Column, Table

__all__ = ["DOMAIN_VIEWS", "domains_ablation_table", "domains_table"]


def domains_table(rows: Sequence[Row], against: str = "source") -> Table:
    """Every algorithm with every method: accuracy by target domain, and the paper's."""
    selected = at_selected(rows)
    targets = targets_of(rows)
    lines: list[tuple[str | float | None, ...]] = []
    trainers = list(dict.fromkeys(trainer_of(row) for row in rows))
    for trainer in trainers:
        mine = [row for row in selected if trainer_of(row) == trainer]
        for method in dict.fromkeys(row.method for row in mine):
            own = [row for row in mine if row.method == method]
            reference = [row for row in mine if row.method == against]
            change = "-" if method == against or not reference else change_text(own, reference)
            paper = _paper(rows[0].cell.stream.data.name, trainer.printed, method)
            cells = (mean_text(of_target(own, target)) for target in targets)
            lines.append(
                (f"{trainer.label} + {method}", *cells, average(own, targets), change, paper)
            )
    data = rows[0].cell.stream.data.name
    measured = {trainer.printed for trainer in trainers}
    beside = data in SETS and not measured.isdisjoint(TRAINERS)
    for name in (n for n in TRAINERS if beside and n not in measured):
        nothing = [None] * len(targets)
        lines.append((f"{name}, paper only", *nothing, None, "-", _paper(data, name, "source")))
    columns = (
        Column("training + method"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column(f"minus {against}, 95 %"),
        Column("paper's average"),
    )
    return Table("Domain generalization", columns, tuple(lines), note_of(rows))


def domains_ablation_table(rows: Sequence[Row]) -> Table:
    """The paper's two PACS ablations; all methods share the setting that selection gives Tent."""
    rows = with_trained_features(rows)
    shared = at_tents(rows)
    targets = targets_of(rows)
    lines: list[tuple[str | float | None, ...]] = []
    data = rows[0].cell.stream.data.name
    for trainer in dict.fromkeys(trainer_of(row) for row in rows):
        mine = [row for row in shared if trainer_of(row) == trainer]
        tent = [row for row in mine if row.method == "tent"]
        for method in (m for m in ABLATION if any(row.method == m for row in mine)):
            own = [row for row in mine if row.method == method]
            cells = (mean_text(of_target(own, target)) for target in targets)
            change = "-" if method == "tent" else change_text(own, tent)
            paper = ABLATION[method][-1] if (data, trainer.printed) == ("PACS", "erm") else None
            lines.append(
                (f"{trainer.label} + {method}", *cells, average(own, targets), change, paper)
            )
    columns = (
        Column("training + method"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column("minus tent, 95 %"),
        Column("paper's average"),
    )
    note = f"{note_of(rows)} Every method at the setting that was selected for tent."
    return Table("Gradient preserving and running statistics", columns, tuple(lines), note)


def _paper(data: str, trainer: str, method: str) -> float | None:
    if data not in SETS:
        return None
    found = ADAPTED.get((trainer, method))
    if found is None and method == "source":
        found = TRAINERS.get(trainer)
    return None if found is None else found[SETS.index(data)]


DOMAIN_VIEWS = {
    "domains": View(domains_table, MAIN, "accuracy on unseen domains, beside the paper's"),
    "domains-ablation": View(
        domains_ablation_table, ABLATIONS, "the two ablations on PACS, at Tent's setting"
    ),
    "domains-fine-tuned": View(
        domains_fine_tuned_table,
        FINE_TUNED,
        "fine-tuned networks against those whose classifier alone was trained",
    ),
    "domains-claims": View(
        domains_claims_table, CLAIMED, "the paper's claims about unseen domains, with verdicts"
    ),
}

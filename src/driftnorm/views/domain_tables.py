"""Rows of the domain study as tables, by name; pure functions, no torch.

A row of a table is a training algorithm with a test-time method, whose setting was selected on the
training domains; a column is a target domain. Trials become a mean and DomainBed's standard error.
"""

from __future__ import annotations

from collections.abc import Sequence

from driftnorm._internal.partition import partition
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import ABLATIONS, MAIN
from driftnorm.views.claim_tables import domains_claims_table
from driftnorm.views.claims import ABOUT_DOMAINS, claimed_methods
from driftnorm.views.compare import methods_of
from driftnorm.views.domain_rows import (
    at_selected,
    at_tents,
    average,
    change_text,
    mean_text,
    note_of,
    of_target,
    published_set,
    targets_of,
    trainer_of,
    with_trained_features,
)
from driftnorm.views.fine_tuned_domains import METHODS as FINE_TUNED
from driftnorm.views.fine_tuned_domains import domains_fine_tuned_table
from driftnorm.views.paper import ABLATION, SETS, TRAINERS, domain_accuracy
from driftnorm.views.robustness import View
from driftnorm.views.table import Column, Table


def domains_table(rows: Sequence[Row]) -> Table:
    """Every algorithm with every method: accuracy by target domain, and the paper's."""
    selected, targets, data = at_selected(rows), targets_of(rows), published_set(rows)
    lines: list[tuple[str | float | None, ...]] = []
    trainers = partition(selected, trainer_of)
    for trainer, mine in trainers.items():
        for method in methods_of(mine):
            paper = domain_accuracy(data, trainer.printed, method)
            lines.append(_line(trainer.label, method, mine, "source", targets, paper))
    measured = {trainer.printed for trainer in trainers}
    beside = data in SETS and not measured.isdisjoint(TRAINERS)
    for name in (n for n in TRAINERS if beside and n not in measured):
        nothing = [None] * len(targets)
        printed = domain_accuracy(data, name, "source")
        lines.append((f"{name}, paper only", *nothing, None, "-", printed))
    return _table("Domain generalization", targets, "source", lines, note_of(rows))


def domains_ablation_table(rows: Sequence[Row]) -> Table:
    """The paper's two PACS ablations; all methods share the setting that selection gives Tent."""
    rows = with_trained_features(rows)
    shared, targets, data = at_tents(rows), targets_of(rows), published_set(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for trainer, mine in partition(shared, trainer_of).items():
        for method in (name for name in ABLATION if name in methods_of(mine)):
            paper = ABLATION[method][-1] if (data, trainer.printed) == ("PACS", "erm") else None
            lines.append(_line(trainer.label, method, mine, "tent", targets, paper))
    note = f"{note_of(rows)} Every method at the setting that was selected for tent."
    return _table("Gradient preserving and running statistics", targets, "tent", lines, note)


def _line(
    trainer: str,
    method: str,
    rows: Sequence[Row],
    against: str,
    targets: Sequence[str],
    paper: float | None,
) -> tuple[str | float | None, ...]:
    own, reference = ([row for row in rows if row.method == m] for m in (method, against))
    change = "-" if method == against or not reference else change_text(own, reference)
    cells = (mean_text(of_target(own, target)) for target in targets)
    return (f"{trainer} + {method}", *cells, average(own, targets), change, paper)


def _table(
    title: str,
    targets: Sequence[str],
    against: str,
    lines: Sequence[tuple[str | float | None, ...]],
    note: str,
) -> Table:
    printed = any(line[-1] is not None for line in lines)
    columns = (
        Column("training + method"),
        *(Column(target) for target in targets),
        Column("average", best="highest"),
        Column(f"minus {against}, 95 %"),
        *((Column("paper's average"),) if printed else ()),
    )
    return Table(title, columns, tuple(line[: len(columns)] for line in lines), note)


DOMAIN_VIEWS = {
    "domains": View(domains_table, MAIN, "accuracy on unseen domains, next to the paper's"),
    "domains-ablation": View(
        domains_ablation_table, ABLATIONS, "the two ablations on PACS, at Tent's setting"
    ),
    "domains-fine-tuned": View(
        domains_fine_tuned_table,
        FINE_TUNED,
        "fine-tuned networks against those whose classifier alone was trained",
    ),
    "domains-claims": View(
        domains_claims_table,
        claimed_methods(ABOUT_DOMAINS),
        "the paper's claims about unseen domains, with verdicts",
    ),
}

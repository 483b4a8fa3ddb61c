"""What the paper claims about unseen domains, and what rows of trained networks say to it.

Claims about methods compare the settings selected for each; claims of the ablations compare them at
the one setting that was selected for Tent, with target statistics alone (theta 1); that about theta
compares what is selected among all of its values with what is selected at theta 1. The paper's
numbers are for ERM on PACS, and there they contradict its text on rT3A.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from driftnorm.bench.cell import Trainer
from driftnorm.bench.metrics import Interval
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import TENT_ON_SOURCE, TENT_STOPPED
from driftnorm.errors import MixedRowsError
from driftnorm.views.domain_paper import ADAPTED, SETS
from driftnorm.views.domain_rows import (
    at_selected,
    at_tents,
    at_theta_one,
    average,
    change,
    interval_text,
    note_of,
    on_targets,
    place_of,
    targets_of,
    trainer_of,
    trial_of,
    with_trained_features,
)
from driftnorm.views.robustness_claims import Claim, joint_verdict, verdict
from driftnorm.views.table import Column, Table

__all__ = ["CLAIMS", "METHODS", "DomainClaim", "domains_claims_table"]

Setting: TypeAlias = Literal["selected", "tent's", "theta 1"]


class DomainClaim(NamedTuple):
    """A claim about accuracies, and the settings that it compares.

    Attributes:
        claim: Which accuracy is higher, lower or alike; the paper's numbers are for ERM on PACS.
        setting: Of the method.
        reference: Of what it is compared with.
    """

    claim: Claim
    setting: Setting = "selected"
    reference: Setting = "selected"


def _ablation(claim: Claim) -> DomainClaim:
    return DomainClaim(claim, "tent's", "tent's")


CLAIMS = (
    DomainClaim(Claim("Tent helps", "tent", "source", "higher", "90.2 / 84.7")),
    DomainClaim(Claim("GpreBN helps", "gprebn", "source", "higher", "88.9 / 84.7")),
    DomainClaim(Claim("target statistics alone help", "bn", "source", "higher", "85.6 / 84.7")),
    DomainClaim(Claim("rT3A adds to GpreBN", "gprebn+rt3a", "gprebn", "higher", "86.2 / 88.9")),
    DomainClaim(
        Claim(
            "theta selected on the source costs something where target statistics are good",
            "gprebn",
            "gprebn",
            "lower",
            "88.9 / 90.5",
        ),
        reference="theta 1",
    ),
    _ablation(
        Claim(
            "without a step, running statistics beat the batch's",
            "bn:running=True",
            "bn",
            "higher",
            "86.0 / 85.6",
        )
    ),
    _ablation(
        Claim(
            "with a step, running statistics beat the batch's",
            "gprebn",
            "tent",
            "higher",
            "90.5 / 90.2",
        )
    ),
    _ablation(
        Claim(
            "on batch statistics, the preserved gradient beats the stopped one",
            "tent",
            TENT_STOPPED,
            "higher",
            "90.2 / 87.6",
        )
    ),
    _ablation(
        Claim(
            "on source statistics, the preserved gradient helps",
            "gprebn:statistics=source",
            TENT_ON_SOURCE,
            "higher",
            "85.8 / 84.6",
        )
    ),
    _ablation(
        Claim(
            "exponential and cumulative running statistics are alike",
            "gprebn:momentum=0.1",
            "gprebn",
            "alike",
            "90.6 / 90.5",
        )
    ),
)

METHODS = tuple(
    dict.fromkeys(word for each in CLAIMS for word in (each.claim.reference, each.claim.method))
)


def domains_claims_table(rows: Sequence[Row]) -> Table:
    """Every claim with our difference and a verdict, on the targets that both settings met."""
    every = at_selected(rows)
    rows, selected = with_trained_features(rows), with_trained_features(every)
    with_tent = {r.network for r in rows if r.method == "tent"}
    chosen: dict[Setting, list[Row]] = {
        "selected": selected,
        "tent's": at_tents([r for r in rows if r.network in with_tent]) if with_tent else [],
        "theta 1": at_theta_one(rows),
    }
    data = rows[0].cell.stream.data.name
    lines: list[tuple[str | float | None, ...]] = [
        _line(each, chosen, data, trainer)
        for trainer in dict.fromkeys(trainer_of(row) for row in rows)
        for each in CLAIMS
    ]
    for trainer in dict.fromkeys(trainer_of(row) for row in rows):
        lines += _where_tent_fails(every, trainer)
    if all(line[1] == "not measured" for line in lines):
        raise MixedRowsError(f"a claim compares two of {', '.join(METHODS)}; no network met two.")
    columns = (
        Column("claim"),
        Column("verdict", align="left"),  # early: the end of a wide table is out of sight
        Column("difference, 95 %"),
        Column("network", align="left"),
        Column("that is, in accuracy", align="left"),
        Column("ours", align="left"),
        Column("on", align="left"),
        Column("paper", align="left"),
    )
    note = f"{note_of(rows)} Paper: ResNet-50 at 224 px."
    return Table("What the paper claims about unseen domains", columns, tuple(lines), note)


def _line(
    each: DomainClaim, chosen: dict[Setting, list[Row]], data: str, trainer: Trainer
) -> tuple[str, ...]:
    """A claim as the table has it."""
    claim, paper = each.claim, _paper(each, data, trainer.printed)
    own, other = (
        [
            row
            for row in on_targets(chosen[setting])
            if row.method == method and trainer_of(row) == trainer
        ]
        for setting, method in (
            (each.setting, claim.method),
            (each.reference, claim.reference),
        )
    )
    both = {place_of(row) for row in own} & {place_of(row) for row in other}
    if not both:
        return claim.text, "not measured", "-", trainer.label, _words(each), "-", "-", paper
    own, other = ([row for row in side if place_of(row) in both] for side in (own, other))
    found, targets = change(own, other), targets_of(own)
    ours = " / ".join(f"{average(side, targets):.1f}" for side in (own, other))
    trials = len({trial_of(row) for row in own})
    met = f"{len(targets)} target(s), {trials} trial(s)"
    judged = _verdict(each, found, other, chosen)
    return claim.text, judged, interval_text(found), trainer.label, _words(each), ours, met, paper


def _verdict(
    each: DomainClaim, found: Interval, other: Sequence[Row], chosen: dict[Setting, list[Row]]
) -> str:
    """As of any claim; what theta 1 costs is asked only where its statistics are good."""
    if each.reference == "theta 1":
        places = {(place_of(row), trainer_of(row)) for row in other}
        source = [
            row
            for row in on_targets(chosen["selected"])
            if row.method == "source" and (place_of(row), trainer_of(row)) in places
        ]
        if len(source) == len(other) and change(other, source).high < 0:
            return "not testable here: target statistics do harm"
    return verdict(each.claim, found)


def _where_tent_fails(
    selected: Sequence[Row], trainer: Trainer
) -> Iterator[tuple[str | float | None, ...]]:
    """The paper's point about VLCS: which networks target statistics do not fit, and what then."""

    def rows_of(trained: Trainer, method: str) -> list[Row]:
        own = (row for row in on_targets(selected) if trainer_of(row) == trained)
        return [row for row in own if row.method == method]

    fixed = trainer._replace(features="fixed")
    pairs = {own: [rows_of(own, m) for m in ("tent", "source")] for own in (trainer, fixed)}
    if not all(pairs[trainer]):
        return
    tuned = change(*pairs[trainer])
    targets = targets_of(pairs[trainer][0])
    if all(pairs[fixed]):
        other = change(*pairs[fixed])
        fails = Claim("Tent fails on fine-tuned features", "tent", "source", "lower", "")
        holds = Claim("Tent does not fail on pre-trained ones", "tent", "source", "higher", "")
        yield (
            "Tent fails on fine-tuned features, not on pre-trained ones",
            joint_verdict([verdict(fails, tuned), verdict(holds, other)]),
            f"{interval_text(tuned)} against {interval_text(other)}",
            trainer.label,
            "tent lower than source with fine-tuned features, not with fixed ones",
            " and ".join(
                " / ".join(f"{average(side, targets):.1f}" for side in pairs[own])
                for own in (trainer, fixed)
            ),
            f"{len(targets)} target(s)",
            "57.8 / 77.5 and 74.2 / 70.0 (VLCS)",
        )
    ours = rows_of(trainer, "gprebn")
    if ours:
        gain, tents = change(ours, pairs[trainer][0]), pairs[trainer][0]
        claim = Claim("GpreBN holds where Tent fails", "gprebn", "tent", "higher", "")
        harmless = "not testable here: Tent does no harm"
        yield (
            claim.text,
            verdict(claim, gain) if tuned.high < 0 else harmless,
            interval_text(gain),
            trainer.label,
            "gprebn higher than tent where tent is lower than source",
            " / ".join(f"{average(side, targets):.1f}" for side in (ours, tents)),
            f"{len(targets)} target(s)",
            " / ".join(f"{ADAPTED['erm', m][SETS.index('VLCS')]:.1f}" for m in ("gprebn", "tent"))
            + " (VLCS)",
        )


def _words(each: DomainClaim) -> str:
    claim = each.claim
    at = {
        ("selected", "selected"): "",
        ("tent's", "tent's"): ", at Tent's setting",
        ("selected", "theta 1"): " at theta 1",
    }[each.setting, each.reference]
    if claim.expects == "alike":
        return f"{claim.method} within {claim.margin} of {claim.reference}{at}"
    return f"{claim.method} {claim.expects} than {claim.reference}{at}"


def _paper(each: DomainClaim, data: str, trainer: str) -> str:
    """The paper's two numbers for these networks, as far as it prints them."""
    if (data, trainer) == ("PACS", "erm"):
        return each.claim.paper
    pair = [ADAPTED.get((trainer, method)) for method in (each.claim.method, each.claim.reference)]
    if data not in SETS or each.reference != "selected" or None in pair:
        return "-"
    return " / ".join(f"{found[SETS.index(data)]:.1f}" for found in pair if found is not None)

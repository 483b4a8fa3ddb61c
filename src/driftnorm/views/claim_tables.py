"""The paper's claims beside rows: every claim with our difference and a verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from driftnorm._internal.counts import counted
from driftnorm.bench.cell import Trainer
from driftnorm.bench.metrics import Interval
from driftnorm.bench.rows import Row
from driftnorm.errors import MixedRowsError
from driftnorm.views.claims import (
    ABOUT_DOMAINS,
    ABOUT_ROBUSTNESS,
    Claim,
    Setting,
    claim_words,
    claimed_methods,
    joint_verdict,
    judge,
)
from driftnorm.views.compare import (
    change_of_error,
    change_text,
    check_protocol,
    check_some,
    check_streams,
    data_set,
    note_of,
    stream_of,
)
from driftnorm.views.domain_rows import (
    at_selected,
    at_tents,
    at_theta_one,
    average,
    change,
    change_over_trainings,
    interval_text,
    on_targets,
    place_of,
    published_set,
    targets_of,
    trainer_of,
    trial_of,
    with_trained_features,
)
from driftnorm.views.domain_rows import note_of as domain_note
from driftnorm.views.paper import ABLATION, ADAPTED, FINE_TUNED_DOMAINS, MEAN, SETS, SETTINGS
from driftnorm.views.table import Column, Table

Line = tuple[str | float | None, ...]
NOT_MEASURED = "not measured"
# The verdict comes early: the end of a wide table is out of sight.
_HEADS = (Column("claim"), Column("verdict", align="left"), Column("difference, 95 %"))

# ------------------------------------------------------------------ robustness


def claims_table(rows: Sequence[Row]) -> Table:
    """Claims about errors, each on the corrupted streams that both of its settings ran on."""
    check_some(rows)
    if len({row.network for row in rows}) > 1 or len({data_set([row]) for row in rows}) > 1:
        raise MixedRowsError(
            "claims are judged for one network and one data set at a time: give the rows of one, "
            "or choose with `--where model=...` or `--where data=...`."
        )
    sizes = sorted({row.cell.protocol.batch_size for row in rows})
    if len(sizes) > 1:
        raise MixedRowsError(
            f"claims are judged at one batch size, but these rows have {sizes}: give the rows of "
            "one of them."
        )
    printed = data_set(rows) == "cifar-10"
    lines = tuple(_line(claim, rows, printed) for claim in ABOUT_ROBUSTNESS)
    columns = (
        *_HEADS,
        Column("that is, in error", align="left"),
        Column("on", align="left"),
        Column("paper", align="left"),
    )
    note = f"{note_of(rows)} Paired bootstrap over images."
    if printed:
        note += " Paper: CIFAR-10-C, WRN-40-2 or WRN-28-10."
    return Table("What the paper claims and what we measured", columns, lines, note)


def _line(claim: Claim, rows: Sequence[Row], printed: bool) -> Line:
    own, words = _common(rows, claim), claim_words(claim)
    paper = _printed_errors(claim) if printed else "-"
    if not own:
        return claim.text, NOT_MEASURED, "-", words, "-", paper
    try:
        check_protocol(own)
        check_streams(own)
    except MixedRowsError as error:
        raise MixedRowsError(f"the claim {claim.text!r} cannot be judged: {error}") from error
    found = change_of_error(own, claim.method, claim.reference)
    streams = {stream_of(row) for row in own}
    severities = " ".join(map(str, sorted({row.severity for row in own})))
    source = [row for row in rows if row.method == "source" and stream_of(row) in streams]
    met = f"{counted(len(streams), 'stream')}, severity {severities}"
    return claim.text, judge(claim, found, source), change_text(found), words, met, paper


def _common(rows: Sequence[Row], claim: Claim) -> list[Row]:
    """Rows of both settings on the corrupted streams that both ran on."""
    both = [r for r in rows if r.severity and r.method in (claim.method, claim.reference)]
    met = [{stream_of(r) for r in both if r.method == m} for m in (claim.method, claim.reference)]
    return [row for row in both if stream_of(row) in met[0] & met[1]]


def _printed_errors(claim: Claim) -> str:
    """The paper's two numbers, of one network: that trained with AugMix, else the standard one."""
    trained = {method: pair[1] for method, pair in SETTINGS.items()} | MEAN["cifar-10"]
    standard = {method: pair[0] for method, pair in SETTINGS.items()}
    for known in (trained, standard):
        pair = [known.get(method) for method in (claim.method, claim.reference)]
        if None not in pair:
            return " / ".join(map(str, pair))
    return "not printed for CIFAR"


# ------------------------------------------------------------------ domains


def domains_claims_table(rows: Sequence[Row]) -> Table:
    """Claims about accuracies, each on the targets that both of its settings ran on."""
    every = at_selected(rows)
    rows, selected = with_trained_features(rows), with_trained_features(every)
    with_tent = {r.network for r in rows if r.method == "tent"}
    chosen: dict[Setting, list[Row]] = {
        "selected": selected,
        "tent's": at_tents([r for r in rows if r.network in with_tent]) if with_tent else [],
        "theta 1": at_theta_one(rows),
    }
    trainers = list(dict.fromkeys(trainer_of(row) for row in rows))
    lines = []
    for trainer in trainers:
        for claim in ABOUT_DOMAINS:
            line = _domain_line(claim, chosen, trainer)
            # The paper's ablations, at Tent's setting, are of ERM alone: others need not have them.
            if line[1] != NOT_MEASURED or claim.setting != "tent's" or trainer.printed == "erm":
                lines.append(line)
    for trainer in trainers:
        lines += _where_tent_fails(every, trainer)
    if all(line[1] == NOT_MEASURED for line in lines):
        known = ", ".join(claimed_methods(ABOUT_DOMAINS))
        raise MixedRowsError(
            f"a claim compares two of {known}; no network was run with two of them."
        )
    columns: tuple[Column, ...] = (
        *_HEADS,
        Column("network", align="left"),
        Column("that is, in accuracy", align="left"),
        Column("ours", align="left"),
        Column("on", align="left"),
        Column("paper", align="left"),
        Column("over trainings, 95 %"),
    )
    note = f"{domain_note(rows)} Paper: ResNet-50 at 224 px."
    if all(line[-1] is None for line in lines):
        columns, lines = columns[:-1], [line[:-1] for line in lines]
    else:
        note += (
            " Over trainings: Student's interval of the gains of single trainings, on the targets "
            "of which there are several."
        )
    return Table("What the paper claims about unseen domains", columns, tuple(lines), note)


def _rows_of(rows: Sequence[Row], trainer: Trainer, method: str) -> list[Row]:
    return [r for r in on_targets(rows) if r.method == method and trainer_of(r) == trainer]


def _domain_line(claim: Claim, chosen: Mapping[Setting, list[Row]], trainer: Trainer) -> Line:
    about, paper = claim_words(claim), _printed_accuracies(claim, chosen["selected"], trainer)
    own = _rows_of(chosen[claim.setting], trainer, claim.method)
    other = _rows_of(chosen[claim.against], trainer, claim.reference)
    both = {place_of(row) for row in own} & {place_of(row) for row in other}
    if not both:
        return claim.text, NOT_MEASURED, "-", trainer.label, about, "-", "-", paper, None
    own, other = ([row for row in side if place_of(row) in both] for side in (own, other))
    every = _rows_of(chosen["selected"], trainer, "source")
    source = [row for row in every if place_of(row) in both]
    found, targets = change(own, other), targets_of(own)
    judged = judge(claim, found, source)
    # The cost of theta is only judged where target statistics are good.
    if claim.against == "theta 1" and len(source) == len(other) and change(other, source).high < 0:
        judged = "not testable here: target statistics do harm"
    met = (
        f"{counted(len(targets), 'target')}, "
        f"{counted(len({trial_of(row) for row in own}), 'trial')}"
    )
    ours = _accuracies((own, other), targets)
    name, over = trainer.label, _over_trainings(own, other)
    return claim.text, judged, interval_text(found), name, about, ours, met, paper, over


def _over_trainings(own: Sequence[Row], other: Sequence[Row]) -> str | None:
    found = change_over_trainings(own, other)
    return None if found is None else interval_text(found)


def _accuracies(sides: Sequence[Sequence[Row]], targets: Sequence[str]) -> str:
    return " / ".join(f"{average(side, targets):.1f}" for side in sides)


def _where_tent_fails(selected: Sequence[Row], trainer: Trainer) -> Iterator[Line]:
    """The paper's point about VLCS: target statistics do not fit fine-tuned networks."""
    tents, source = (_rows_of(selected, trainer, method) for method in ("tent", "source"))
    if not tents or not source:
        return
    tuned, targets = change(tents, source), targets_of(tents)
    met = counted(len(targets), "target")
    fixed = trainer._replace(features="fixed")
    theirs = [_rows_of(selected, fixed, method) for method in ("tent", "source")]
    met_by = [{row.shift for row in on_targets(side)} for side in theirs]
    shared = [target for target in targets if all(target in found for found in met_by)]
    if shared:
        pair, theirs = (
            [[row for row in side if row.shift in shared] for side in sides]
            for sides in ((tents, source), theirs)
        )
        there, other = change(*pair), change(*theirs)
        fails = Claim("Tent fails on fine-tuned features", "tent", "source", "lower")
        holds = Claim("Tent does not fail on pre-trained ones", "tent", "source", "higher")
        printed = [
            f"{FINE_TUNED_DOMAINS[kind, 'target'][1]} / {FINE_TUNED_DOMAINS[kind, 'source'][0]}"
            for kind in ("fine-tuned", "pre-trained")
        ]
        yield (
            "Tent fails on fine-tuned features, not on pre-trained ones",
            joint_verdict([judge(fails, there, pair[1]), judge(holds, other, theirs[1])]),
            f"{interval_text(there)} against {interval_text(other)}",
            trainer.label,
            "tent lower than source with fine-tuned features, not with fixed ones",
            " and ".join(_accuracies(sides, shared) for sides in (pair, theirs)),
            counted(len(shared), "target"),
            f"{' and '.join(printed)} (VLCS)",
            None,
        )
    ours = _rows_of(selected, trainer, "gprebn")
    both = {place_of(row) for row in ours} & {place_of(row) for row in tents}
    if both:
        ours, tents = ([row for row in side if place_of(row) in both] for side in (ours, tents))
        targets = targets_of(ours)
        met = counted(len(targets), "target")
        claim = Claim("GpreBN holds where Tent fails", "gprebn", "tent", "higher")
        gain: Interval = change(ours, tents)
        harmless = "not testable here: Tent does no harm"
        printed = [f"{ADAPTED['erm', m][SETS.index('VLCS')]:.1f}" for m in ("gprebn", "tent")]
        yield (
            claim.text,
            judge(claim, gain, source) if tuned.high < 0 else harmless,
            interval_text(gain),
            trainer.label,
            "gprebn higher than tent where tent is lower than source",
            _accuracies((ours, tents), targets),
            met,
            f"{' / '.join(printed)} (VLCS)",
            _over_trainings(ours, tents),
        )


def _printed_accuracies(claim: Claim, rows: Sequence[Row], trainer: Trainer) -> str:
    """The paper's two numbers for these networks, as far as it prints them."""
    data = published_set(rows)
    pair = []
    for method, setting in ((claim.method, claim.setting), (claim.reference, claim.against)):
        found = ADAPTED.get((trainer.printed, method)) if setting == "selected" else None
        if found is not None and data in SETS:
            pair.append(found[SETS.index(data)])
        elif (data, trainer.printed) == ("PACS", "erm"):
            pair.append(ABLATION[method][-1])
    return " / ".join(f"{value:.1f}" for value in pair) if len(pair) == 2 else "-"

"""The paper's claims about unseen domains: which rows are compared, and what is made of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from made_cells import made_cell
from made_rows import made_row

from driftnorm.bench.metrics import pack_bits
from driftnorm.bench.rows import Row
from driftnorm.errors import MixedRowsError
from driftnorm.views.claim_tables import domains_claims_table
from driftnorm.views.claims import ABOUT_DOMAINS as CLAIMS
from driftnorm.views.claims import claimed_methods
from driftnorm.views.domain_rows import change, change_over_trainings
from driftnorm.views.domain_tables import DOMAIN_VIEWS, domains_table

TARGETS = ("art", "sketch")
Options = tuple[tuple[str, float], ...]
TENTS: Options = (("rho", 10), ("steps", 1))
THETA = (*TENTS, ("theta", 1.0))


def made(
    method: str,
    error: float,
    options: Options = (),
    validation: float = 0.1,
    algorithm: str = "erm",
    data: str = "PACS",
) -> list[Row]:
    """A setting's rows on validation and target, for networks of two targets."""
    return [
        made_row(
            method,
            shift,
            0,
            wrong,
            data=data,
            count=500,
            study="domains",
            model=f"{algorithm} -> {target}, trial 0@{target}",
            options=options,
        )
        for target in TARGETS
        for shift, wrong in (("photo/out", validation), (f"{target}/in", error))
    ]


def whole_study(**changes: Any) -> list[Row]:
    return [
        *made("source", 0.30, **changes),
        *made("bn", 0.28, **changes),
        *made("bn:running=True", 0.26, **changes),
        *made("tent", 0.20, TENTS, **changes),
        *made("tent", 0.90, (("rho", 1), ("steps", 1)), 0.2, **changes),  # not selected
        *made("tent:gradient=detached", 0.24, TENTS, **changes),
        *made("tent:gradient=detached,statistics=source", 0.33, TENTS, **changes),
        *made("gprebn:statistics=source", 0.36, TENTS, **changes),
        *made("gprebn", 0.22, (*TENTS, ("theta", 0.3)), 0.05, **changes),  # selected
        *made("gprebn", 0.18, THETA, **changes),  # what the ablation takes
        *made("gprebn:momentum=0.1", 0.18, TENTS, **changes),
        *made("gprebn+rt3a", 0.22, (*THETA, ("supports", 5)), **changes),
    ]


def verdicts(rows: list[Row]) -> dict[object, object]:
    return {line[0]: line[1] for line in domains_claims_table(rows).rows}


def test_verdicts_and_numbers() -> None:
    table = domains_claims_table(whole_study())
    by_claim = {line[0]: line for line in table.rows}
    found = verdicts(whole_study())
    assert found.pop("GpreBN holds where Tent fails") == "not testable here: Tent does no harm"
    assert found == {
        each.text: expected
        for each, expected in zip(
            CLAIMS,
            (
                "confirmed",  # Tent
                "confirmed",  # GpreBN
                "confirmed",  # target statistics
                "not confirmed",  # rT3A: no difference
                "confirmed",  # theta
                "confirmed",  # running without a step
                "confirmed",  # running with one
                "confirmed",  # preserved on batch statistics
                "contradicted",  # preserved on source statistics
                "confirmed",  # alike
            ),
            strict=True,
        )
    }
    helps = by_claim["GpreBN helps"]
    assert str(helps[2]).startswith("+8.0 [")
    assert helps[3:5] == ("erm", "gprebn higher than source")
    assert helps[5:8] == ("78.0 / 70.0", "2 targets, 1 trial", "88.9 / 84.7")
    theta = by_claim[CLAIMS[4].text]
    assert theta[5] == "78.0 / 82.0"  # the selected setting against theta 1
    assert theta[4] == "gprebn lower than gprebn at theta 1"


def test_what_was_not_run_is_not_measured() -> None:
    rows = [*made("source", 0.3), *made("gprebn", 0.2, THETA)]
    found = verdicts(rows)
    assert found.pop("GpreBN helps") == "confirmed"
    assert found.pop(CLAIMS[4].text) == "not confirmed"  # theta 1 was all there was
    assert set(found.values()) == {"not measured"}  # without tent, there is no setting of its
    validation = [row for row in rows if row.cell.stream.split == "out"]
    for nothing in (made("t3a", 0.1), validation, []):
        with pytest.raises(MixedRowsError):
            domains_claims_table(nothing)


def test_the_ablations_are_asked_of_plain_training_only() -> None:
    def few(**changes: Any) -> list[Row]:
        return [row for row in whole_study(**changes) if row.method in ("source", "gprebn", "tent")]

    lines = domains_claims_table([*few(), *few(algorithm="swad erm")]).rows
    missing = {(line[0], line[3]) for line in lines if line[1] == "not measured"}
    assert (CLAIMS[8].text, "erm") in missing
    assert (CLAIMS[8].text, "swad erm") not in {(line[0], line[3]) for line in lines}
    assert (CLAIMS[3].text, "swad erm") in missing  # the paper's main table has it


def test_a_target_that_is_not_finished_is_left_out() -> None:
    rows = whole_study()
    last = max(row.shift for row in rows)
    found = [r for r in rows if not (r.method == "gprebn" and r.shift == last)]
    lines = {line[0]: line for line in domains_claims_table(found).rows}
    assert lines["GpreBN holds where Tent fails"][6] == "1 target"


def test_other_networks_have_lines_of_their_own_and_the_papers_numbers_for_them() -> None:
    fixed = whole_study(algorithm="erm, fixed features")
    swad = whole_study(algorithm="swad erm")
    table = domains_claims_table([*whole_study(), *swad, *fixed])
    assert {line[3] for line in table.rows} == {"erm", "swad erm"}
    papers = {(line[0], line[3]): line[7] for line in table.rows}
    assert papers["Tent helps", "swad erm"] == "91.3 / 88.3"
    assert papers[CLAIMS[6].text, "swad erm"] == "-"
    vlcs = domains_claims_table(whole_study(data="VLCS"))
    assert next(line[7] for line in vlcs.rows if line[0] == "Tent helps") == "57.8 / 77.5"
    other = domains_claims_table(whole_study(data="mine"))
    assert {line[7] for line in other.rows} == {"-", "80.3 / 57.8 (VLCS)"}


@pytest.mark.parametrize(
    ("tuned", "fixed", "verdict"),
    [
        (0.5, 0.2, "confirmed"),
        (0.5, 0.4, "contradicted"),  # it fails on both: the second part is wrong
        (0.2, 0.2, "contradicted"),  # on neither: the first is
        (0.2, 0.6, "contradicted"),
        (0.5, 0.3, "not confirmed"),  # nothing shows that it does not fail on the second
        (0.3, 0.3, "not confirmed"),
    ],
)
def test_where_target_statistics_do_not_fit(tuned: float, fixed: float, verdict: str) -> None:
    rows = [
        *made("source", 0.30),
        *made("tent", tuned, TENTS),
        *made("gprebn", 0.29, THETA),
        *made("source", 0.30, algorithm="erm, fixed features"),
        *made("tent", fixed, TENTS, algorithm="erm, fixed features"),
    ]
    lines = {line[0]: line for line in domains_claims_table(rows).rows}
    told = lines["Tent fails on fine-tuned features, not on pre-trained ones"]
    assert told[1] == verdict
    accuracies = (100 - 100 * tuned, 70, 100 - 100 * fixed, 70)
    assert told[5] == "{:.1f} / {:.1f} and {:.1f} / {:.1f}".format(*accuracies)
    holds = lines["GpreBN holds where Tent fails"][1]
    assert holds == ("confirmed" if tuned == 0.5 else "not testable here: Tent does no harm")


def test_ones_own_data_are_not_set_beside_a_published_set() -> None:
    published = domains_table(whole_study())
    assert published.columns[-1].title == "paper's average"
    assert sum(str(line[0]).endswith("paper only") for line in published.rows) == 11
    resembling = [
        replace(row, metrics={**row.metrics, "note": "not PACS as published: missing: photo"})
        for row in whole_study()
    ]
    for own in (whole_study(data="mine"), resembling):
        table = domains_table(own)
        assert not any("paper" in column.title for column in table.columns)
        assert not any("paper" in str(line[0]) for line in table.rows)
        assert [line[:5] for line in table.rows] == [line[:5] for line in published.rows[:-11]]


def test_a_source_near_chance_proves_nothing() -> None:
    rows = [*made("source", 0.85), *made("tent", 0.5, TENTS), *made("gprebn", 0.4, THETA)]
    found = verdicts(rows)
    assert found["Tent helps"] == "not testable here: the source is near chance"
    assert found["GpreBN helps"] == "not testable here: the source is near chance"
    unknown = verdicts([*made("source", 0.85, data="mine"), *made("tent", 0.5, TENTS, data="mine")])
    assert unknown["Tent helps"] == "confirmed"  # nobody knows how many classes there are
    answers = [
        replace(row, metrics={**row.metrics, "answers": [0, 6, 3]})
        for row in (*made("source", 0.85, data="mine"), *made("tent", 0.5, TENTS, data="mine"))
    ]
    assert verdicts(answers)["Tent helps"] == "not testable here: the source is near chance"


def test_several_trials_share_images() -> None:
    rng = np.random.default_rng(0)

    def row(method: str, trial: int) -> Row:
        right = rng.random(400) < (0.7 if method == "source" else 0.75)
        model = f"erm -> art, trial {trial}@{trial}"
        cell = made_cell("domains", model, "art/in", 0, method, data="PACS", count=400)
        return Row(cell, {"error": 1 - right.mean(), "count": 400, "correct": pack_bits(right)})

    rows = {m: [row(m, trial) for trial in range(3)] for m in ("source", "tent")}
    alone = [change([t], [s]) for t, s in zip(rows["tent"], rows["source"], strict=True)]
    found = change(rows["tent"], rows["source"])
    # Four images in five are in the splits of both of two trials: more of them prove no more.
    assert found == pytest.approx(np.mean(alone, axis=0))


def test_the_papers_numbers_are_those_of_its_tables() -> None:
    printed = [line[7] for line in domains_claims_table(whole_study()).rows]
    assert printed == [
        *("90.2 / 84.7", "88.9 / 84.7", "85.6 / 84.7", "86.2 / 88.9", "88.9 / 90.5"),
        *("86.0 / 85.6", "90.5 / 90.2", "90.2 / 87.6", "85.8 / 84.6", "90.6 / 90.5"),
        "80.3 / 57.8 (VLCS)",
    ]
    methods = claimed_methods(CLAIMS)
    assert DOMAIN_VIEWS["domains-claims"].methods == methods
    assert len(methods) == 10


def test_orders_of_a_stream_are_not_counted_as_new_images() -> None:
    def row(method: str, right: list[bool], seed: int) -> Row:
        order = np.random.default_rng(seed).permutation(len(right))
        streamed = np.array(right)[order]
        how: dict[str, Any] = {"data": "PACS", "count": len(right), "order": "shuffled"}
        named = ("domains", "erm -> art, trial 0@1", "art/in", 0, method)
        cell = made_cell(*named, batch_size=8, seed=seed, **how)
        return Row(cell, {"error": 0.0, "count": len(right), "correct": pack_bits(streamed)})

    before, after = [False] * 40, [True] * 20 + [False] * 20
    once = change([row("bn", after, 0)], [row("source", before, 0)])
    often = change(
        [row("bn", after, seed) for seed in range(5)],
        [row("source", before, seed) for seed in range(5)],
    )
    assert once == pytest.approx(often)


def test_what_theta_costs_is_asked_only_where_target_statistics_are_good() -> None:
    rows = [
        *made("source", 0.3),
        *made("gprebn", 0.32, (*TENTS, ("theta", 0.3)), 0.05),  # selected
        *made("gprebn", 0.5, THETA),
    ]
    assert verdicts(rows)[CLAIMS[4].text] == "not testable here: target statistics do harm"


def test_targets_count_the_same_however_many_trials_they_were_run_in() -> None:
    def row(method: str, target: str, trial: int, right: int) -> Row:
        bits = np.arange(100) < right
        model = f"erm -> {target}, trial {trial}@{target}{trial}"
        cell = made_cell("domains", model, f"{target}/in", 0, method, data="PACS", count=100)
        return Row(cell, {"error": 1 - right / 100, "count": 100, "correct": pack_bits(bits)})

    # The gains: 10, 20 and 30 points on art, 2 on sketch, of which there is one trial.
    gains = {("art", 0): 10, ("art", 1): 20, ("art", 2): 30, ("sketch", 0): 2}
    source = [row("source", *place, 50) for place in gains]
    tent = [row("tent", *place, 50 + gain) for place, gain in gains.items()]
    assert change(tent, source).value == pytest.approx((20 + 2) / 2)
    over = change_over_trainings(tent, source)
    assert over is not None  # on art alone; 4.303 standard errors for three runs
    half = 4.303 * 10 / np.sqrt(3)
    assert over == pytest.approx((20, 20 - half, 20 + half))
    assert change_over_trainings(tent[:1], source) is None
    assert change_over_trainings([tent[1], tent[3]], source) is None  # no target in both trials
    table = domains_claims_table([*source, *tent])
    assert table.columns[-1].title == "over trainings, 95 %"
    assert {line[0]: line[-1] for line in table.rows}["Tent helps"] == "+20.0 [-4.8, +44.8]"
    assert len(domains_claims_table([source[0], tent[0]]).columns) == len(table.columns) - 1


def test_fixed_features_are_compared_on_the_targets_of_both() -> None:
    theirs = [
        *made("source", 0.30, algorithm="erm, fixed features"),
        *made("tent", 0.25, TENTS, algorithm="erm, fixed features"),
    ]
    of_art = [row for row in theirs if "-> art" in row.network]
    assert len(of_art) == len(theirs) // 2
    ours = [*made("source", 0.30), *made("tent", 0.40, TENTS)]
    name = "Tent fails on fine-tuned features, not on pre-trained ones"
    (line,) = (line for line in domains_claims_table([*ours, *of_art]).rows if line[0] == name)
    assert line[1] == "confirmed"
    assert "1 target" in line
    assert "60.0 / 70.0 and 75.0 / 70.0" in line

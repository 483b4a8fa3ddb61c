"""What tables of the domain study must not put together, or must not be made from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from made_rows import made_row
from tinted import SIDE, driftnorm, make_domains, plan

from driftnorm._internal.training_files import BEST, HISTORY, SWAD_FILE
from driftnorm.bench.rows import Row, RowStore
from driftnorm.bench.runner import run
from driftnorm.bench.selection import select_setting
from driftnorm.bench.studies.domains import DomainStudy, read_trained
from driftnorm.errors import MixedRowsError
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.named import open_arrays
from driftnorm.views.domain_rows import of_target
from driftnorm.views.domain_tables import domains_ablation_table, domains_table
from driftnorm.views.trainings import selected_networks

TENTS = (("rho", 10), ("steps", 1))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("mixing")
    make_domains(root / "data")
    return root


@pytest.fixture(scope="module")
def arrays(root: Path) -> DomainArrays:
    return open_arrays(str(root / "data"), SIDE, str(root / "cache"))


def rows_of(
    network: str = "erm -> t, trial 0, net at 8 px, frozen BN@aa",
    error: float = 0.3,
    method: str = "tent",
    seed: int = 0,
) -> list[Row]:
    return [
        made_row(method, shift, 0, wrong, model=network, seed=seed, options=TENTS, count=100)
        for shift, wrong in (("a/out", 0.1), ("t/in", error))
    ]


def test_algorithms_have_ablations_of_their_own() -> None:
    rows = [
        *rows_of(),
        *rows_of(method="gprebn:momentum=0.1", error=0.2),
        *rows_of("swad erm -> t, trial 0, net at 8 px, frozen BN@bb", 0.5),
        *rows_of("erm, fixed features -> t, trial 0, net at 8 px, frozen BN@cc", 0.9),
    ]
    averages = {line[0]: line[2] for line in domains_ablation_table(rows).rows}
    expected = {"erm + tent": 70, "erm + gprebn:momentum=0.1": 80, "swad erm + tent": 50}
    assert averages == pytest.approx(expected)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ("erm -> t, trial 0, net at 8 px, frozen BN@bb", "two networks of one trial"),
        ("erm -> u, trial 0, net at 9 px, frozen BN@bb", "networks of two kinds"),
        ("erm -> t, trial 1, net at 8 px, trained BN@bb", "networks of two kinds"),
    ],
)
def test_networks_are_no_trials(other: str, words: str) -> None:
    for table in (domains_table, domains_ablation_table):
        with pytest.raises(MixedRowsError, match=words):
            table([*rows_of(), *rows_of(other)])


def test_orders_of_a_stream_are_no_trials() -> None:
    orders = [row for seed in range(3) for row in rows_of(error=0.1 * (seed + 1), seed=seed)]
    assert of_target(orders, "t") == pytest.approx([80])
    trial = rows_of("erm -> t, trial 1, net at 8 px, frozen BN@bb", 0.4)
    assert of_target([*orders, *trial], "t") == pytest.approx([80, 60])
    assert domains_table(orders).rows[0][1] == "80.0"


def test_nothing_is_selected_on_a_part_of_validation() -> None:
    def row(supports: int, shift: str, error: float) -> Row:
        return made_row("t3a", shift, 0, error, options=(("supports", supports),))

    whole = [row(1, "a/out", 0.1), row(1, "b/out", 0.3), row(5, "a/out", 0.05)]
    with pytest.raises(MixedRowsError, match=r"t3a at {'supports': 5} was validated on 1 of 2"):
        select_setting(whole)
    with pytest.raises(MixedRowsError, match="on 0 of 0 streams"):
        select_setting([row(1, "t/in", 0.1), row(5, "t/in", 0.2)])
    chosen = select_setting([*whole, row(5, "b/out", 0.4)])
    assert {each.cell.method.settings for each in chosen} == {(("supports", 1),)}
    assert select_setting([row(1, "t/in", 0.1)])  # the only one needs no validation


@pytest.mark.filterwarnings("ignore:SWAD")
def test_of_a_sweep_the_networks_selected_by_validation(
    arrays: DomainArrays, tmp_path: Path
) -> None:
    short = plan(steps=2, evaluate_every=2)
    scores = {}
    for lr in (1e-3, 2e-2):
        outcome = replace(short, lr=lr).run(arrays, tmp_path / str(lr))
        scores[lr] = max(record["validation"] for record in outcome.history)
    replace(short, swad=True).run(arrays, tmp_path / "swad")
    replace(short, test_domains=("red", "blue")).run(arrays, tmp_path / "pair")
    replace(short, test_domains=("blue",)).run(arrays, tmp_path / "unfinished")
    (tmp_path / "unfinished" / HISTORY).unlink()
    best = max(scores, key=lambda lr: (scores[lr], -lr))
    expected = {tmp_path / str(best) / BEST, tmp_path / "swad" / SWAD_FILE}
    found = selected_networks(tmp_path)
    assert set(found) == expected or scores[1e-3] == scores[2e-2]
    renamed = (tmp_path / "swad" / SWAD_FILE).rename(tmp_path / "mine.safetensors")
    assert read_trained(str(renamed)).label.startswith("swad erm -> red, trial 0, mnist-bn at 12")


def test_a_network_that_draws_random_numbers_gives_the_same_rows(
    root: Path, arrays: DomainArrays, tmp_path: Path
) -> None:
    options = (("reading", "domainbed"),)
    plan(algorithm="mtl", options=options).run(arrays, tmp_path / "mtl")
    study = DomainStudy(
        str(root / "data"),
        (str(tmp_path / "mtl" / BEST),),
        ("source",),
        batch_size=8,
        cache=str(root / "cache"),
    )
    runs = [[*run(study, RowStore(tmp_path / name))] for name in ("one", "two")]
    found = [[r.metrics["nll"] for r in run if isinstance(r, Row)] for run in runs]
    assert found[0] == found[1]


def test_a_limit_is_that_of_every_stream(root: Path, arrays: DomainArrays, tmp_path: Path) -> None:
    plan().run(arrays, tmp_path / "erm")
    study = DomainStudy(
        str(root / "data"),
        (str(tmp_path / "erm" / BEST),),
        ("source",),
        batch_size=8,
        limit=3,
        cache=str(root / "cache"),
    )
    rows = [each for each in run(study, RowStore(tmp_path / "rows")) if isinstance(each, Row)]
    assert len({row.cell.stream.label for row in rows}) > 1  # the target, and validation
    assert {row.metrics["count"] for row in rows} == {3}


@pytest.mark.parametrize("name", ["limit", "batch_size"])
def test_impossible_studies(name: str) -> None:
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got 0"):
        replace(DomainStudy("data", (), ()), **{name: 0})


def test_a_plan_for_a_network_without_batch_norm(
    root: Path, arrays: DomainArrays, tmp_path: Path
) -> None:
    plan(backbone="mnist-gn").run(arrays, tmp_path / "gn")
    command = ["bench", "domains", "--data", root / "data", "--cache", root / "cache"]
    command += ["--models", tmp_path / "gn", "--out", tmp_path / "rows", "--dry-run"]
    planned = driftnorm(*command, "--methods", "source", "tent", "pl-c", "--grid", "single")
    assert planned.returncode == 0, planned.stderr
    assert "cells to run" in planned.stdout
    bad = driftnorm(*command, "--workers", 0)
    assert bad.returncode == 2
    assert "`workers` must be at least 1, got 0" in bad.stderr

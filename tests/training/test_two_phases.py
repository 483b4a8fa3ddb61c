"""Measuring on the target only what a table shows: fewer cells, the same tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from made_cells import with_stream
from made_rows import made_row
from tinted import SIDE, driftnorm, first_one_dies, make_domains, plan

from driftnorm._internal.processes import WORKER_DIED
from driftnorm._internal.training_files import BEST
from driftnorm.bench.cell import Shift
from driftnorm.bench.rows import Failure, Row, RowStore
from driftnorm.bench.runner import run
from driftnorm.bench.selection import agrees, most_settings, select_setting, shown_cells
from driftnorm.bench.studies import domains
from driftnorm.bench.studies.domain_grids import settings_of
from driftnorm.bench.studies.domains import DomainStudy
from driftnorm.bench.vocabulary import ABLATIONS
from driftnorm.images.domains import domain_arrays
from driftnorm.images.domains.named import open_arrays
from driftnorm.images.domains.splits import split_domain
from driftnorm.methods.spec import parse_method
from driftnorm.views.compare import in_order
from driftnorm.views.domain_tables import domains_ablation_table, domains_table

METHODS = ("source", "tent", "t3a", "gprebn", "bn:running=True")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> DomainStudy:
    """Of two networks with different targets."""
    root = tmp_path_factory.mktemp("study")
    data, cache = make_domains(root / "data"), str(root / "cache")
    arrays = open_arrays(str(data), SIDE, cache)
    models = []
    for target in ("red", "blue"):
        plan(test_domains=(target,), steps=20, evaluate_every=20).run(arrays, root / target)
        models.append(str(root / target / BEST))
    return DomainStudy(str(data), tuple(models), METHODS, "short", batch_size=8, cache=cache)


def test_tables_are_those_of_all_settings(study: DomainStudy, tmp_path: Path) -> None:
    every, some = RowStore(tmp_path / "all"), RowStore(tmp_path / "selected")
    two_phases = replace(study, targets="selected")
    assert two_phases.cells() == study.cells()
    assert study.outlook(every).exact
    assert len(study.outlook(every).cells) == len(study.cells())
    assert not two_phases.outlook(some).exact
    bound = len(two_phases.outlook(some).cells)
    for own, store in ((study, every), (two_phases, some)):
        assert all(isinstance(result, Row) for result in run(own, store))
        assert own.outlook(store).cells == []
        assert list(run(own, store)) == []
    measured = list(some.rows())
    assert len(measured) <= bound < len(study.cells())
    on_target = [row for row in measured if row.cell.stream.split == "in"]
    assert len([row for row in on_target if row.method == "t3a"]) == 2  # one a network
    assert two_phases.outlook(some).exact
    for make in (domains_table, domains_ablation_table):
        assert make(in_order(measured, METHODS)) == make(in_order([*every.rows()], METHODS))


def test_a_method_is_parsed_and_a_split_computed_once(
    study: DomainStudy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, split = Mock(wraps=parse_method), Mock(wraps=split_domain)
    monkeypatch.setattr(domains, "parse_method", parse)
    monkeypatch.setattr(domain_arrays, "split_domain", split)
    fresh = replace(study, targets="selected")
    fresh.cells()
    fresh.outlook(RowStore(tmp_path))
    assert [call.args for call in parse.call_args_list] == [(method,) for method in METHODS]
    assert split.call_count == 6  # streams: three of each network


def test_a_changed_choice_is_measured_too(study: DomainStudy, tmp_path: Path) -> None:
    one = replace(study, models=study.models[:1], methods=("tent",), targets="selected")
    store = RowStore(tmp_path)
    rows = [result for result in run(one, store) if isinstance(result, Row)]
    (chosen,) = {row.cell.method.settings for row in rows if row.cell.stream.split == "in"}
    for row in rows:  # as if the other setting had been the better one
        better = row.cell.method.settings != chosen
        if row.cell.stream.split == "out":
            store.write(replace(row, metrics={**row.metrics, "error": 0.0 if better else 0.5}))
    (added,) = run(one, store)
    assert added.cell.method.settings != chosen
    assert added.cell.stream.label == "red/in"


def test_a_cell_whose_process_dies_does_not_stop_the_others(
    study: DomainStudy, tmp_path: Path
) -> None:
    one = replace(study, models=study.models[:1], methods=("source", "bn"))
    store = RowStore(tmp_path)
    first, second, *others = run(one, store, first_one_dies, 2)
    for failed in (first, second):  # both methods of one stream
        assert isinstance(failed, Failure)
        assert failed.error == WORKER_DIED
    lost = {first.cell, second.cell}
    assert {kept.cell for kept in store.failures()} == lost
    assert len(others) == len(one.cells()) - 2
    assert all(isinstance(result, Row) for result in others)
    assert {result.cell for result in run(one, store)} == lost
    assert not [*store.failures()]


def test_which_cells_are_shown() -> None:
    def rows(method: str, errors: dict[tuple[tuple[str, float], ...], float]) -> list[Row]:
        return [
            made_row(method, "a/out", 0, error, options=options)
            for options, error in errors.items()
        ]

    slow, fast = (("rho", 1), ("steps", 1)), (("rho", 10), ("steps", 1))
    mixed = [(*own, ("theta", theta)) for own in (slow, fast) for theta in (0.3, 1.0)]
    validation = [
        *rows("tent", {slow: 0.2, fast: 0.1}),
        *rows("gprebn", dict(zip(mixed, (0.1, 0.3, 0.2, 0.2), strict=True))),
        *rows("t3a", {(("supports", 1),): 0.1, (("supports", 5),): 0.2}),
    ]
    cells = [with_stream(r, shifts=(Shift("t"),), split="in").cell for r in validation]
    shown = {(cell.method.word, cell.method.settings) for cell in shown_cells(cells, validation)}
    assert shown == {
        ("tent", fast),
        ("gprebn", (*slow, ("theta", 0.3))),  # its own
        ("gprebn", (*fast, ("theta", 1.0))),  # the ablation's, and the best at theta 1
        ("t3a", (("supports", 1),)),
    }
    without = [row for row in validation if row.method != "tent"]
    assert len(shown_cells(cells, without)) == 3
    assert shown_cells(cells, []) == []
    # A setting that was not validated everywhere decides nothing: its method has to wait.
    broken = [*validation, made_row("t3a", "b/out", 0, 0.0, options=(("supports", 5),))]
    assert {cell.method.word for cell in shown_cells(cells, broken)} == {"tent", "gprebn"}


def test_ties_go_to_the_smaller_values_in_any_order() -> None:
    made = [
        made_row("t3a", shift, 0, error, options=(("supports", supports),))
        for supports in (-1, 5, 20)
        for shift, error in (("a/out", 0.1), ("b/out", 0.2), ("c/out", 0.7))
    ]
    for rows in (made, made[::-1], [made[1], made[0], *made[2:]]):
        assert {row.cell.method.settings for row in select_setting(rows)} == {(("supports", 5),)}


def test_bounds() -> None:
    tents = settings_of("tent")
    for method in ABLATIONS:
        settings = settings_of(method)
        most = most_settings(method, settings, tents)
        agreeing = max(sum(agrees(own, each) for own in settings) for each in tents)
        assert agreeing <= most <= len(settings)
        usual = 1 if method == "tent" else 3 if method == "gprebn" else 2
        assert most == min(len(settings), usual)
    assert most_settings("t3a", settings_of("t3a"), tents) == 1
    assert most_settings("gprebn", settings_of("gprebn"), ()) == 2
    with pytest.raises(ValueError, match="`targets` must be one of"):
        DomainStudy("data", (), (), targets="some")  # type: ignore[arg-type]


def test_command_says_that_the_count_is_a_bound(study: DomainStudy, tmp_path: Path) -> None:
    command = ["bench", "domains", "--data", study.data, "--models", *study.models]
    command += ["--methods", "source", "tent", "--grid", "short", "--batch-size", "8"]
    command += ["--cache", str(study.cache), "--out", str(tmp_path), "--targets", "selected"]
    planned = driftnorm(*command, "--dry-run", "--workers", 1)
    assert planned.returncode == 0, planned.stderr
    assert "at most 16 cells to run" in planned.stdout  # 4 x (1 + 2) validation, 2 x (1 + 1)

"""Training on domains: one run, resumed and killed, its files, selection, the study, its tables."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_cells import made_cell, with_model
from safetensors.torch import load_file
from tinted import SIDE, make_domains, plan
from torch import nn

import driftnorm
from driftnorm._internal.files import exclusive
from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.training_files import BEST, HISTORY, LAST, SWAD_FILE
from driftnorm.bench.rows import Failure, Row, RowStore
from driftnorm.bench.runner import run
from driftnorm.bench.selection import (
    leave_one_out,
    oracle,
    select_setting,
    training_validation,
)
from driftnorm.bench.studies.domain_grids import settings_of
from driftnorm.bench.studies.domains import DomainStudy, read_trained
from driftnorm.bench.vocabulary import ABLATIONS, MAIN
from driftnorm.cli.train_domains import train_domains
from driftnorm.errors import BusyError, MixedRowsError
from driftnorm.images.domains.named import open_arrays
from driftnorm.methods.spec import parse_method
from driftnorm.models import build
from driftnorm.models.checkpoint_files import facts_in
from driftnorm.training.domains.algorithms import ALGORITHMS, find_algorithm
from driftnorm.training.domains.domain_run import DomainRun
from driftnorm.training.domains.domain_training import DomainTraining
from driftnorm.training.domains.hparams import random_hparams
from driftnorm.training.domains.plans import PlanOptions
from driftnorm.training.loop import Hooks, LoopSettings
from driftnorm.views.compare import in_order
from driftnorm.views.domain_tables import domains_ablation_table, domains_table

DRIFTNORM = [sys.executable, "-c", "from driftnorm.cli import main; main()"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_domains(tmp_path_factory.mktemp("stripes"))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


def same_weights(one: Path, other: Path) -> bool:
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


def test_a_run_leaves_networks_that_describe_themselves(
    folder: Path, cache: str, tmp_path: Path
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    outcome = plan().run(arrays, tmp_path / "run")
    assert outcome.stop == "finished"
    assert [record["step"] for record in outcome.history] == [1, 4, 6]
    for record in outcome.history:
        mean = (record["blue out"] + record["green out"]) / 2
        assert record["validation"] == pytest.approx(mean)
    assert [path.name for path in outcome.files] == [BEST, LAST]
    trained = read_trained(str(tmp_path / "run" / BEST))
    assert trained.trained_on == ("blue", "green")
    assert trained.test_domains == ("red",)
    assert trained.content == arrays.content
    answers = driftnorm.adapt(trained.network(), "gprebn")(torch.rand(8, 3, SIDE, SIDE))
    assert answers.shape == (8, 2)
    again = plan().run(arrays, tmp_path / "run")  # done is done
    assert again.history == outcome.history
    with pytest.raises(ValueError, match="another run: there `lr`"):
        plan(lr=1e-2).run(arrays, tmp_path / "run")


@pytest.mark.parametrize("algorithm", ["erm", "irm", "sagnet"])
def test_an_interrupted_run_ends_with_the_same_bits(
    algorithm: str, folder: Path, cache: str, tmp_path: Path
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    whole = plan(algorithm=algorithm).run(arrays, tmp_path / "whole")
    parts = tmp_path / "parts"
    first = plan(algorithm=algorithm).run(
        arrays, parts, budget_seconds=1e-9, checkpoint_seconds=1e-9
    )
    assert first.stop == "budget"
    assert first.step == 1
    second = plan(algorithm=algorithm).run(arrays, parts, checkpoint_seconds=1e-9)
    drop = [{k: v for k, v in r.items() if k != "seconds"} for r in second.history]
    assert drop == [{k: v for k, v in r.items() if k != "seconds"} for r in whole.history]
    for name in (BEST, LAST):
        assert same_weights(tmp_path / "whole" / name, parts / name)


def test_one_process_at_a_time_trains_into_a_folder(
    folder: Path, cache: str, tmp_path: Path
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    with (
        exclusive(tmp_path / ".lock", "busy"),
        pytest.raises(BusyError, match="Another process trains into"),
    ):
        plan().run(arrays, tmp_path)
    outcome = plan().run(arrays, tmp_path)
    assert not outcome.earlier
    assert plan().run(arrays, tmp_path) == replace(outcome, earlier=True)


def test_networks_and_batches_are_on_the_device(folder: Path, cache: str, tmp_path: Path) -> None:
    # "meta" holds shapes and no numbers: whatever is made elsewhere would not go with it.
    arrays = open_arrays(str(folder), SIDE, cache)
    run = DomainRun(plan(device="meta", algorithm="mtl"), arrays, tmp_path)
    work = run.run().begin()
    tensors = [*work.state.module.parameters(), *work.state.module.buffers()]
    for own in work.source(0).minibatches:
        tensors += [own.images, own.labels]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    placed: list[torch.device] = []
    network = nn.Flatten()
    network.register_forward_pre_hook(lambda _, inputs: placed.append(inputs[0].device))
    with pytest.raises(RuntimeError, match="meta"):  # numbers cannot be had from there
        run._measured(network)
    assert {device.type for device in placed} == {"meta"}
    # Where it is computed does not make another run.
    assert plan(device="meta").identity(arrays) == plan().identity(arrays)


def test_the_command_passes_its_device_on(
    folder: Path, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[str] = []

    def note(self: DomainTraining, *_: object, **__: object) -> None:
        devices.append(self.device)
        raise KeyboardInterrupt

    monkeypatch.setattr(DomainTraining, "run", note)
    options = PlanOptions(str(folder), backbone="mnist-bn", batch_norm="trained", device="cpu:0")
    with pytest.raises(KeyboardInterrupt):
        train_domains(training=options, test_domains=["red"], size=SIDE, cache=cache, out=tmp_path)
    assert devices == ["cpu:0"]
    with pytest.raises(ValueError, match="`--device` must be one that this machine has"):
        train_domains(training=replace(options, device="abacus"), test_domains=["red"])


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_algorithm_trains_and_adapts(
    algorithm: str, folder: Path, cache: str, tmp_path: Path
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    outcome = plan(algorithm=algorithm, steps=2, evaluate_every=2).run(arrays, tmp_path)
    trained = read_trained(str(outcome.files[0]))
    assert trained.algorithm == algorithm
    for method in ("tent", "gprebn+rt3a", "shot"):
        adapter = driftnorm.adapt(trained.network(), method)
        assert torch.isfinite(adapter(torch.rand(8, 3, SIDE, SIDE))).all()


def test_sagnet_trains_a_network_with_group_norm(folder: Path, cache: str, tmp_path: Path) -> None:
    # In a process of its own: torch's kernel used to end it.
    command = [*DRIFTNORM, "train", "domains", "--data", str(folder), "--test-domains", "red"]
    command += ["--algorithm", "sagnet", "--backbone", "mnist-gn", "--batch-norm", "trained"]
    command += ["--steps", "2", "--batch-size", "4", "--size", "16", "--cache", cache]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_swad_keeps_its_average_beside_the_best(folder: Path, cache: str, tmp_path: Path) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    outcome = plan(swad=True, steps=8, evaluate_every=1, batch_norm="frozen").run(arrays, tmp_path)
    assert {path.name for path in outcome.files} == {BEST, LAST, SWAD_FILE}
    assert read_trained(str(tmp_path / SWAD_FILE)).label.startswith("swad erm -> red")
    assert not same_weights(tmp_path / SWAD_FILE, tmp_path / LAST)


@pytest.mark.filterwarnings("ignore:SWAD")
def test_swads_own_options(folder: Path, cache: str, tmp_path: Path) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    asked = PlanOptions("rotated-mnist:x").plan("swad", ["red"], settings=[("count_twice", True)])
    assert asked.split_options() == ({}, {"count_twice": True})
    options = PlanOptions("data/pictures", weights="w.safetensors")
    vlcs = options.plan("swad", ["SUN09"], data_name="VLCS")
    assert (vlcs.evaluate_every, vlcs.split_options()[1]) == (50, {"tolerance_ratio": 0.2})
    assert options.plan("erm", ["SUN09"], data_name="VLCS").evaluate_every == 300
    assert options.plan("swad", ["sketch"], data_name="PACS").evaluate_every == 100
    runs = [
        plan(swad=True, steps=12, evaluate_every=1, options=options).run(arrays, tmp_path / name)
        for name, options in (("once", ()), ("twice", (("count_twice", True),)))
    ]
    assert not same_weights(*(run.files[0].with_name(SWAD_FILE) for run in runs))
    with pytest.raises(ValueError, match="erm has no hyper-parameter `count_twice`; its own: none"):
        plan(options=(("count_twice", True),))


@pytest.mark.filterwarnings("ignore:SWAD")
def test_swad_out_of_time_before_its_first_segment(
    folder: Path, cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    monkeypatch.setattr(LoopSettings, "records", lambda *_: False)
    out_of_time = plan(swad=True).run(arrays, tmp_path, budget_seconds=1e-9)
    assert out_of_time.stop == "budget"
    assert [path.name for path in out_of_time.files] == [LAST]
    monkeypatch.undo()
    assert SWAD_FILE in [path.name for path in plan(swad=True).run(arrays, tmp_path).files]


def test_a_run_goes_on_with_the_same_images_and_weights_only(
    folder: Path, cache: str, tmp_path: Path
) -> None:
    small, large = (open_arrays(str(folder), side, cache) for side in (SIDE, SIDE + 4))
    plan().run(small, tmp_path / "size", budget_seconds=1e-9)
    with pytest.raises(ValueError, match="another run: there `image_shape`"):
        plan().run(large, tmp_path / "size")
    for place, seed in (("one", 1), ("other", 2)):
        (tmp_path / place).mkdir()
        torch.manual_seed(seed)
        network = build("mnist-bn", num_classes=2, in_channels=3)
        torch.save(network.state_dict(), tmp_path / place / "w.pt")
    first, second = (plan(weights=str(tmp_path / p / "w.pt")) for p in ("one", "other"))
    first.run(small, tmp_path / "weights", budget_seconds=1e-9)
    with pytest.raises(ValueError, match="another run: there `weights`"):
        second.run(small, tmp_path / "weights")


def test_zero_is_not_the_default() -> None:
    for name in ("steps", "batch_size", "learning_rate", "evaluate_every", "evaluate_images"):
        with pytest.raises(ValueError, match="must be positive, got 0"):
            PlanOptions("data", **{name: 0}).plan("erm", ["red"])


def test_defaults_that_keep_statistics_need_some() -> None:
    for options in ({}, {"batch_norm": "frozen", "features": "fixed"}):
        with pytest.raises(ValueError, match="`--weights` must name pre-trained weights"):
            PlanOptions("data", **options).plan("erm", ["red"])
    assert PlanOptions("data", batch_norm="trained").plan("erm", ["red"]).weights is None


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (("batch_size", "abc"), "`batch_size` must be a whole number, got 'abc'"),
        (("lr", "fast"), "`lr` must be a number, got 'fast'"),
    ],
)
def test_hyper_parameters_that_are_no_numbers(setting: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanOptions("rotated-mnist:x").plan("erm", ["0"], settings=[setting])


@pytest.mark.parametrize(
    ("algorithm", "setting", "message"),
    [
        ("mmd", ("gamma", "abc"), "`gamma` must be a number, got 'abc'"),
        ("irm", ("anneal_steps", 1.5), "`anneal_steps` must be a whole number, got 1.5"),
    ],
)
def test_algorithms_own_that_are_no_numbers(
    algorithm: str,
    setting: tuple[str, object],
    message: str,
    folder: Path,
    cache: str,
    tmp_path: Path,
) -> None:
    began = []
    arrays = open_arrays(str(folder), SIDE, cache)
    with pytest.raises(ValueError, match=message):
        plan(algorithm=algorithm, options=(setting,)).run(
            arrays, tmp_path / "run", on_begin=lambda: began.append(1)
        )
    assert not began
    assert not (tmp_path / "run").exists()


def test_domains_are_named_once_and_trials_counted_from_zero() -> None:
    with pytest.raises(ValueError, match="must name each domain once, got red, red"):
        plan(test_domains=("red", "red"))
    with pytest.raises(ValueError, match="`trial_seed` must be at least 0, got -1"):
        plan(trial_seed=-1)


def test_weights_that_saw_the_target(folder: Path, cache: str, tmp_path: Path) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    plan(test_domains=("red",), steps=1).run(arrays, tmp_path / "first")
    weights = str(tmp_path / "first" / LAST)
    with pytest.raises(ValueError, match=r"was trained on blue of stripes\d*, which would"):
        plan(test_domains=("blue",), weights=weights).run(arrays, tmp_path / "second")
    plan(test_domains=("red",), weights=weights, steps=1).run(arrays, tmp_path / "second")


def test_files_tell_their_own_validation(folder: Path, cache: str, tmp_path: Path) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    plan(swad=True, steps=12, evaluate_every=1).run(arrays, tmp_path / "swad")
    kept = json.loads((tmp_path / "swad" / HISTORY).read_text())
    told = {name: facts_in(tmp_path / "swad" / name)["validation"] for name in (SWAD_FILE, LAST)}
    assert told == {
        SWAD_FILE: kept["averaged"]["validation"],
        LAST: kept["history"][-1]["validation"],
    }
    seen = plan(steps=12, evaluate_every=5).run(arrays, tmp_path / "short", budget_seconds=1e-9)
    assert seen.stop == "budget"
    last = seen.history[-1] if seen.history else {"step": -1}
    own = facts_in(tmp_path / "short" / LAST)["validation"]
    assert own == (last["validation"] if last["step"] == seen.step else None)


def test_dropout_is_drawn_for_digits_and_not_used() -> None:
    draws = [PlanOptions("rotated-mnist:x").plan("erm", ["0"], hparams_seed=s) for s in range(8)]
    assert {each.dropout for each in draws} == {0.0}
    drawn = {random_hparams("erm", True, seed, 0)["dropout"] for seed in range(8)}
    assert len(drawn) > 1


def test_bad_plans_are_refused_before_any_hour_is_spent(
    folder: Path, cache: str, tmp_path: Path
) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    with pytest.raises(ValueError, match="has the domains blue, green, red; got 'rde'"):
        plan(test_domains=("rde",)).run(arrays, tmp_path)
    with pytest.raises(ValueError, match="must leave some of the 3 domains"):
        plan(test_domains=("blue", "green", "red")).run(arrays, tmp_path)
    with pytest.raises(ValueError, match="Did you mean 'groupdro'"):
        find_algorithm("gropdro")


KILLED = """
import sys
from pathlib import Path
import torch
from tinted import SIDE, plan
from driftnorm.images.domains.named import open_arrays
from driftnorm.training import Hooks

torch.set_num_threads(1)
arrays = open_arrays(sys.argv[1], SIDE, sys.argv[2])
told = Hooks(on_checkpoint=lambda progress: print(progress.step, flush=True))
plan(steps=120, evaluate_every=50).run(
    arrays, Path(sys.argv[3]), checkpoint_seconds=1e-3, hooks=told
)
"""


def test_a_killed_process_goes_on_in_the_middle(folder: Path, cache: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(folder), cache]
    running = subprocess.Popen(
        [*command, str(tmp_path / "killed")],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    assert running.stdout is not None
    with running.stdout as told:
        next(line for line in told if int(line) >= 60)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    arrays = open_arrays(str(folder), SIDE, cache)
    asked = plan(steps=120, evaluate_every=50)
    began = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    asked.run(arrays, tmp_path / "whole")
    hooks = Hooks(on_step=lambda progress, _: began.append(progress.step))
    asked.run(arrays, tmp_path / "killed", hooks=hooks)
    torch.set_num_threads(threads)
    assert 60 < began[0] <= 120  # it did not start over
    for name in (BEST, LAST):
        assert same_weights(tmp_path / "whole" / name, tmp_path / "killed" / name)


def test_a_killed_command_goes_on(folder: Path, cache: str, tmp_path: Path) -> None:
    command = [*DRIFTNORM, "train", "domains", "--data", str(folder), "--test-domains", "red"]
    command += ["--backbone", "mnist-bn", "--batch-norm", "trained", "--size", str(SIDE)]
    command += ["--steps", "200", "--evaluate-every", "50", "--batch-size", "4"]
    command += ["--cache", cache, "--threads", "1"]
    running = subprocess.Popen([*command, "--out", str(tmp_path / "killed")])
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / BEST).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGKILL)
    running.wait()
    for name in ("killed", "whole"):
        out = ["--out", str(tmp_path / name)]
        done = subprocess.run([*command, *out], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "Best validation" in done.stdout
    for name in (BEST, LAST):
        assert same_weights(tmp_path / "whole" / name, tmp_path / "killed" / name)


# ---------------------------------------------------------------- selection


def test_selectors_against_their_definitions() -> None:
    history = [
        {"step": 1, "a out": 0.5, "b out": 0.9, "t out": 0.1, "t in": 0.2},
        {"step": 2, "a out": 0.8, "b out": 0.8, "t out": 0.3, "t in": 0.4},
        {"step": 3, "a out": 0.9, "b out": 0.7, "t out": 0.6, "t in": 0.9},
    ]
    assert training_validation(history, ["a", "b"], "t") == (pytest.approx(0.8), 0.4, 2)
    assert oracle(history, "t") == (0.6, 0.9, 3)
    others = {
        "a": [{"step": s, "a in": v} for s, v in ((1, 0.1), (2, 0.5), (3, 0.9))],
        "b": [{"step": s, "b in": v} for s, v in ((1, 0.9), (2, 0.6), (3, 0.1))],
    }
    assert leave_one_out(history, others, "t") == (pytest.approx(0.55), 0.4, 2)
    assert leave_one_out(history, {**others, "c": []}, "t") is None
    nan = [{**history[0], "a out": float("nan")}, history[1]]
    chosen = training_validation(nan, ["a", "b"], "t")
    assert chosen is not None
    assert chosen.step == 2


def test_grids() -> None:
    assert len(settings_of("tent")) == 6
    assert len(settings_of("gprebn")) == 7 * 6
    assert len(settings_of("t3a")) == 6
    assert settings_of("source") == ((),)
    assert len(settings_of("gprebn:statistics=source", "short")) == 2
    for method in (*MAIN, *ABLATIONS):
        for setting in settings_of(method):
            options = {**dict(setting), "source_lr": 1e-4} if "rho" in dict(setting) else setting
            word = parse_method(method).with_defaults(tuple(dict(options).items()))
            assert word.recipe is not None


def test_settings_are_chosen_by_validation_alone() -> None:
    def row(setting: int, shift: str, error: float) -> Row:
        cell = made_cell("domains", "m", shift, 0, "t3a", settings=(("supports", setting),))
        return Row(cell, {"error": error})

    rows = [
        row(1, "a/out", 0.30),
        row(1, "b/out", 0.10),
        row(1, "t/in", 0.0),
        row(5, "a/out", 0.10),
        row(5, "b/out", 0.20),
        row(5, "t/in", 0.9),
    ]
    assert {r.cell.method.settings for r in select_setting(rows)} == {(("supports", 5),)}
    assert len(select_setting(rows)) == 3


# ---------------------------------------------------------------- study and tables


@pytest.fixture(scope="module")
def models(folder: Path, cache: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = tmp_path_factory.mktemp("models")
    arrays = open_arrays(str(folder), SIDE, cache)
    for target in ("red", "blue"):
        plan(test_domains=(target,), steps=60, evaluate_every=30).run(arrays, root / target)
    return [str(root / target / BEST) for target in ("red", "blue")]


def test_study_selects_scores_and_tables(
    folder: Path, cache: str, models: list[str], tmp_path: Path
) -> None:
    study = DomainStudy(
        str(folder),
        tuple(models),
        ("source", "tent", "t3a", "gprebn+rt3a"),
        grid="short",
        batch_size=8,
        cache=cache,
    )
    cells = study.cells()
    assert {c.stream.label for c in cells} == {f"{d}/out" for d in ("blue", "green", "red")} | {
        "red/in",
        "blue/in",
    }
    store = RowStore(tmp_path / "rows")
    rows = list(run(study, store, LAUNCHERS["processes"], 2))
    assert not [r for r in rows if isinstance(r, Failure)]
    assert len(rows) == len(cells)
    assert list(run(study, store)) == []
    # Two processes end in either order; what shows rows puts them in one.
    results = in_order([r for r in rows if isinstance(r, Row)], study.methods)
    table = domains_table(results)
    assert [line[0] for line in table.rows] == [
        f"erm + {m}" for m in ("source", "tent", "t3a", "gprebn+rt3a")
    ]
    sources = [
        100 - 100 * r.metrics["error"]
        for r in results
        if r.method == "source" and r.cell.stream.split == "in"
    ]
    assert table.rows[0][3] == pytest.approx(np.mean(sources))
    assert "80 % split" in table.note
    other = with_model(results[0], "resnet20@12")
    with pytest.raises(MixedRowsError, match="is not a network of"):
        domains_table([*results, other])


def test_ablation_shares_tents_setting(
    folder: Path, cache: str, models: list[str], tmp_path: Path
) -> None:
    study = DomainStudy(
        str(folder), tuple(models[:1]), ABLATIONS, grid="short", batch_size=8, cache=cache
    )
    rows = [r for r in run(study, RowStore(tmp_path / "rows")) if isinstance(r, Row)]
    table = domains_ablation_table(rows)
    assert len(table.rows) == 8
    assert table.rows[3][0] == "erm + tent"
    without = [row for row in rows if row.method != "tent"]
    with pytest.raises(MixedRowsError, match="run it too"):
        domains_ablation_table(without)


def test_other_data_are_refused(
    folder: Path, cache: str, models: list[str], tmp_path: Path
) -> None:
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    os.remove(copy / "red" / "along" / "0.png")
    study = DomainStudy(str(copy), tuple(models), ("source",), cache=cache)
    with pytest.raises(ValueError, match="trained on other data"):
        study.cells()


def test_commands(folder: Path, cache: str, models: list[str], tmp_path: Path) -> None:
    command = [*DRIFTNORM, "bench", "domains", "--data", str(folder), "--models", *models]
    command += ["--methods", "source", "bn", "--batch-size", "8", "--cache", cache]
    command += ["--out", str(tmp_path / "rows"), "--workers", "1"]
    environment = {**os.environ, "COLUMNS": "140"}
    planned = subprocess.run(
        [*command, "--dry-run"], capture_output=True, text=True, env=environment, check=False
    )
    assert planned.returncode == 0, planned.stderr
    assert "12 cells to run" in planned.stdout
    assert "hours" in planned.stdout
    assert not (tmp_path / "rows").exists()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "erm + bn" in done.stdout
    shown = subprocess.run(
        [*DRIFTNORM, "table", "domains", str(tmp_path / "rows"), "--format", "csv"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert any(line.startswith("erm + ") for line in shown.stdout.splitlines())


def test_evaluating_a_part_and_stepping_in_bfloat16(folder: Path, cache: str, tmp_path) -> None:
    arrays = open_arrays(str(folder), SIDE, cache)
    part = plan(evaluate_images=2, every_split=True).run(arrays, tmp_path / "part")
    for name, value in part.history[-1].items():
        if name.endswith((" in", " out")):
            assert value in (0.0, 0.5, 1.0), name  # of two images
    whole, half = (plan(precision=p) for p in ("float32", "bfloat16"))
    assert whole.identity(arrays) == plan().identity(arrays)
    assert half.identity(arrays) != whole.identity(arrays)
    states = [
        load_file(each.run(arrays, tmp_path / each.precision).files[0].with_name(LAST))
        for each in (whole, half)
    ]
    assert all(value.dtype != torch.bfloat16 for value in states[1].values())
    differ = [float((a - b).abs().max()) for a, b in zip(*map(dict.values, states), strict=True)]
    assert 0 < max(differ) < 0.1
    with pytest.raises(ValueError, match="`precision` must be one of"):
        plan(precision="float16")
    with pytest.raises(ValueError, match="`evaluate_images` must be positive"):
        plan(evaluate_images=0)

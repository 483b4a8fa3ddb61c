"""Sweeps: which jobs, what of them is done, failures, budgets, and from there to a table."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tinted import SIDE, driftnorm, first_one_dies, make_domains

from driftnorm._internal.launch import LAUNCHERS
from driftnorm._internal.processes import WORKER_DIED
from driftnorm._internal.training_files import HISTORY
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.splits import seed_hash
from driftnorm.training.domains import sweep as sweeping
from driftnorm.training.domains.hparams import random_hparams
from driftnorm.training.domains.plans import PlanOptions
from driftnorm.training.domains.sweep import (
    FAILED,
    Sweep,
    Task,
    estimated_seconds,
    job_seed,
    train_job,
)
from driftnorm.views.trainings import load_runs, selected_table


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sweep")
    make_domains(root / "data")
    return root


@pytest.fixture(scope="module")
def sweep(root: Path) -> Sweep:
    """Tiny trainings; batches of the drawn sizes would take longer than all else."""
    options = PlanOptions(
        str(root / "data"),
        backbone="mnist-bn",
        batch_norm="trained",
        steps=2,
        evaluate_every=1,
        batch_size=4,
        every_split=True,
    )
    return Sweep(options, ("erm",), hparams=1, trials=1, size=SIDE, cache=str(root / "cache"))


@pytest.fixture(scope="module")
def arrays(sweep: Sweep) -> DomainArrays:
    return sweep.arrays()


def test_seeds_are_domainbeds() -> None:
    assert job_seed("PACS", "erm", [0], 0, 0) == 94828300
    assert job_seed("VLCS", "groupdro", (1, 2), 3, 1) == seed_hash("VLCS", "GroupDRO", [1, 2], 3, 1)
    assert job_seed("PACS", "SagNet", (0,), 0, 0) == seed_hash("PACS", "SagNet", [0], 0, 0)
    assert job_seed("PACS", "swad", (0,), 0, 0) == seed_hash("PACS", "SWAD", [0], 0, 0)


def test_jobs(sweep: Sweep, arrays: DomainArrays) -> None:
    usual = replace(sweep, options=replace(sweep.options, batch_size=None))
    large = replace(usual, algorithms=("erm", "coral", "swad"), hparams=3, trials=2)
    jobs = large.jobs(arrays)
    assert len(jobs) == 3 * 3 * 3 * 2
    assert len({job.label for job in jobs}) == len(jobs)
    assert jobs[0].label == "erm-blue-h0-t0"
    assert all(job.label.endswith("h0-t0") for job in jobs[:9])  # the defaults come first
    (job,) = (job for job in jobs if job.label == "coral-red-h2-t1")
    drawn = random_hparams("coral", False, 2, 1)
    assert job.plan.lr == drawn["lr"]
    assert job.plan.batch_size == drawn["batch_size"]
    assert dict(job.plan.options) == {"gamma": drawn["gamma"]}
    assert job.plan.seed == seed_hash(arrays.name, "CORAL", [2], 2, 1)
    assert (job.plan.trial_seed, job.plan.test_domains) == (1, ("red",))
    assert job.plan.every_split
    assert {(job.plan.algorithm, job.plan.swad) for job in jobs} == {
        ("erm", False),
        ("coral", False),
        ("erm", True),
    }


def test_pairs_are_those_that_a_selector_needs(sweep: Sweep, arrays: DomainArrays) -> None:
    pairs = replace(sweep, leave_one_out=True)
    tested = [job.plan.test_domains for job in pairs.jobs(arrays)]
    assert tested[:3] == [("blue",), ("green",), ("red",)]
    assert tested[3:] == [("blue", "green"), ("blue", "red"), ("green", "red")]
    one = replace(pairs, test_domains=("red",))
    assert [job.plan.test_domains for job in one.jobs(arrays)] == [
        ("red",),
        ("blue", "red"),
        ("green", "red"),
    ]


def test_algorithms_are_read_as_domainbed_does_unless_told_otherwise(
    sweep: Sweep, arrays: DomainArrays
) -> None:
    algorithms = ("arm", "erm", "mtl", "rsc", "sagnet", "swad")
    both = replace(sweep, algorithms=algorithms, test_domains=("red",))
    own = {"arm", "mtl", "rsc", "sagnet"}
    for options, reading in (
        (both.options, "domainbed"),
        (replace(both.options, reading="paper"), "paper"),
    ):
        for job in replace(both, options=options).jobs(arrays):
            expected = reading if job.plan.algorithm in own else None
            assert dict(job.plan.options).get("reading") == expected
    # A single training asks for nothing, which is the paper's.
    assert dict(both.options.plan("mtl", ["red"]).options) == {"ema": 0.99}
    asked = replace(both.options, reading="domainbed").plan("mtl", ["red"])
    assert dict(asked.options) == {"ema": 0.99, "reading": "domainbed"}
    chosen = both.options.plan("mtl", ["red"], settings=[("reading", "domainbed")])
    assert chosen == asked


def test_every_split_is_evaluated_unless_told_otherwise(sweep: Sweep, arrays: DomainArrays) -> None:
    for asked, expected in ((None, True), (True, True), (False, False)):
        (job, *_) = replace(sweep, options=replace(sweep.options, every_split=asked)).jobs(arrays)
        assert job.plan.every_split == expected
    assert not replace(sweep.options, every_split=None).plan("erm", ["red"]).every_split


def test_settings_go_to_the_algorithms_that_have_them(sweep: Sweep, arrays: DomainArrays) -> None:
    chosen = (("gamma", 3.0), ("n_converge", 2), ("weight_decay", 0.5))
    both = replace(sweep, algorithms=("erm", "coral", "swad"), settings=chosen, hparams=2)
    for job in both.jobs(arrays):
        own = {"coral": {"gamma": 3.0}, "swad": {"n_converge": 2}}
        options = dict(job.plan.options)
        assert options == own.get("swad" if job.plan.swad else job.plan.algorithm, {})
        assert job.plan.weight_decay == 0.5
    message = r"none of erm has a hyper-parameter `gama`\..*Known: batch_size, dropout, lr, weight"
    with pytest.raises(ValueError, match=message):
        replace(sweep, settings=(("gama", 1.0),))


def test_bad_sweeps(sweep: Sweep, arrays: DomainArrays) -> None:
    with pytest.raises(ValueError, match="`trials` must be at least 1, got 0"):
        replace(sweep, trials=0)
    with pytest.raises(ValueError, match="`algorithms` must name"):
        replace(sweep, algorithms=())
    with pytest.raises(ValueError, match="got 'purple'"):
        replace(sweep, test_domains=("purple",)).jobs(arrays)
    with pytest.raises(ValueError, match="Did you mean 'coral'"):
        replace(sweep, algorithms=("corral",)).jobs(arrays)
    two = replace(arrays, domains=arrays.domains[:2])
    with pytest.raises(ValueError, match="has only 2"):
        replace(sweep, leave_one_out=True).jobs(two)


def test_a_whole_sweep_makes_all_three_tables(
    sweep: Sweep, arrays: DomainArrays, tmp_path: Path
) -> None:
    whole = replace(sweep, leave_one_out=True, trials=2)
    assert {end.reason for end in whole.run(tmp_path)} == {"finished"}
    assert whole.missing(tmp_path, arrays) == []
    assert list(whole.run(tmp_path)) == []
    runs = load_runs([tmp_path])
    assert len(runs) == 12
    for selector in ("training", "leave-one-out", "oracle"):
        (line,) = selected_table(runs, selector).rows  # type: ignore[arg-type]
        assert line[0] == "erm"
        assert "X" not in line
        assert all("+/-" in str(cell) for cell in line[1:4])
    (tmp_path / "erm-red-h0-t1" / HISTORY).unlink()
    assert [job.label for job in whole.missing(tmp_path, arrays)] == ["erm-red-h0-t1"]
    # With other settings, what is there is not taken for done.
    longer = replace(whole, options=replace(whole.options, steps=3))
    with pytest.raises(ValueError, match="holds another run: there `steps` is 2, here 3"):
        longer.missing(tmp_path, arrays)


def test_a_job_that_fails_does_not_stop_the_others(sweep: Sweep, tmp_path: Path) -> None:
    broken = replace(sweep, algorithms=("mixstyle", "erm"), test_domains=("red",))
    (tmp_path / "mixstyle-red-h0-t0").mkdir()
    (tmp_path / "mixstyle-red-h0-t0" / "resume.pt").write_bytes(b"no checkpoint")
    ends = {end.job.plan.algorithm: end for end in broken.run(tmp_path)}
    assert ends["erm"].reason == "finished"
    assert ends["mixstyle"].reason == "failed"
    kept = tmp_path / "mixstyle-red-h0-t0" / FAILED
    assert json.loads(kept.read_text())["error"] == ends["mixstyle"].error
    (tmp_path / "mixstyle-red-h0-t0" / "resume.pt").unlink()
    assert [end.reason for end in broken.run(tmp_path)] == ["finished"]
    assert not kept.exists()


def test_a_job_whose_process_dies_does_not_stop_the_others(sweep: Sweep, tmp_path: Path) -> None:
    ends = list(sweep.run(tmp_path, first_one_dies, 2))
    assert [end.reason for end in ends] == ["failed", "finished", "finished"]
    kept = json.loads((tmp_path / ends[0].job.label / FAILED).read_text())
    assert kept["error"] == ends[0].error == WORKER_DIED
    assert [end.reason for end in sweep.run(tmp_path)] == ["finished"]


def test_the_budget_stops_the_running_job_and_starts_no_other(
    sweep: Sweep, arrays: DomainArrays, tmp_path: Path
) -> None:
    long = replace(sweep, options=replace(sweep.options, steps=100_000, evaluate_every=100_000))
    begun = time.monotonic()
    ends = list(long.run(tmp_path, seconds=0.3))
    assert time.monotonic() - begun < 10
    assert [end.reason for end in ends] == ["budget"]
    assert (tmp_path / "erm-blue-h0-t0" / "resume.pt").exists()
    # What the first part took does not count against the second.
    assert [end.reason for end in long.run(tmp_path, seconds=0.2)] == ["budget"]
    assert list(long.run(tmp_path, seconds=0.0)) == []
    late = Task(long, long.jobs(arrays)[0], tmp_path / "late", time.time() - 1)
    assert train_job(late).reason == "not started"
    assert not (tmp_path / "late").exists()


def test_an_interrupted_job_is_the_last(
    sweep: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("driftnorm.training.training_run.train", lambda *_, **__: "interrupted")
    assert [end.reason for end in sweep.run(tmp_path)] == ["interrupted"]
    # In a worker process, what waits in its queue does not begin either.
    monkeypatch.setattr(sweeping, "parent_process", lambda: object())
    monkeypatch.setattr(sweeping, "_told_to_stop", type(sweeping._told_to_stop)())
    assert [end.reason for end in sweep.run(tmp_path)] == ["interrupted"]
    assert [end.reason for end in sweep.run(tmp_path)] == ["not started"] * 3


def test_processes(sweep: Sweep, tmp_path: Path) -> None:
    ends = list(sweep.run(tmp_path, LAUNCHERS["processes"], 2))
    assert [end.reason for end in ends] == ["finished"] * 3


def test_estimates_grow_with_the_work(sweep: Sweep, arrays: DomainArrays) -> None:
    few = sweep.jobs(arrays)
    many = replace(sweep, options=replace(sweep.options, steps=2000, evaluate_every=1000))
    assert estimated_seconds(few, arrays) > 0
    assert estimated_seconds(many.jobs(arrays), arrays) > 10 * estimated_seconds(few, arrays)


def test_command(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["sweep", "domains", "--data", root / "data", "--cache", root / "cache"]
    command += ["--algorithms", "erm", "groupdro", "--test-domains", "red", "--hparams", 1]
    command += ["--trials", 2, "--backbone", "mnist-bn", "--size", SIDE, "--steps", 1]
    command += ["--workers", 1, "--out", out]
    unworkable = driftnorm(*command[:-4], "--workers", 0)
    assert unworkable.returncode == 2
    assert "`workers` must be at least 1, got 0" in unworkable.stderr
    planned = driftnorm(*command, "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "groupdro-red-h0-t1: lr 5e-05" in planned.stdout
    assert "4 trainings to run; about" in planned.stdout
    read = driftnorm(*command, "--dry-run", "--algorithms", "rsc", "--set", "f_drop=0.25")
    assert "f_drop 0.25, reading domainbed" in read.stdout
    unknown = driftnorm(*command, "--dry-run", "--device", "abacus")
    assert unknown.returncode == 2
    assert "`--device` must be one that this machine has" in unknown.stderr
    assert not out.exists()
    assert "4 to go" in driftnorm(*command, "--hours", 1e-9).stdout
    done = driftnorm(*command)
    assert done.returncode == 0, done.stderr
    assert "4 of 4 trainings" in done.stdout
    assert "4 done already" in driftnorm(*command, "--dry-run").stdout
    assert yaml.safe_load((out / "config.yaml").read_text())["command"] == "sweep domains"
    assert "0 failed" in driftnorm("run", out / "config.yaml").stdout
    table = driftnorm("table", "selected-training", out, "--format", "csv")
    lines = [line for line in table.stdout.splitlines() if line and not line.startswith("#")]
    assert [line.split(",")[0] for line in lines] == ["algorithm", "erm", "groupdro"]
    (out / "erm-red-h0-t0" / HISTORY).unlink()
    (out / "erm-red-h0-t0" / "resume.pt").write_bytes(b"no checkpoint")
    broken = driftnorm(*command)
    assert broken.returncode == 1
    assert "failed: erm-red-h0-t0" in broken.stdout

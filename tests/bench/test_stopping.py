"""Real processes: stopped by Ctrl-C, and workers that die."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from small_study import DRIFTNORM, call, write_data, write_weights

from driftnorm.bench.rows import RowStore, load_rows

SECONDS_A_BATCH = 0.5
BATCHES = 30
AS_IT_IS = ["--mean", "0", "0", "0", "--std", "1", "1", "1"]  # they take images in [0, 1]
NETWORKS = f"""
import os
import time
import torch

calls = 0

class Slow(torch.nn.Module):
    def forward(self, x):
        global calls
        calls += bool(x.std() > 0)  # not when it is tried with grey
        time.sleep({SECONDS_A_BATCH} * (calls > {BATCHES}))  # the first method is quick
        return x

class Deadly(torch.nn.Module):
    def forward(self, x):
        if 0 < x.std((2, 3)).mean() < 0.07:  # contrast at severity 5
            os._exit(7)
        return x

def network(first):
    torch.manual_seed(0)
    layers = (torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    return torch.nn.Sequential(first, *layers)

def slow(): return network(Slow())
def deadly(): return network(Deadly())
"""


@pytest.fixture
def networks(tmp_path: Path) -> str:
    (tmp_path / "networks.py").write_text(NETWORKS)
    return os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_ends_within_a_batch(networks: str, tmp_path: Path, workers: str) -> None:
    data, out = write_data(tmp_path / "small.npz", 2 * BATCHES), tmp_path / "out"
    command = [*DRIFTNORM, "bench", "robustness", "--data", data, "--model", "networks:slow"]
    command += AS_IT_IS
    command += ["--batch-size", "2", "--methods", "source", "bn", "--severities", "5"]
    command += ["--corruptions", "contrast", "brightness", "--workers", workers, "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": networks}
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    deadline = time.monotonic() + 90
    while not [*out.glob("*.json")] and time.monotonic() < deadline:
        time.sleep(0.05)
    done = {path.name for path in out.glob("*.json")}
    running.send_signal(signal.SIGINT)  # to the parent alone: the harder case
    begun = time.monotonic()
    _, errors = running.communicate(timeout=60)
    took = time.monotonic() - begun
    assert done
    assert running.returncode == 130
    assert "stopped; what was finished is kept" in errors
    # All 30 batches of the second method, 15 seconds, are left on the stream that was seen.
    assert took < 8
    assert done <= {path.name for path in out.glob("*.json")}
    assert not [*(out / ".scratch").iterdir()]
    assert not [*RowStore(out).failures()]


def test_sigterm_leaves_nothing_behind(tmp_path: Path) -> None:
    data, out = write_data(tmp_path / "small.npz", 3000), tmp_path / "out"
    command = [*DRIFTNORM, "corrupt", data, str(out), "--workers", "2", "--frost", "procedural"]
    running = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    )
    deadline = time.monotonic() + 90
    while not [*out.rglob("*.npy")] and time.monotonic() < deadline and running.poll() is None:
        time.sleep(0.05)
    running.terminate()
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 128 + signal.SIGTERM
    assert errors.split("\n") == ["", "stopped; what was finished is kept.", ""]


def test_a_dead_worker_costs_its_own_cells_only(networks: str, tmp_path: Path) -> None:
    data, out = write_data(tmp_path / "small.npz"), tmp_path / "out"
    words = ["bench", "robustness", "--data", data, "--model", "networks:deadly", "--out", out]
    words += AS_IT_IS
    words += ["--batch-size", "20", "--methods", "source", "bn", "--severities", "5", "--workers"]
    names = ["brightness", "contrast", "fog", "jpeg_compression"]
    ended = call(*words, "2", "--corruptions", *names, PYTHONPATH=networks, COLUMNS="200")
    assert ended.returncode == 1, ended.stderr
    assert "6 rows" in ended.stdout
    assert "2 failed" in ended.stdout
    assert {row.shift for row in load_rows(out)} == {*names} - {"contrast"}
    failures = [*RowStore(out).failures()]
    assert {failure.cell.stream.shift for failure in failures} == {"contrast"}
    assert {failure.error.partition(",")[0] for failure in failures} == {"the worker process died"}


def test_scratch_of_a_killed_run_is_removed_by_the_next(tmp_path: Path) -> None:
    data, out = write_data(tmp_path / "small.npz"), tmp_path / "out"
    weights = write_weights(tmp_path / "resnet20.safetensors")
    left = out / ".scratch" / "0123"
    left.mkdir(parents=True)
    (left / "pixels").write_text("of a process that is no more")
    words = ["bench", "robustness", "--data", data, "--model", "resnet20", "--weights", weights]
    words += ["--methods", "source", "--corruptions", "contrast", "--severities", "5", "--out", out]
    ended = call(*words, "--workers", "1")
    assert ended.returncode == 0, ended.stderr
    assert not left.exists()
    (row,) = load_rows(out)
    assert 0 < row.metrics["peak_megabytes"] < 5000

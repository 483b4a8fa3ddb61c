"""The memory that a batch takes is told before it is taken, and the default gives way to it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from own_network import FLAGS, MODEL, drifting, run
from torch import nn

from driftnorm._internal import process_memory
from driftnorm.cli import _batch_size
from driftnorm.cli._input_flags import NetworkFlags
from driftnorm.cli.diagnose import diagnose
from driftnorm.models.footprint import footprint


def test_the_footprint_of_a_network_counts_its_layers() -> None:
    network = nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.ReLU(), nn.Flatten()).eval()
    found = footprint(network, 10)
    assert found == (4 * 3 * 5 * 9, 4 * 5 * 8 * 8, 3 * 4 * 5 * 8 * 8)
    assert found.of_batch(7, gradient=True) == 2 * found.weights + 7 * found.all_outputs
    assert found.of_batch(7, gradient=True) > found.of_batch(0, gradient=False, networks=3)
    torch.manual_seed(0)
    large = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()).eval()
    process_memory.forget_peak()
    before = process_memory.peak_megabytes()
    y = large(torch.rand(32, 3, 128, 128))
    held = 1e6 * (process_memory.peak_megabytes() - before)
    estimate = footprint(large, 128).of_batch(32, gradient=True)
    assert y.requires_grad
    assert 0.3 * estimate < held < 3 * estimate


BOTTLENECKS = """
import torch
import driftnorm
from driftnorm._internal import process_memory
from driftnorm.models.footprint import footprint
from driftnorm.models.resnet import resnet50

torch.set_num_threads(1)
process_memory.keep_freed_memory()
network, images, size = resnet50(10).eval(), 32, 128
estimate = footprint(network, size).of_batch(images, gradient=False)
process_memory.forget_peak()
before = process_memory.peak_megabytes()
adapter = driftnorm.adapt(network)
for _ in range(2):
    adapter(torch.rand(images, 3, size, size))
print(2**20 * (process_memory.peak_megabytes() - before) / estimate)
"""


def test_the_estimate_holds_for_a_network_with_shortcuts() -> None:
    """What the default method takes without a backward pass, as the command does it."""
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BOTTLENECKS],
        capture_output=True,
        text=True,
        check=True,
    )
    assert 0.3 < float(found.stdout) < 1


def test_free_memory_is_that_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    5000 kB\n")
    monkeypatch.setattr(process_memory, "_MACHINE", tmp_path / "meminfo")
    monkeypatch.setattr(process_memory, "_CONTAINER", tmp_path)
    assert process_memory.free_bytes() == 5000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("1000\n")
    assert process_memory.free_bytes() == 5000 * 1024
    (tmp_path / "memory.max").write_text("3000\n")
    assert process_memory.free_bytes() == 2000
    monkeypatch.setattr(process_memory, "_MACHINE", tmp_path / "none")
    assert process_memory.free_bytes() is None


def test_the_default_gives_way_and_a_run_keeps_its_batches(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(home / "x.npy", drifting(200))

    def size_of(out: str) -> int:
        size = json.loads((home / f"{out}.run" / "run.json").read_text())["config"]["batch_size"]
        return int(size)

    run(home, home / "x.npy", "a.csv", batch_size=None, quiet=False)
    assert size_of("a") == 64
    assert "note: batches of 64 take about" in capsys.readouterr().err
    monkeypatch.setattr(_batch_size, "free_bytes", lambda: 200_000)
    run(home, home / "x.npy", "b.csv", batch_size=None, quiet=False)
    assert 8 <= size_of("b") < 64
    assert "fewer than the usual 64 for that reason" in capsys.readouterr().err
    run(home, home / "x.npy", "c.csv", batch_size=64, quiet=False)
    assert size_of("c") == 64  # who asks for it gets it
    assert "a smaller `--batch-size` would be safer" in capsys.readouterr().err
    run(home, home / "x.npy", "a.csv", batch_size=None)  # the run that it was
    assert size_of("a") == 64
    run(home, home / "x.npy", "d.csv", batch_size=None)
    assert capsys.readouterr().err == ""


def test_diagnose_tells_it_too(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(home / "x.npy", drifting(200))
    monkeypatch.setattr(_batch_size, "free_bytes", lambda: 200_000)
    flags = NetworkFlags(size=int(FLAGS[1]), mean=[0.5] * 3, std=[0.25] * 3)
    diagnose(MODEL, home / "x.npy", opening=flags, as_json=True)
    out, err = capsys.readouterr()
    assert max(json.loads(out)["batch_sizes"]) < 64
    assert "fewer than the usual 64" in err

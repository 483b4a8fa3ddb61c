"""A small network of the user's own and drifting images, for the tests of `driftnorm adapt`."""

from __future__ import annotations

import csv
import json
import os
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from driftnorm.cli._input_flags import NetworkFlags
from driftnorm.cli.adapt import adapt
from driftnorm.models import Preprocessing

SIZE = 8
CLASSES = ("cat", 'dog "big", old', "<b>", "日本\n")
WANTED = Preprocessing((0.5,) * 3, (0.25,) * 3, SIZE)
FACTORY = f"""
import torch
from torch import nn


def build(num_classes={len(CLASSES)}):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = []
        for width in (3, 8):
            layers += [nn.Conv2d(width, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
        head = nn.Linear(8, num_classes)
        head.weight.data.mul_(9)
        head.bias.data.zero_()
        return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head).eval()
"""
MODEL = "driftnorm_test_network:build"
FLAGS = ("--size", str(SIZE), "--mean", *["0.5"] * 3, "--std", *["0.25"] * 3)


def make_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the factory's module in it, which processes started from here can import."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "driftnorm_test_network.py").write_text(FACTORY)
    monkeypatch.syspath_prepend(str(code))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as conftest sets it in this process
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "classes.json").write_text(json.dumps(CLASSES))
    return tmp_path


def run(home: Path, data: Path, out: str, **options: object) -> bytes:
    """The command, in this process; returns the CSV file."""
    given = {"batch_size": 16, "every": 3, "quiet": True, **options}
    network = {"size": SIZE, "mean": [0.5] * 3, "std": [0.25] * 3, "classes": home / "classes.json"}
    network |= {
        each.name: given.pop(each.name) for each in fields(NetworkFlags) if each.name in given
    }
    adapt(MODEL, data, out=home / out, opening=NetworkFlags(**network), **given)
    return (home / out).read_bytes()


def command(home: Path, data: Path, out: str, *more: str) -> list[str]:
    main = [sys.executable, "-c", "from driftnorm.cli import main; main()", "adapt", MODEL]
    where = [str(data), "--out", str(home / out), "--classes", str(home / "classes.json")]
    return [*main, *where, *FLAGS, *more]


def rows(content: bytes) -> list[dict[str, str]]:
    return [*csv.DictReader(content.decode().splitlines(keepends=True))]


def drifting(count: int) -> np.ndarray:
    """Images whose colours drift along the stream, so that adapting has something to do."""
    random = np.random.default_rng(5)
    base = random.integers(0, 160, (count, SIZE, SIZE, 3))
    tint = np.linspace(0, 90, count)[:, None, None, None] * np.array([1, 0.5, 0])
    return (base + tint).astype(np.uint8)

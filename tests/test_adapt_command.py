"""``driftnorm adapt`` on real folders and arrays: killed, stopped, resumed, misused."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import driftnorm
from driftnorm import cli
from driftnorm.cli.adapt import adapt
from driftnorm.data.image_set import DataError
from driftnorm.inputs import open_inputs, open_labels
from driftnorm.models import Preprocessing, open_checkpoint
from driftnorm.runs.adapting import Outcome, Plan, adapt_stream
from driftnorm.runs.predictions import MOST_POINTS, Answer, Course, PredictionsFile, read_answers

SIZE = 8
CLASSES = ("cat", 'dog "big", old', "<b>", "日本\n")
WANTED = Preprocessing((0.5,) * 3, (0.25,) * 3, SIZE)
FACTORY = f'''
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
'''
MODEL = "driftnorm_test_network:build"
FLAGS = ("--size", str(SIZE), "--mean", *["0.5"] * 3, "--std", *["0.25"] * 3)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    given = {"batch_size": 16, "every": 3, "quiet": True, "classes": home / "classes.json"}
    given |= {"size": SIZE, "mean": [0.5] * 3, "std": [0.25] * 3, **options}
    adapt(MODEL, data, out=home / out, **given)
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


@pytest.fixture
def messy(home: Path) -> Path:
    """300 files: three broken, others in odd modes or with odd names, and a loop of links."""
    root = home / "data"
    odd = {7: "L", 30: "CMYK", 60: "RGBA", 90: "P", 120: "1", 150: "I;16"}
    names = {20: "sp ace.png", 40: 'q"uote.png', 50: "line\nbreak.png", 70: "ü☃.png", 80: "a,b.png"}
    for i, image in enumerate(drifting(300)):
        folder = root / ("0123"[i % 4])
        folder.mkdir(parents=True, exist_ok=True)
        picture = Image.fromarray(image)
        if odd.get(i) == "I;16":
            picture = Image.fromarray(image[..., 0].astype(np.uint16) * 257)
        elif i in odd:
            picture = picture.convert(odd[i])
        suffix = "tif" if i in odd else "png"
        file = folder / names.get(i, f"{i:03}.{suffix}")
        picture.save(file)
        if i in (100, 101, 299):
            file.write_bytes(file.read_bytes()[:70])
    os.symlink(root, root / "0" / "loop")
    return root


def test_a_messy_folder(home: Path, messy: Path) -> None:
    content = run(home, messy, "a.csv", labels="folders", method="bn")
    found = rows(content)
    inputs = open_inputs(messy)
    assert [row["name"] for row in found] == [item.name for item in inputs.stream(WANTED)]
    assert len(found) == 300
    broken = [row for row in found if row["error"]]
    assert len(broken) == 3
    assert {row["class_index"] + row["class_name"] + row["confidence"] for row in broken} == {""}
    for row in found:
        if not row["error"]:
            assert CLASSES[int(row["class_index"])] == row["class_name"]
            assert 0.25 <= float(row["confidence"]) <= 1
            assert 0 <= float(row["entropy"]) <= 1
    record = json.loads((home / "a.run" / "run.json").read_text())
    assert (record["images"], record["skipped"], record["predicted"]) == (300, 3, 297)
    assert record["skipped_first"] == [[row["name"], row["error"]] for row in broken]
    right = [row["name"][0] == row["class_index"] for row in found if not row["error"]]
    assert record["accuracy"] == pytest.approx(np.mean(right))
    assert sum(record["classes"].values()) == record["labelled"] == 297
    assert len(record["entropy"]) == len(record["online_error"]) == 19
    assert sum(count for count, _, _ in record["reliability"]) == 297
    assert record["compared"] == 16 + 16  # batches 0 and 16
    assert len(record["examples"]) == min(record["compared_changed"], 12)
    assert all(e["image"].startswith("data:image/jpeg;base64,") for e in record["examples"])


def test_the_predictions_are_those_of_a_plain_loop_and_broken_files_shift_nothing(
    home: Path, messy: Path
) -> None:
    """The obvious loop: batches of 16 positions, without the broken ones."""
    from driftnorm_test_network import build

    from driftnorm.models import Normalized

    network = Normalized(build(), WANTED.mean, WANTED.std).eval()
    adapter = driftnorm.adapt(network, "gprebn", seed=0)
    items = [*open_inputs(messy).stream(WANTED)]
    expected = []
    for start in range(0, 300, 16):
        batch = [item for item in items[start : start + 16] if item.pixels is not None]
        x = torch.stack([torch.tensor(item.pixels) for item in batch]).permute(0, 3, 1, 2) / 255
        p = adapter(x).softmax(dim=1)
        for item, row in zip(batch, p, strict=True):
            expected.append((item.name, int(row.argmax()), float(row.max())))
    found = [
        (row["name"], int(row["class_index"]), float(row["confidence"]))
        for row in rows(run(home, messy, "a.csv"))
        if not row["error"]
    ]
    assert [row[:2] for row in found] == [row[:2] for row in expected]
    np.testing.assert_allclose([r[2] for r in found], [r[2] for r in expected], atol=2e-5)


def test_every_kind_of_input_gives_the_same_predictions(home: Path, messy: Path) -> None:
    items = [*open_inputs(messy).stream(WANTED)]
    good = np.stack([item.pixels for item in items if item.pixels is not None])
    np.savez_compressed(home / "good.npz", images=good)
    np.save(home / "good.npy", good)
    plain = home / "plain"
    plain.mkdir()
    for i, image in enumerate(good):
        Image.fromarray(image).save(plain / f"{i:03}.png")
    (home / "list.txt").write_text("\n".join(f"plain/{i:03}.png" for i in range(len(good))))
    shutil.make_archive(str(home / "good"), "tar", plain)
    answers = {}
    for name in ("good.npz", "good.npy", "plain", "list.txt", "good.tar"):
        found = rows(run(home, home / name, f"{name}.csv"))
        key = [int(row["name"].rpartition("/")[2].split(".")[0]) for row in found]
        answers[name] = sorted(zip(key, [[*row.values()][1:] for row in found], strict=True))
        if name != "good.tar":  # which is in the order of the tool that made it
            assert key == [*range(len(good))]
        else:
            continue
        assert answers[name] == answers["good.npz"]
    assert len(answers["good.tar"]) == len(good)


# --------------------------------------------------------------------------- going on


def stream(
    home: Path, images: np.ndarray, out: str, stop_after: int | None = None, **options: object
) -> Outcome:
    """`adapt_stream` on an array, stopped after so many batches."""
    from driftnorm_test_network import build

    np.save(home / "images.npy", images)
    method = str(options.pop("method", "gprebn"))
    settings = {"method": method, **options}
    plan = Plan(home / out, WANTED, CLASSES, settings, batch_size=20, every=3)
    network = build()
    batches = 0

    def should_stop() -> bool:
        nonlocal batches
        batches += 1
        return batches == stop_after

    adapter = driftnorm.adapt(network, method, seed=0, guard="reset")
    inputs = open_inputs(home / "images.npy")
    return adapt_stream(adapter, network, inputs, plan, should_stop=should_stop)


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn+rt3a", "shot", "t3a"])
def test_a_stopped_run_goes_on_to_the_same_end(home: Path, method: str) -> None:
    images = drifting(250)
    whole = stream(home, images, "whole.csv", method=method)
    assert whole.finished
    for stop_after in (1, 2, 7, 2, 1, None):
        outcome = stream(home, images, "parts.csv", stop_after, method=method)
        assert outcome.finished == (stop_after is None)
        with (home / "parts.csv").open("ab") as file:
            file.write(b'"half a li')  # as a killed process leaves it
    assert outcome.began_at == 20 * 13
    final = (home / "parts.csv").read_bytes()
    assert final.removesuffix(b'"half a li') == (home / "whole.csv").read_bytes()
    for key in whole.record.keys() - {"seconds"}:
        assert outcome.record[key] == whole.record[key], key

"""``driftnorm bench streams`` as people call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from data_files import write_cifar_c
from small_study import call, write_data, write_weights

from driftnorm.bench.rows import load_rows
from driftnorm.streams import load_positions


@pytest.fixture
def words(tmp_path: Path) -> list[object]:
    return [
        *("bench", "streams", "--data", write_data(tmp_path / "small.npz")),
        *("--models", "resnet20", "--weights", write_weights(tmp_path / "w.safetensors")),
        *("--streams", "continual", "mixed+sorted", "--part", 20, "--batch-size", 10),
        *("--corruptions", "contrast", "brightness", "--methods", "source", "bn"),
        *("--window", 20, "--workers", 1, "--out", tmp_path / "rows"),
    ]


def test_it_says_first_what_it_would_do_then_measures_and_goes_on(
    words: list[object], tmp_path: Path
) -> None:
    asked = call(*words, "--dry-run")
    assert asked.returncode == 0
    assert "4 cells to run, 160 images" in asked.stdout
    assert not (tmp_path / "rows").exists()
    done = call(*words, "--json")
    record = json.loads(done.stdout)
    assert (record["rows"], record["failed"]) == (4, 0)
    assert record["table"]["columns"][:2] == ["stream", "method"]
    orders = {row.cell.stream.ordered for row in load_rows(tmp_path / "rows")}
    assert orders == {"continual:part=20", "mixed+sorted:part=20"}
    assert "4 done already" in call(*words).stdout
    table = call("table", "streams", tmp_path / "rows", "--where", "order=continual")
    assert "continual:part=20" in table.stdout
    assert "mixed" not in table.stdout
    plot = tmp_path / "plot.svg"
    drawn = call("plot", "streams", tmp_path / "rows", "--where", "order=continual", "-o", plot)
    assert drawn.returncode == 0
    assert "contrast 5" in plot.read_text()


def test_streams_can_be_looked_at_before_anything_is_measured(
    words: list[object], tmp_path: Path
) -> None:
    shown = call(*words, "--preview", tmp_path / "shown")
    assert shown.returncode == 0, shown.stderr
    assert "continual:part=20,seed=0: 40 images in windows of 20" in " ".join(shown.stdout.split())
    assert "mean run of a class" in " ".join(shown.stdout.split())
    assert not (tmp_path / "rows").exists()
    names = sorted(path.name for path in (tmp_path / "shown").iterdir())
    assert names == [
        *("01-continual-seed0.npz", "01-continual-seed0.png"),
        *("02-mixed+sorted-seed0.npz", "02-mixed+sorted-seed0.png"),
    ]
    assert load_positions(tmp_path / "shown" / names[0]).stream == "continual:part=20,seed=0"


def test_windows_that_are_long_for_the_stream_are_told(words: list[object]) -> None:
    long = call(*words, "--dry-run")
    assert "take smaller ones, such as --window 4." in " ".join(long.stderr.split())
    assert call(*words).returncode == 0
    words[words.index("--window") + 1] = 10  # of rows that are there already
    again = call(*words)
    assert "--window" not in again.stderr
    assert "Windows of 10 images" in " ".join(again.stdout.split())
    shown = call("table", "streams", words[-1], "--window", 5, "--format", "markdown")
    assert "Windows of 5 images" in shown.stdout


def test_the_guard_can_be_turned_on(words: list[object], tmp_path: Path) -> None:
    done = call(*words, "--guard", "freeze", "--json")
    assert done.returncode == 0, done.stderr
    assert "alarms" in json.loads(done.stdout)["table"]["columns"]
    assert {row.cell.protocol.guard for row in load_rows(tmp_path / "rows")} == {"freeze"}
    refused = call(*words, "--guard", "frees")
    assert refused.returncode != 0
    assert "frees" in refused.stderr


def test_a_stream_that_is_none_is_named_with_the_nearest(words: list[object]) -> None:
    words[words.index("continual")] = "continul"
    refused = call(*words)
    assert refused.returncode != 0
    assert "'continul'" in refused.stderr
    assert "continual" in refused.stderr


def test_a_folder_of_some_corruptions_is_a_stream_of_these(
    words: list[object], tmp_path: Path
) -> None:
    write_cifar_c(tmp_path / "CIFAR-10-C", ("fog", "snow"), rows=30)
    words[words.index("--data") + 1] = tmp_path / "CIFAR-10-C"
    start = words.index("--corruptions")
    del words[start : start + 3]
    asked = call(*words, "--preview", tmp_path / "shown")
    assert asked.returncode == 0, asked.stderr
    assert "does not hold gaussian_noise" in " ".join(asked.stderr.split())
    found = load_positions(tmp_path / "shown" / "01-continual-seed0.npz")
    assert [domain.name for domain in found.domains] == ["snow", "fog"]

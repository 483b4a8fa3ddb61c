"""The robustness grid on small data: rows, resuming, failures, tables."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from made_cells import with_protocol
from PIL import Image
from small_study import DRIFTNORM, call, rows_of, study, write_data, write_weights

from driftnorm._internal.launch import LAUNCHERS
from driftnorm.bench.rows import Failure, Row, RowStore, load_rows
from driftnorm.bench.runner import run
from driftnorm.bench.studies.measured_method import spec_of
from driftnorm.bench.studies.presets import find_preset
from driftnorm.cli._row_flags import having
from driftnorm.errors import MixedRowsError
from driftnorm.methods.spec import MethodSpec, parse_method
from driftnorm.models import load
from driftnorm.parts import Descent
from driftnorm.parts.layers import First
from driftnorm.recipe import Recipe
from driftnorm.shifts import CORRUPTIONS
from driftnorm.views.paper import DETAILED, MEAN
from driftnorm.views.robustness import (
    detailed_table,
    severity_table,
    summary_table,
)


@pytest.fixture
def data(tmp_path: Path) -> str:
    return write_data(tmp_path / "small.npz")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return write_weights(tmp_path / "resnet20.safetensors")


def test_every_cell_becomes_a_row_once(data: str, tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows")
    first = rows_of(run(study(data), store))
    assert len(first) == 2 * 2 * 3
    assert {row.method for row in first} == {"source", "tent", "gprebn"}
    assert all(row.cell.stream.count == 60 for row in first)
    assert all(len(row.metrics["online_error"]) == 3 for row in first)
    assert rows_of(run(study(data), store)) == []  # done is done
    more = rows_of(run(study(data, "source", "bn"), store))
    assert {row.method for row in more} == {"bn"}


def test_cells_are_described_once(data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = study(data, "source", "tent")
    first = small.cells()
    monkeypatch.setattr(Recipe, "__post_init__", lambda recipe: pytest.fail("built again"))
    assert small.cells() == first
    first.clear()  # the caller's own list
    assert small.cells()


def test_launcher_and_order_do_not_change_the_rows(
    data: str, weights: Path, tmp_path: Path
) -> None:
    def found(folder: str, launcher: str, **changes: object) -> dict[str, object]:
        store = RowStore(tmp_path / folder)
        small = study(data, weights=str(weights), **changes)
        rows = rows_of(run(small, store, LAUNCHERS[launcher], 2))
        drop = ("seconds", "peak_megabytes")
        return {r.cell.key: {k: v for k, v in r.metrics.items() if k not in drop} for r in rows}

    one = found("serial", "serial")
    turned = {"severities": (5, 1), "corruptions": ("gaussian_noise", "contrast")}
    assert found("again", "serial", **turned) == one
    assert found("two", "processes") == one


def test_seeds_shuffle_and_draw_other_noise(data: str) -> None:
    small = study(data, seeds=(0, 1))
    cells = {(c.stream.seed, c.stream.shift): c for c in small.cells() if c.stream.severity == 5}
    stored, shuffled = (small.images(cells[seed, "contrast"]) for seed in (0, 1))
    assert not np.array_equal(stored.labels, shuffled.labels)
    order = np.argsort(shuffled.indices)
    assert np.array_equal(
        stored.load().images, shuffled.load().images[order]
    )  # contrast draws nothing
    noisy = [small.images(cells[seed, "gaussian_noise"]) for seed in (0, 1)]
    assert not np.array_equal(
        noisy[0].load().images, noisy[1].load().images[np.argsort(noisy[1].indices)]
    )
    assert cells[1, "contrast"].stream.order == "shuffled"


def test_a_failing_cell_is_told_and_the_rest_goes_on(
    data: str, picture_network: str, tmp_path: Path
) -> None:
    store = RowStore(tmp_path / "rows")
    moody = study(
        data, "source", "tent", model=picture_network.replace("tiny", "touchy"), **AS_IT_IS
    )
    results = list(run(moody, store))
    failures = [r for r in results if isinstance(r, Failure)]
    assert {(f.cell.stream.shift, f.cell.stream.severity) for f in failures} == {("contrast", 5)}
    assert failures[0].error.endswith("too flat")
    assert len(rows_of(results)) == 6


def test_failures_stay_on_disk_until_the_cell_succeeds(
    data: str, picture_network: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RowStore(tmp_path / "rows")
    model = picture_network.replace("tiny", "touchy")
    small = study(
        data, "source", model=model, **AS_IT_IS, corruptions=("contrast",), severities=(5,)
    )
    (failure,) = run(small, store)
    assert [*store.failures()] == [failure]
    assert [*store.rows()] == []
    monkeypatch.setenv("SMOOTH", "1")
    (row,) = run(small, store)
    assert isinstance(row, Row)
    assert row.cell == failure.cell
    assert [*store.failures()] == []
    assert [*store.rows()] == [Row.from_json(row.to_json())]


def test_presets_say_what_the_papers_ran() -> None:
    assert find_preset("tent-cifar").severities == (5,)
    assert find_preset("paper").severities == (1, 2, 3, 4, 5)
    for name, batch, rate, optimizer in (
        ("paper", 200, 1e-3, "adam"),
        ("tent-cifar", 200, 1e-3, "adam"),
        ("paper-imagenet", 64, 2.5e-4, "sgd"),
        ("tent-imagenet", 64, 2.5e-4, "sgd"),
    ):
        preset = find_preset(name)
        assert preset.batch_size == batch
        tent = parse_method("tent").with_defaults(preset.optimising).recipe
        assert tent.update == (Descent(optimizer, lr=rate),), name
        assert tent.steps == 1, name
    own = parse_method("tent:lr=0.5").with_defaults(find_preset("paper").optimising)
    assert own.recipe.update == (Descent("adam", lr=0.5),)  # a method's own option wins
    with pytest.raises(ValueError, match="Did you mean 'tent-cifar'"):
        find_preset("tent-cifr")


def test_a_presets_options_reach_only_methods_with_gradient_steps(data: str) -> None:
    small = study(data, "source", "tent", optimising=find_preset("paper-imagenet").optimising)
    options = {cell.method.word: cell.method.settings for cell in small.cells()}
    assert options["source"] == ()
    assert dict(options["tent"])["optimizer"] == "sgd"
    (tent,) = {cell.method for cell in small.cells() if cell.method.name == "tent"}
    assert spec_of(tent).recipe.update == (Descent("sgd", lr=2.5e-4),)


AS_IT_IS = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # the networks take images in [0, 1]
PICTURE_NETWORK = """
import os
import torch

def tiny():
    torch.manual_seed(0)
    first = torch.nn.Conv2d(3, 4, 7, stride=16)
    first.weight.data *= 15  # outputs of about the variance that batch norm expects
    return torch.nn.Sequential(
        first, torch.nn.BatchNorm2d(4), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(4, 2),
    )

class Moody(torch.nn.Module):
    def forward(self, x):
        return {}["logits"]

def broken():
    return torch.nn.Sequential(torch.nn.BatchNorm2d(3), Moody())

class Touchy(torch.nn.Module):
    def forward(self, x):
        if "SMOOTH" not in os.environ and 0 < x.std((2, 3)).mean() < 0.07:
            raise RuntimeError("too flat")
        return x

def touchy():
    torch.manual_seed(0)
    layers = (torch.nn.BatchNorm2d(3), torch.nn.Flatten(), torch.nn.Linear(3072, 10))
    return torch.nn.Sequential(Touchy(), *layers)
"""


@pytest.fixture
def picture_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"networks_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(PICTURE_NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    return f"{name}:tiny"


@pytest.fixture
def imagenet_c(tmp_path: Path) -> Path:
    """Two corruptions in the folder of their group, two classes, ten pictures each."""
    root, generator = tmp_path / "imagenet-c", np.random.default_rng(0)
    for corruption in ("fog", "snow"):
        for number, name in enumerate(("n01", "n02")):
            folder = root / "weather" / corruption / "3" / name
            folder.mkdir(parents=True)
            for index in range(10):
                pixels = generator.integers(0, 120, (20, 20, 3)) + 100 * number
                Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{index}.JPEG")
    return root


def test_folders_of_imagenet_c(imagenet_c: Path, picture_network: str, tmp_path: Path) -> None:
    small = study(
        str(imagenet_c),
        *("source", "bn", "tent"),
        model=picture_network,
        **AS_IT_IS,
        corruptions=("fog", "snow"),
        severities=(3,),
        batch_size=12,
    )
    results = [*run(small, RowStore(tmp_path / "rows"))]
    assert [result for result in results if isinstance(result, Failure)] == []
    rows = rows_of(results)
    assert len(rows) == 2 * 3
    for row in rows:
        assert row.cell.stream.data.label == "own imagenet-c"  # classes of its own
        assert (row.cell.stream.order, row.cell.stream.count) == ("shuffled", 20)
        assert len(row.metrics["online_error"]) == 2  # 12 and 8 pictures
    stream = small.images(rows[0].cell)
    assert sorted(stream.labels.tolist()) == [0] * 10 + [1] * 10
    assert stream.labels.tolist() != sorted(stream.labels.tolist())  # not class by class
    x = torch.from_numpy(stream.load().images).permute(0, 3, 1, 2).float() / 255
    assert x.shape == (20, 3, 224, 224)
    with torch.no_grad():
        wrong = load(picture_network)(x).argmax(dim=1).numpy() != stream.labels
    source = next(r for r in rows if r.method == "source" and r.shift == "fog")
    assert source.metrics["error"] == pytest.approx(wrong.mean())


def test_a_list_of_pictures_is_named_in_the_protocol(
    imagenet_c: Path, picture_network: str, tmp_path: Path
) -> None:
    subset = tmp_path / "few.txt"
    subset.write_text("n01/0.JPEG\nn02/2.JPEG\n")
    changes = {"model": picture_network, **AS_IT_IS, "subset": str(subset), "severities": (3,)}
    small = study(str(imagenet_c), "source", **changes, corruptions=("fog",))
    (cell,) = small.cells()
    assert (cell.stream.data.label, cell.stream.count) == ("own imagenet-c (few)", 2)
    with pytest.raises(ValueError, match="`subset`"):
        replace(small, data=str(tmp_path)).cells()


def test_no_more_pictures_than_there_are(
    imagenet_c: Path, picture_network: str, tmp_path: Path
) -> None:
    clean = str(imagenet_c / "weather" / "fog" / "3")  # a folder of pictures like any other
    changes = {
        "model": picture_network,
        **AS_IT_IS,
        "corruptions": ("contrast",),
        "severities": (1,),
    }
    spread = study(clean, "source", limit=2, **changes)
    assert sorted(spread.images(spread.cells()[0]).labels.tolist()) == [0, 1]
    with pytest.raises(ValueError, match="must be 1 to 20, got 21"):
        study(clean, "source", limit=21, **changes).cells()


def test_whatever_a_network_raises_becomes_a_failure(
    data: str, picture_network: str, tmp_path: Path
) -> None:
    broken = picture_network.replace("tiny", "broken")
    results = [
        *run(
            study(data, "source", model=broken, **AS_IT_IS, severities=(1,)),
            RowStore(tmp_path / "r"),
        )
    ]
    assert [result.error for result in results] == ["KeyError: 'logits'"] * 2


def test_labels_without_a_corruption_are_no_released_layout(tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", np.zeros(10, dtype=np.int64))
    with pytest.raises(ValueError, match=r"no corruption such as fog\.npy"):
        study(str(tmp_path), "source").cells()


def test_clean_data_and_released_layout(data: str, tmp_path: Path) -> None:
    rows = rows_of(run(study(data, "source", severities=(0,)), RowStore(tmp_path / "clean")))
    assert [row.shift for row in rows] == ["clean"]
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    made = study(data, "source", corruptions=("contrast",), severities=(1, 2, 3, 4, 5))
    stream = [made.images(cell) for cell in made.cells()]
    np.save(folder / "contrast.npy", np.concatenate([s.load().images for s in stream]))
    np.save(folder / "labels.npy", np.concatenate([s.labels for s in stream]))
    released = replace(made, data=str(folder))
    for cell in released.cells():
        assert np.array_equal(released.images(cell).load().images, made.images(cell).load().images)


def test_method_words() -> None:
    spec = parse_method("gprebn:theta=0.5,statistics=source")
    assert spec == MethodSpec("gprebn", (("statistics", "source"), ("theta", 0.5)))
    assert parse_method(str(spec)) == spec
    assert parse_method("bn:only=first(0.5)").recipe.only == First(0.5)
    with pytest.raises(ValueError, match="key=value"):
        parse_method("tent:lr")
    with pytest.raises(ValueError, match="Did you mean 'tent'"):
        parse_method("tnet")
    with pytest.raises(TypeError, match="no option `thta`"):
        parse_method("gprebn:thta=1")


def test_tables_refuse_to_mix(data: str, tmp_path: Path) -> None:
    rows = rows_of(run(study(data), RowStore(tmp_path / "rows")))
    names = [line[0] for line in detailed_table(rows).rows]
    assert names == ["gaussian_noise", "contrast", "mean"]  # canonical order
    assert len(severity_table(rows).columns) == 3
    text = summary_table(rows).to_markdown()
    assert "batch 20" in text
    assert "error minus tent's" in text
    other = Row(
        replace(rows[0].cell, protocol=replace(rows[0].cell.protocol, batch_size=7)),
        rows[0].metrics,
    )
    with pytest.raises(MixedRowsError, match="protocols cannot be mixed"):
        summary_table([*rows, other])
    with pytest.raises(MixedRowsError, match="lacks 1 of 4 streams"):
        summary_table(rows[:-1])
    with pytest.raises(MixedRowsError, match="no rows"):
        summary_table([])


def test_rows_can_be_chosen_before_they_are_put_together(data: str, tmp_path: Path) -> None:
    rows = rows_of(run(study(data), RowStore(tmp_path / "rows")))
    others = [with_protocol(r, batch_size=7) for r in rows]
    both = [*rows, *others]
    assert having(both, ["batch_size=20"]) == rows
    assert having(both, ["batch_size=7", "shift=contrast"]) == [
        row for row in others if row.shift == "contrast"
    ]
    assert having(both, []) == both
    with pytest.raises(ValueError, match="no row has batch_size=8; batch_size is 20, 7"):
        having(both, ["batch_size=8"])
    for wrong in ("batchsize=7", "shift"):
        with pytest.raises(ValueError, match="`--where` must be name=value with one of study"):
            having(both, [wrong])


def test_summary_differences_are_those_of_the_errors(data: str, tmp_path: Path) -> None:
    rows = rows_of(run(study(data), RowStore(tmp_path / "rows")))
    table = summary_table(rows, against="source")
    errors = {line[0]: line[1] for line in table.rows}
    for line in table.rows:
        if line[0] != "source":
            assert float(str(line[2]).split()[0]) == pytest.approx(
                errors[line[0]] - errors["source"], abs=0.006
            )


def test_the_papers_numbers_agree_with_its_means() -> None:
    for data, table in DETAILED.items():
        assert len(table) == len(CORRUPTIONS) * 5
        for method, printed in MEAN[data].items():
            mean = np.mean([table[corruption, method] for corruption in CORRUPTIONS])
            assert mean == pytest.approx(printed, abs=0.11), (data, method)


def test_command_killed_and_started_again(data: str, weights: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    command = [*DRIFTNORM, "bench", "robustness", "--data", data, "--model", "resnet20"]
    command += ["--weights", str(weights), "--out", str(out)]
    command += ["--methods", "source", "gprebn:theta=0.5", "--severities", "1", "5"]
    command += ["--limit", "20", "--batch-size", "10"]
    command += ["--frost", "procedural"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 120
    while len(list(out.glob("*.json"))) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    running.communicate()
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.json")}
    assert len(before) >= 5
    environment = {**os.environ, "COLUMNS": "120"}
    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "\x1b" not in again.stdout
    for name, written in before.items():
        assert (out / name).stat().st_mtime_ns == written
    rows = load_rows(out)
    assert len(rows) == 15 * 2 * 2
    frost = [row for row in rows if row.shift.startswith("frost")]
    assert {row.shift for row in frost} == {"frost (procedural)"}
    assert {row.metrics["note"] for row in frost} == {"frost is procedural"}
    shown = call("table", "detailed", str(out), "--format", "latex")
    assert "\\begin{tabular}{lrr" in shown.stdout
    assert "gaussian\\_noise" in shown.stdout
    wrong = call("table", "sumary", str(out))
    assert wrong.returncode == 2
    assert "Did you mean 'summary'?" in wrong.stderr

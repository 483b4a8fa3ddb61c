"""Fine-tuning on all corruptions but one, and the study that measures it, on small data."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from driftnorm.bench.rows import Row, RowStore
from driftnorm.bench.runner import Prepared, Unprepared
from driftnorm.bench.runner import run as run_study
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.bench.studies.fine_tuned import METHODS, FineTunedStudy
from driftnorm.cli._bench import BenchFlags
from driftnorm.cli.bench_fine_tuned import bench_fine_tuned
from driftnorm.images.labelled import load_clean
from driftnorm.models import build, load, open_checkpoint, weights_hash
from driftnorm.shifts import CORRUPTIONS, corrupt
from driftnorm.training import Hooks, Optimization, training_run
from driftnorm.training.fine_tuning import FineTuning, FrozenStatistics
from driftnorm.views.networks import fine_tuned_table, tuning_of

LEFT_OUT = ("contrast", "brightness")
SHORT = Optimization(learning_rate=0.001, final_rate=0.0, batch_size=10, epochs=1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    generator = np.random.default_rng(0)
    coarse = generator.integers(0, 256, (40, 4, 4, 3))
    images = np.repeat(np.repeat(coarse, 8, axis=1), 8, axis=2).astype(np.uint8)
    classes = np.array([f"class {i}" for i in range(10)])
    path = tmp_path_factory.mktemp("data") / "small.npz"
    np.savez(path, images=images, labels=np.arange(40) % 10, classes=classes)
    return str(path)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("weights") / "resnet20.safetensors"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = build("resnet20").train()
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None  # the mean over all batches: here, of the only one
        network(torch.randn(16, 3, 32, 32))  # frozen statistics must be those of some data
        save_file(network.state_dict(), path)
    return str(path)


@pytest.fixture
def tuning(data: str, weights: str, tmp_path: Path) -> FineTuning:
    corruptions = (*LEFT_OUT, "gaussian_noise")
    return FineTuning(data, "resnet20", weights, tmp_path, 20, SHORT, corruptions)


def travelling(
    function: Callable[[Any], Any],
    tasks: Iterable[Any],
    workers: int,
    died: Callable[[Any], Any] | None = None,
) -> Iterator[tuple[Any, Any]]:
    """A launcher that sends tasks and results as another machine would get them."""
    for task in tasks:
        sent = pickle.loads(pickle.dumps((function, task)))
        yield task, pickle.loads(pickle.dumps(sent[0](sent[1])))


def study(tuning: FineTuning, **changes: object) -> FineTunedStudy:
    pretrained = CorruptionStudy(
        data=tuning.train,
        model="resnet20",
        weights=tuning.weights,
        methods=METHODS,
        corruptions=LEFT_OUT,
        severities=(5,),
        batch_size=20,
    )
    return FineTunedStudy(tuning, replace(pretrained, **changes))


def test_statistics_stay_and_parameters_move(tuning: FineTuning) -> None:
    found = open_checkpoint(tuning.tune("contrast"))
    before = load("resnet20", tuning.weights).state_dict()
    after = found.model.state_dict()
    assert before.keys() == after.keys()
    for name, value in before.items():
        kept = any(part in name for part in ("running_", "num_batches", "mean", "std"))
        assert torch.equal(value, after[name]) == kept, name
    assert found.classes[0] == "class 0"
    run = found.facts["run"]
    assert run["left_out"] == "contrast"
    assert run["corruptions"] == ["brightness", "gaussian_noise"]
    assert found.facts["steps_done"] == 4  # 2 x 20 images, 10 a step


def test_frozen_statistics_ignore_the_mode() -> None:
    network = FrozenStatistics(torch.nn.BatchNorm1d(2)).train()
    network(torch.randn(8, 2) + 3)
    assert not network.network.training
    assert torch.equal(network.network.running_mean, torch.zeros(2))


def test_pools_have_every_severity_evenly_and_are_made_once(tuning: FineTuning) -> None:
    file = tuning.make_pool("gaussian_noise")
    pool, chosen = np.load(file), tuning.chosen("gaussian_noise")
    clean = load_clean(tuning.train)
    for place in range(20):
        index = int(chosen.indices[place])
        image = clean.images[index : index + 1]
        literal = corrupt(image, "gaussian_noise", place % 5 + 1, indices=[index])
        assert np.array_equal(pool[place], literal[0])
        assert chosen.labels[place] == clean.labels[index]
    assert len(set(chosen.indices.tolist())) == 20
    assert set(chosen.indices.tolist()) != set(tuning.chosen("contrast").indices.tolist())
    written = file.stat().st_mtime_ns
    tuning.tune("contrast")
    tuning.tune("brightness")
    assert file.stat().st_mtime_ns == written
    with pytest.raises(ValueError, match="`images` must be from 5"):
        replace(tuning, images=41).make_pool("contrast")


def test_stopped_and_resumed_ends_with_the_same_weights(
    tuning: FineTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(progress: object, losses: object) -> None:
        if progress.step == 2:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGINT)

    real = training_run.train
    with monkeypatch.context() as patch:
        hooks = Hooks(on_step=interrupt)
        patch.setattr(training_run, "train", lambda *a, **k: real(*a, **{**k, "hooks": hooks}))
        with pytest.raises(KeyboardInterrupt):
            tuning.tune("contrast")
    file = tuning.file("contrast")
    assert not file.exists()
    assert file.with_suffix(".resume.pt").exists()
    resumed = open_checkpoint(tuning.tune("contrast"))
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    straight = replace(tuning, folder=tmp_path / "straight").tune("contrast")
    assert weights_hash(resumed.model.state_dict()) == weights_hash(
        open_checkpoint(straight).model.state_dict()
    )


def test_other_settings_make_other_files(tuning: FineTuning) -> None:
    changes = (
        {"images": 25},
        {"seed": 1},
        {"optimization": replace(SHORT, learning_rate=1e-5)},
        {"corruptions": LEFT_OUT},
    )
    files = {tuning.file("contrast"), *(replace(tuning, **c).file("contrast") for c in changes)}
    assert len(files) == 5
    assert any("-lr-0.00001-" in file.name for file in files)


POOLS = (*LEFT_OUT, "gaussian_noise")


def test_the_study_measures_each_network_where_it_was_not_trained(
    tuning: FineTuning, tmp_path: Path
) -> None:
    both, store = study(tuning), RowStore(tmp_path)
    assert both.outlook(store).preparations == 3 + 2  # images with three corruptions, two networks
    assert len(both.outlook(store).cells) == 2 * 2 * 4
    results = [*run_study(both, store, travelling)]
    made = [result.what for result in results if isinstance(result, Prepared)]
    assert sorted(made[:3]) == sorted(f"training images with {c}" for c in POOLS)
    assert sorted(made[3:]) == sorted(f"fine-tuning without {c}" for c in LEFT_OUT)
    rows = [result for result in results if isinstance(result, Row)]
    tuned = [row for row in rows if row.cell.network.training is not None]
    pretrained = [row for row in rows if row.cell.network.training is None]
    assert len(pretrained) == len(tuned) == 2 * 4
    for row in tuned:
        assert f"-without-{row.shift}-" in row.network
        assert tuning_of(row) == "20 images 1 epochs lr 0.001 seed 0"
    table = fine_tuned_table([*pretrained, *tuned])
    assert [line[:2] for line in table.rows] == [
        *(("fine-tuned", "source"), ("fine-tuned", "target")),
        *(("pre-trained", "source"), ("pre-trained", "target")),
    ]
    errors = [100 * row.metrics["error"] for row in tuned if row.method == "bn"]
    assert table.rows[1][2] == pytest.approx(np.mean(errors))
    assert "20 images 1 epochs lr 0.001" in table.note
    assert {cell.key for cell in both.cells()} == {row.cell.key for row in (*pretrained, *tuned)}
    assert both.outlook(store) == ([], 0, True)
    assert [*run_study(both, store)] == []  # done is done
    (store.folder / f"{tuned[0].cell.key}.json").unlink()
    (again,) = run_study(both, store)
    assert isinstance(again, Row)
    assert again.cell == tuned[0].cell


def test_a_network_that_cannot_be_made_is_told_and_the_rest_goes_on(
    tuning: FineTuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = FineTuning.tune

    def tune(self: FineTuning, left_out: str) -> Path:
        wild = replace(SHORT, learning_rate=1e30)
        return real(replace(self, optimization=wild) if left_out == "contrast" else self, left_out)

    monkeypatch.setattr(FineTuning, "tune", tune)
    results = [*run_study(study(tuning), RowStore(tmp_path / "rows"))]
    (broken,) = (result for result in results if isinstance(result, Unprepared))
    assert broken.what == "fine-tuning without contrast"
    assert "lower learning rate" in broken.error
    rows = [result for result in results if isinstance(result, Row)]
    assert sum(row.cell.network.training is not None for row in rows) == 4


def test_the_command_run_twice(
    data: str, weights: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> str:
        bench_fine_tuned(
            data=Path(data),
            test_data=Path(data),
            model="resnet20",
            weights=Path(weights),
            corruptions=["contrast", "fog"],
            images=5,
            epochs=0.1,
            limit=20,
            frost=Path("procedural"),
            out=tmp_path,
            flags=BenchFlags(workers=1),
        )
        return " ".join(capsys.readouterr().out.split())

    assert "16 rows" in run()
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    # Rows, networks, pools, config, and the images of two streams for each of two kinds of network.
    assert len(kept) == 16 + 2 + len(CORRUPTIONS) + 1 + 4
    assert "0 failed" in run()
    assert {path: path.stat().st_mtime_ns for path in kept} == kept

"""Callbacks: what is logged, to the real TensorBoard and MLflow where they are installed."""

from __future__ import annotations

import copy
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.adapter import callbacks
from driftnorm.models import _vision

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
ALWAYS = {"samples", "adapted", "bad_batches", "alarms"}


def expected_course(network: nn.Module, data: list[Tensor]) -> list[driftnorm.BatchReport]:
    adapter, reports = driftnorm.adapt(network, "gprebn"), []
    for x in data:
        adapter(x)
        assert adapter.last is not None
        reports.append(adapter.last)
    return reports


def test_measurements_are_the_report(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "gprebn", guard="off")
    with pytest.raises(ValueError, match="no report yet"):
        callbacks.measurements(adapter)
    adapter(batches()[0])
    last = adapter.last
    assert last is not None
    assert callbacks.measurements(adapter) == {
        "samples": 9.0,
        "adapted": 1.0,
        "bad_batches": 0.0,
        "alarms": 0.0,
        "entropy": last.entropy,
        "spread": last.spread,
        "loss": last.loss,
    }
    with pytest.warns(driftnorm.DriftnormWarning, match="not adapted to"):
        adapter(batches()[0] * math.nan)
    bad = callbacks.measurements(adapter)
    assert bad.keys() == ALWAYS
    assert (bad["adapted"], bad["bad_batches"]) == (0.0, 1.0)


def test_attached_and_removed(network: Build, batches: Draw) -> None:
    adapter, seen = driftnorm.adapt(network(), "bn", guard="off"), []
    handle = callbacks.attach(adapter, lambda a: seen.append(a.batches))
    for x in batches():
        adapter(x)
    assert seen == [1, 2, 3, 4]
    twin = copy.deepcopy(adapter)
    twin(batches()[0])
    assert seen[-1] == twin.batches == 5  # a copy speaks for itself
    handle.remove()
    adapter(batches()[0])
    assert len(seen) == 5


def test_what_cannot_be_attached_is_told(network: Build) -> None:
    with pytest.raises(TypeError, match="must be a driftnorm adapter, got PixelNet"):
        callbacks.attach(network(), print)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`callback` must be callable, got str"):
        callbacks.attach(driftnorm.adapt(network(), "bn"), "tensorboard")  # type: ignore[arg-type]


def test_answers_do_not_change(network: Build, batches: Draw) -> None:
    plain, heard = (driftnorm.adapt(network(), "gprebn") for _ in range(2))
    callbacks.attach(heard, callbacks.measurements)  # type: ignore[arg-type]
    for x in batches():
        assert torch.equal(plain(x), heard(x))


def test_attached_to_a_compiled_adapter(network: Build, batches: Draw) -> None:
    adapter, seen = driftnorm.adapt(network(), "gprebn"), []
    callbacks.attach(adapter, lambda a: seen.append(callbacks.measurements(a)["entropy"]))
    compiled = torch.compile(adapter, backend="eager")
    for x in batches():
        compiled(x)
    assert seen == [report.entropy for report in expected_course(network(), batches())]
    torch.compiler.reset()


def test_the_real_tensorboard(network: Build, batches: Draw, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those of protobuf and of tensorboard's own imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        adapter = driftnorm.adapt(network(), "gprebn")
        with callbacks.TensorBoard(tmp_path / "events") as callback:
            callbacks.attach(adapter, callback)
            for x in batches():
                adapter(x)
            adapter.reset()
            adapter(batches()[0])
        events = EventAccumulator(str(tmp_path / "events"))
        events.Reload()
    names = {f"driftnorm/{name}" for name in ALWAYS | {"entropy", "spread", "loss"}}
    assert set(events.Tags()["scalars"]) == names
    course = expected_course(network(), batches())
    written = events.Scalars("driftnorm/entropy")
    assert [event.step for event in written] == [0, 1, 2, 3, 4]  # a reset does not go back
    values = [report.entropy for report in course]
    assert [event.value for event in written] == pytest.approx([*values, values[0]])


def test_the_real_mlflow(
    network: Build, batches: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        mlflow = pytest.importorskip("mlflow")
        mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
        adapter = driftnorm.adapt(network(), "gprebn")
        with mlflow.start_run() as run:
            callback = callbacks.MLflow()
            for x in batches():
                adapter(x)
                callback(adapter)
        client = mlflow.MlflowClient()
        history = client.get_metric_history(run.info.run_id, "driftnorm/loss")
        other = client.create_run(run.info.experiment_id)
        callbacks.MLflow(run_id=other.info.run_id)(adapter)
        alone = client.get_run(other.info.run_id).data.metrics
    course = expected_course(network(), batches())
    assert [metric.step for metric in history] == [0, 1, 2, 3]
    assert [metric.value for metric in history] == [report.loss for report in course]
    assert alone["driftnorm/samples"] == 9


def test_weights_and_biases_gets_what_a_run_logs(network: Build, batches: Draw) -> None:
    """A stand-in for the run: the real one needs an account or a service of its own."""
    logged: list[dict[str, float]] = []
    adapter = driftnorm.adapt(network(), "bn", guard="off")
    callbacks.attach(adapter, callbacks.WandB(SimpleNamespace(log=logged.append), prefix="tta"))
    for x in batches():
        adapter(x)
    assert len(logged) == 4
    assert logged[0].keys() == {f"tta/{name}" for name in ALWAYS | {"entropy", "spread"}}


def test_weights_and_biases_needs_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=None))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"wandb\.init"):
        callbacks.WandB()


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("tensorboard", lambda folder: callbacks.TensorBoard(folder)),
        ("wandb", lambda folder: callbacks.WandB()),
        ("mlflow", lambda folder: callbacks.MLflow()),
    ],
)
def test_a_missing_package_names_its_extra(
    package: str, make: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    with pytest.raises(ImportError, match=rf'pip install "driftnorm\[{package}\]"'):
        make(tmp_path)


def test_torchmetrics_objects(network: Build, batches: Draw) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if importlib.util.find_spec("torchvision") is not None:
            _vision.import_torchvision()  # torchmetrics imports it
        pytest.importorskip("torchmetrics")
        from torchmetrics import MeanMetric, MetricCollection
        from torchmetrics.classification import MulticlassAccuracy, MulticlassCalibrationError
    adapter = driftnorm.adapt(network(), "gprebn", guard="off")
    scores = MetricCollection(
        [MulticlassAccuracy(4, average="micro"), MulticlassCalibrationError(4, n_bins=10)]
    )
    entropy = MeanMetric()
    callbacks.attach(adapter, lambda a: entropy.update(a.last.entropy, a.last.samples))
    labels, right, entropies = torch.arange(9) % 4, 0, []
    with torch.inference_mode():
        for x in batches():
            answer = adapter(x)
            scores.update(answer.softmax(1), labels)
            right += int((answer.argmax(1) == labels).sum())
            entropies.append(adapter.last.entropy)
    assert float(scores.compute()["MulticlassAccuracy"]) == pytest.approx(right / 36)
    assert float(entropy.compute()) == pytest.approx(sum(entropies) / 4)

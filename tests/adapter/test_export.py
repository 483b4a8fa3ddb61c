"""Baked networks as ONNX files, checked against onnxruntime."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]

# The exporter of torch itself still uses what newer versions of torch and Python discourage.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def onnxruntime() -> Any:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    return pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(("kind", "method"), [("2d", "gprebn+rt3a"), ("1d", "tent")])
def test_onnx_answers_as_the_frozen_adapter(
    kind: str, method: str, network: Build, batches: Draw, tmp_path: Path, onnxruntime: Any
) -> None:
    path, data = tmp_path / "adapted.onnx", batches(kind)
    adapter = driftnorm.adapt(network(kind), method, lr=0.05, guard="off")
    for x in data[:3]:
        adapter(x)
    before = adapter.state_dict()
    difference = driftnorm.export_onnx(adapter, path, data[3])
    assert 0 <= difference < 1e-4
    assert not adapter.frozen
    after = adapter.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    adapter.freeze()
    for x in (data[0], data[0][:5], data[0][:1], torch.cat(data)):  # any batch size
        answer = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
        torch.testing.assert_close(answer, adapter(x), rtol=1e-4, atol=1e-5)


def test_before_any_batch_it_is_the_source(
    network: Build, batches: Draw, tmp_path: Path, onnxruntime: Any
) -> None:
    path, x = tmp_path / "source.onnx", batches()[0][:1]
    source = network()
    driftnorm.export_onnx(driftnorm.adapt(source, "rt3a").freeze(), path, x)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = batches()[1]
    answer = torch.from_numpy(session.run(None, {"input": x.numpy()})[0])
    torch.testing.assert_close(answer, source(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spoil", [1.0, torch.nan])
def test_a_file_that_differs_is_refused(
    spoil: float,
    network: Build,
    batches: Draw,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    onnxruntime: Any,
) -> None:
    path, adapter = tmp_path / "wrong.onnx", driftnorm.adapt(network("1d"), "bn", guard="off")
    x = batches("1d")[0]
    adapter(x)
    wrong = network("1d")
    wrong.fc.bias.data += spoil
    monkeypatch.setattr(type(adapter), "bake", lambda self: wrong)
    with pytest.raises(ValueError, match="`tolerance`"):
        driftnorm.export_onnx(adapter, path, x)
    assert not path.exists()
    assert not adapter.frozen


def test_outputs_that_hold_the_logits(
    network: Build, batches: Draw, tmp_path: Path, onnxruntime: Any
) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network("1d")

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.inner(x)}

    x = batches("1d")[0]
    adapter = driftnorm.adapt(Wrapped().eval(), "bn", logits=lambda out: out["logits"])
    adapter(x)
    assert driftnorm.export_onnx(adapter, tmp_path / "dict.onnx", x) < 1e-4


@pytest.mark.parametrize("package", ["onnxruntime", "onnxscript"])
def test_missing_packages_are_named(
    package: str, network: Build, batches: Draw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    adapter = driftnorm.adapt(network(), "bn")
    with pytest.raises(ImportError, match=r"driftnorm\[onnx\]"):
        driftnorm.export_onnx(adapter, tmp_path / "x.onnx", batches()[0])
    assert not (tmp_path / "x.onnx").exists()

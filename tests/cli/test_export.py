"""A network leaves the adapter: written, opened again by what reads such files, and compared."""

from __future__ import annotations

import importlib.util
import json
import warnings
from pathlib import Path
from typing import Any

import cyclopts
import numpy as np
import pytest
import torch
from conftest import PixelNet, pretend_trained
from torch import Tensor, nn

from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.cli.export import export as command
from driftnorm.methods.spec import parse_method
from driftnorm.models import build, open_checkpoint, save_checkpoint
from driftnorm.models.opened_model import open_model
from driftnorm.predictions.saved_run import save_adapter

SIZE = 12
needs_onnx = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("onnx", "onnxruntime", "onnxscript"))),
    reason="onnx, onnxruntime and onnxscript are not installed",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A tiny self-describing file."""
    torch.manual_seed(0)
    network = pretend_trained(build("mnist-bn", 4, in_channels=3))
    save_checkpoint(
        tmp_path / "source.safetensors",
        network,
        architecture="mnist-bn",
        classes=["a", "b", "c", "d"],
        preprocessing={"mean": [0.5, 0.4, 0.3], "std": [0.2, 0.3, 0.4], "size": SIZE},
        options={"in_channels": 3},
    )
    return tmp_path / "source.safetensors"


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    images = np.random.default_rng(0).integers(0, 200, (40, SIZE, SIZE, 3), dtype=np.uint8)
    np.save(tmp_path / "pictures.npy", images)
    return tmp_path / "pictures.npy"


def run(*arguments: object) -> None:
    app = cyclopts.App(result_action="return_value")
    app.default(command)
    app([*map(str, arguments)], exit_on_error=False)


def batches(pictures: Path) -> tuple[Tensor, ...]:
    images = torch.from_numpy(np.load(pictures)).permute(0, 3, 1, 2).float() / 255
    return images.split(16)


def adapted(source: Path, pictures: Path, method: str = "steady") -> RecipeAdapter:
    """The same, done by hand."""
    spec = parse_method(method)
    adapter = RecipeAdapter(open_model(source).network, spec.recipe, method=spec.name, seed=0)
    for x in batches(pictures):
        adapter(x)
    return adapter.freeze()


def close(answer: Tensor, expected: Tensor) -> bool:
    return float((answer - expected).abs().max()) < 1e-3 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("method", ["gprebn", "bn", "gprebn+rt3a"])
def test_a_checkpoint_answers_as_the_frozen_adapter(
    method: str, source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("adapted.safetensors")
    arguments = ["--data", pictures, "--batch-size", 16, "--method", method, "--json"]
    run(source, out, *arguments)
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["adapted_to_batches"]) == ("safetensors", 3)
    assert 0 <= said["largest_difference"] < 1e-3
    assert said["compared_on"] == "40 of your images"
    written, adapter = open_checkpoint(out), adapted(source, pictures, method)
    x = batches(pictures)[1]
    with torch.no_grad():
        assert close(written.model(x), adapter(x))
        assert not close(written.model(x), open_checkpoint(source).model(x))  # it did adapt
    assert written.classes == ("a", "b", "c", "d")
    assert written.facts["adapted_from"] == "source"
    assert sorted(p.name for p in out.parent.iterdir()) == [
        "adapted.safetensors",
        "pictures.npy",
        "source.safetensors",
    ]


def test_a_program_takes_any_batch_size(
    source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("adapted.pt2")
    run(source, out, "--data", pictures, "--batch-size", 16)
    assert "differ from the frozen adapter's by at most" in capsys.readouterr().out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own loader
        program = torch.export.load(out).module()
    adapter = adapted(source, pictures)
    for x in (batches(pictures)[0], batches(pictures)[0][:1]):
        assert close(program(x), adapter(x))


@needs_onnx
def test_onnx_takes_any_batch_size(
    source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import onnxruntime

    out = source.with_name("adapted.onnx")
    run(source, out, "--data", pictures, "--batch-size", 16)
    assert "(onnx)" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    adapter = adapted(source, pictures)
    for x in (batches(pictures)[0], batches(pictures)[0][:1]):
        assert close(torch.from_numpy(session.run(None, {"input": x.numpy()})[0]), adapter(x))


def test_from_a_saved_state(
    source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapter, state = adapted(source, pictures), source.with_name("state.safetensors")
    save_adapter(state, adapter)
    out = source.with_name("adapted.safetensors")
    for data, compared in (((), "8 random images"), (("--data", pictures), "40 of your images")):
        run(source, out, "--load-state", state, *data, "--json")
        said = json.loads(capsys.readouterr().out)
        assert (said["adapted_to_batches"], said["compared_on"]) == (3, compared)
        x = batches(pictures)[0]
        with torch.no_grad():
            assert close(open_checkpoint(out).model(x), adapter(x))
    with pytest.raises(ValueError, match="belongs to 'steady'"):
        run(source, out, "--load-state", state, "--method", "bn")


def test_limited_to_some_images(
    source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = source.with_name("adapted.safetensors")
    run(source, out, "--data", pictures, "--batch-size", 8, "--limit", 16, "--json")
    assert json.loads(capsys.readouterr().out)["adapted_to_batches"] == 2


def test_wrong_use_writes_nothing(source: Path, pictures: Path) -> None:
    out = source.with_name("adapted.xyz")
    with pytest.raises(ValueError, match=r"`--out` must end in \.safetensors, \.pt2, \.onnx"):
        run(source, out, "--data", pictures)
    with pytest.raises(
        ValueError,
        match="give `--data` to adapt to, `--load-state` of",
    ):
        run(source, out.with_suffix(".pt2"))
    with pytest.raises(ValueError, match="more than the `tolerance`"):
        run(source, out, "--format", "safetensors", "--data", pictures, "--tolerance", "-1")
    assert sorted(p.name for p in out.parent.iterdir()) == ["pictures.npy", "source.safetensors"]
    run(source, out, "--format", "safetensors", "--data", pictures, "--quiet")
    assert open_checkpoint(out).classes == ("a", "b", "c", "d")


def test_a_pickled_network_has_no_checkpoint(tmp_path: Path, pictures: Path) -> None:
    torch.save(pretend_trained(PixelNet(2, nn.BatchNorm2d)), tmp_path / "whole.pt")
    flags = ["--data", pictures, "--mean", 0.5, "--std", 0.5, "--size", SIZE, "--trust"]
    with pytest.raises(ValueError, match=r"write \.pt2 or \.onnx"):
        run(tmp_path / "whole.pt", tmp_path / "out.safetensors", *flags)
    run(tmp_path / "whole.pt", tmp_path / "out.pt2", *flags, "--quiet")
    assert (tmp_path / "out.pt2").is_file()


def test_unreadable_images_are_told(source: Path, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"none of the images could be read.*a\.png"):
        run(source, tmp_path / "out.safetensors", "--data", tmp_path / "broken")


def test_a_network_of_timm(timm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    network = pretend_trained(timm.create_model("resnet18", num_classes=5))
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    images = np.random.default_rng(0).integers(0, 255, (12, 32, 32, 3), dtype=np.uint8)
    np.save(tmp_path / "pictures.npy", images)
    given = [
        "--weights",
        tmp_path / "weights.pt",
        "--size",
        32,
        "--data",
        tmp_path / "pictures.npy",
    ]
    out = tmp_path / "adapted.safetensors"
    run("timm:resnet18", out, *given, "--json")
    assert json.loads(capsys.readouterr().out)["largest_difference"] < 1e-2
    opened = open_checkpoint(out)
    assert opened.architecture == "timm:resnet18"
    plain = timm.create_model("resnet18", num_classes=5)
    plain.load_state_dict(opened.model.network.state_dict())  # the names of timm's own network


def test_the_network_as_it_is_needs_no_data(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(source, source.with_name("same.safetensors"), "--method", "source")
    assert "as it is; on 8 random images" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"`--out` would overwrite .*, which is `NETWORK`"):
        run(source, source, "--method", "source")
    names = source.with_name("names.onnx")
    with pytest.raises(ValueError, match=r"`--out` would overwrite .*, which is `--classes`"):
        run(source, names, "--method", "source", "--classes", str(names))


def test_onnx_says_what_it_takes_and_what_its_classes_are(source: Path, pictures: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    out = source.with_name("a.onnx")
    run(source, out, "--data", pictures)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    about = session.get_modelmeta().custom_metadata_map
    assert json.loads(about["classes"]) == list(open_checkpoint(source).classes)
    assert json.loads(about["preprocessing"])["size"] == open_checkpoint(source).preprocessing.size
    assert "in [0, 1]" in about["input"]


def test_a_network_that_was_adapted_before_is_remarked_on(
    source: Path, pictures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once = source.with_name("once.safetensors")
    run(source, once, "--data", pictures)
    assert "was adapted" not in capsys.readouterr().err
    run(once, source.with_name("twice.safetensors"), "--data", pictures)
    assert "once was already adapted by steady, and is adapted again" in capsys.readouterr().err

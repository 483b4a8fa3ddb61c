"""Weight files: every layout in use, every kind of bad file, and self-describing checkpoints."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import stat
import zipfile
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from driftnorm.errors import CheckpointError
from driftnorm.models import (
    Normalized,
    Preprocessing,
    _vision,
    build,
    fit_weights,
    load,
    load_weights,
    matching_architectures,
    open_checkpoint,
    save_checkpoint,
    weights_hash,
)
from driftnorm.models import (
    checkpoint_files as saved,
)
from driftnorm.models.weight_layouts import plain_names

SHARED = os.environ.get("DRIFTNORM_SHARED")
CLASSES = ["airplane", "bird", "cat"]
PREPROCESSING = {
    "mean": [0.4914, 0.4822, 0.4465], "std": [0.2023, 0.1994, 0.2010],
    "size": 32, "interpolation": "bilinear",
}  # fmt: skip


def state_of(name: str, **options: object) -> dict[str, Tensor]:
    """A state dict with the exact names and shapes, another value for each tensor, and no bulk.

    Each tensor is one stored number seen through strides of zero, so torch files of large networks
    stay small.
    """
    with torch.device("meta"):
        shapes = {n: (t.shape, t.dtype) for n, t in build(name, **options).state_dict().items()}
    return OrderedDict(
        (n, torch.tensor((i % 89 + 1) / 64).to(dtype).expand(shape))
        for i, (n, (shape, dtype)) in enumerate(shapes.items())
    )


def prefixed(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return OrderedDict((prefix + name, tensor) for name, tensor in state.items())


def written(path: Path, content: object, **options: object) -> Path:
    torch.save(content, path, **options)
    return path


def assert_holds(model: nn.Module, state: dict[str, Tensor]) -> None:
    held = (model.network if isinstance(model, Normalized) else model).state_dict()
    assert held.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(held[name], tensor.to(held[name].dtype)), name


def problem_of(path: Path, **options: object) -> tuple[str, str]:
    with pytest.raises(CheckpointError) as caught:
        load_weights(path, **options)
    assert str(path) in str(caught.value)
    return caught.value.problem, str(caught.value)


# --- layouts --------------------------------------------------------------------------------

MU = torch.full((1, 3, 1, 1), 0.5)
SIGMA = torch.full((1, 3, 1, 1), 0.25)


@pytest.mark.parametrize("constants", [{}, {"mu": MU, "sigma": SIGMA}], ids=["bare", "mu-sigma"])
@pytest.mark.parametrize(
    ("nested", "prefix"),
    [(False, ""), (True, "module."), (False, "model."), (True, "module.model.")],
)
def test_robustbench_augmix_wrn(tmp_path, constants, prefix, nested):
    state = state_of("wrn-40-2")
    content = prefixed({**state, **constants}, prefix)
    path = written(tmp_path / "a.pt", {"state_dict": content, "epoch": 99} if nested else content)
    model = load("wrn-40-2", path)
    assert_holds(model, state)
    assert model.mean.flatten().tolist() == [0.5] * 3
    assert model.std.flatten().tolist() == [0.25 if constants else 0.5] * 3


def test_augmix_repository_cifar(tmp_path):
    """Their files name the shortcut otherwise and hold the architecture's *name* as `model`."""
    state = state_of("wrn-40-2", num_classes=100)
    theirs = {n.replace("convShortcut", "conv_shortcut"): t for n, t in state.items()}
    content = {
        "epoch": 100, "dataset": "cifar100", "model": "wrn", "best_acc": 0.76,
        "state_dict": prefixed(theirs, "module."), "optimizer": {"state": {}, "param_groups": []},
    }  # fmt: skip
    model = load("wrn-40-2", written(tmp_path / "checkpoint.pth.tar", content))
    assert_holds(model, state)


def test_robustbench_standard(tmp_path):
    state = state_of("wrn-28-10")
    path = written(tmp_path / "Standard.pt", {"state_dict": state})
    assert path.stat().st_size < 1e6
    model = load("wrn-28-10", path)
    assert_holds(model, state)
    assert model.mean.flatten().tolist() == [0, 0, 0]
    assert model.std.flatten().tolist() == [1, 1, 1]


IMAGENET_MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)
IMAGENET_STD = torch.tensor([0.25, 0.5, 0.125]).view(1, 3, 1, 1)


@pytest.mark.parametrize(
    ("constant_prefix", "prefix"),
    [
        ("normalize.", "model."),
        ("module.normalize.", "module.model."),
        ("module.0.", "module.1."),
        (None, "model."),
    ],
)
def test_robustbench_imagenet_resnet50(tmp_path, constant_prefix, prefix):
    state = state_of("resnet50")
    content = prefixed(state, prefix)
    if constant_prefix is not None:
        content[f"{constant_prefix}mean"] = IMAGENET_MEAN
        content[f"{constant_prefix}std"] = IMAGENET_STD
    model = load("resnet50", written(tmp_path / "r50.pt", {"state_dict": content}))
    assert_holds(model, state)
    expected = [0.229, 0.224, 0.225] if constant_prefix is None else [0.25, 0.5, 0.125]
    assert model.std.flatten().tolist() == pytest.approx(expected)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before-1.6"])
def test_imagenet_training_script_layout(tmp_path, legacy):
    """AutoAugment, random AutoAugment, AugMix and Stylized-ImageNet ResNet-50."""
    state = state_of("resnet50")
    old = {n: t for n, t in state.items() if not n.endswith("num_batches_tracked")}
    content = {
        "epoch": 60, "arch": "resnet50", "best_prec1": torch.tensor(60.2),
        "state_dict": prefixed(old, "module."), "optimizer": {"state": {}, "param_groups": []},
    }  # fmt: skip
    path = written(tmp_path / "m.pth.tar", content, _use_new_zipfile_serialization=not legacy)
    model = load("resnet50", path)
    held = model.network.state_dict()
    assert all(torch.equal(held[name], tensor) for name, tensor in old.items())


@pytest.mark.parametrize("filter_size", [3, 4])
def test_maxblur_file_settles_the_filter(tmp_path, filter_size):
    state = state_of("resnet50-maxblur", filter_size=filter_size)
    path = written(tmp_path / "resnet50_lpf.pth.tar", {"state_dict": prefixed(state, "module.")})
    assert_holds(load("resnet50-maxblur", path), state)


@pytest.mark.parametrize("nest", ["state_dict", "model_state_dict", "model"])
def test_nesting(tmp_path, nest):
    state = state_of("mnist-bn")
    path = written(tmp_path / "n.pt", {nest: state, "step": 3})
    assert_holds(load("mnist-bn", path), state)
    deep = written(tmp_path / "d.pt", {"model": {nest: prefixed(state, "_orig_mod.module.")}})
    assert_holds(load("mnist-bn", deep), state)


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(tmp_path, half):
    state = {n: t.to(half).contiguous() if "conv" in n else t.contiguous()
             for n, t in state_of("resnet20").items()}  # fmt: skip
    for path in (tmp_path / "h.safetensors", tmp_path / "h.pt"):
        save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
        weights = load_weights(path)
        assert weights["conv1.weight"].dtype == torch.float32
        assert torch.equal(weights["conv1.weight"], state["conv1.weight"].float())
        assert weights["bn1.num_batches_tracked"].dtype == torch.int64


def test_state_dict_instead_of_a_file():
    state = state_of("resnet20", num_classes=7)
    model = load("resnet20", prefixed(state, "module."))
    assert_holds(model, state)
    again = load("resnet20", model.state_dict())  # that of a Normalized
    assert_holds(again, state)


def test_plain_names_keep_what_is_not_shared():
    assert plain_names(["model.a", "head.b"]) == {"model.a": "model.a", "head.b": "head.b"}
    assert plain_names([]) == {}
    assert plain_names(["0.mean", "0.std", "1.1.w"]) == {
        "0.mean": "mean", "0.std": "std", "1.1.w": "w",
    }  # fmt: skip


class Wrapping(nn.Module):
    """A user's network whose own names look like a wrapper's, with normalisation of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 3, 1, 1))
        self.register_buffer("std", torch.ones(1, 3, 1, 1))
        self.model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.model((x - self.mean) / self.std)


def test_names_of_wrapping_networks_survive(tmp_path, monkeypatch):
    network = Wrapping()
    network.mean.fill_(0.5)
    other = Wrapping()
    fit_weights(other, load_weights(written(tmp_path / "w.pt", network.state_dict())))
    assert_holds(other, network.state_dict())
    sequential, fresh = (nn.Sequential(nn.Flatten(), nn.Linear(12, 2)) for _ in range(2))
    fit_weights(fresh, load_weights(written(tmp_path / "s.pt", sequential.state_dict())))
    assert_holds(fresh, sequential.state_dict())
    (tmp_path / "wrapping_network.py").write_text("import builtins\nmake = builtins._wrapping\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins._wrapping", Wrapping, raising=False)
    loaded = load("wrapping_network:make", tmp_path / "w.pt")
    assert isinstance(loaded, Wrapping)  # it normalises by itself: not wrapped once more
    assert loaded.mean.flatten().tolist() == [0.5] * 3


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_and_change_nothing(tmp_path, value):
    state = state_of("resnet20")
    state["fc.bias"] = state["fc.bias"].clone()
    state["fc.bias"][3] = value
    model = build("resnet20")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"NaN or infinite values in fc\.bias") as raised:
        fit_weights(model, load_weights(written(tmp_path / "n.pt", state)))
    assert raised.value.problem == "values"
    assert_holds(model, before)
    fit_weights(model, state, new_head=True)  # the classifier is not taken


def test_constants_in_the_file_reach_a_normalized_network(tmp_path):
    state = {**state_of("resnet20"), "mu": MU, "sigma": SIGMA}
    model = Normalized(build("resnet20"), (0, 0, 0), (1, 1, 1))
    fit_weights(model, load_weights(written(tmp_path / "c.pt", state)))
    assert model.mean.flatten().tolist() == [0.5] * 3
    own = load("resnet20", tmp_path / "c.pt", mean=(0.1,) * 3, std=(0.2,) * 3)
    assert own.mean.flatten().tolist() == pytest.approx([0.1] * 3)


# --- bad files ------------------------------------------------------------------------------


def test_empty_file(tmp_path):
    (tmp_path / "a.pt").touch()
    problem, text = problem_of(tmp_path / "a.pt")
    assert problem == "empty"
    assert "0 bytes" in text


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_weights(tmp_path / "nothing.pt")
    assert problem_of(tmp_path)[0] == "foreign"


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_web_page(tmp_path, name):
    path = tmp_path / name
    path.write_text("\n<!DOCTYPE html><html><head><title>Sign in</title></head></html>")
    problem, text = problem_of(path)
    assert problem == "html"
    assert "Google" not in text
    path.write_text("<html><head><title>Google Drive - Virus scan warning</title></head></html>")
    assert "gdown" in problem_of(path)[1]


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_truncated_anywhere(tmp_path, kind):
    state = {n: t.contiguous() for n, t in state_of("resnet20").items()}
    path = tmp_path / "whole"
    if kind == "safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=kind == "zip")
    whole = path.read_bytes()
    cut = tmp_path / "cut.pt"
    size = len(whole)
    for length in (
        1,
        5,
        15,
        16,
        17,
        40,
        200,
        1000,
        9000,
        size // 3,
        size // 2,
        size - 100,
        size - 1,
    ):
        cut.write_bytes(whole[:length])
        assert problem_of(cut)[0] == "truncated", length


def test_foreign_files(tmp_path):
    path = tmp_path / "a.pt"
    for content, text in [
        (b"\x89PNG\r\n\x1a\n" + bytes(100), "neither a safetensors nor a torch file"),
        (b'{"a": 1, "b": [1, 2, 3]}', "neither"),
        (pickle.dumps({"a": list(range(9))}), "neither"),
        (b"\xff" * 8 + b"{" + bytes(40), "neither"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
    ]:
        path.write_bytes(content)
        problem, message = problem_of(path)
        assert problem == "foreign"
        assert text in message


def test_archives_that_are_no_checkpoints(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "weights are elsewhere")
    assert "unpack it first" in problem_of(path)[1]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("net/data.pkl", "")
        archive.writestr("net/constants.pkl", "")
    assert "TorchScript" in problem_of(path)[1]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([1, 2], "holds a list, not a state dict"),
        (torch.zeros(3), "holds a Tensor"),
        ({}, "holds nothing"),
        ({"epoch": 3, "lr": 0.1}, "holds epoch, lr; expected tensors only"),
        ({"model": "wrn", "weights": {"a": torch.zeros(1)}}, "holds model, weights"),
    ],
)
def test_torch_files_without_a_state_dict(tmp_path, content, text):
    problem, message = problem_of(written(tmp_path / "a.pt", content))
    assert problem == "foreign"
    assert text in message


def test_damaged_files(tmp_path):
    path = tmp_path / "a.safetensors"
    save_file({"a": torch.zeros(4)}, path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"F32"', b'"Q32"'))
    assert problem_of(path)[0] == "damaged"
    path.write_bytes(data.replace(b'{"a":', b'{"a" '))
    assert problem_of(path)[0] == "damaged"
    torch.save({"a": torch.zeros(4)}, path)
    with zipfile.ZipFile(path) as archive:
        parts = {n: archive.read(n) for n in archive.namelist() if "/data/0" not in n}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    assert problem_of(path)[0] == "damaged"


class MakesFolder:
    """Unpickling this makes a folder: the harmless form of an attack."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("legacy", [False, True])
def test_pickled_code_is_never_run(tmp_path, legacy):
    trace = tmp_path / "trace"
    content = {"state_dict": state_of("resnet20"), "extra": MakesFolder(trace)}
    path = written(tmp_path / "a.pt", content, _use_new_zipfile_serialization=not legacy)
    problem, text = problem_of(path)
    assert problem == "pickled"
    assert "trust=True" in text
    assert "mkdir" in text
    assert not trace.exists()
    load_weights(path, trust=True)
    assert trace.exists()


def test_pickled_module(tmp_path):
    network = build("mnist-bn")
    for content in (network, {"model": network, "epoch": 3}):
        path = written(tmp_path / "m.pt", content)
        problem, text = problem_of(path)
        assert problem == "pickled"
        assert "driftnorm.models.mnist_cnn.MnistNet" in text
        assert_holds(load("mnist-bn", path, trust=True), network.state_dict())


def test_pickled_module_without_its_code(tmp_path):
    path = written(tmp_path / "m.pt", nn.Flatten())
    data = path.read_bytes()
    path.write_bytes(data.replace(b"torch.nn.modules.flatten", b"torch.nn.modules.flettan"))
    problem, text = problem_of(path, trust=True)
    assert problem == "pickled"
    assert "not installed here" in text


def test_unusual_pickle_protocol(tmp_path):
    path = written(tmp_path / "p.pt", {"a": torch.zeros(2)}, pickle_protocol=4)
    assert problem_of(path)[0] == "pickled"
    assert load_weights(path, trust=True).keys() == {"a"}


# --- files that do not fit ------------------------------------------------------------------


def misfit(name: str, *arguments: object, **options: object) -> tuple[str, str]:
    with pytest.raises(CheckpointError) as caught:
        load(name, *arguments, **options)
    return caught.value.problem, str(caught.value)


def test_other_architecture_names_the_right_one(tmp_path):
    path = written(tmp_path / "r.pt", prefixed(state_of("resnet20", num_classes=100), "module."))
    problem, text = misfit("resnet56", path)
    assert problem == "architecture"
    assert str(path) in text
    assert "does not fit resnet56: 180 missing (layer1.3.conv1.weight, " in text
    assert text.endswith("Its names and shapes are those of 'resnet20'.")
    problem, text = misfit("wrn-40-2", path)
    assert "missing (block1.layer.0.bn1.weight" in text
    assert "unexpected (" in text


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("resnet50", {}, ["resnet50", "resnet50-v1"]),
        ("resnet50-maxblur", {"filter_size": 5}, ["resnet50-maxblur"]),
        ("wrn-40-2", {"num_classes": 4}, ["wrn-40-2"]),
        ("mnist-bn", {"in_channels": 2, "num_classes": 2}, ["mnist-bn"]),
        ("resnet18", {}, ["resnet18"]),
    ],
)
def test_matching_architectures(name, options, expected):
    assert matching_architectures(state_of(name, **options)) == expected


def test_nothing_matches():
    assert matching_architectures({"conv1.weight": torch.zeros(3)}) == []
    bent = {**state_of("resnet50-maxblur"), "maxpool.1.filt": torch.zeros(64, 1, 9, 9)}
    assert matching_architectures(bent) == []
    problem, text = misfit("resnet20", {"features.0.weight": torch.zeros(3)})
    assert problem == "architecture"
    assert "Its names" not in text


def test_wider_network_of_the_same_names():
    state = state_of("resnet20")
    state["conv1.weight"] = torch.zeros(32, 3, 3, 3)
    _, text = misfit("resnet20", state)
    assert "1 of another shape (conv1.weight (32, 3, 3, 3) instead of (16, 3, 3, 3))" in text


def test_wrong_class_count_says_both(tmp_path):
    path = written(tmp_path / "c.pt", state_of("resnet20", num_classes=100))
    problem, text = misfit("resnet20", path, num_classes=10)
    assert problem == "classes"
    assert "trained for 100 classes" in text
    assert "built for 10" in text
    assert load("resnet20", path).network.fc.out_features == 100


def test_new_head_keeps_the_rest(tmp_path):
    state = state_of("resnet20", num_classes=100)
    path = written(tmp_path / "c.pt", state)
    torch.manual_seed(0)
    model = load("resnet20", path, num_classes=7, new_head=True)
    assert model.network.fc.weight.shape == (7, 64)
    assert not torch.equal(model.network.fc.weight[0], state["fc.weight"][0])
    assert torch.equal(model.network.conv1.weight, state["conv1.weight"])
    same = load("resnet20", path, num_classes=100, new_head=True)
    assert not torch.equal(same.network.fc.weight, state["fc.weight"])


def test_head_without_bias_is_another_architecture():
    state = state_of("resnet20")
    del state["fc.bias"]
    problem, text = misfit("resnet20", state)
    assert problem == "architecture"
    assert "1 missing (fc.bias)" in text


# --- self-describing checkpoints ------------------------------------------------------------


def trained() -> Normalized:
    """A network whose every tensor differs from a fresh one's."""
    torch.manual_seed(0)
    model = Normalized(
        build("resnet20", num_classes=3).eval(), PREPROCESSING["mean"], PREPROCESSING["std"]
    )
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in model.network.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand(tensor.shape, generator=generator) / 8)
            else:
                tensor.fill_(17)
    return model


def save(path: Path, model: object, **changes: object) -> str:
    arguments = {
        "architecture": "resnet20", "options": {}, "classes": CLASSES,
        "preprocessing": PREPROCESSING, **changes,
    }  # fmt: skip
    return save_checkpoint(path, model, **arguments)


@pytest.mark.parametrize("form", ["model", "network", "state", "network state", "channels_last"])
def test_round_trip(tmp_path, form):
    model = trained()
    given = {
        "model": model, "network": model.network, "state": model.state_dict(),
        "network state": model.network.state_dict(),
        "channels_last": trained().to(memory_format=torch.channels_last),
    }[form]  # fmt: skip
    path = tmp_path / "net.safetensors"
    digest = save(path, given, algorithm="erm", accuracy=91.5, seeds=[0, 1])
    opened = open_checkpoint(path)
    assert opened.classes == tuple(CLASSES)
    assert opened.preprocessing == Preprocessing.from_mapping(PREPROCESSING)
    assert opened.facts == {"algorithm": "erm", "accuracy": 91.5, "seeds": [0, 1]}
    assert (opened.architecture, opened.options) == ("resnet20", {})
    assert opened.weights_hash == digest
    assert not opened.model.training
    assert_holds(opened.model, model.network.state_dict())
    images = torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(opened.model(images), model(images))
        assert torch.equal(load(path)(images), model(images))
        assert torch.equal(load("resnet20", path)(images), model(images))
    assert load_file(path).keys() == model.network.state_dict().keys()
    assert os.listdir(tmp_path) == [path.name]


def test_options_are_part_of_the_file(tmp_path):
    state = {
        n: t.contiguous() for n, t in state_of("mnist-gn", in_channels=2, num_classes=2).items()
    }
    preprocessing = Preprocessing((0.0, 0.0), (1.0, 1.0), 28, "nearest", 0.5)
    path = tmp_path / "m.safetensors"
    save_checkpoint(
        path, state, architecture="mnist-gn", options={"in_channels": 2},
        classes=["low", "high"], preprocessing=preprocessing,
    )  # fmt: skip
    opened = open_checkpoint(path)
    assert opened.preprocessing == preprocessing
    assert opened.model(torch.rand(1, 2, 28, 28)).shape == (1, 2)


def test_timm_checkpoint(tmp_path):
    try:
        _vision.import_timm()
    except ImportError as error:
        pytest.skip(str(error))
    model = load("timm:resnet10t", num_classes=3)
    path = tmp_path / "t.safetensors"
    save(path, model.network, architecture="timm:resnet10t")
    assert_holds(open_checkpoint(path).model, model.network.state_dict())
    with pytest.raises(CheckpointError, match="'pretrained' fetches other weights"):
        save(path, model.network, architecture="timm:resnet10t", options={"pretrained": True})


def test_hash_sees_names_types_shapes_and_values():
    base = {"a": torch.zeros(2, 3), "b": torch.ones(1)}
    variants = [
        base,
        {"a": torch.zeros(3, 2), "b": torch.ones(1)},
        {"c": torch.zeros(2, 3), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3, dtype=torch.float64), "b": torch.ones(1)},
        {"a": torch.zeros(2, 3), "b": torch.full((1,), 1.0000001)},
    ]
    assert len({weights_hash(v) for v in variants}) == len(variants)
    reordered = {"b": base["b"], "a": torch.zeros(3, 2).T}
    assert weights_hash(reordered) == weights_hash(base)


def test_saving_checks_what_it_is_told(tmp_path):
    model, path = trained(), tmp_path / "net.safetensors"
    with pytest.raises(CheckpointError, match="trained for 3 classes, resnet20 with 2 classes"):
        save(path, model, classes=CLASSES[:2])
    with pytest.raises(CheckpointError, match="does not fit resnet32"):
        save(path, model, architecture="resnet32")
    with pytest.raises(ValueError, match="`preprocessing` says mean"):
        save(path, model, preprocessing={**PREPROCESSING, "mean": [0.5, 0.5, 0.5]})
    with pytest.raises(ValueError, match="`preprocessing` says std"):
        save(path, model, preprocessing={**PREPROCESSING, "std": [0.5, 0.5, 0.5]})
    with pytest.raises(ValueError, match="`preprocessing` says mean"):
        save(path, model, preprocessing={**PREPROCESSING, "mean": [0.4914], "std": [0.2023]})
    with pytest.raises(ValueError, match="`preprocessing` must hold mean, size, std"):
        save(path, model, preprocessing={"mean": [0.5]})
    for classes in ("abc", [0, 1, 2]):
        with pytest.raises(TypeError, match="`classes` must be a sequence of names"):
            save(path, model, classes=classes)
    with pytest.raises(TypeError, match="`when` must be fit for JSON"):
        save(path, model, when=object())
    with pytest.raises(TypeError, match="`loss` must be fit for JSON, got nan"):
        save(path, model, loss=float("nan"))
    with pytest.raises(ValueError, match="Did you mean 'resnet20'"):
        save(path, model, architecture="resnet-20")
    assert os.listdir(tmp_path) == []


def test_a_killed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    first = save(path, trained())
    monkeypatch.setattr(saved.os, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        save(path, load("resnet20", num_classes=3).network)
    monkeypatch.undo()
    assert open_checkpoint(path).weights_hash == first
    assert os.listdir(tmp_path) == [path.name]


def test_file_has_the_usual_permissions(tmp_path):
    plain = tmp_path / "plain"
    plain.touch()
    path = tmp_path / "net.safetensors"
    save(path, trained())
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def rewritten(path: Path, change) -> Path:
    """The checkpoint at `path` with its description changed."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        description = json.loads(file.metadata()["driftnorm"])
    change(description)
    save_file(load_file(path), path, metadata={"driftnorm": json.dumps(description)})
    return path


def opening(path: Path, **options: object) -> tuple[str, str]:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path, **options)
    return caught.value.problem, str(caught.value)


def test_opening_files_of_others(tmp_path):
    model, path = trained(), tmp_path / "net.safetensors"
    save_file(model.network.state_dict(), path)
    problem, text = opening(path)
    assert problem == "undescribed"
    assert "'resnet20'" in text
    assert opening(written(tmp_path / "net.pt", model.state_dict()))[0] == "undescribed"
    with pytest.raises(CheckpointError, match="without driftnorm's description"):
        load(path)
    (tmp_path / "page.safetensors").write_text("<html><body>Please log in.</body></html>")
    assert opening(tmp_path / "page.safetensors")[0] == "html"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda d: d.update(format=2), "version"),
        (lambda d: d.pop("classes"), "damaged"),
        (lambda d: d.update(classes=3), "damaged"),
        (lambda d: d.update(weights="0" * 64), "damaged"),
        (lambda d: d.update(architecture="resnet99"), "architecture"),
        (lambda d: d.update(options={"depth": 56}), "architecture"),
        (lambda d: d["preprocessing"].update(size="big"), "architecture"),
        (lambda d: d.update(architecture="resnet56"), "architecture"),
        (lambda d: d.update(classes=["a", "b"]), "classes"),
        (lambda d: d.update(architecture="os:getcwd"), "untrusted"),
        (lambda d: d.update(options={"checkpoint_path": "x"}), "untrusted"),
    ],
)
def test_opening_changed_descriptions(tmp_path, change, problem):
    path = tmp_path / "net.safetensors"
    save(path, trained())
    assert opening(rewritten(path, change))[0] == problem


def test_description_that_is_no_json(tmp_path):
    path = tmp_path / "net.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata={"driftnorm": "{"})
    assert opening(path)[0] == "damaged"
    save_file({"a": torch.zeros(1)}, path, metadata={"driftnorm": "[]"})
    assert opening(path)[0] == "damaged"


def test_changed_weights_are_noticed(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, trained())
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    problem, text = opening(path)
    assert problem == "damaged"
    assert "not those that were saved" in text


def test_factory_needs_trust(tmp_path, monkeypatch):
    (tmp_path / "someones_network.py").write_text(
        "from torch import nn\n"
        "def make(num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    network = load("someones_network:make", num_classes=3)
    path = tmp_path / "f.safetensors"
    save(path, network, architecture="someones_network:make")
    assert opening(path)[0] == "untrusted"
    opened = open_checkpoint(path, trust=True)
    assert_holds(opened.model, network.state_dict())
    assert load(path, trust=True)(torch.rand(2, 3, 2, 2)).shape == (2, 3)


def test_a_described_file_takes_no_further_arguments(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, trained())
    for extra in ({"num_classes": 5}, {"weights": path}, {"width": 3}):
        with pytest.raises(ValueError, match="describes its own network"):
            load(path, **extra)


def test_checkpoint_is_frozen(tmp_path):
    path = tmp_path / "net.safetensors"
    save(path, trained())
    with pytest.raises(dataclasses.FrozenInstanceError):
        open_checkpoint(path).classes = ()


@pytest.mark.skipif(not SHARED, reason="DRIFTNORM_SHARED is not set")
def test_released_weights_are_recognised():
    folder = Path(SHARED) / "weights"
    expected = {
        "cifar10-resnet20": ["resnet20"],
        "cifar10-resnet56": ["resnet56"],
        "cifar100-resnet20": ["resnet20"],
        "cifar100-resnet56": ["resnet56"],
        "imagenet-resnet50-v1.fp16": ["resnet50", "resnet50-v1"],
    }
    for name, architectures in expected.items():
        path = folder / f"{name}.safetensors"
        assert matching_architectures(load_weights(path)) == architectures
    assert misfit("resnet56", folder / "cifar10-resnet20.safetensors")[0] == "architecture"

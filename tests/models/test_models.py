"""The built-in networks: known counts, names, and equality with other people's networks."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm.errors import CheckpointError
from driftnorm.models import (
    MODELS,
    Normalized,
    Preprocessing,
    _vision,
    build,
    load,
    open_model,
    resolve,
    save_checkpoint,
)
from driftnorm.models.resnet import BlurPool, Bottleneck
from driftnorm.models.wide_resnet import WideBlock

SHARED = os.environ.get("DRIFTNORM_SHARED")
CIFAR10 = os.environ.get("DRIFTNORM_CIFAR10")
needs_shared = pytest.mark.skipif(not SHARED, reason="DRIFTNORM_SHARED is not set")
needs_cifar10 = pytest.mark.skipif(not CIFAR10, reason="DRIFTNORM_CIFAR10 is not set")


def on_meta(name: str, **options: object) -> nn.Module:
    with torch.device("meta"):
        return build(name, **options)


def batch_norms(network: nn.Module) -> list[nn.BatchNorm2d]:
    return [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]


def scrambled(network: nn.Module, seed: int = 0) -> nn.Module:
    """Gives every tensor a random value, so that swapped layers cannot agree by chance."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in network.state_dict().items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 2, generator=generator)
        elif tensor.is_floating_point() and tensor.ndim == 1:
            tensor.normal_(0.5, 0.2, generator=generator)
    return network.eval()


def vision(package: str):
    try:
        return _vision.import_timm() if package == "timm" else _vision.import_torchvision()
    except ImportError as error:
        pytest.skip(str(error))


# --- counts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters", "norms", "affine"),
    [
        ("resnet20", 272_474, 21, 2 * 784),
        ("resnet32", 466_906, 33, 2 * 1232),
        ("resnet44", 661_338, 45, 2 * 1680),
        ("resnet56", 855_770, 57, 2 * 2128),
        ("wrn-40-2", 2_243_546, 37, 5_408),
        ("wrn-28-10", 36_479_194, 25, 17_952),
        ("resnet18", 11_689_512, 20, 9_600),
        ("resnet50", 25_557_032, 53, 53_120),
        ("resnet50-v1", 25_557_032, 53, 53_120),
        ("resnet50-maxblur", 25_557_032, 53, 53_120),
        ("mnist-gn", 371_850, 0, 0),
        ("mnist-bn", 371_850, 4, 2 * 448),
    ],
)
def test_counts(name, parameters, norms, affine):
    network = on_meta(name)
    found = batch_norms(network)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert len(found) == norms
    assert sum(n.weight.numel() + n.bias.numel() for n in found) == affine


@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs_and_takes_a_class_count(name):
    size = {32: 32, 28: 28, 224: 64}[MODELS[name].preprocessing.size]
    channels = len(MODELS[name].preprocessing.mean)
    model = load(name, num_classes=3)
    assert isinstance(model, Normalized)
    assert not model.training
    with torch.no_grad():
        logits = model(torch.rand(2, channels, size, size))
    assert logits.shape == (2, 3)
    assert logits.isfinite().all()


# --- names ----------------------------------------------------------------------------------


def test_wide_resnet_names():
    names = set(on_meta("wrn-40-2").state_dict())
    tops = {n.split(".")[0] for n in names}
    assert tops == {"conv1", "block1", "block2", "block3", "bn1", "fc"}
    assert {n for n in names if "convShortcut" in n} == {
        f"block{i}.layer.0.convShortcut.weight" for i in (1, 2, 3)
    }
    assert {n.split(".")[2] for n in names if n.startswith("block2")} == set("012345")


def test_maxblur_names_and_filters():
    network = build("resnet50-maxblur", num_classes=2, filter_size=3)
    filters = {n for n in network.state_dict() if n.endswith(".filt")}
    expected = {"maxpool.1.filt"}
    for layer in (2, 3, 4):
        expected |= {f"layer{layer}.0.conv3.0.filt", f"layer{layer}.0.downsample.0.filt"}
    assert filters == expected
    ours, plain = network.state_dict(), on_meta("resnet50").state_dict()
    assert ours["layer2.0.conv3.1.weight"].shape == plain["layer2.0.conv3.weight"].shape
    assert ours["layer2.0.downsample.1.weight"].shape == plain["layer2.0.downsample.0.weight"].shape
    assert "layer2.0.downsample.2.running_mean" in ours
    assert "layer1.0.downsample.1.running_mean" in ours  # stride 1: no blur, names as ever
    exact = torch.tensor([[1, 2, 1], [2, 4, 2], [1, 2, 1]]) / 16
    assert torch.equal(ours["maxpool.1.filt"], exact.expand(64, 1, 3, 3))
    assert all(m.stride == (1, 1) for n, m in network.named_modules()
               if isinstance(m, nn.Conv2d) and n != "conv1")  # fmt: skip


# --- equality -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
@pytest.mark.parametrize("package", ["torchvision", "timm"])
def test_same_output_as_the_vision_packages(package, name):
    vision(package)
    theirs = scrambled(resolve(f"{package}:{name}")[0])
    ours = build(name).eval()
    ours.load_state_dict(theirs.state_dict(), strict=True)
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(ours(images), theirs(images), rtol=1e-5, atol=1e-5)


def test_stride_place_is_the_only_difference_of_v1():
    late, early = on_meta("resnet50"), on_meta("resnet50", stride_in="conv1")
    assert late.layer2[0].conv2.stride == early.layer2[0].conv1.stride == (2, 2)
    assert late.layer2[0].conv1.stride == early.layer2[0].conv2.stride == (1, 1)
    assert late.layer1[0].conv2.stride == early.layer1[0].conv1.stride == (1, 1)
    assert on_meta("resnet50-v1").layer4[0].conv1.stride == (2, 2)
    assert late.state_dict().keys() == early.state_dict().keys()


def test_cifar_resnet_against_a_literal_forward():
    network = scrambled(build("resnet20"))
    state = network.state_dict()

    def conv(x: Tensor, name: str, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return F.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(x: Tensor, name: str) -> Tensor:
        mean, var, weight, bias = (
            state[f"{name}.{part}"].view(1, -1, 1, 1)
            for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (var + 1e-5).sqrt() * weight + bias

    images = torch.rand(2, 3, 32, 32)
    x = norm(conv(images, "conv1"), "bn1").clamp(min=0)
    for layer in (1, 2, 3):
        for block in range(3):
            at, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            inner = norm(conv(x, f"{at}.conv1", stride), f"{at}.bn1").clamp(min=0)
            inner = norm(conv(inner, f"{at}.conv2"), f"{at}.bn2")
            if stride == 2:
                x = norm(conv(x, f"{at}.downsample.0", 2), f"{at}.downsample.1")
            x = (x + inner).clamp(min=0)
    expected = x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]
    with torch.no_grad():
        torch.testing.assert_close(network(images), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels_in", "stride"), [(16, 1), (8, 1), (8, 2)])
def test_wide_block_against_its_formula(channels_in, stride):
    block = scrambled(WideBlock(channels_in, 16, stride))
    x = torch.randn(2, channels_in, 8, 8)
    before = x.clone()
    with torch.no_grad():
        active = block.bn1(x).clamp(min=0)
        inner = block.conv1(active)
        inner = block.conv2(block.bn2(inner).clamp(min=0))
        shortcut = nn.Identity() if channels_in == 16 else block.convShortcut
        beside = shortcut(x if channels_in == 16 else active)
        torch.testing.assert_close(block(x), inner + beside)
    assert torch.equal(x, before)


def test_wide_block_survives_a_folded_norm():
    """With BN replaced by the identity, nothing may be overwritten in place."""
    block = WideBlock(8, 8, 1)
    block.bn1 = nn.Identity()
    x = torch.randn(1, 8, 4, 4)
    with torch.no_grad():
        expected = x + block.conv2(block.bn2(block.conv1(x.relu())).relu())
        assert torch.equal(block(x), expected)


@pytest.mark.parametrize("filter_size", range(1, 8))
def test_blur_pool_against_a_slow_convolution(filter_size):
    x = torch.randn(1, 2, 9, 10, dtype=torch.float64)
    taps = np.poly1d([1, 1]) ** (filter_size - 1)
    taps = np.atleast_1d(taps.coeffs) / 2 ** (filter_size - 1)
    left, right = (filter_size - 1) // 2, int(np.ceil((filter_size - 1) / 2))
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (left, right), (left, right)), mode="reflect")
    expected = np.zeros((1, 2, 5, 5))
    for i in range(5):
        for j in range(5):
            rows = slice(2 * i, 2 * i + filter_size)
            window = padded[:, :, rows, 2 * j : 2 * j + filter_size]
            expected[:, :, i, j] = np.einsum("ncij,i,j->nc", window, taps, taps)
    out = BlurPool(2, filter_size).double()(x)
    torch.testing.assert_close(out, torch.from_numpy(expected))


def test_maxblur_keeps_the_sizes_of_the_plain_network():
    network = build("resnet50-maxblur", num_classes=2).eval()
    sizes = {}
    for name in ("maxpool", "layer1", "layer2", "layer3", "layer4"):
        network.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: sizes.__setitem__(name, out.shape[-1])
        )
    with torch.no_grad():
        network(torch.rand(1, 3, 224, 224))
    assert sizes == {"maxpool": 56, "layer1": 56, "layer2": 28, "layer3": 14, "layer4": 7}


def test_block_with_a_filter_of_one_tap_is_the_strided_block():
    """Such a filter only subsamples, which is what the stride of the v1.5 block does."""
    block, reference = Bottleneck(16, 8, 2, filter_size=1).eval(), scrambled(Bottleneck(16, 8, 2))
    renamed = {
        "conv3.weight": "conv3.1.weight",
        **{n: n.replace("downsample.1.", "downsample.2.").replace("downsample.0.", "downsample.1.")
           for n in reference.state_dict() if n.startswith("downsample")},
    }  # fmt: skip
    state = {renamed.get(n, n): t for n, t in reference.state_dict().items()}
    block.load_state_dict({**block.state_dict(), **state}, strict=True)
    x = torch.randn(1, 16, 8, 8)
    with torch.no_grad():
        # Strided 3x3 then 1x1, and dense 3x3 then every second pixel then 1x1, are the same.
        torch.testing.assert_close(block(x), reference(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["gn", "bn"])
def test_mnist_network_normalises_after_relu(norm):
    network = scrambled(build(f"mnist-{norm}", num_classes=5, in_channels=2))
    images = torch.rand(3, 2, 28, 28)
    with torch.no_grad():
        x = images
        for i in range(4):
            conv = network.get_submodule(f"conv{i + 1}")
            x = F.conv2d(x, conv.weight, conv.bias, stride=2 if i == 1 else 1, padding=1)
            x = network.get_submodule(f"bn{i}")(x.clamp(min=0))
        expected = network.fc(x.mean((2, 3)))
        torch.testing.assert_close(network(images), expected)
    kinds = {type(network.get_submodule(f"bn{i}")) for i in range(4)}
    assert kinds == {nn.GroupNorm if norm == "gn" else nn.BatchNorm2d}
    assert norm == "bn" or network.bn0.num_groups == 8


# --- normalisation --------------------------------------------------------------------------


def test_normalized_subtracts_and_divides():
    model = Normalized(nn.Identity(), (0.5, 0.25), (0.5, 2))
    images = torch.rand(3, 2, 4, 4)
    out = model(images)
    torch.testing.assert_close(out[:, 0], (images[:, 0] - 0.5) / 0.5)
    torch.testing.assert_close(out[:, 1], (images[:, 1] - 0.25) / 2)
    assert set(model.state_dict()) == {"mean", "std"}
    assert "mean=[0.5, 0.25]" in repr(model)


@pytest.mark.parametrize(
    ("images", "error", "text"),
    [
        (torch.zeros(1, 3, 4, 4, dtype=torch.uint8), TypeError, "divide bytes by 255"),
        (torch.zeros(1, 2, 4, 4), ValueError, r"\(batch, 3, height, width\), got \(1, 2, 4, 4\)"),
        (torch.zeros(3, 4, 4), ValueError, "must have the shape"),
    ],
)
def test_normalized_refuses_other_input(images, error, text):
    with pytest.raises(error, match=text):
        Normalized(nn.Identity(), (0, 0, 0), (1, 1, 1))(images)


@pytest.mark.parametrize(
    ("mean", "std", "text"),
    [
        ((0.5,), (0.5, 0.5), "got 1 and 2"),
        ((), (), "got 0 and 0"),
        ((0.5,), (0.0,), "`std` must be finite and positive"),
        ((float("nan"),), (1.0,), "`mean` must be finite"),
    ],
)
def test_bad_constants(mean, std, text):
    with pytest.raises(ValueError, match=text):
        Normalized(nn.Identity(), mean, std)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"size": 0}, "`size`"),
        ({"size": 3.5}, "`size`"),
        ({"interpolation": "cubic"}, "`interpolation` must be one of"),
        ({"crop_ratio": 0}, "`crop_ratio`"),
    ],
)
def test_bad_preprocessing(change, text):
    with pytest.raises(ValueError, match=text):
        Preprocessing(**{"mean": (0.5,), "std": (0.5,), "size": 32, **change})


# --- names and options ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resnet21", "Did you mean .*'resnet20'"),
        ("WRN-40-2", "Did you mean 'wrn-40-2'"),
        ("squid", "Known: resnet20, "),
    ],
)
def test_unknown_name_suggests_the_nearest(name, text):
    with pytest.raises(ValueError, match=text):
        build(name)
    with pytest.raises(ValueError, match=text):
        load(name)


def test_unknown_option_and_bad_counts():
    with pytest.raises(TypeError, match="no option `strides`; its options: stride_in"):
        build("resnet50", strides=2)
    with pytest.raises(TypeError, match="its options: none"):
        build("resnet20", depth=32)
    with pytest.raises(ValueError, match="`num_classes` must be at least 1, got 0"):
        build("resnet20", num_classes=0)
    with pytest.raises(ValueError, match="`stride_in` must be one of conv1, conv2; got 'conv3'"):
        build("resnet50", stride_in="conv3")
    with pytest.raises(ValueError, match="`filter_size` must be from 1 to 7"):
        build("resnet50-maxblur", filter_size=9)
    with pytest.raises(ValueError, match="give both or neither"):
        load("resnet20", mean=(0.5, 0.5, 0.5))


def test_constants_follow_the_number_of_classes():
    assert load("resnet20").mean.flatten().tolist() == pytest.approx([0.4914, 0.4822, 0.4465])
    hundred = load("resnet20", num_classes=100)
    assert hundred.mean.flatten().tolist() == pytest.approx([0.5070, 0.4865, 0.4409])
    own = load("resnet20", mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    assert own.mean.flatten().tolist() == [0, 0, 0]


def test_factory(monkeypatch, tmp_path):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def tiny(num_classes=4, width=8):\n"
        "    return nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1),\n"
        "                         nn.Flatten(), nn.Linear(width, num_classes))\n"
        "class Zoo:\n"
        "    tiny = staticmethod(tiny)\n"
        "def wrong(): return 5\n"
    )
    (tmp_path / "needs_more.py").write_text("import no_such_package_at_all\n")
    monkeypatch.syspath_prepend(tmp_path)
    plain = load("my_networks:tiny", num_classes=7, width=4)
    assert not isinstance(plain, Normalized)
    assert plain(torch.rand(2, 3, 8, 8)).shape == (2, 7)
    wrapped = load("my_networks:Zoo.tiny", mean=(0.5,) * 3, std=(0.5,) * 3)
    assert isinstance(wrapped, Normalized)
    with pytest.raises(TypeError, match=r"must return a .*Module, got int"):
        load("my_networks:wrong")
    with pytest.raises(ValueError, match="has no function 'other'"):
        load("my_networks:other")
    with pytest.raises(ValueError, match=r"names the module 'nowhere\.here', which cannot be"):
        load("nowhere.here:tiny")
    with pytest.raises(ModuleNotFoundError, match="no_such_package_at_all"):
        load("needs_more:tiny")
    with pytest.raises(ValueError, match=r"^`spec` 'my_networks:other': "):
        load("my_networks:other")
    with pytest.raises(ValueError, match=r"^`model` 'my_networks:other': "):
        open_model("my_networks:other")
    with pytest.raises(TypeError, match=r"^`model` 'my_networks:wrong' must return") as refused:
        open_model("my_networks:wrong")
    again = pickle.loads(pickle.dumps(refused.value))  # as between processes
    assert str(again) == str(refused.value)
    file = tmp_path / "x.safetensors"
    save_checkpoint(
        file,
        plain,
        architecture="my_networks:other",
        classes=[*"abcdefg"],
        preprocessing=Preprocessing((0.5,) * 3, (0.5,) * 3, 8),
    )
    with pytest.raises(CheckpointError, match=r"cannot be built: `architecture` 'my_networks:oth"):
        open_model(file, trust=True)


# --- timm and torchvision -------------------------------------------------------------------


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_vision_specs(package):
    vision(package)
    model = load(f"{package}:resnet18", num_classes=5)
    assert isinstance(model, Normalized)
    assert model.network.fc.out_features == 5
    assert model.mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    _, preprocessing = resolve(f"{package}:resnet18")
    assert preprocessing.size == 224
    with pytest.raises(ValueError, match=f"no {package} model 'resnet51'.*'resnet50'"):
        load(f"{package}:resnet51")


def test_torchvision_unknown_weights():
    vision("torchvision")
    with pytest.raises(ValueError, match=r"Did you mean.*IMAGENET1K_V1"):
        load("torchvision:resnet50", pretrained="imagenet1k_V9")


@pytest.mark.parametrize("package", ["timm", "torchvision"])
def test_missing_package_names_the_extra(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r'pip install "driftnorm\[timm\]"'):
        load(f"{package}:resnet50")


FRESH_PROCESS = """
import sys, torch
before = set(sys.modules)
import driftnorm.models
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(new & {"timm", "torchvision", "safetensors", "scipy", "PIL", "matplotlib"}))

from driftnorm.models import _vision
sys.path.insert(0, sys.argv[1])
print(_vision.import_torchvision().healthy, _vision._declared)

del sys.modules["torchvision"]
sys.path.insert(0, sys.argv[2])
try:
    _vision.import_torchvision()
except RuntimeError as error:
    print(error, _vision._declared)
"""


def test_light_import_and_untouched_torchvision(tmp_path):
    """Only the one known failure of torchvision is repaired, and nothing is imported early."""
    for folder, text in (("well", "healthy = True"), ("ill", "raise RuntimeError('no luck')")):
        (tmp_path / folder / "torchvision").mkdir(parents=True)
        (tmp_path / folder / "torchvision" / "__init__.py").write_text(text)
    command = [sys.executable, "-c", FRESH_PROCESS, tmp_path / "well", tmp_path / "ill"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[]", "True None", "no luck None"], done.stderr


# --- the released weights -------------------------------------------------------------------


def accuracy(model: nn.Module, images: np.ndarray, labels: np.ndarray) -> float:
    right = 0
    model = model.to(memory_format=torch.channels_last)  # the fastest layout on a CPU
    with torch.inference_mode():
        for start in range(0, len(images), 50):
            part = torch.from_numpy(images[start : start + 50]).float() / 255
            answers = model(part.contiguous(memory_format=torch.channels_last)).argmax(1).numpy()
            right += int((answers == labels[start : start + 50]).sum())
    return 100 * right / len(images)


def cifar10_test(count: int) -> tuple[np.ndarray, np.ndarray]:
    raw = np.fromfile(Path(CIFAR10) / "test_batch.bin", np.uint8).reshape(-1, 3073)[:count]
    return raw[:, 1:].reshape(-1, 3, 32, 32), raw[:, 0]


def cifar100_test(count: int) -> tuple[np.ndarray, np.ndarray]:
    with np.load(Path(SHARED) / "data" / "cifar100-test.npz") as file:
        images, labels = file["images"][:count], file["labels"][:count]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)), labels


@needs_shared
@needs_cifar10
@pytest.mark.parametrize(("name", "listed"), [("resnet20", 92.5), ("resnet56", 93.9)])
def test_cifar10_weights_reach_their_accuracy(name, listed):
    model = load(name, Path(SHARED) / "weights" / f"cifar10-{name}.safetensors")
    assert accuracy(model, *cifar10_test(1000)) == pytest.approx(listed, abs=2.5)


@needs_shared
@pytest.mark.parametrize(("name", "listed"), [("resnet20", 69.7), ("resnet56", 74.1)])
def test_cifar100_weights_reach_their_accuracy(name, listed):
    model = load(name, Path(SHARED) / "weights" / f"cifar100-{name}.safetensors")
    assert accuracy(model, *cifar100_test(1000)) == pytest.approx(listed, abs=2.5)


# PACS classes that ImageNet has too: every breed of dog, three elephants, guitars and a banjo.
IMAGENET_CLASSES = {
    "dog": set(range(151, 269)),
    "elephant": {101, 385, 386},
    "guitar": {402, 420, 546},
}


@needs_shared
def test_imagenet_weights_see_what_is_on_photos():
    image_module = pytest.importorskip("PIL.Image")
    pictures, kinds = [], []
    with tarfile.open(Path(SHARED) / "data" / "pacs-160.tar") as archive:
        for member in archive:
            folder, _, kind = str(Path(member.name).parent).rpartition("/")
            if not folder.endswith("photo") or kinds.count(kind) == 6:
                continue
            if kind in IMAGENET_CLASSES and member.isfile():
                data = archive.extractfile(member).read()
                picture = image_module.open(io.BytesIO(data)).convert("RGB")
                pictures.append(torch.from_numpy(np.array(picture)).permute(2, 0, 1) / 255)
                kinds.append(kind)
    assert len(kinds) == 18
    path = Path(SHARED) / "weights" / "imagenet-resnet50-v1.fp16.safetensors"
    model = load("resnet50-v1", path)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    with torch.no_grad():
        probabilities = model(torch.stack(pictures)).softmax(1)
    assert probabilities.isfinite().all()
    assert probabilities.amax(1).mean() > 0.5
    answers = probabilities.argmax(1).tolist()
    right = [a in IMAGENET_CLASSES[kind] for a, kind in zip(answers, kinds, strict=True)]
    assert sum(right) >= 14

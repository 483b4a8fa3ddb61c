"""Real networks of timm: residual, squeeze-and-excite, dense, with fused activations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import pretend_trained
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import driftnorm

Build = Callable[[str], nn.Module]
# Small inputs, as small as the strides allow.
SIZES = {
    "resnet18": 32,
    "efficientnet_b0": 64,
    "regnety_002": 64,
    "densenet121": 64,
    "mobilenetv3_small_050": 64,
}
every_network = pytest.mark.parametrize("name", SIZES)


@pytest.fixture(scope="module")
def real(timm: Any) -> Build:
    built: dict[str, nn.Module] = {}

    def build(name: str) -> nn.Module:
        if name not in built:
            torch.manual_seed(0)
            built[name] = pretend_trained(timm.create_model(name, num_classes=5))
        return built[name]

    return build


def images(name: str, count: int = 8) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, SIZES[name], SIZES[name], generator=generator)


def close(answer: Tensor, expected: Tensor, share: float = 1e-4) -> bool:
    """Equal up to a small share of the expected size: random networks have any scale."""
    return float((answer - expected).abs().max()) <= share * float(expected.abs().max())


@every_network
def test_source_method_keeps_the_output(name: str, real: Build) -> None:
    network, x = real(name), images(name)
    with torch.no_grad():
        expected = network(x)
    assert expected.std() > 0
    assert torch.equal(driftnorm.adapt(network, "source", channels_last=False)(x), expected)
    assert close(driftnorm.adapt(network, "source")(x), expected)


@every_network
def test_activations_are_kept(name: str, real: Build) -> None:
    network, x = real(name), images(name)

    def activations(of: nn.Module) -> list[str]:
        kinds = (nn.ReLU, nn.SiLU, nn.Hardswish, nn.Sigmoid, nn.Hardsigmoid)
        return sorted(type(m).__name__ for m in of.modules() if isinstance(m, kinds))

    adapter = driftnorm.adapt(network, "bn", guard="off")
    assert activations(adapter.converted.network) == activations(network)
    # The batch's own statistics, as a plain copy computes them in training mode.
    plain = copy.deepcopy(network)
    for module in plain.modules():
        if isinstance(module, _BatchNorm):
            module.train()
    with torch.no_grad():
        expected = plain(x)
    assert close(adapter(x), expected, share=1e-3)


@every_network
def test_gprebn_runs_and_bakes(name: str, real: Build) -> None:
    network, x = real(name), images(name, 16)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    adapter = driftnorm.adapt(network, "gprebn", guard="off")
    for batch in x.split(8):
        assert adapter(batch).isfinite().all()
    assert adapter.batches == 2
    frozen, baked = adapter.freeze()(x), adapter.bake()
    with torch.no_grad():
        assert close(baked(x), frozen)
    assert not any(type(m).__module__.startswith("driftnorm") for m in baked.modules())
    assert [type(m) for m in baked.modules()] == [type(m) for m in network.modules()]
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), key


@pytest.mark.parametrize("name", ["resnet18", "efficientnet_b0"])
def test_classifier_is_found(name: str, real: Build) -> None:
    adapter = driftnorm.adapt(real(name), "gprebn+rt3a", guard="off")
    x = images(name)
    adapter(x)
    found = adapter.converted.network.get_submodule(adapter._layout.classifier)
    assert found is adapter.converted.network.get_classifier()
    with torch.no_grad():
        assert close(adapter.bake()(x), adapter.freeze()(x))


def test_frozen_and_synchronised_timm_layers(timm: Any) -> None:
    from timm.layers import convert_sync_batchnorm
    from timm.layers.norm_act import FrozenBatchNormAct2d, SyncBatchNormAct, freeze_batch_norm_2d

    x = images("efficientnet_b0", 4)
    for change, kind in (
        (freeze_batch_norm_2d, FrozenBatchNormAct2d),
        (convert_sync_batchnorm, SyncBatchNormAct),
    ):
        torch.manual_seed(0)
        network = change(pretend_trained(timm.create_model("efficientnet_b0", num_classes=5)))
        assert any(isinstance(m, kind) for m in network.modules())
        with torch.no_grad():
            expected = network.eval()(x)
        assert close(driftnorm.adapt(network, "source")(x), expected)
        assert driftnorm.adapt(network, "bn", guard="off", channels_last=False).bake() is not None


def test_layer_norm_network_is_told_what_it_has(timm: Any) -> None:
    network = timm.create_model("convnext_atto", num_classes=5).eval()
    with pytest.raises(driftnorm.NoBatchNormError, match="LayerNorm"):
        driftnorm.adapt(network, "gprebn")

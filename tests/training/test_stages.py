"""Where the stages of a network are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from driftnorm.models import MODELS, Normalized, build
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.stages import outputs_of, stage_names

LAYERS = ("layer1", "layer2", "layer3", "layer4")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("resnet18", LAYERS),
        ("resnet50-maxblur", LAYERS),
        ("resnet20", LAYERS[:3]),
        ("wrn-40-2", ("block1", "block2", "block3")),
        ("mnist-gn", ("bn0", "bn1", "bn2", "bn3")),
        ("mnist-bn", ("bn0", "bn1", "bn2", "bn3")),
    ],
)
def test_names(name: str, expected: tuple[str, ...]) -> None:
    assert stage_names(build(name)) == expected


@pytest.mark.parametrize("name", [n for n in MODELS if n != "wrn-28-10"])  # wrn-40-2 serves both
def test_stages_come_in_forward_order_and_give_maps(name: str) -> None:
    model = build(name, num_classes=2).eval()
    size, channels = MODELS[name].preprocessing.size, len(MODELS[name].preprocessing.mean)
    seen: list[tuple[str, int]] = []
    for stage in stage_names(model):
        model.get_submodule(stage).register_forward_hook(
            lambda _m, _x, output, stage=stage: seen.append((stage, output.ndim))
        )
    with torch.inference_mode():
        model(torch.rand(1, channels, min(size, 64), min(size, 64)))
    assert seen == [(stage, 4) for stage in stage_names(model)]


def test_names_lead_into_wrapped_and_headless_networks() -> None:
    network = DomainNetwork(Normalized(build("mnist-bn"), (0.0,), (1.0,)))
    names = stage_names(network.featurizer)
    assert names == ("network.bn0", "network.bn1", "network.bn2", "network.bn3")
    assert isinstance(network.featurizer.get_submodule(names[-1]), nn.BatchNorm2d)


def test_timm_stages(timm: Any) -> None:
    model = timm.create_model("efficientnet_lite0", num_classes=2).eval()
    assert stage_names(model) == tuple(f"blocks.{number}" for number in range(7))
    with outputs_of(model.get_submodule("blocks.6")) as seen, torch.inference_mode():
        model(torch.rand(1, 3, 64, 64))
    assert [output.shape for output in seen] == [(1, 320, 2, 2)]


def test_a_network_without_stages_is_refused() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    with pytest.raises(ValueError, match=r"must have stages.*found none in Sequential"):
        stage_names(model)


def test_outputs_are_collected_only_inside_the_context() -> None:
    layer = nn.Linear(2, 2)
    with outputs_of(layer) as seen:
        inside = [layer(torch.rand(1, 2)) for _ in range(2)]
    layer(torch.rand(1, 2))
    assert len(seen) == 2
    assert all(one is other for one, other in zip(seen, inside, strict=True))
    with pytest.raises(RuntimeError), outputs_of(layer):
        layer(torch.rand(1, 3))
    assert not layer._forward_hooks

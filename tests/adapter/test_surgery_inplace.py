"""Conversion in place, the way back, and what a failed conversion leaves behind: nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


def facts(network: nn.Module) -> dict[str, Any]:
    return {
        "modules": [id(m) for m in network.modules()],
        "parameters": [(id(p), p.requires_grad, p.stride()) for p in network.parameters()],
        "training": [m.training for m in network.modules()],
        "hooks": [len(m._forward_hooks) for m in network.modules()],
        "bits": [t.numpy().tobytes() for t in network.state_dict().values()],
    }


@pytest.mark.parametrize("kind", ["1d", "2d", "frozen", "timm", "twice", "aliased", "affineless"])
@pytest.mark.parametrize("method", ["gprebn+rt3a", "shot", "pl-c", "bn"])
def test_in_place_and_back(kind: str, method: str, network: Build, batches: Draw) -> None:
    plain, data = network(kind), batches(kind)
    plain.fc.requires_grad_(False)
    plain.fc.training = True  # odd, and to be kept
    before, answer = facts(plain), plain(data[0])
    adapter = driftnorm.adapt(plain, method, inplace=True, guard="off")
    assert adapter.converted.network is plain
    for x in data:
        adapter(x)
    assert adapter.revert() is plain
    assert facts(plain) == before
    assert torch.equal(plain(data[0]), answer)
    with pytest.raises(RuntimeError, match="reverted"):
        adapter(data[0])


def test_in_place_answers_like_a_copy(network: Build, batches: Draw) -> None:
    options = {"guard": "off", "channels_last": False}
    copied = driftnorm.adapt(network(), "gprebn", **options)
    inplace = driftnorm.adapt(network(), "gprebn", inplace=True, **options)
    assert all(torch.equal(copied(x), inplace(x)) for x in batches())


@pytest.mark.parametrize(
    ("kind", "method", "options"),
    [
        ("untracked", "alpha-bn", {}),
        ("normless", "gprebn", {}),
        ("2d", "gprebn", {"only": "no.such.*"}),
    ],
)
def test_failed_in_place_conversion_leaves_no_trace(
    kind: str, method: str, options: dict[str, Any], network: Build
) -> None:
    plain = network(kind)
    plain.fc.training = True
    before = facts(plain)
    with pytest.raises(ValueError):
        driftnorm.adapt(plain, method, inplace=True, **options)
    assert facts(plain) == before


@pytest.mark.parametrize(
    ("kind", "method"),
    [("2d", "gprebn"), ("2d", "rt3a"), ("2d", "shot"), ("frozen", "shot"), ("untracked", "gprebn")],
)
def test_revert_of_a_copy_is_the_source(
    kind: str, method: str, network: Build, batches: Draw
) -> None:
    plain, data = network(kind), batches()
    adapter = driftnorm.adapt(plain, method, guard="off", channels_last=False)
    for x in data:
        adapter(x)
    source = adapter.revert()
    assert source is not plain
    assert torch.equal(source(data[0]), plain(data[0]))


def test_revert_after_a_change_of_dtype(network: Build, batches: Draw) -> None:
    plain, x = network(), batches()[0].double()
    adapter = driftnorm.adapt(plain, "gprebn", inplace=True, guard="off").to(torch.float64)
    adapter(x)
    assert torch.equal(adapter.revert()(x), network().double()(x))

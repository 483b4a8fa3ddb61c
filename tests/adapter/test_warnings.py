"""Each warning about silent wrongness: given when it is due, once, and not otherwise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm import DriftnormWarning, adapt

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
CLASSES = 4


def said(action: Callable[[], Any]) -> list[str]:
    """The messages of the warnings that an action gives."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    assert all(issubclass(w.category, DriftnormWarning) for w in caught)
    return [str(w.message) for w in caught]


def serve(adapter: nn.Module, data: list[Tensor]) -> Callable[[], list[Tensor]]:
    return lambda: [adapter(x) for x in data]


def count(messages: list[str], part: str) -> int:
    return sum(part in message for message in messages)


# ------------------------------------------------------------------ training mode


def test_training_mode(network: Build, batches: Draw) -> None:
    source = network().train()
    adapters = []
    messages = said(lambda: adapters.append(adapt(source, "gprebn", guard="off")))
    assert len(messages) == 1
    assert "training mode" in messages[0]
    assert ".eval()" in messages[0]
    assert source.training
    assert said(serve(adapters[0], batches())) == []
    assert said(lambda: adapt(network(), "gprebn")) == []


# ------------------------------------------------------------------ tiny batches


@pytest.mark.parametrize("method", ["bn", "tent", "bn+rt3a"])
def test_tiny_batches_with_batch_statistics(method: str, network: Build, batches: Draw) -> None:
    adapter = adapt(network(), method, guard="off")
    sizes = [batches()[1][:n] for n in (7, 3, 2, 5, 3)]
    messages = said(serve(adapter, sizes))
    assert count(messages, "statistics of a batch of 7 are mostly noise") == 1
    assert count(messages, "mostly noise") == 1
    # What keeps its level at small batches, by docs/rows.
    assert count(messages, "use larger batches, 'steady' or 'bn-window'") == 1
    assert said(serve(adapter, sizes)) == []  # once means once
    adapter.reset()
    assert count(said(serve(adapter, sizes)), "mostly noise") == 1  # as if freshly built


@pytest.mark.parametrize(
    ("method", "options"),
    [("gprebn", {}), ("bn", {"running": True}), ("bn-prior", {}), ("source", {}), ("rt3a", {})],
)
def test_tiny_batches_of_methods_that_can(
    method: str, options: dict[str, Any], network: Build, batches: Draw
) -> None:
    adapter = adapt(network(), method, guard="off", **options)
    assert count(said(serve(adapter, [x[:4] for x in batches()])), "mostly noise") == 0


@pytest.mark.parametrize("method", ["bn", "tent"])
def test_a_short_last_batch_is_how_a_loader_ends(
    method: str, network: Build, batches: Draw
) -> None:
    adapter = adapt(network(), method, guard="off")
    epoch = [*batches(), batches()[0][:3]]
    assert said(serve(adapter, epoch + epoch)) == []
    # A second one shows that the batches have become small.
    assert count(said(serve(adapter, [batches()[0][:2]])), "a batch of 2 are mostly noise") == 1


def test_one_picture_of_dense_prediction_is_not_tiny(batches: Draw) -> None:
    dense = nn.Sequential(nn.Conv2d(3, 6, 1), nn.BatchNorm2d(6), nn.Conv2d(6, 4, 1)).eval()
    pictures = [x[:1] for x in batches()]
    for method, options in (("bn", {}), ("tent", {}), ("gprebn", {"episodic": True})):
        assert said(serve(adapt(dense, method, guard="off", **options), pictures)) == []


def test_batches_that_are_large_enough(network: Build, batches: Draw) -> None:
    adapter = adapt(network(), "bn", guard="off")
    assert said(serve(adapter, [x[:8] for x in batches()])) == []


# ------------------------------------------------------------------ class order


class Blobs(nn.Module):
    """A source that is sure and right about four clusters, with the statistics of all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.bn = nn.BatchNorm1d(CLASSES)
        self.fc = nn.Linear(CLASSES, CLASSES)
        everything = torch.cat([blob(k, 200) for k in range(CLASSES)])
        self.bn.running_mean.copy_(everything.mean(dim=0))
        self.bn.running_var.copy_(everything.var(dim=0))
        nn.init.eye_(self.fc.weight).data.mul_(4)
        nn.init.zeros_(self.fc.bias)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.bn(x))


def blob(label: int, size: int) -> Tensor:
    return 3 * torch.eye(CLASSES)[label] + 0.3 * torch.randn(size, CLASSES)


def ordered_stream() -> list[Tensor]:
    return [blob(k, 32) for k in range(CLASSES) for _ in range(3)]


def shuffled_stream(size: int = 32) -> list[Tensor]:
    everything = torch.cat([blob(k, 96) for k in range(CLASSES)])
    return list(everything[torch.randperm(len(everything))].split(size))


@pytest.mark.parametrize("method", ["t3a", "rt3a", "pl", "shot"])
def test_class_ordered_stream(method: str) -> None:
    messages = said(serve(adapt(Blobs(), method), ordered_stream()))
    assert count(messages, "ordered by class") == 1
    assert said(serve(adapt(Blobs(), method, guard="off"), ordered_stream())) == []


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn", "gprebn+rt3a"])
def test_class_ordered_stream_that_target_statistics_spoil(method: str) -> None:
    messages = said(serve(adapt(Blobs(), method), ordered_stream()))
    assert messages
    assert len(messages) == len({message[:20] for message in messages})
    assert all("ordered" in message or "do harm" in message for message in messages)


@pytest.mark.parametrize("method", driftnorm.list_methods())
def test_shuffled_stream_is_fine(method: str) -> None:
    stream = shuffled_stream()
    assert said(serve(adapt(Blobs(), method).fit(stream[0]), stream)) == []


@pytest.mark.parametrize("method", ["source", "gprebn", "rt3a", "bn-prior"])
def test_shuffled_stream_of_single_images_is_fine(method: str) -> None:
    assert said(serve(adapt(Blobs(), method), shuffled_stream(1)[:40])) == []


@pytest.mark.parametrize("method", ["bn", "gprebn", "tent", "gprebn+rt3a", "rt3a"])
@pytest.mark.parametrize("policy", ["warn", "reset", "freeze"])
@pytest.mark.parametrize("at", [1, 4, 7])
@pytest.mark.filterwarnings("ignore::driftnorm.DriftnormWarning")
def test_the_guard_remembers_across_a_resumed_stream(method: str, policy: Any, at: int) -> None:
    data, source = ordered_stream(), Blobs()
    adapter, resumed = (adapt(source, method, guard=policy) for _ in range(2))
    serve(adapter, data[:at])()
    resumed.load_state_dict(adapter.state_dict())
    answers = zip(serve(adapter, data[at:])(), serve(resumed, data[at:])(), strict=True)
    assert all(torch.equal(one, other) for one, other in answers)
    assert (adapter.batches, adapter.alarms, adapter.frozen) == (
        resumed.batches,
        resumed.alarms,
        resumed.frozen,
    )
    states = adapter.state_dict(), resumed.state_dict()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_source_does_not_mind_the_order() -> None:
    assert said(serve(adapt(Blobs(), "source"), ordered_stream())) == []


# ------------------------------------------------------------------ normalisation


@pytest.fixture
def images() -> list[Tensor]:
    """Images in [0, 1] that are smooth, as photographs are."""
    coarse = torch.rand(4 * 16, 3, 3, 3)
    smooth = nn.functional.interpolate(coarse, size=12, mode="bilinear", align_corners=True)
    return list((0.8 * smooth + 0.2 * torch.rand_like(smooth)).split(16))


def normalized(x: Tensor) -> Tensor:
    return (x - 0.5) / 0.22


def trained_on(data: list[Tensor], network: nn.Module) -> nn.Module:
    """The network with the statistics of the given images in its layers."""
    network.train()
    for module in (network.bn1, network.bn2):
        module.reset_running_stats()
        module.momentum = None
    with torch.no_grad():
        for x in data:
            network(x)
    return network.eval()


@pytest.mark.parametrize("method", ["source", "gprebn", "rt3a"])
def test_images_as_bytes(method: str, network: Build, images: list[Tensor]) -> None:
    source = trained_on([normalized(x) for x in images], network())
    messages = said(serve(adapt(source, method, guard="off"), [x * 255 for x in images]))
    assert count(messages, "un-normalised") == 1
    assert count(messages, "as if they were bytes") == 1


@pytest.mark.parametrize("method", ["gprebn", "bn", "tent"])
def test_images_that_missed_the_normalisation(
    method: str, network: Build, images: list[Tensor]
) -> None:
    source = trained_on([normalized(x) for x in images], network())
    messages = said(serve(adapt(source, method, guard="off"), images))
    assert count(messages, "un-normalised") == 1


@pytest.mark.parametrize("method", ["source", "gprebn", "rt3a"])
@pytest.mark.parametrize("change", [normalized, lambda x: x], ids=["normalised", "raw"])
def test_images_as_the_network_was_trained(
    method: str, change: Callable[[Tensor], Tensor], network: Build, images: list[Tensor]
) -> None:
    data = [change(x) for x in images]
    source = trained_on(data, network())
    assert count(said(serve(adapt(source, method, guard="off"), data)), "normalised") == 0


# ------------------------------------------------------------------ bad batches


def test_every_bad_batch_is_said(network: Build, batches: Draw) -> None:
    adapter, bad = adapt(network(), "gprebn", guard="off"), torch.full((9, 3, 6, 6), torch.nan)
    messages = said(serve(adapter, [batches()[0], bad, bad]))
    assert [f"bad batches so far: {n}" in m for n, m in enumerate(messages, start=1)] == [True] * 2
    assert all("after 1 good" in message for message in messages)


def test_warnings_as_errors_leave_no_trace(network: Build, batches: Draw) -> None:
    adapter, twin = (adapt(network(), "bn", guard="off") for _ in range(2))
    before = adapter.state_dict()
    with pytest.raises(DriftnormWarning, match="mostly noise"):
        adapter(batches()[0][:3])  # the test run turns warnings into errors
    assert all(torch.equal(v, before[k]) for k, v in adapter.state_dict().items())
    assert all(torch.equal(adapter(x), twin(x)) for x in batches())

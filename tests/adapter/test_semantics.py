"""What the options mean, against slow and obvious references."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from methods_table import ROWS, Row
from torch import Tensor, nn

import driftnorm
from driftnorm import adapt
from driftnorm.methods import build
from driftnorm.parts.statistics import Batch, Mixture, Running, Source

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


def run(adapter: nn.Module, data: list[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in data]


def same(given: list[Tensor], expected: list[Tensor]) -> bool:
    return len(given) == len(expected) and all(map(torch.equal, given, expected))


def literal_tent(network: nn.Module, data: list[Tensor], steps: int, after: bool) -> list[Tensor]:
    """Tent written out: batch norm in training mode, entropy, Adam on its affine parameters."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.train().requires_grad_(True)
        norm.track_running_stats = False
    optimizer = torch.optim.Adam([p for m in norms for p in m.parameters()], lr=0.05)
    answers = []
    for x in data:
        for _ in range(steps):
            logits = network(x)
            entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
            optimizer.zero_grad()
            entropy.backward()
            optimizer.step()
        answers.append((network(x) if after else logits).detach())
    return answers


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("predict", ["before", "after"])
def test_steps_and_timing_of_the_answer(
    steps: int, predict: Any, network: Build, batches: Draw
) -> None:
    source, data = network().double(), [x.double() for x in batches()]
    adapter = adapt(source, "tent", lr=0.05, steps=steps, predict=predict, guard="off")
    expected = literal_tent(source, data, steps, predict == "after")
    for answer, reference in zip(run(adapter, data), expected, strict=True):
        torch.testing.assert_close(answer, reference, rtol=1e-7, atol=1e-9)


def test_answer_before_the_step_of_episodic_tent_is_bn(network: Build, batches: Draw) -> None:
    tent = adapt(network(), "tent", episodic=True, lr=0.1, guard="off")
    bn = adapt(network(), "bn", guard="off")
    assert same(run(tent, batches()), run(bn, batches()))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_episodic_equals_a_fresh_adapter_for_each_batch(
    row: Row, network: Build, batches: Draw
) -> None:
    data = batches(count=3, size=18)  # of fewer than 16, thetas leave everything to the source
    fresh = [row.adapt(network())(x) for x in data]
    assert same(run(row.adapt(network(), episodic=True), data), fresh)


@pytest.mark.parametrize("method", ["gprebn", "rt3a"])
def test_reset_every(method: str, network: Build, batches: Draw) -> None:
    data, adapter = batches(count=5), adapt(network(), method, guard="off")
    expected = run(adapter, data[:2])
    for part in (data[2:4], data[4:]):
        adapter.reset()
        expected += run(adapter, part)
    resetting = adapt(network(), method, guard="off", reset_every=2)
    assert same(run(resetting, data), expected)
    assert resetting.batches == 1


class Noisy(nn.Module):
    """Draws random numbers in evaluation mode too."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x + 0.1 * torch.randn_like(x))


@pytest.mark.parametrize("options", [{}, {"steps": 2, "predict": "after"}])
def test_seed_makes_random_networks_repeatable(
    options: dict[str, Any], network: Build, batches: Draw
) -> None:
    def seeded(seed: int, **more: Any) -> driftnorm.Adapter:
        source = Noisy(network()).eval()
        return adapt(source, "gprebn", guard="off", seed=seed, **options, **more)

    data, adapter = batches(), seeded(3)
    outside = torch.get_rng_state()
    first = run(adapter, data)
    assert torch.equal(torch.get_rng_state(), outside)  # the caller's random numbers are its own
    adapter.reset()
    assert same(run(adapter, data), first)
    assert same(run(seeded(3), data), first)
    assert not same(run(seeded(4), data), first)
    assert not torch.equal(*run(seeded(3), [data[0]] * 2))  # another draw for each batch
    resumed = seeded(3)
    adapter.reset()
    run(adapter, data[:2])
    resumed.load_state_dict(adapter.state_dict())
    assert same(run(resumed, data[2:]), first[2:])
    fresh = [seeded(3)(x) for x in data]
    assert same(run(seeded(3, episodic=True), data), fresh)


@pytest.mark.parametrize(("count", "expected"), [("batch", 1), ("step", 3)])
def test_what_counts_as_a_batch(count: Any, expected: int, network: Build, batches: Draw) -> None:
    data = batches(count=2)
    adapter = adapt(network(), "gprebn", steps=3, count=count, guard="off")
    for seen, x in enumerate(data, start=1):
        adapter(x)
        for memory in adapter.state["layers"].values():
            assert memory["batches"] == seen * expected
    # The first layer sees the same activations at every step, so its average is known.
    inputs = [adapter.converted.network.conv1(x) for x in data]
    average = torch.stack([h.mean(dim=(0, 2, 3)) for h in inputs]).mean(dim=0)
    memory = adapter.state["layers"]["bn1"]
    torch.testing.assert_close(memory["mean"], average, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("predict", ["before", "after"])
@pytest.mark.parametrize("steps", [1, 2])
def test_centroids_use_the_features_of_the_answering_pass(
    predict: Any, steps: int, network: Build, batches: Draw
) -> None:
    source = network()
    adapter = adapt(source, "gprebn+rt3a", lr=0.2, steps=steps, predict=predict, guard="off")
    adapter(batches()[0])
    passes: list[tuple[Tensor, Tensor]] = []
    adapter.converted.network.fc.register_forward_hook(
        lambda module, args, output: passes.append((args[0].detach(), output.detach()))
    )
    adapter.reset()
    answer = adapter(batches()[0])
    assert len(passes) == steps + (predict == "after")
    features, logits = passes[-1]
    centroids = F.normalize(source.fc.weight.detach(), dim=1)
    for k in range(len(centroids)):
        mine = F.normalize(features[logits.argmax(dim=1) == k], dim=1)
        centroids[k] = (centroids[k] + mine.sum(dim=0)) / (1 + len(mine))
    expected = features @ F.normalize(centroids, dim=1).T
    torch.testing.assert_close(answer, expected, rtol=1e-5, atol=1e-6)
    earlier = passes[0][0] @ F.normalize(centroids, dim=1).T
    assert len(passes) == 1 or not torch.allclose(answer, earlier, atol=1e-3)


def test_layers_can_differ(network: Build, batches: Draw) -> None:
    recipe = replace(
        build("bn", {"running": True}),
        per_layer=(("bn*", Batch()), (lambda name: name == "bn2", Source())),
    )
    adapter = adapt(network(), recipe, guard="off")
    only = adapt(network(), "bn", only="bn1", guard="off")
    assert same(run(adapter, batches()), run(only, batches()))
    mixed = replace(recipe, per_layer=((driftnorm.First(0.5), Mixture(0.5)),))
    adapter = adapt(network(), mixed, guard="off")
    run(adapter, batches())
    chosen = {name: layer.statistics for name, layer in adapter.converted.layers.items()}
    assert chosen == {"bn1": Mixture(0.5), "bn2": Running()}


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        (driftnorm.First(0.5), {"bn1"}),
        (driftnorm.Last(0.5), {"bn2"}),
        ("bn1", {"bn1"}),
        (("bn1", "bn2"), {"bn1", "bn2"}),
        (lambda name: name.endswith("2"), {"bn2"}),
    ],
)
def test_selection_follows_the_forward_order(
    only: Any, chosen: set[str], network: Build, batches: Draw
) -> None:
    source = network()
    # Registered in the other order than they run.
    source._modules["bn1"] = source._modules.pop("bn1")
    adapter = adapt(source, "tent", only=only, lr=0.1, guard="off")
    adapter(batches()[0])
    assert set(adapter.state["layers"]) == chosen
    assert {name.split(".")[0] for name in adapter.trained_values()} == chosen


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        (
            "gprebn",
            {"steps": 2, "theta": 0.25, "lr": 0.004},
            ["lr=0.004", "steps=2", "0.25", "'adam'"],
        ),
        ("tent", {"optimizer": "sgd", "episodic": True}, ["'sgd'", "episodic=True", "Batch()"]),
        ("bn+t3a", {"supports": 7, "guard": "freeze"}, ["T3A(supports=7)", "guard='freeze'"]),
        ("source", {"reset_every": 5, "seed": 1}, ["reset_every=5", "seed=1", "PixelNet"]),
        ("pl", {"on_bad_batch": "raise", "threshold": 0.8}, ["on_bad_batch='raise'", "0.8"]),
    ],
)
def test_repr_tells_method_and_settings(
    method: str, options: dict[str, Any], words: list[str], network: Build, batches: Draw
) -> None:
    adapter = adapt(network(), method, **{"guard": "off", **options})
    shown = repr(adapter)
    assert "\n" not in shown
    for word in [repr(method), "2 batch-norm layers", "0 batches seen", *words]:
        assert word in shown
    adapter(batches()[0])
    assert "frozen" not in repr(adapter)
    assert "frozen" in repr(adapter.freeze())

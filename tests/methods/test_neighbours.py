"""The order of labels and the answer that waits for it, against slow loops and on real streams."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from digit_streams import accuracy, shifted, trained
from torch import Tensor, nn

import driftnorm
from driftnorm.parts import (
    Answer,
    Gated,
    LabelOrder,
    Lame,
    PriorCorrection,
    RunningCentroids,
    Step,
)


class Flat(nn.Module):
    """Batch norm that changes nothing, and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4, eps=0.0)
        self.head = nn.Linear(4, 4, bias=False)
        self.head.weight.data = torch.eye(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


def literal_order(p: Tensor, sizes: list[int], memory: float) -> float:
    """From every pair; an image's weight falls with the batches after its own."""
    ends = torch.tensor(sizes).cumsum(0)
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    weight = (1 - 1 / memory) ** (ends[-1] - ends[batch]).double()
    mean = (weight[:, None] * p).sum(0) / weight.sum()
    of_pair = weight[1:]  # a pair counts when its second image comes
    alike = sum(w * (a @ b) for w, a, b in zip(of_pair, p[:-1], p[1:], strict=True)) / of_pair.sum()
    own = sum(w * (a @ a) for w, a in zip(weight, p, strict=True)) / weight.sum()
    return float((alike - mean @ mean) / (own - mean @ mean))


@pytest.mark.parametrize("of", [Lame(), PriorCorrection()])
def test_the_answer_is_what_the_slow_way_gives(of: Lame | PriorCorrection) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = [6, 1, 9, 4, 20, 20]
    labels = torch.arange(4).repeat_interleave(15)
    x = 3.0 * nn.functional.one_hot(labels, 4) + torch.randn(60, 4, generator=generator)
    part = Gated(of, LabelOrder(memory=30.0, enough=10), low=0.05, high=0.9)
    network = Flat().eval()
    adapter = driftnorm.adapt(network, driftnorm.Recipe(answer=(part,)), guard="off")
    plain = driftnorm.adapt(network, driftnorm.Recipe(answer=(of,)), guard="off")
    p, gates = x.double().softmax(1), []
    for place, rows in enumerate(x.split(sizes)):
        done = sum(sizes[: place + 1])
        seen = sum(
            (1 - 1 / 30.0) ** (done - sum(sizes[: at + 1])) * sizes[at] for at in range(place + 1)
        )
        order = literal_order(p[:done], sizes[: place + 1], 30.0) if seen >= 10 else 0.0
        gate = min(max((order - 0.05) / 0.85, 0), 1)
        gates.append(gate)
        before, after = rows.log_softmax(1), plain(rows).log_softmax(1)
        expected = (before + gate * (after - before)).log_softmax(1)
        torch.testing.assert_close(adapter(rows).log_softmax(1), expected, rtol=1e-3, atol=1e-4)
    assert gates[0] == 0
    assert 0 < max(gates) < 1


def stream(name: str) -> tuple[Tensor, Tensor]:
    """Shuffled digits that drift half-way, or drifted ones sorted by class."""
    _, test = trained()
    images = shifted("noise", 1)
    if name == "sorted":
        order = torch.argsort(test.labels, stable=True)
        return images[order], test.labels[order]
    return torch.cat([test.images[:448], images[448:]]), test.labels


@pytest.mark.parametrize("method", ["lame", "prior", "bn-window+lame"])
def test_it_acts_under_order_and_nowhere_else(method: str) -> None:
    network, _ = trained()
    scores = {}
    for name in ("sorted", "shuffled"):
        images, labels = stream(name)
        without = method.replace("+lame", "") if "+" in method else "source"
        scores[name] = [
            accuracy(driftnorm.adapt(network, each, guard="off"), images, labels, 32)
            for each in (without, f"{method}:gated=True", method)
        ]
    before, gated, ungated = scores["shuffled"]
    assert gated == before
    assert ungated <= before
    before, gated, ungated = scores["sorted"]
    assert gated >= before + 0.005
    assert gated >= ungated - 0.05


@dataclass(frozen=True)
class Reader(Answer):
    """Changes nothing, and notes the order after every batch."""

    found: tuple[LabelOrder, ...] = (LabelOrder(),)

    def __call__(self, step: Step, logits: Tensor) -> Tensor:
        orders = step[self].get("orders", ())
        step[self] = {"orders": (*orders, step.ask(self.found[0]))}
        return logits


@pytest.mark.parametrize("batch", [1, 8, 64])
def test_order_is_found_at_every_batch_size_and_a_drift_is_not_order(batch: int) -> None:
    network, _ = trained()
    found = {}
    for name in ("sorted", "shuffled"):
        recipe = driftnorm.Recipe(answer=(Reader(),))
        adapter = driftnorm.adapt(network, recipe, guard="off")
        images, labels = stream(name)
        accuracy(adapter, images, labels, batch)
        found[name] = adapter.state["parts"]["reader"]["orders"]
    assert max(found["shuffled"]) < 0.15
    assert min(found["sorted"][-400 // batch :]) > 0.6


def test_what_cannot_be_gated() -> None:
    for answer in (RunningCentroids(), Gated()):
        with pytest.raises(ValueError, match="remembers nothing"):
            Gated(answer)
    with pytest.raises(ValueError, match="below `high`"):
        Gated(low=0.3, high=0.2)
    with pytest.raises(ValueError, match="`memory` must be at least 1"):
        LabelOrder(memory=0)
    assert driftnorm.Recipe(answer=(Gated(),)).order_dependent
    assert not driftnorm.Recipe(answer=(Lame(),)).order_dependent

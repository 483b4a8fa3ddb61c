"""Networks of all shapes: their outputs, their classifier, their memory layout, their export."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from driftnorm import adapt

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


class Wrapped(nn.Module):
    """A network whose output is made into something else."""

    def __init__(self, inner: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner = inner
        self.change = change
        self.eval()

    def forward(self, x: Tensor) -> Any:
        return self.change(self.inner(x))


@dataclass
class Output:
    logits: Tensor
    name: str


OUTPUTS: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "dict": (lambda y: {"logits": y, "extra": [y * 2]}, lambda out: out["logits"]),
    "tuple": (lambda y: (y.mean(), y), lambda out: out[1]),
    "dataclass": (lambda y: Output(y, "name"), lambda out: out.logits),
}


@pytest.mark.parametrize("kind", OUTPUTS)
@pytest.mark.parametrize("method", ["bn", "gprebn", "shot", "gprebn+rt3a"])
def test_outputs_that_hold_the_logits(
    kind: str, method: str, network: Build, batches: Draw
) -> None:
    change, take = OUTPUTS[kind]
    plain = adapt(network(), method, guard="off")
    wrapped = adapt(Wrapped(network(), change), method, logits=take, guard="off")
    for x in batches():
        expected, answer = plain(x), wrapped(x)
        assert type(answer) is type(change(expected))
        answer = take(answer)
        assert torch.equal(answer, expected)
        assert not answer.requires_grad


@pytest.mark.parametrize("change", [lambda y: {"logits": y}, lambda y: y[:, 0], lambda y: None])
def test_output_without_logits_is_explained(
    change: Callable[[Tensor], Any], network: Build, batches: Draw
) -> None:
    adapter = adapt(Wrapped(network(), change), "bn")
    with pytest.raises(TypeError, match=r"Wrapped.*`logits=`"):
        adapter(batches()[0])


class Segmenter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.bn = nn.BatchNorm2d(6)
        self.head = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn(self.conv(x))))


@pytest.mark.parametrize("method", ["source", "bn", "tent", "gprebn", "pl", "pl-c", "shot"])
def test_dense_prediction(method: str, batches: Draw) -> None:
    network = Segmenter().eval()
    needs = {"classifier": "head"} if method in ("pl-c", "shot") else {}
    adapter = adapt(network, method, **needs)
    for x in batches():
        assert adapter(x).shape == (9, 4, 6, 6)
    torch.testing.assert_close(adapter.bake()(x), adapter.freeze()(x), rtol=1e-4, atol=1e-5)


def test_dense_classifier_has_no_centroids(batches: Draw) -> None:
    x = batches()[0]
    with pytest.raises(TypeError, match=r"linear classifier.*`head` is a Conv2d"):
        adapt(Segmenter().eval(), "t3a", classifier="head")(x)
    with pytest.raises(ValueError, match="`classifier="):
        adapt(Segmenter().eval(), "t3a")(x)


# ------------------------------------------------------------------ the classifier


class TwoHeads(nn.Module):
    """An auxiliary linear layer, registered and run before or after the classifier."""

    def __init__(self, inner: nn.Module, registered: str, run: str) -> None:
        super().__init__()
        if registered == "earlier":
            self.aux = nn.Linear(6, 4)
        self.inner = inner
        if registered == "later":
            self.aux = nn.Linear(6, 4)
        self.first = run == "earlier"
        self.eval()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.inner.features(x)
        auxiliary = self.aux(features) if self.first else None
        logits = self.inner.fc(features)
        return logits, self.aux(features) if auxiliary is None else auxiliary


@pytest.mark.parametrize("registered", ["earlier", "later"])
@pytest.mark.parametrize("run", ["earlier", "later"])
@pytest.mark.parametrize("method", ["gprebn+rt3a", "t3a", "pl-c", "shot"])
def test_classifier_is_the_layer_that_makes_the_logits(
    registered: str, run: str, method: str, network: Build, batches: Draw
) -> None:
    options = {"threshold": 0.2, "lr": 0.1} if method in ("pl-c", "shot") else {}
    plain = adapt(network(), method, guard="off", **options)
    options["logits"] = lambda out: out[0]
    two = adapt(TwoHeads(network(), registered, run), method, guard="off", **options)
    for x in batches():
        answer = two(x)
        assert torch.equal(answer[0] if isinstance(answer, tuple) else answer, plain(x))


@pytest.mark.parametrize("view", [lambda y: y.view(-1, 4), lambda y: y[:], lambda y: y.detach()])
def test_classifier_seen_through_a_view(
    view: Callable[[Tensor], Tensor], network: Build, batches: Draw
) -> None:
    adapter = adapt(Wrapped(network(), view), "rt3a", guard="off")
    assert torch.equal(adapter(batches()[0]), adapt(network(), "rt3a")(batches()[0]))


def test_named_classifier(network: Build, batches: Draw) -> None:
    named = adapt(network(), "rt3a", classifier="fc", guard="off")
    found = adapt(network(), "rt3a", guard="off")
    assert all(torch.equal(named(x), found(x)) for x in batches())


def test_wrong_classifier_names(network: Build, batches: Draw) -> None:
    x = batches()[0]
    with pytest.raises(ValueError, match=r"got 'head'; its linear layers are: fc"):
        adapt(network(), "rt3a", classifier="head")(x)
    two = TwoHeads(network(), "later", "later")
    with pytest.raises(ValueError, match=r"'aux'.*does not make the logits.*inner\.fc"):
        adapt(two, "rt3a", classifier="aux", logits=lambda out: out[0])(x)


def test_wrong_classifier_name_is_told_whatever_the_method(network: Build, batches: Draw) -> None:
    with pytest.raises(ValueError, match="head"):
        adapt(network(), "gprebn", classifier="head")(batches()[0])


def test_changed_logits_have_no_classifier(network: Build, batches: Draw) -> None:
    adapter = adapt(Wrapped(network(), lambda y: y.log_softmax(dim=1)), "t3a")
    with pytest.raises(ValueError, match=r"classifier.*inner\.fc"):
        adapter(batches()[0])


@pytest.mark.parametrize("method", ["t3a", "rt3a", "pl-c"])
def test_a_linear_layer_alone_is_its_own_classifier(method: str) -> None:
    network, x = nn.Linear(6, 3).eval(), torch.randn(10, 6)
    adapter = adapt(network, method, guard="off")
    adapter(x)
    torch.testing.assert_close(adapter.bake()(x), adapter.freeze()(x))


# ------------------------------------------------------------------ memory layout


class Viewing(nn.Module):
    """Only works on contiguous activations."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.fc = nn.Linear(6 * 16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.relu(self.bn(self.conv(x))).view(len(x), -1))


def layouts(network: nn.Module) -> set[bool]:
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    return {m.weight.is_contiguous(memory_format=torch.channels_last) for m in convolutions}


@pytest.mark.parametrize("method", ["source", "gprebn", "shot"])
def test_channels_last_where_it_is_safe(method: str, network: Build, batches: Draw) -> None:
    plain = adapt(network(), method, channels_last=False, guard="off")
    chosen = adapt(network(), method, guard="off")
    for x in batches():
        torch.testing.assert_close(chosen(x), plain(x), rtol=1e-3, atol=1e-4)
    assert layouts(chosen.converted.network) == {True}
    assert layouts(plain.converted.network) == {False}
    assert layouts(chosen.bake()) == {False}
    given = adapt(network(), method, channels_last=True, guard="off")
    given(batches()[0])
    assert layouts(given.converted.network) == {True}


def test_contiguous_where_the_network_needs_it(batches: Draw) -> None:
    network, data = Viewing().eval(), batches()
    chosen = adapt(network, "gprebn", guard="off")
    plain = adapt(network, "gprebn", channels_last=False, guard="off")
    assert all(torch.equal(chosen(x), plain(x)) for x in data)
    assert layouts(chosen.converted.network) == {False}
    forced = adapt(network, "gprebn", channels_last=True, guard="off")
    with pytest.raises(RuntimeError, match=r"Viewing failed on a batch of shape \(9, 3, 6, 6\)"):
        forced(data[0])


def test_layout_of_the_input_makes_no_difference(network: Build, batches: Draw) -> None:
    one, other = (adapt(network(), "gprebn", guard="off") for _ in range(2))
    for x in batches():
        assert torch.equal(one(x), other(x.contiguous(memory_format=torch.channels_last)))


def test_network_that_changes_its_input_in_place(network: Build, batches: Draw) -> None:
    class InPlace(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x.sub_(0.5).div_(2))

    class Pure(InPlace):
        def forward(self, x: Tensor) -> Tensor:
            return self.inner((x - 0.5) / 2)

    adapters = [adapt(kind().eval(), "tent", steps=2, predict="after") for kind in (InPlace, Pure)]
    for x in batches():
        kept = x.clone()
        assert torch.equal(adapters[0](x), adapters[1](x))
        assert torch.equal(x, kept)


# ------------------------------------------------------------------ export


@pytest.mark.parametrize("seen", [0, 1])
def test_live_adapter_is_not_exported(seen: int, network: Build, batches: Draw) -> None:
    adapter, x = adapt(network(), "gprebn", guard="off"), batches()[0]
    for _ in range(seen):
        adapter(x)
    with pytest.raises(RuntimeError, match=r"adapter\.bake\(\)"):
        torch.export.export(adapter, (x,))
    assert adapter.batches == seen
    assert torch.export.export(adapter.bake(), (x,)) is not None


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*:DeprecationWarning")
def test_live_adapter_is_not_traced(network: Build, batches: Draw) -> None:
    # Unless it is refused, tracing takes the interpreter down.
    adapter, x = adapt(network(), "gprebn", guard="off"), batches()[0]
    with pytest.raises(RuntimeError, match=r"adapter\.bake\(\)"):
        torch.jit.trace(adapter, (x,))

"""What a part of one's own meets in a step: memories, reviews, draws, and mistakes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm.methods import build
from driftnorm.parts import (
    Batch,
    CrossEntropy,
    Descent,
    Diverse,
    Entropy,
    Loss,
    Review,
    Source,
    Statistics,
    Step,
    Taught,
    Teacher,
    Update,
    Verdict,
    View,
    Weight,
    Weighted,
    softmax_entropy,
)

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


def learning(loss: Any, **more: Any) -> driftnorm.Recipe:
    options = {"statistics": Batch(), "update": (Descent(lr=0.1),), **more}
    return driftnorm.Recipe(trainable="affine", loss=loss, **options)


def adapt(network: nn.Module, recipe: driftnorm.Recipe, **more: Any) -> Any:
    return driftnorm.adapt(network, recipe, **{"guard": "off", "on_bad_batch": "raise", **more})


# ------------------------------------------------------------------ reviews


@dataclass(frozen=True)
class Noting(Review):
    """Keeps what it sees of a weight's memory, and how far the parameters are from the source."""

    of: Weight

    def __call__(self, step: Step) -> None:
        moved = [(v - step.start[n]).abs().sum() for n, v in step.values.items()]
        step[self] = {"mean": step[self.of]["mean"], "moved": torch.stack(moved).sum()}


def test_a_review_sees_what_the_batch_proposes(network: Build, batches: Draw) -> None:
    kept = Diverse(1.0)
    recipe = learning(Weighted(Entropy(), (kept,)), review=(Noting(kept),))
    adapter, start = adapt(network(), recipe), dict(network().named_parameters())
    for x in batches():
        adapter(x)
        noted = adapter.state["parts"]["noting"]
        assert torch.equal(noted["mean"], adapter.state["parts"]["diverse"]["mean"])
        moved = [(v - start[n]).abs().sum() for n, v in adapter.trained_values().items()]
        torch.testing.assert_close(noted["moved"], torch.stack(moved).sum())


@dataclass(frozen=True)
class Partial(Review):
    """Restarts once, and keeps the parameters."""

    def __call__(self, step: Step) -> Verdict | None:
        keep = dict(step.values)
        return Verdict(restart=True, keep=keep, reason="enough") if step.batch == 1 else None


def test_what_a_restart_keeps_answers_at_once(network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(network(), learning(Entropy(), statistics=Source(), review=(Partial(),)))
    plain = adapt(network(), learning(Entropy(), statistics=Source()))
    for x in data[:2]:
        adapter(x)
        plain(x)
    assert adapter.last.reason == "enough"
    assert adapter.batches == 0
    adapter.freeze()
    assert torch.equal(adapter(data[2]), plain.freeze()(data[2]))
    torch.testing.assert_close(adapter.bake()(data[2]), adapter(data[2]))


def test_a_collapse_is_reported(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "sar", margin=1.0, floor=0.99, guard="off")
    adapter(batches()[0])
    assert adapter.batches == 0
    assert adapter.last.reason.startswith("the loss has fallen to")


# ------------------------------------------------------------------ draws, lessons


@dataclass(frozen=True)
class Drawing(Update):
    """Keeps all that it drew, and the places at which it drew."""

    def __call__(self, step: Step, values: Any) -> Any:
        drawn = (*step[self].get("drawn", ()), float(torch.rand(1, generator=step.random(self))))
        step[self] = {"drawn": drawn, "places": (*step[self].get("places", ()), step.index)}
        return values


def test_every_lesson_of_a_batch_draws_its_own_numbers(network: Build, batches: Draw) -> None:
    recipe = build("rotta", {"bank": 6, "every": 3, "steps": 2})
    adapter = adapt(network(), replace(recipe, update=(*recipe.update, Drawing())))
    adapter(batches()[0])  # of 9 images: 3 lessons
    memory = adapter.state["parts"]["drawing"]
    assert memory["places"] == (0, 1, 2, 3, 4, 5)
    assert len(set(memory["drawn"])) == 6


@dataclass(frozen=True)
class Ages(Weight):
    """Keeps the ages of a lesson's images."""

    def __call__(self, step: Step, weights: Tensor) -> Tensor:
        step[self] = {"age": step.facts["age"]}
        return weights


def test_ages_are_exact_in_half_precision(network: Build) -> None:
    recipe = build("rotta", {"bank": 2000, "every": 600})
    assert isinstance(recipe.loss, Weighted)
    recipe = replace(recipe, loss=replace(recipe.loss, weights=(Ages(),)))
    adapter = adapt(network().bfloat16(), recipe)
    adapter(torch.randn(600, 3, 6, 6).bfloat16())
    ages = adapter.state["parts"]["ages"]["age"].tolist()
    assert len(ages) > 256
    assert len(set(ages)) == len(ages)


@dataclass(frozen=True)
class Seen(View):
    """A view that keeps what it was given."""

    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        SEEN.append(x)
        return x


SEEN: list[Tensor] = []


def test_a_teacher_looks_at_views_of_the_images_as_they_came(network: Build, batches: Draw) -> None:
    recipe = build("rotta", {"bank": 9, "every": 9})
    teacher = next(part for part in recipe.update if isinstance(part, Teacher))
    taught = Taught(teacher, views=2, confidence=1.0, view=Seen())
    SEEN.clear()
    x = batches()[0]
    adapt(network(), replace(recipe, loss=CrossEntropy(to=taught)))(x)
    assert len(SEEN) == 2
    rows = {tuple(row.flatten().tolist()) for row in x}
    assert all(tuple(row.flatten().tolist()) in rows for seen in SEEN for row in seen)


# ------------------------------------------------------------------ mistakes


@dataclass(frozen=True)
class Remembering(Loss):
    """Keeps a tensor with a graph."""

    def __call__(self, step: Step) -> Tensor:
        step[self] = {"mean": step.logits.mean(dim=0)}
        return softmax_entropy(step.logits)


def test_a_memory_keeps_no_graph(network: Build, batches: Draw) -> None:
    adapter = adapt(network(), learning(Remembering()))
    for x in batches():
        adapter(x)
    assert not adapter.state["parts"]["remembering"]["mean"].requires_grad
    copy.deepcopy(adapter)


@dataclass(frozen=True)
class Length(Loss):
    """Looks at features without saying so."""

    def __call__(self, step: Step) -> Tensor:
        return step.features.square().mean(dim=1)


@dataclass(frozen=True)
class Long(Length):
    """The same, but it says so."""

    features = True


def test_a_part_that_looks_at_features_must_say_so(network: Build, batches: Draw) -> None:
    with pytest.raises(TypeError, match="`features = True`"):
        adapt(network(), learning(Length()))(batches()[0])
    assert adapt(network(), learning(Long()))(batches()[0]).isfinite().all()


@dataclass
class Thawed(Loss):
    """Not frozen, so it has no hash."""

    def __call__(self, step: Step) -> Tensor:
        return softmax_entropy(step.logits)


@dataclass(frozen=True)
class Listing(Loss):
    """Holds a list."""

    of: list[int]

    def __call__(self, step: Step) -> Tensor:
        return softmax_entropy(step.logits)


@pytest.mark.parametrize("loss", [Thawed(), Listing([1])])
def test_a_part_is_a_value(loss: Loss) -> None:
    with pytest.raises(TypeError, match=rf"{type(loss).__name__}\(.*must be a frozen dataclass"):
        learning(loss)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ([(torch.randn(9, 3, 6, 6), torch.zeros(9, dtype=torch.int64))], r"\(x for x, _ in loader"),
        (torch.randn(0, 3, 6, 6), "empty"),
        ([torch.randn(9, 3, 6, 6), torch.randn(0, 3, 6, 6)], "empty"),
    ],
)
def test_images_that_cannot_be_fitted(images: Any, message: str, network: Build) -> None:
    adapter = driftnorm.adapt(network(), "eata")
    with pytest.raises((TypeError, ValueError), match=f"`images`.*{message}"):
        adapter.fit(images)


def test_statistics_of_ones_own_are_checked(network: Build, batches: Draw) -> None:
    @dataclass(frozen=True)
    class Half(Statistics):
        def propose(self, memory: Any, at: Any, source: Any, seen: Any) -> Any:
            return at.moments

        def settled(self, memory: Any, source: Any, shared: Any) -> Any:
            return source

    with pytest.raises(TypeError, match=r"`Half.propose` must return a tuple of `Moments`"):
        adapt(network(), driftnorm.Recipe(statistics=Half()))(batches()[0])


@dataclass(frozen=True)
class Widest(Statistics):
    """As on the page about extending: no `judge` of its own."""

    def propose(self, memory: Any, at: Any, source: Any, seen: Any) -> Any:
        batch = at.moments
        var = torch.maximum(memory.get("var", batch.var), batch.var)
        return batch._replace(var=var), {"mean": batch.mean, "var": var}

    def settled(self, memory: Any, source: Any, shared: Any) -> Any:
        return source


def test_no_variance_of_ones_own_statistics_is_negative(network: Build, batches: Draw) -> None:
    adapter = adapt(network(), driftnorm.Recipe(statistics=Widest(), gradient="detached"))
    adapter(batches()[0])
    good, key = adapter.state_dict(), "adapter.state/layers/bn1/var"
    with pytest.raises(ValueError, match="the state is damaged: `layers/bn1`: `var` must be >= 0"):
        adapter.load_state_dict({**good, key: -good[key]})

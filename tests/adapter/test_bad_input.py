"""Bad batches, bad steps, bad states: nothing changes, it is counted, and it is said."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm import BadBatchError, DriftnormWarning, adapt
from driftnorm.parts.losses import Entropy
from driftnorm.parts.statistics import Running
from driftnorm.parts.updates import Descent

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
METHODS = ("source", "bn", "alpha-bn", "tent", "gprebn", "t3a", "rt3a", "pl", "shot", "gprebn+rt3a")
every_method = pytest.mark.parametrize("method", METHODS)


def bits(adapter: nn.Module) -> dict[str, bytes]:
    """Every number of the adapter's state but its counters."""
    kept = {k: v for k, v in adapter.state_dict().items() if not k.startswith("adapter.counts")}
    return {name: value.float().numpy().tobytes() for name, value in kept.items()}


@contextmanager
def leaves_no_trace(adapter: driftnorm.Adapter) -> Iterator[None]:
    before, batches = bits(adapter), adapter.batches
    try:
        yield
    finally:
        assert bits(adapter) == before
        assert adapter.batches == batches
        assert all(p.grad is None for p in adapter.parameters())


def answers_as_before(adapter: driftnorm.Adapter, twin: driftnorm.Adapter, data: Any) -> bool:
    """Whether a stream goes on as that of an adapter that never met the bad batch."""
    return all(torch.equal(adapter(x), twin(x)) for x in data)


def learn_layout(adapter: driftnorm.Adapter, x: Tensor) -> None:
    """How the network runs is learnt from the first batch, good or bad, and is kept."""
    adapter.freeze()(x)
    adapter.unfreeze()


def refused(adapter: driftnorm.Adapter, x: Tensor) -> Tensor:
    """Serve a bad batch: a warning, a report, a count, an answer from the last good state."""
    count = adapter.bad_batches
    with leaves_no_trace(adapter), pytest.warns(DriftnormWarning, match="was not adapted to"):
        answer = adapter(x)
    assert adapter.bad_batches == count + 1
    assert (adapter.last.status, adapter.last.samples) == ("bad", len(x))
    assert adapter.last.reason
    assert math.isnan(adapter.last.entropy)
    assert torch.equal(answer.nan_to_num(), adapter.bake()(x).nan_to_num()) or torch.allclose(
        answer, adapter.bake()(x), rtol=1e-4, atol=1e-4, equal_nan=True
    )
    return answer


@every_method
@pytest.mark.parametrize("value", [math.nan, -math.inf])
@pytest.mark.parametrize("seen", [0, 2])
def test_input_that_is_not_finite(
    method: str, value: float, seen: int, network: Build, batches: Draw
) -> None:
    data = batches()
    adapter, twin = (adapt(network(), method, guard="off") for _ in range(2))
    for x in data[:seen]:
        assert torch.equal(adapter(x), twin(x))
    bad = data[2].clone()
    bad[3, 0, 0, 0] = value
    answer = refused(adapter, bad)
    assert answer.shape == (9, 4)
    assert answer[:3].isfinite().all()  # the other images get their answer
    assert answers_as_before(adapter, twin, data[seen:])


@every_method
def test_raise_instead(method: str, network: Build, batches: Draw) -> None:
    data = batches()
    adapter, twin = (adapt(network(), method, guard="off", on_bad_batch="raise") for _ in range(2))
    assert torch.equal(adapter(data[0]), twin(data[0]))
    with leaves_no_trace(adapter), pytest.raises(BadBatchError, match="No state was changed"):
        adapter(torch.full_like(data[0], math.nan))
    assert adapter.bad_batches == 1
    assert answers_as_before(adapter, twin, data)


@every_method
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_huge_values_that_overflow_inside(
    method: str, sign: float, network: Build, batches: Draw
) -> None:
    source, data = network(), batches()
    source.conv1.weight.data *= 1e3
    adapter, twin = (adapt(source, method, guard="off") for _ in range(2))
    assert torch.equal(adapter(data[0]), twin(data[0]))
    huge = data[1].clone()
    huge[0], huge[1] = sign * 1e36, -sign * 1e36  # finite, and so is any sum of them
    refused(adapter, huge)
    assert answers_as_before(adapter, twin, data[1:])


def exploding(limit: int) -> Callable[[Tensor], Tensor]:
    """An objective whose value turns NaN after some calls."""
    calls = iter(range(1000))

    def objective(logits: Tensor) -> Tensor:
        return Entropy().of(logits) * (math.nan if next(calls) >= limit else 1.0)

    return objective


@pytest.mark.parametrize("limit", [0, 1, 2, 3])
@pytest.mark.parametrize("count", ["batch", "step"])
def test_loss_that_turns_nan(limit: int, count: Any, network: Build, batches: Draw) -> None:
    options = {"trainable": "affine", "statistics": Running(), "steps": 2, "count": count}

    def make(objective: Callable[[Tensor], Tensor]) -> driftnorm.Adapter:
        recipe = driftnorm.Recipe(loss=objective, update=(Descent(lr=0.1),), **options)
        return adapt(network(), recipe, guard="off")

    adapter, twin, data = make(exploding(limit)), make(Entropy()), batches()
    good = limit // 2
    for x in data[:good]:
        assert torch.equal(adapter(x), twin(x))
    refused(adapter, data[good])
    assert "loss" in adapter.last.reason
    assert torch.equal(adapter.freeze()(data[3]), twin.freeze()(data[3]))


TRAINED = {"tent": {}, "gprebn": {}, "shot": {}, "pl": {"threshold": 0.2}, "gprebn+t3a": {}}


@pytest.mark.parametrize("method", TRAINED)
@pytest.mark.parametrize("predict", ["before", "after"])
def test_step_that_explodes_the_parameters(
    method: str, predict: Any, network: Build, batches: Draw
) -> None:
    options = {"lr": 1e30, "weight_decay": 1e30, "optimizer": "sgd", **TRAINED[method]}
    adapter = adapt(network(), method, predict=predict, guard="off", **options)
    learn_layout(adapter, batches()[0])
    answer = refused(adapter, batches()[0])
    torch.testing.assert_close(answer, network()(batches()[0]))
    refused(adapter, batches()[1])
    assert adapter.batches == 0


@pytest.mark.parametrize("method", TRAINED)
def test_step_that_explodes_the_answer(method: str, network: Build, batches: Draw) -> None:
    # The parameters are finite after it, the logits that they make are not.
    options = {"lr": 1e36, "predict": "after", **TRAINED[method]}
    adapter = adapt(network(), method, guard="off", **options)
    learn_layout(adapter, batches()[0])
    answer = refused(adapter, batches()[0])
    torch.testing.assert_close(answer, network()(batches()[0]))


# ------------------------------------------------------------------ exceptions


class Trap:
    """A forward hook that raises at its n-th call."""

    def __init__(self, error: BaseException, at: int) -> None:
        self.error, self.left = error, at

    def __call__(self, *_: Any) -> None:
        self.left -= 1
        if self.left == 0:
            raise self.error


@every_method
@pytest.mark.parametrize("error", [RuntimeError("inside"), KeyboardInterrupt()])
@pytest.mark.parametrize("place", ["bn2", "fc"])
def test_exception_inside_the_network(
    method: str, error: BaseException, place: str, network: Build, batches: Draw
) -> None:
    options = {"steps": 2} if method in ("tent", "gprebn", "shot", "gprebn+rt3a") else {}
    passes = 2 if options else 1
    data = batches()
    adapter, twin = (adapt(network(), method, guard="off", **options) for _ in range(2))
    assert torch.equal(adapter(data[0]), twin(data[0]))
    for at in range(1, passes + 1):
        module = adapter.converted.network.get_submodule(place)
        handle = module.register_forward_hook(Trap(error, at))
        with leaves_no_trace(adapter), pytest.raises(type(error)):
            adapter(data[1])
        handle.remove()
    assert adapter.bad_batches == 0
    assert answers_as_before(adapter, twin, data[1:])


@every_method
def test_exception_in_the_very_first_batch(method: str, network: Build, batches: Draw) -> None:
    data = batches()
    for at in range(1, 6):  # the probes of layout and classifier, and then the batch
        adapter, twin = (adapt(network(), method, guard="off") for _ in range(2))
        handle = adapter.converted.network.bn2.register_forward_hook(Trap(KeyboardInterrupt(), at))
        try:
            adapter(data[0])
        except KeyboardInterrupt:
            assert adapter.batches == 0
            handle.remove()
            assert answers_as_before(adapter, twin, data)


def test_optimizer_that_fails(network: Build, batches: Draw) -> None:
    class Failing(torch.optim.SGD):
        broken = False

        def step(self, closure: Any = None) -> None:
            super().step(closure)
            if Failing.broken:
                raise KeyboardInterrupt

    def build(parameters: Any, lr: float, weight_decay: float) -> torch.optim.Optimizer:
        return Failing(parameters, lr=lr, momentum=0.9)

    data = batches()
    adapter, twin = (
        adapt(network(), "gprebn", optimizer=build, lr=0.1, guard="off") for _ in range(2)
    )
    assert torch.equal(adapter(data[0]), twin(data[0]))
    Failing.broken = True
    with leaves_no_trace(adapter), pytest.raises(KeyboardInterrupt):
        adapter(data[1])
    Failing.broken = False
    assert answers_as_before(adapter, twin, data[1:])

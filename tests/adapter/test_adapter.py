"""The adapter as a module among others: contexts, modes, dtypes, copies, threads, parents."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import driftnorm
from driftnorm import adapt

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
METHODS = ("bn", "gprebn", "shot", "t3a", "gprebn+rt3a")
every_method = pytest.mark.parametrize("method", METHODS)


def make(network: nn.Module, method: str, **options: Any) -> driftnorm.Adapter:
    if method in ("gprebn", "shot", "gprebn+rt3a"):
        options = {"lr": 0.05, **options}
    return adapt(network, method, **{"guard": "off", **options})


def run(adapter: nn.Module, data: list[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in data]


def same(given: list[Tensor], expected: list[Tensor]) -> bool:
    return len(given) == len(expected) and all(map(torch.equal, given, expected))


# ------------------------------------------------------------------ the caller's contexts


@every_method
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("inside", ["calls", "everything"])
def test_gradient_contexts(
    method: str,
    context: Callable[[], AbstractContextManager[Any]],
    inside: str,
    network: Build,
    batches: Draw,
) -> None:
    expected = run(make(network(), method), batches())
    with context() if inside == "everything" else nullcontext():
        source = network()
        adapter = make(source, method)
        # Under inference mode, copies are inference tensors too.
        with context():
            data = [x.clone() for x in batches()]
            answers = run(adapter, data[:2])
        state = adapter.state_dict()
        adapter.reset()
        adapter.load_state_dict(state)
        baked = adapter.bake()
    answers += run(adapter, data[2:])
    assert same(answers, expected)
    assert not any(answer.is_inference() for answer in answers)
    assert not any(p.is_inference() for p in baked.parameters())


def test_moved_inside_inference_mode(network: Build, batches: Draw) -> None:
    adapter, data = make(network(), "gprebn"), batches()
    adapter(data[0])
    with torch.inference_mode():
        adapter.to(torch.float64)
    assert adapter(data[1].double()).dtype == torch.float64


@every_method
@pytest.mark.parametrize("flags", [(True,), (True, False), (False, True)])
def test_train_and_eval_make_no_difference(
    method: str, flags: tuple[bool, ...], network: Build, batches: Draw
) -> None:
    expected, adapter = run(make(network(), method), batches()), make(network(), method)
    answers = []
    for x, flag in zip(batches(), flags * 4, strict=False):
        adapter.train(flag)
        assert adapter.training is flag
        assert not any(m.training for m in adapter.converted.network.modules())
        answers.append(adapter(x))
    assert same(answers, expected)  # the network has a dropout layer: it stayed off


@every_method
@pytest.mark.parametrize("wanted", [True, False])
def test_gradient_flags_of_the_caller_make_no_difference(
    method: str, wanted: bool, network: Build, batches: Draw
) -> None:
    adapter, data = make(network(), method), batches()
    answers = run(adapter, data[:1])
    adapter.requires_grad_(wanted)
    answers += run(adapter, data[1:])
    assert same(answers, run(make(network(), method), data))


def test_input_that_requires_grad(network: Build, batches: Draw) -> None:
    adapter, data = make(network(), "gprebn"), batches()
    expected = run(make(network(), "gprebn"), data)
    wanting = [x.clone().requires_grad_() for x in data]
    answers = run(adapter, wanting)
    assert same(answers, expected)
    assert all(x.grad is None for x in wanting)
    assert not any(answer.requires_grad for answer in answers)


@pytest.mark.parametrize("method", [*METHODS, "pl", "pl-c"])
def test_autocast(method: str, network: Build, batches: Draw) -> None:
    options = {"threshold": 0.2, "lr": 0.05} if method.startswith("pl") else {}
    around, each = (make(network(), method, **options) for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        answers = run(around, batches())
    apart = []
    for x in batches():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            apart.append(each(x))
    assert same(answers, apart)  # no stale copy of a trained weight
    assert all(a.dtype == torch.bfloat16 and a.isfinite().all() for a in answers)
    for memory in around.state["layers"].values():
        assert memory["mean"].dtype == torch.float32
    wide = run(make(network(), method, **options), batches()[:1])
    torch.testing.assert_close(answers[0].float(), wide[0], rtol=0.1, atol=0.1)


# ------------------------------------------------------------------ precision and copies


@every_method
@pytest.mark.parametrize("kind", ["2d", "frozen", "affineless"])
def test_to_float64_in_mid_stream(method: str, kind: str, network: Build, batches: Draw) -> None:
    adapter, data = make(network(kind), method), batches(kind)
    answers = run(adapter, data[:2])
    assert adapter.to(torch.float64) is adapter
    answers += run(adapter, [x.double() for x in data[2:]])
    assert answers[-1].dtype == torch.float64
    for memory in adapter.state["layers"].values():
        assert memory["mean"].dtype == torch.float64
    for answer, expected in zip(answers, run(make(network(kind), method), data), strict=True):
        torch.testing.assert_close(answer.float(), expected, rtol=1e-2, atol=1e-2)
    baked, frozen = adapter.bake(), adapter.freeze()
    torch.testing.assert_close(baked(data[0].double()), frozen(data[0].double()))
    adapter.reset()
    adapter.to(torch.float32)
    assert same(run(adapter, data), run(make(network(kind), method), data))


@every_method
@pytest.mark.parametrize("kind", ["2d", "frozen", "timm"])
def test_to_bfloat16(method: str, kind: str, network: Build, batches: Draw) -> None:
    adapter, data = make(network(kind), method), [x.bfloat16() for x in batches(kind)]
    adapter.to(torch.bfloat16)
    if adapter.recipe.trainable not in ("none", "affine"):
        with pytest.raises(TypeError, match="in which small steps are lost"):
            run(adapter, data)
        return
    answers = run(adapter, data)
    assert all(a.dtype == torch.bfloat16 and a.isfinite().all() for a in answers)
    for layer in adapter.converted.layers.values():
        for name in ("source_mean", "source_var"):
            assert getattr(layer, name).dtype == torch.float32
        assert layer.precision == torch.bfloat16
    for memory in adapter.state["layers"].values():
        assert memory["mean"].dtype == memory["var"].dtype == torch.float32
    frozen, baked = adapter.freeze()(data[0]), adapter.bake()
    assert {p.dtype for p in baked.parameters()} == {torch.bfloat16}
    torch.testing.assert_close(baked(data[0]), frozen, rtol=0.1, atol=0.1)


@every_method
def test_deep_copy_is_independent(method: str, network: Build, batches: Draw) -> None:
    adapter, data = make(network(), method), batches()
    run(adapter, data[:2])
    twin = copy.deepcopy(adapter)
    before = adapter.state_dict()
    answers = run(twin, data[2:])
    twin.reset()
    after = adapter.state_dict()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert same(run(adapter, data[2:]), answers)


@every_method
def test_pickled_adapter_goes_on(method: str, network: Build, batches: Draw) -> None:
    adapter, data = make(network(), method), batches()
    run(adapter, data[:2])
    twin = pickle.loads(pickle.dumps(adapter))
    assert same(run(twin, data[2:]), run(adapter, data[2:]))


@every_method
def test_state_dict_is_a_snapshot_of_tensors(method: str, network: Build, batches: Draw) -> None:
    adapter, data = make(network(), method), batches()
    run(adapter, data[:2])
    state = adapter.state_dict()
    assert all(type(value) is Tensor and value.is_contiguous() for value in state.values())
    kept = copy.deepcopy(state)
    later = run(adapter, data[2:])
    assert all(torch.equal(state[name], value) for name, value in kept.items())
    adapter.load_state_dict(state)
    assert same(run(adapter, data[2:]), later)
    assert all(torch.equal(state[name], value) for name, value in kept.items())


# ------------------------------------------------------------------ threads


def at_once(adapter: nn.Module, data: list[Tensor]) -> list[Tensor]:
    """One thread for each batch, let go together."""
    barrier, found = threading.Barrier(len(data)), dict[int, Tensor]()

    def call(place: int, x: Tensor) -> None:
        barrier.wait()
        found[place] = adapter(x)

    threads = [threading.Thread(target=call, args=(i, x)) for i, x in enumerate(data)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[i] for i in range(len(data))]


@every_method
def test_two_threads_are_served_one_after_the_other(
    method: str, network: Build, batches: Draw
) -> None:
    a, b = batches(count=2)
    orders = []
    for order in ((a, b), (b, a)):
        answers = run(make(network(), method), list(order))
        orders.append(answers if order[0] is a else answers[::-1])
    for _ in range(5):
        answers = at_once(make(network(), method), [a, b])
        assert any(same(answers, expected) for expected in orders)


def test_many_threads_lose_no_batch(network: Build, batches: Draw) -> None:
    adapter, data = make(network(), "bn", running=True), batches(count=8)
    at_once(adapter, data)
    assert (adapter.batches, adapter.bad_batches) == (8, 0)
    serial = make(network(), "bn", running=True)
    run(serial, data)
    # What enters the first layer does not depend on the order.
    first, expected = (a.state["layers"]["bn1"] for a in (adapter, serial))
    torch.testing.assert_close(first, expected)


# ------------------------------------------------------------------ among other modules


def test_data_loader_with_a_partial_last_batch(network: Build, batches: Draw) -> None:
    images = torch.cat(batches(count=3))[:25]
    loader = DataLoader(TensorDataset(images, torch.arange(25)), batch_size=9)
    adapter = make(network(), "gprebn")
    answers = [adapter(x) for x, _ in loader]
    assert [len(answer) for answer in answers] == [9, 9, 7]
    assert adapter.batches == 3


@every_method
def test_inside_a_parent_module(method: str, network: Build, batches: Draw) -> None:
    data = batches()
    parent = nn.ModuleDict({"scale": nn.Linear(4, 4), "inner": make(network(), method)})
    run(parent["inner"], data[:2])
    twin = nn.ModuleDict({"scale": nn.Linear(4, 4), "inner": make(network(), method)})
    assert "<All keys matched" in str(twin.load_state_dict(parent.state_dict()))
    assert torch.equal(twin["scale"].weight, parent["scale"].weight)
    assert same(run(twin["inner"], data[2:]), run(parent["inner"], data[2:]))
    parent.to(torch.float64)
    assert parent["inner"](data[0].double()).dtype == torch.float64


def test_compiled_adapter_and_compiled_network(network: Build, batches: Draw) -> None:
    expected = run(make(network(), "gprebn"), batches())
    compiled = torch.compile(make(network(), "gprebn"), backend="eager")
    assert same(run(compiled, batches()), expected)
    wrapped = make(torch.compile(network(), backend="eager"), "gprebn")
    assert same(run(wrapped, batches()), expected)


def test_further_arguments_reach_the_network(network: Build, batches: Draw) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor, scale: Tensor, *, shift: float = 0.0) -> Tensor:
            return self.inner(x) * scale + shift

    x, scale = batches()[0], torch.full((9, 1), 2.0)
    plain = make(network(), "bn")(x)
    answer = make(Scaled().eval(), "bn")(x, scale, shift=1.0)
    torch.testing.assert_close(answer, plain * 2 + 1)

"""Adapters among what other people's code does: loaders with workers, compilers, autocast, devices.

`test_adapter.py` has autocast, bfloat16, float64 and the compiler with every method; here they meet
each other.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import driftnorm

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
DEVICES = [
    "cpu",
    *(["cuda"] if torch.cuda.is_available() else []),
    *(["mps"] if torch.backends.mps.is_available() else []),
]


def answers_of(model: Callable[[Tensor], Tensor], data: list[Tensor]) -> list[Tensor]:
    return [model(x) for x in data]


def same(first: list[Tensor], second: list[Tensor]) -> bool:
    return all(map(torch.equal, first, second)) and len(first) == len(second)


class Images(IterableDataset[Tensor]):
    """A stream that each worker reads a part of, in order."""

    def __init__(self, images: Tensor) -> None:
        self.images = images

    def __iter__(self):  # type: ignore[no-untyped-def]
        worker = torch.utils.data.get_worker_info()
        assert worker is not None
        yield from self.images[worker.id :: worker.num_workers]


@pytest.mark.parametrize("persistent", [False, True])
def test_loader_with_workers(persistent: bool, network: Build, batches: Draw) -> None:
    images = torch.cat(batches(count=5))[:40]
    dataset: Dataset[tuple[Tensor, ...]] = TensorDataset(images, torch.arange(40))
    options = {"batch_size": 9, "num_workers": 2}
    adapter, plain = (driftnorm.adapt(network(), "gprebn", guard="off") for _ in range(2))
    loader = DataLoader(dataset, persistent_workers=persistent, **options)  # type: ignore[arg-type]
    with torch.inference_mode():
        for _ in range(2):  # epochs
            answers = [adapter(x) for x, _ in loader]
    expected = [plain(x) for _ in range(2) for x in images.split(9)]
    assert same(answers, expected[5:])
    assert adapter.batches == 10


def test_iterable_loader_with_workers(network: Build, batches: Draw) -> None:
    images = torch.cat(batches(count=4))
    adapter, plain = (driftnorm.adapt(network(), "gprebn", guard="off") for _ in range(2))
    loader = DataLoader(Images(images), batch_size=6, num_workers=2)
    answers = [adapter(x) for x in loader]
    # The loader takes a batch of each worker in turn.
    halves = [images[0::2].split(6), images[1::2].split(6)]
    assert same(answers, [plain(half[i]) for i in range(3) for half in halves])


def test_loader_whose_workers_hold_an_adapter(network: Build, batches: Draw) -> None:
    """Pseudo-labels made in workers: each has its own copy, and the parent's is left alone."""
    adapter = driftnorm.adapt(network(), "bn", guard="off")
    adapter(batches()[0])
    before = adapter.state_dict()

    def labelled(pictures: list[Tensor]) -> Tensor:
        return adapter(torch.stack(pictures)).argmax(1)

    dataset = torch.cat(batches(count=2))
    loader = DataLoader(
        dataset,  # type: ignore[arg-type]
        batch_size=9,
        num_workers=1,
        collate_fn=labelled,
        multiprocessing_context="fork",
    )
    twin = driftnorm.adapt(network(), "bn", guard="off")
    twin(batches()[0])
    assert same([*loader], [twin(x).argmax(1) for x in dataset.split(9)])
    after = adapter.state_dict()
    assert all(torch.equal(after[key], value) for key, value in before.items())


@pytest.mark.parametrize("method", ["bn", "gprebn", "gprebn+rt3a"])
def test_compiled_under_autocast_and_inference_mode(
    method: str, network: Build, batches: Draw
) -> None:
    plain, inner = (driftnorm.adapt(network(), method, guard="off") for _ in range(2))
    compiled = torch.compile(inner, backend="eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = answers_of(plain, batches())
        with torch.inference_mode():
            answers = answers_of(compiled, batches())
    assert same(answers, expected)
    inner.freeze()
    plain.freeze()
    assert same(answers_of(compiled, batches()), answers_of(plain, batches()))
    inner.reset()
    plain.reset()
    assert same(answers_of(compiled, batches()), answers_of(plain, batches()))
    torch.compiler.reset()


def test_baked_network_is_compiled(network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network(), "gprebn", guard="off")
    answers_of(adapter, batches())
    baked, x = adapter.bake(), batches()[0]
    compiled = torch.compile(baked, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), adapter.freeze()(x), rtol=1e-4, atol=1e-5)
    torch.compiler.reset()


def test_autocast_that_comes_and_goes(network: Build, batches: Draw) -> None:
    """A caller who uses autocast for some batches only: the state stays float32 and finite."""
    adapter = driftnorm.adapt(network(), "gprebn", guard="off")
    kinds = []
    for number, x in enumerate(batches()):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=number % 2 == 0):
            kinds.append(adapter(x).dtype)
    assert kinds == [torch.bfloat16, torch.float32] * 2
    kept = {key: value for key, value in adapter.state_dict().items() if value.is_floating_point()}
    assert all(value.isfinite().all() for value in kept.values())
    assert {value.dtype for value in kept.values()} <= {torch.float32, torch.float64}


@pytest.mark.parametrize("device", DEVICES)
def test_an_adapter_moves_with_its_device(device: str, network: Build, batches: Draw) -> None:
    """On the CPU alone this says little; on a machine with another device it is the same test."""
    here = driftnorm.adapt(network(), "gprebn+rt3a", guard="off")
    there = driftnorm.adapt(network(), "gprebn+rt3a", guard="off").to(device)
    for x in batches():
        answer = there(x.to(device))
        assert answer.device.type == device
        torch.testing.assert_close(answer.cpu(), here(x), rtol=1e-3, atol=1e-3)
    state = {key: value.cpu() for key, value in there.state_dict().items()}
    back = driftnorm.adapt(network(), "gprebn+rt3a", guard="off")
    back.load_state_dict(state)
    assert back.batches == 4

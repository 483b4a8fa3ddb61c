"""The promises of the contract, over every row of the table; no test here knows a method."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from methods_table import ROWS, Row
from mutants import MUTANTS, Mutant
from torch import Tensor, nn

import driftnorm
from driftnorm.adapter._saved_state import FORMAT
from driftnorm.adapter._step import LiveStep
from driftnorm.adapter._tree import flatten, mapped, tensors, unflatten
from driftnorm.parts import Batch, Review, Step

every_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


def bits(tree: Any) -> dict[str, bytes]:
    return {key: value.double().numpy().tobytes() for key, value in flatten(tree).items()}


def inside(adapter: Any) -> dict[str, bytes]:
    """The numbers of the network within, which are the source's at any time."""
    return {k: v.numpy().tobytes() for k, v in adapter.converted.network.state_dict().items()}


class Counter:
    """A forward hook on the whole network; raises at its n-th call."""

    def __init__(self, at: int = 0) -> None:
        self.calls, self.at = 0, at

    def __call__(self, *_: Any) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


@contextmanager
def counted(adapter: Any, at: int = 0) -> Iterator[Counter]:
    counter = Counter(at)
    handle = adapter.converted.network.register_forward_hook(counter)
    try:
        yield counter
    finally:
        handle.remove()


@every_row
def test_a_bad_batch_is_a_batch_that_never_was(row: Row, network: Build, batches: Draw) -> None:
    adapter, twin, data = row.adapt(network()), row.adapt(network()), batches(count=4)
    for x in data[:2]:
        assert torch.equal(adapter(x), twin(x))
    state, numbers = adapter.state, inside(adapter)
    with pytest.warns(driftnorm.DriftnormWarning, match="was not adapted to"):
        adapter(torch.full_like(data[2], float("nan")))
    assert adapter.state is state
    assert inside(adapter) == numbers
    for x in data[2:]:
        assert torch.equal(adapter(x), twin(x))


@every_row
def test_an_interrupt_at_any_forward(row: Row, network: Build, batches: Draw) -> None:
    adapter, twin, data = row.adapt(network()), row.adapt(network()), batches(count=3)
    for place, x in enumerate(data):
        at = 1
        while True:
            state, before, numbers = adapter.state, bits(adapter.state), inside(adapter)
            try:
                with counted(adapter, at):
                    answer = adapter(x)
                break
            except KeyboardInterrupt:
                assert adapter.state is state
                assert bits(state) == before
                assert inside(adapter) == numbers
                assert adapter.converted.stage.now is None
                at += 1
        assert at > 1 or place > 0
        assert torch.equal(answer, twin(x))


@every_row
def test_an_error_at_any_write_to_a_memory(
    row: Row, network: Build, batches: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, twin, data = row.adapt(network()), row.adapt(network()), batches(count=2)
    assert torch.equal(adapter(data[0]), twin(data[0]))
    written = LiveStep.__setitem__
    left = [0]

    def failing(self: LiveStep, part: Any, memory: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise MemoryError("no room")
        written(self, part, memory)

    at = 1
    while True:
        left[0] = at
        state, before = adapter.state, bits(adapter.state)
        with monkeypatch.context() as patch:
            patch.setattr(LiveStep, "__setitem__", failing)
            try:
                answer = adapter(data[1])
            except MemoryError:
                assert adapter.state is state
                assert bits(state) == before
                at += 1
                continue
        break
    assert torch.equal(answer, twin(data[1]))


@every_row
def test_nothing_in_a_state_is_changed_in_place(row: Row, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network()), batches(count=4)
    adapter(data[0])
    kept = [(adapter.state, bits(adapter.state))]
    for x in data[1:]:
        adapter(x)
        kept.append((adapter.state, bits(adapter.state)))
    assert all(bits(state) == before for state, before in kept)


@every_row
def test_frozen_answers_repeat_in_any_order(row: Row, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network()), batches(count=4)
    for x in data[:2]:
        adapter(x)
    state = adapter.state
    adapter.freeze()
    first = [adapter(x) for x in data]
    again = [adapter(x) for x in reversed(data)][::-1]
    assert all(map(torch.equal, first, again))
    assert adapter.state is state


@every_row
def test_copies_and_pickles_go_on_alike(row: Row, network: Build, batches: Draw) -> None:
    if not isinstance(row.method, str) or "only" in row.options:
        pytest.skip("holds functions")
    adapter, data = row.adapt(network()), batches(count=4)
    for x in data[:2]:
        adapter(x)
    twins = [copy.deepcopy(adapter), pickle.loads(pickle.dumps(adapter))]
    for x in data[2:]:
        answer = adapter(x)
        assert all(torch.equal(twin(x), answer) for twin in twins)


@every_row
def test_every_tensor_of_the_state_moves(row: Row, network: Build, batches: Draw) -> None:
    adapter = row.adapt(network())
    for x in batches(count=2):
        adapter(x)
    moved = copy.deepcopy(adapter).to("meta")
    found = [t for t in (*tensors(moved.state), *tensors(moved._fitted)) if t.dim()]
    assert {t.device.type for t in found} <= {"meta"}
    assert len(found) == len(
        [t for t in (*tensors(adapter.state), *tensors(adapter._fitted)) if t.dim()]
    )


@every_row
def test_the_declared_cost_is_the_counted_one(
    row: Row, network: Build, batches: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapter, data = row.adapt(network()), batches(count=4)
    adapter(data[0])  # the first batch also finds out how the network runs
    backwards, gradient_of = [0], torch.autograd.grad

    def counting(*args: Any, **kwargs: Any) -> Any:
        backwards[0] += 1
        return gradient_of(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", counting)
    with counted(adapter) as counter:
        for x in data[1:]:
            adapter(x)
    cost = adapter.recipe.cost
    if cost.bound:
        assert counter.calls <= 3 * cost.forwards
        assert backwards[0] <= 3 * cost.backwards
    else:
        assert counter.calls == 3 * cost.forwards
        assert backwards[0] == 3 * cost.backwards
    assert (cost.backwards > 0) == adapter.recipe.needs_backward


@every_row
def test_the_callers_buffers_are_the_callers(row: Row, network: Build, batches: Draw) -> None:
    """Overwriting what went in, or what came out, changes nothing."""
    adapter, twin, data = row.adapt(network()), row.adapt(network()), batches(count=4)
    for x in data:
        given = x.clone()
        answer, expected = adapter(given), twin(x)
        assert torch.equal(answer, expected)
        given.fill_(7.0)
        answer.fill_(-7.0)


@every_row
def test_inside_inference_mode(row: Row, network: Build, batches: Draw) -> None:
    adapter, twin = row.adapt(network()), row.adapt(network())
    for x in batches(count=3):
        with torch.inference_mode():
            answer = adapter(x)
        assert torch.equal(answer, twin(x))


@every_row
def test_a_stream_resumes_under_another_seed(row: Row, network: Build, batches: Draw) -> None:
    data = batches(count=4)
    adapter = row.adapt(network(), seed=3)
    for x in data[:2]:
        adapter(x)
    resumed = row.adapt(network(), seed=3)
    resumed._draws = 11
    resumed.load_state_dict(adapter.state_dict())
    for x in data[2:]:
        assert torch.equal(resumed(x), adapter(x))


@every_row
def test_a_tampered_state_changes_nothing(row: Row, network: Build, batches: Draw) -> None:
    adapter, other = row.adapt(network()), row.adapt(network())
    for x in batches(count=2):
        adapter(x)
        other(x)
    good = adapter.state_dict()
    before = bits(other.state)
    for key, value in good.items():
        if key.endswith(":int"):
            bad = torch.tensor(-1)
        elif value.is_floating_point() and value.numel():
            bad = torch.full_like(value, float("nan"))
        else:
            continue
        with pytest.raises(ValueError, match="the state is damaged"):
            other.load_state_dict({**good, key: bad})
        assert bits(other.state) == before


@pytest.mark.parametrize("written", [None, FORMAT - 1, FORMAT + 1])
def test_a_state_of_another_format_is_refused_as_that(
    written: int | None, network: Build, batches: Draw
) -> None:
    """Even where its network's entries are others too, as before the tree of state."""
    adapter = driftnorm.adapt(network(), "gprebn", guard="off")
    adapter(batches(count=1)[0])
    state = adapter.state_dict()
    about = json.loads(bytes(state["adapter.about"].tolist()))
    about.pop("format")
    if written is not None:
        about["format"] = written
    state["adapter.about"] = torch.tensor([*json.dumps(about).encode()], dtype=torch.uint8)
    state["converted.network.bn1.tracked_batches"] = torch.tensor(1)
    before = bits(adapter.state)
    with pytest.raises(ValueError, match=f"saved in format {written or 1} by another version"):
        adapter.load_state_dict(state)
    assert bits(adapter.state) == before


# What counts something or adds up what is never negative, wherever in a state it is.
COUNTS = {
    *("step", "exp_avg_sq", "var", "second", "images", "usual", "judged", "evidence", "theta"),
    *("p", "q", "p_entropy", "q_entropy", "entropy", "differ", "disagreement", "squares", "pairs"),
    *("pair_count", "last", "score", "age", "counts", "owed"),
}


@every_row
def test_no_count_of_a_state_is_negative(row: Row, network: Build, batches: Draw) -> None:
    adapter, other = row.adapt(network()), row.adapt(network())
    for x in batches(count=2):
        adapter(x)
        other(x)
    good = adapter.state_dict()
    before = bits(other.state)
    # What a part from outside calls by one of these names is its own affair, see `Part.judge`.
    foreign = tuple(
        f"adapter.state/parts/{name}/"
        for part, name in adapter.recipe.names.items()
        if not type(part).__module__.startswith("driftnorm.")
    )
    for key, value in good.items():
        name = key.rpartition("/")[2].partition(":")[0]
        if foreign and key.startswith(foreign):
            continue
        counts = name in COUNTS or key.startswith("adapter.fitted/fisher/")
        if not key.startswith("adapter.") or not counts or not value.numel():
            continue
        with pytest.raises(ValueError, match=f"the state is damaged.*`(.*/)?{name}`"):
            other.load_state_dict({**good, key: torch.full_like(value, -3)})
        assert bits(other.state) == before


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        *(("disagreement:float", 1.5), ("images:float", 1e6), ("p", 1e6), ("q", 0.0)),
        *((name, 1e6) for name in ("differ", "squares", "pairs", "p_entropy")),
    ],
)
def test_numbers_of_the_guard_are_in_range(
    entry: str, value: float, network: Build, batches: Draw
) -> None:
    adapter = driftnorm.adapt(network(), "gprebn")
    for x in batches(count=2):
        adapter(x)
    good, key = adapter.state_dict(), f"adapter.state/parts/guard/{entry}"
    with pytest.raises(ValueError, match="the state is damaged: `parts/guard`"):
        adapter.load_state_dict({**good, key: torch.full_like(good[key], value)})


class OwnNorm(torch.nn.BatchNorm2d):
    """Unknown to driftnorm, so that it stays as it is."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)


@pytest.mark.parametrize("key", ["bn1.source_var", "bn2.running_var"])
def test_variances_of_the_network_are_not_negative(key: str, network: Build, batches: Draw) -> None:
    source = network()
    source.bn2 = OwnNorm(6).eval()
    adapter = driftnorm.adapt(source, "bn", only=lambda name: name != "bn2", guard="off")
    adapter(batches()[0])
    good, key = adapter.state_dict(), f"converted.network.{key}"
    before = bits(adapter.state)
    with pytest.raises(ValueError, match=f"the state is damaged: `{key}` is a variance"):
        adapter.load_state_dict({**good, key: -good[key]})
    assert bits(adapter.state) == before
    assert torch.equal(adapter.state_dict()[key], good[key])


def test_the_tree_comes_back_as_it_was() -> None:
    tree = {
        "a": {"n": 3, "x": 0.1, "yes": True, "empty": {}, "none": ()},
        "odd/key:int#%": {"": torch.arange(3)},
        "rows": (torch.ones(2), torch.zeros(1), {"deep": (1, 2.5)}),
    }
    back = unflatten(flatten(tree))
    assert back.keys() == tree.keys()
    assert type(back["a"]["n"]) is int
    assert type(back["a"]["x"]) is float
    assert back["a"] == tree["a"]
    assert torch.equal(back["odd/key:int#%"][""], torch.arange(3))
    assert back["rows"][2] == {"deep": (1, 2.5)}
    assert torch.equal(mapped(back, lambda t: t + 1)["rows"][0], torch.full((2,), 2.0))


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_every_mutant_still_breaks_a_line_of_the_package(mutant: Mutant) -> None:
    # Not the imported package, which is a mutant itself when `make mutants` runs this.
    file = Path(__file__).parents[2] / "src" / "driftnorm" / mutant.file
    assert file.read_text().count(mutant.was) == 1


def halving(network: nn.Module, in_place: bool) -> nn.Module:
    """A network that halves its input first, in the caller's tensor or in one of its own."""
    kind = type(network)

    class Halved(kind):  # type: ignore[misc, valid-type]
        def forward(self, x: Tensor) -> Any:
            return super().forward(x.mul_(0.5) if in_place else x * 0.5)

    network.__class__ = Halved
    return network


@every_row
def test_a_network_may_change_its_input(row: Row, network: Build, batches: Draw) -> None:
    changing, plain = (row.adapt(halving(network(), in_place)) for in_place in (True, False))
    for x in batches(count=3):
        before = x.clone()
        assert torch.equal(changing(x), plain(x))
        assert torch.equal(x, before)


@dataclass(frozen=True)
class Drawing(Review):
    """Keeps what it drew at each batch."""

    name: str

    def __call__(self, step: Step) -> None:
        drawn = torch.rand(1, generator=step.random(self))
        step[self] = {"drawn": (*step[self].get("drawn", ()), drawn)}


def drawn_by(network: nn.Module, data: list[Tensor], seed: int) -> list[list[float]]:
    """What two parts draw on a stream."""
    recipe = driftnorm.Recipe(statistics=Batch(), review=(Drawing("a"), Drawing("b")))
    adapter = driftnorm.adapt(network, recipe, seed=seed, guard="off")
    for x in data:
        adapter(x)
    return [[float(x) for x in memory["drawn"]] for memory in adapter.state["parts"].values()]


def test_draws_follow_from_seed_batch_and_part_alone(network: Build, batches: Draw) -> None:
    data = batches(count=3)
    first, again, other = (drawn_by(network(), data, seed) for seed in (1, 1, 2))
    assert first == again
    every = [number for drawn in (first, other) for part in drawn for number in part]
    assert len(set(every)) == 12  # two seeds, two parts, three batches: no number twice

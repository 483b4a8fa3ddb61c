"""The newer methods on networks, precisions and batches as users have them."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from methods_table import MAINSTREAM, Row
from torch import Tensor, nn

import driftnorm
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter._tree import flatten, tensors
from driftnorm.methods import build
from driftnorm.parts import Mixture

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
NAMES = (
    *("eta", "eata", "sar", "rdumb", "cotta", "rotta", "lame", "prior", "bn-window", "steady"),
)
NEWER = [row for row in MAINSTREAM if row.method in NAMES]
assert len(NEWER) == len(NAMES)
every_row = pytest.mark.parametrize("row", NEWER, ids=lambda row: row.method)


def adapt(row: Row, network: nn.Module, like: Tensor, **more: Any) -> RecipeAdapter:
    """The adapter of a row, fitted on images like these if it needs some."""
    options = {"guard": "off", "on_bad_batch": "raise", **row.options, **more}
    adapter = driftnorm.adapt(network, row.method, **options)
    return adapter.fit(0.5 * like)


def half(row: Row) -> dict[str, Any]:
    """What is trained in half precision: batch norm alone."""
    return {"trainable": "affine"} if row.method == "cotta" else {}


def steady(row: Row) -> dict[str, Any]:
    """Where teacher and student agree Adam makes steps of noise; views look at the input."""
    more = {"optimizer": "sgd", "views": 0, "restore": 0.0}
    return more if row.method == "cotta" else {}


def bits(tree: Any) -> dict[str, bytes]:
    return {key: value.double().numpy().tobytes() for key, value in flatten(tree).items()}


# ------------------------------------------------------------------ dense prediction


class DenseNet(nn.Module):
    """A class for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.head = nn.Conv2d(6, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.bn1(self.conv1(x))))


@every_row
def test_dense_prediction(row: Row, batches: Draw) -> None:
    data = batches()
    adapter = adapt(row, DenseNet().eval(), data[0])
    if row.method in ("lame", "rotta"):
        state = adapter.state
        with pytest.raises((TypeError, ValueError), match=r"\(\d, 4, 6, 6\)") as refusal:
            adapter(data[0])
        assert "\n" not in str(refusal.value)
        assert adapter.state is state
        return
    for x in data:
        answer = adapter(x)
        assert answer.shape == (9, 4, 6, 6)
        assert answer.isfinite().all()
    assert adapter.batches == 4
    assert (adapter.last.loss is None) == (adapter.recipe.loss is None)


@pytest.mark.parametrize("method", ["eta", "rdumb", "eata"])
def test_weights_are_per_position(method: str, batches: Draw) -> None:
    """The loss of the first step, from the formula, position by position."""
    network, x = DenseNet().eval(), batches()[0]
    with torch.no_grad():
        network.head.weight *= 6  # so that positions differ in certainty
    adapter = driftnorm.adapt(network, method, margin=0.5, guard="off")
    if method == "eata":
        adapter.fit(x)
    logits = adapter(x).double()
    limit, total, kept = 0.5 * math.log(4), 0.0, 0
    for column in logits.permute(0, 2, 3, 1).reshape(-1, 4):
        entropy = float(torch.distributions.Categorical(logits=column).entropy())
        if entropy < limit:
            total, kept = total + math.exp(limit - entropy) * entropy, kept + 1
    assert 0 < kept < 9 * 36
    assert adapter.last.loss == pytest.approx(total / kept, rel=1e-5)


def test_diverse_keeps_one_average_over_positions(batches: Draw) -> None:
    adapter = driftnorm.adapt(DenseNet().eval(), "eta", margin=1.0, similarity=1.0, guard="off")
    answer = adapter(batches()[0])
    mean = answer.softmax(1).mean(dim=(0, 2, 3))
    torch.testing.assert_close(adapter.state["parts"]["diverse"]["mean"], mean)


# ------------------------------------------------------------------ threads


def together(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            work(place)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@every_row
def test_threads_with_an_adapter_each(row: Row, network: Build, batches: Draw) -> None:
    streams = [batches(seed=seed) for seed in range(2)]
    alone = [adapt(row, network(), streams[0][0]) for _ in streams]
    expected = [[a(x) for x in stream] for a, stream in zip(alone, streams, strict=True)]
    adapters = [adapt(row, network(), streams[0][0]) for _ in streams]
    found: list[list[Tensor]] = [[], []]
    together(lambda place: found[place].extend(map(adapters[place], streams[place])), 2)
    for right, got in zip(expected, found, strict=True):
        assert all(map(torch.equal, right, got))


@every_row
def test_threads_that_share_an_adapter(row: Row, network: Build, batches: Draw) -> None:
    """All ask the same, so that the order of their batches makes no difference."""
    x = batches()[0]
    shared, alone = adapt(row, network(), x), adapt(row, network(), x)
    answers: list[Tensor] = []
    together(lambda _: answers.extend(shared(x) for _ in range(3)), 3)
    expected = [alone(x) for _ in range(9)]
    assert shared.batches == alone.batches
    assert bits(shared.state) == bits(alone.state)
    key = lambda answer: answer.flatten().tolist()  # noqa: E731
    assert all(map(torch.equal, sorted(answers, key=key), sorted(expected, key=key)))


# ------------------------------------------------------------------ precision and layout


@every_row
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision(row: Row, dtype: torch.dtype, network: Build, batches: Draw) -> None:
    data = [x.to(dtype) for x in batches()]
    adapter = adapt(row, network().to(dtype), data[0], seed=1, **half(row))
    for x in data[:2]:
        answer = adapter(x)
        assert answer.dtype == dtype
        assert answer.isfinite().all()
    wide = {name: tree for name, tree in adapter.state.items() if name in ("layers", "values")}
    wide["teacher"] = adapter.state["parts"].get("teacher", {})
    assert {t.dtype for t in tensors(wide) if t.is_floating_point()} <= {torch.float32}
    resumed = adapt(row, network().to(dtype), data[0], seed=1, **half(row))
    resumed.load_state_dict(adapter.state_dict())
    for x in data[2:]:
        assert torch.equal(adapter(x), resumed(x))


@every_row
def test_half_precision_in_the_middle_of_a_stream(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(row, network(), data[0], **half(row))
    for x in data[:2]:
        adapter(x)
    adapter.bfloat16()
    for x in data[2:]:
        assert adapter(x.bfloat16()).isfinite().all()
    assert adapter.batches == 4


@every_row
@pytest.mark.parametrize("channels_last", [True, False])
def test_channels_last(row: Row, channels_last: bool, network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(row, network(), data[0], channels_last=channels_last)
    twin = adapt(row, network(), data[0], channels_last=channels_last)
    for x in data[:2]:
        assert torch.equal(adapter(x), twin(x.contiguous(memory_format=torch.channels_last)))
    resumed = adapt(row, network(), data[0], channels_last=channels_last)
    resumed.load_state_dict(adapter.state_dict())
    for x in data[2:]:
        assert torch.equal(adapter(x), resumed(x))


@every_row
def test_autocast_around_a_stream(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(row, network(), data[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert all(adapter(x).isfinite().all() for x in data)
    floats = {t.dtype for t in tensors(adapter.state) if t.is_floating_point()}
    assert floats <= {torch.float32, torch.float64}


@every_row
def test_compiled(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    plain = adapt(row, network(), data[0])
    around = torch.compile(adapt(row, network(), data[0]), backend="eager")
    inside = adapt(row, torch.compile(network(), backend="eager"), data[0])
    for x in data[:2]:
        expected = plain(x)
        assert torch.equal(around(x), expected)
        assert torch.equal(inside(x), expected)


# ------------------------------------------------------------------ in place, layer by layer


@every_row
def test_in_place_and_back(row: Row, network: Build, batches: Draw) -> None:
    data, source = batches(), network()
    before = {name: value.clone() for name, value in source.state_dict().items()}
    adapter = adapt(row, source, data[0], inplace=True, channels_last=False)
    twin = adapt(row, network(), data[0], channels_last=False)
    assert all(torch.equal(adapter(x), twin(x)) for x in data)
    assert adapter.revert() is source
    assert type(source.bn1) is nn.BatchNorm2d
    assert all(torch.equal(value, before[name]) for name, value in source.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in source.parameters())


@every_row
def test_other_statistics_in_one_layer(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    options = {name: value for name, value in row.options.items() if name != "guard"}
    recipe = replace(build(str(row.method), options), per_layer=(("bn1", Mixture(0.3)),))
    adapter = driftnorm.adapt(network(), recipe, guard="off", on_bad_batch="raise").fit(data[0])
    assert all(adapter(x).isfinite().all() for x in data)
    adapter.freeze()
    if not recipe.unbakeable:
        torch.testing.assert_close(adapter.bake()(data[0]), adapter(data[0]), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------ calls and outputs


@dataclass
class Output:
    logits: Tensor
    note: str


class TwoInputs(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor, tint: Tensor | None = None, *, note: str = "") -> Output:
        return Output(self.network(x if tint is None else x * tint), note)


def as_logits(answer: Any) -> Tensor:
    return answer if isinstance(answer, Tensor) else answer.logits


@every_row
def test_several_inputs_and_object_outputs(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    tints = [1 + torch.rand(9, 1, 1, 1) for _ in data]
    plain = adapt(row, network(), data[0], **steady(row))
    source = TwoInputs(network()).eval()
    adapter = adapt(row, source, data[0], logits=lambda output: output.logits, **steady(row))
    if row.method == "rotta":
        with pytest.raises(ValueError, match="further tensors"):
            adapter(data[0], tints[0])
        for x in data:
            torch.testing.assert_close(as_logits(adapter(x, note="ours")), plain(x))
        return
    for x, tint in zip(data, tints, strict=True):
        answer = adapter(x, tint, note="ours")
        torch.testing.assert_close(as_logits(answer), plain(x * tint), rtol=1e-3, atol=1e-3)
        assert not isinstance(answer, Tensor)  # what the network returns, whoever answers
    torch.testing.assert_close(adapter.logits_in(answer), as_logits(answer))


@every_row
def test_only(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    if row.method in ("lame", "prior"):
        with pytest.raises(TypeError, match="has no option `only`"):
            adapt(row, network(), data[0], only="bn2")
        return
    adapter = adapt(row, network(), data[0], only="bn2")
    for x in data:
        adapter(x)
    touched = {name for name in adapter.state["layers"] if name}
    assert touched <= {"bn2"}
    moved = {
        n for n, v in adapter.trained_values().items() if not torch.equal(v, get(network(), n))
    }
    assert not any(name.startswith("bn1") for name in moved)
    assert touched


def get(network: nn.Module, name: str) -> Tensor:
    return dict(network.named_parameters())[name]


# ------------------------------------------------------------------ few classes, few samples


class Classes(nn.Module):
    """A network of one or two classes."""

    def __init__(self, network: nn.Module, count: int) -> None:
        super().__init__()
        self.conv1, self.network = network.conv1, network
        network.fc = nn.Linear(6, count)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


@every_row
@pytest.mark.filterwarnings("ignore:statistics of a batch of 1:driftnorm.DriftnormWarning")
def test_two_classes(row: Row, network: Build, batches: Draw) -> None:
    data = batches()
    adapter = adapt(row, Classes(network(), 2).eval(), data[0])
    for x in (*data[:3], data[3][:1]):
        answer = adapter(x)
        assert answer.shape == (len(x), 2)
        assert answer.isfinite().all()
    assert adapter.bad_batches == 0


@every_row
def test_one_class(row: Row, network: Build, batches: Draw) -> None:
    """Nothing to compare: methods that compare classes say so, the others keep the number."""
    data = batches()
    source = Classes(network(), 1).eval()
    options = {"guard": "off", "on_bad_batch": "raise", **row.options}
    adapter = driftnorm.adapt(source, row.method, **options)
    if adapter.recipe.loss is None and not adapter.recipe.answer:
        numbers = torch.cat([adapter(x) for x in data])
        assert numbers.isfinite().all()
        assert numbers.std() > 0
        return
    ask = adapter.fit if adapter.recipe.needs_fit else adapter
    with pytest.raises(ValueError, match="one number per image"):
        ask(data[0])
    assert adapter.batches == 0


@pytest.mark.parametrize("method", ["eta", "eata", "sar", "rdumb"])
@pytest.mark.parametrize("size", [1, 9])
@pytest.mark.filterwarnings("ignore:statistics of a batch of 1:driftnorm.DriftnormWarning")
def test_every_sample_dropped(method: str, size: int, network: Build, batches: Draw) -> None:
    data = [x[:size] for x in batches()]
    adapter = driftnorm.adapt(network(), method, margin=1e-6, lr=0.1, guard="off").fit(data[0])
    plain = driftnorm.adapt(network(), "bn", guard="off")
    for x in data:
        torch.testing.assert_close(adapter(x), plain(x))
        assert adapter.last.loss is None
    assert adapter.batches == 4
    assert all(torch.equal(v, get(network(), n)) for n, v in adapter.trained_values().items())

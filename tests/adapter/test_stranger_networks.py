"""Networks as strangers have them: other precisions, other calls, other answers."""

from __future__ import annotations

import copy
import pickle
from collections import UserDict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm import Recipe, adapt
from driftnorm.adapter import RecipeAdapter, callbacks
from driftnorm.adapter._outputs import detached
from driftnorm.adapter._tree import tensors
from driftnorm.bench.stream_scores import evaluate
from driftnorm.parts.layers import First
from driftnorm.parts.losses import Entropy
from driftnorm.parts.statistics import Batch, Running
from driftnorm.parts.updates import Descent
from driftnorm.recipe import readable

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
HALVES = [torch.float16, torch.bfloat16]


def affine(adapter: RecipeAdapter) -> Tensor:
    return torch.cat([value.flatten() for value in adapter.trained_values().values()])


# ------------------------------------------------------------------ precision


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("method", ["tent", "gprebn"])
@pytest.mark.parametrize("late", [False, True], ids=["before adapt", "after adapt"])
def test_half_precision_learns_as_float32_does(
    dtype: torch.dtype, method: str, late: bool, network: Build, batches: Draw
) -> None:
    """Every gamma and beta takes its small steps; the reference runs in float32."""
    options: dict[str, Any] = {"guard": "off", "on_bad_batch": "raise"}
    reference = adapt(network().to(dtype).float(), method, **options)
    adapter = adapt(network() if late else network().to(dtype), method, **options)
    adapter.to(dtype)
    start = affine(reference)
    for x in batches(count=5):
        assert adapter(x.to(dtype)).dtype == dtype
        reference(x.to(dtype).float())
    moved = affine(adapter) - start if not late else affine(adapter) - affine_of(network())
    assert (moved != 0).all()
    torch.testing.assert_close(moved.abs().median(), torch.tensor(0.005), rtol=0.3, atol=0)
    resumed = adapt(network().to(dtype) if not late else network(), method, **options).to(dtype)
    resumed.load_state_dict(adapter.state_dict())
    x = batches(seed=1)[0].to(dtype)
    assert torch.equal(resumed(x), adapter(x))
    adapter.reset()
    assert torch.equal(affine(adapter), start if not late else affine_of(network()))


def affine_of(network: nn.Module) -> Tensor:
    return affine(adapt(network, "tent"))


@pytest.mark.parametrize("dtype", HALVES)
def test_weights_are_not_trained_in_half_precision(
    dtype: torch.dtype, network: Build, batches: Draw
) -> None:
    with pytest.raises(TypeError, match=r"in which small steps are lost.*autocast"):
        adapt(network().to(dtype), "pl")
    adapter = adapt(network(), "pl", guard="off")
    adapter(batches()[0])
    before = copy.deepcopy(adapter.to(dtype)).state_dict()
    with pytest.raises(TypeError, match="in which small steps are lost"):
        adapter(batches()[0].to(dtype))
    assert all(torch.equal(value, before[key]) for key, value in adapter.state_dict().items())


# ------------------------------------------------------------------ devices


@pytest.mark.parametrize("method", ["gprebn", "gprebn+rt3a", "shot"])
def test_a_state_goes_to_where_the_network_is(method: str, network: Build, batches: Draw) -> None:
    """A state from the CPU in an adapter elsewhere; "meta" is the other device at hand."""
    adapter = adapt(network(), method, guard=driftnorm.Guard(share=1.0))
    for x in batches(count=2):
        adapter(x)
    there = copy.deepcopy(adapter).to("meta")
    there._restore(
        {k.removeprefix("adapter."): v for k, v in adapter.state_dict().items() if "adapter." in k}
    )
    found = [*tensors(there.state)]
    assert len(found) > 5
    assert {t.device.type for t in found if t.dim()} == {"meta"}


def test_no_float64_before_the_cpu(network: Build, batches: Draw) -> None:
    """What is computed in float64 goes to the CPU first: MPS has none."""
    asked: list[str] = []
    original = Tensor.double

    def double(self: Tensor) -> Tensor:
        asked.append("cpu" if getattr(self, "came_from_cpu", False) else "elsewhere")
        return original(self)

    def cpu(self: Tensor, *rest: Any) -> Tensor:
        moved = torch.Tensor.detach(self).clone()
        moved.came_from_cpu = True  # type: ignore[attr-defined]
        return moved

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "double", double)
        patch.setattr(Tensor, "cpu", cpu)
        adapter = adapt(network(), "gprebn", guard="off")
    assert asked
    assert set(asked) == {"cpu"}
    assert adapter(batches()[0]).isfinite().all()


# ------------------------------------------------------------------ calls


class ByName(nn.Module):
    """Takes what other libraries hand over."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Any = None, pixel_values: Any = None, flip: bool = False) -> Tensor:
        x = pixel_values if batch is None else batch
        x = x["image"] if isinstance(x, dict) else x[1] if isinstance(x, tuple) else x
        answer: Tensor = self.inner(x.flip(-1) if flip else x)
        return answer


@pytest.mark.parametrize("method", ["gprebn", "bn", "t3a"])
@pytest.mark.parametrize(
    "call",
    [
        lambda model, x: model(pixel_values=x),
        lambda model, x: model(batch=x),
        lambda model, x: model({"image": x}),
        lambda model, x: model(pixel_values={"image": x}),
        lambda model, x: model(("name", x)),
        lambda model, x: model(x.flip(-1), flip=True),
    ],
    ids=["keyword", "first by keyword", "dictionary", "both", "tuple", "option"],
)
def test_called_as_the_network_is(
    method: str, call: Callable[..., Tensor], network: Build, batches: Draw
) -> None:
    plain = adapt(network(), method, guard="off")
    adapter = adapt(ByName(network()).eval(), method, guard="off")
    for x in batches():
        before = x.clone()
        torch.testing.assert_close(call(adapter, x), plain(x))
        assert torch.equal(x, before)


def test_no_batch_no_answer(network: Build) -> None:
    adapter = adapt(ByName(network()).eval(), "gprebn")
    for arguments in ((), ({"image": None},), ("name",)):
        with pytest.raises(TypeError, match="must be called with a batch, a tensor"):
            adapter(*arguments)


# ------------------------------------------------------------------ answers


@dataclass(frozen=True)
class Frozen:
    logits: Tensor
    about: str = "text"


@dataclass
class Counted:
    logits: Tensor
    positions: int = field(init=False, default=3)


@dataclass(slots=True)
class Slotted:
    logits: Tensor


class Answer(UserDict):  # type: ignore[type-arg]
    """A mapping that torch does not look into."""


class Itself:
    def __init__(self, logits: Tensor) -> None:
        self.logits, self.me = logits, self


SHAPES: dict[str, tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]]] = {
    "namespace": (lambda t: SimpleNamespace(logits=t, parts=[t, {"x": t}]), lambda a: a.logits),
    "frozen": (lambda t: Frozen(t), lambda a: a.logits),
    "counted": (lambda t: Counted(t), lambda a: a.logits),
    "slotted": (lambda t: Slotted(t), lambda a: a.logits),
    "mapping": (lambda t: Answer(logits=t), lambda a: a["logits"]),
    "nested": (
        lambda t: {"out": (SimpleNamespace(y=Frozen(t)), 1)},
        lambda a: a["out"][0].y.logits,
    ),
    "itself": (lambda t: Itself(t), lambda a: a.logits),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_answers_of_any_shape_hold_no_graph(shape: str, network: Build, batches: Draw) -> None:
    wrap, take = SHAPES[shape]

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> Any:
            return wrap(self.inner(x))

    adapter = adapt(Wrapped().eval(), "gprebn", logits=take, guard="off")
    plain = adapt(network(), "gprebn", guard="off")
    for x in batches():
        answer = adapter(x)
        assert type(answer) is type(wrap(x))
        assert take(answer).grad_fn is None
        assert not take(answer).requires_grad
        assert torch.equal(take(answer), plain(x))
        assert torch.equal(adapter.logits_in(answer), take(answer))
    if shape == "namespace":
        assert all(t.grad_fn is None for t in (answer.parts[0], answer.parts[1]["x"]))


def test_what_holds_no_tensor_stays_the_same_object() -> None:
    about = SimpleNamespace(text="a", module=nn.Linear(1, 1))
    assert detached({"about": about})["about"] is about


# ------------------------------------------------------------------ slips


def test_a_selector_that_selects_nothing_is_told(network: Build, batches: Draw) -> None:
    with pytest.raises(
        ValueError, match=r"`only` must select at least one of the 2 .*selects none"
    ):
        adapt(network(), "bn", only=lambda name: False)
    late = adapt(network(), "bn", only=First(0.1))
    with pytest.raises(ValueError, match=r"First\(fraction=0.1\) selects none"):
        late(batches()[0])


@pytest.mark.parametrize(
    "method", ["tent", "gprebn", "pl", "shot-im", "steady", "t3a", "rt3a", "lame", "gprebn+prior"]
)
def test_one_logit_is_told(method: str, network: Build, batches: Draw) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(108, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
    adapter = adapt(model.eval(), method, guard="off")
    with pytest.raises(ValueError, match="one number per image"):
        adapter(batches()[0])
    assert adapter.batches == 0


@pytest.mark.parametrize(
    ("objective", "got"),
    [
        (lambda logits: 0.5, "float"),
        (lambda logits: logits.detach().mean(), "without a gradient"),
    ],
)
def test_objectives_that_make_no_number(
    objective: Any, got: str, network: Build, batches: Draw
) -> None:
    recipe = Recipe(statistics=Batch(), trainable="affine", loss=objective, update=(Descent(),))
    adapter = adapt(network(), recipe, guard="off")
    with pytest.raises(TypeError, match=f"`loss` must return a tensor.*{got}"):
        adapter(batches()[0])


def test_probabilities_are_told(network: Build, batches: Draw) -> None:
    model = nn.Sequential(network(), nn.Softmax(dim=1)).eval()
    with pytest.warns(driftnorm.DriftnormWarning, match="adapt it without its softmax"):
        adapt(model, "tent", guard="off")(batches()[0])


@pytest.mark.parametrize("method", ["t3a", "rt3a"])
def test_a_head_on_dense_features_is_told(method: str) -> None:
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    adapter = adapt(Dense().eval(), method, guard="off")
    with pytest.raises(TypeError, match=r"gives each image one class.*dense prediction"):
        adapter(torch.randn(4, 6, 3, 3))


@pytest.mark.parametrize("every", ["4", 2.5, True, 0])
def test_reset_every_is_a_whole_number(every: Any, network: Build) -> None:
    with pytest.raises(ValueError, match=r"`reset_every` must be (at least 1|a whole number), got"):
        adapt(network(), "bn", reset_every=every)


# ------------------------------------------------------------------ episodes and resets


@pytest.mark.parametrize("method", ["gprebn", "rt3a"])
def test_the_source_answers_bad_batches_of_episodes(
    method: str, network: Build, batches: Draw
) -> None:
    adapter, bad = adapt(network(), method, episodic=True, guard="off"), batches(seed=1)[0]
    for x in batches():
        adapter(x)
    clean = torch.arange(len(bad)) != 4
    bad[4, 0] = torch.nan
    with pytest.warns(driftnorm.DriftnormWarning, match="the source answers it"):
        answer = adapter(bad)
    torch.testing.assert_close(answer[clean], network()(bad)[clean])
    assert adapter(bad[:0]).shape == (0, answer.shape[1])


# ------------------------------------------------------------------ own methods


class Certain:
    def __init__(self, most: float) -> None:
        self.most = most

    def __call__(self, logits: Tensor) -> Tensor:
        return self.most * Entropy().of(logits)


def scaled(logits: Tensor, factor: float) -> Tensor:
    return factor * Entropy().of(logits)


@pytest.mark.parametrize("make", [lambda: Certain(0.5), lambda: partial(scaled, factor=0.5)])
def test_states_of_own_objectives_resume(
    make: Callable[[], Any], network: Build, batches: Draw
) -> None:
    def built(objective: Any) -> RecipeAdapter:
        recipe = Recipe(
            statistics=Running(), trainable="affine", loss=objective, update=(Descent(),)
        )
        return adapt(network(), recipe, guard="off")

    first = built(make())
    first(batches()[0])
    again = built(make())  # another object at another address
    again.load_state_dict(first.state_dict())
    assert torch.equal(again(batches()[1]), first(batches()[1]))
    other = built(Certain(0.25))
    with pytest.raises(ValueError, match="this state belongs to"):
        other.load_state_dict(first.state_dict())


def test_readable_names_hold_no_address() -> None:
    assert readable(Certain(0.5)) == "Certain(most=0.5)"
    assert readable(partial(scaled, factor=2)) == "partial(scaled, factor=2)"
    assert readable(Entropy()) == "Entropy()"


def test_a_state_of_other_layers_is_refused(network: Build, batches: Draw) -> None:
    def built(chosen: str) -> RecipeAdapter:
        return adapt(network(), "tent", only=lambda name: name.endswith(chosen), guard="off")

    first, last = sorted(built("").converted.layers)
    one, other = built(first), built(last)
    one(batches()[0])
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(ValueError, match=r"this state trains .* which the adapter does not"):
        other.load_state_dict(one.state_dict())
    assert all(torch.equal(v, before[k]) for k, v in other.state_dict().items())


# ------------------------------------------------------------------ callbacks and copies


def test_copies_of_an_adapter_with_a_callback_report_too(network: Build, batches: Draw) -> None:
    lines: list[dict[str, float]] = []
    adapter = adapt(network(), "gprebn", guard="off")
    callbacks.attach(adapter, callbacks.WandB(SimpleNamespace(log=lines.append)))
    adapter(batches()[0])
    copy.deepcopy(adapter)(batches()[1])
    assert len(lines) == 2


def test_tensorboard_goes_through_copy_and_pickle(
    tmp_path: Any, network: Build, batches: Draw
) -> None:
    pytest.importorskip("tensorboard")
    with callbacks.TensorBoard(tmp_path / "log") as board:
        adapter = adapt(network(), "gprebn", guard="off")
        callbacks.attach(adapter, board)
        adapter(batches()[0])
        copy.deepcopy(adapter)(batches()[1])
        elsewhere = pickle.loads(pickle.dumps(adapter))
        assert torch.equal(elsewhere(batches()[1]), adapter(batches()[1]))
    assert len([*(tmp_path / "log").iterdir()]) == 2  # one file a writer


# ------------------------------------------------------------------ evaluating


def test_evaluate_takes_what_adapt_takes(network: Build, batches: Draw) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = network()

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"logits": self.inner(x)}

    stream = [(x, torch.arange(len(x)) % 4) for x in batches()]
    named = evaluate(adapt(Named().eval(), "gprebn", logits=lambda out: out["logits"]), stream)
    plain = evaluate(adapt(network(), "gprebn"), stream)
    assert (named["error"], named["correct"]) == (plain["error"], plain["correct"])
    head = adapt(Named().eval(), "rt3a", logits=lambda out: out["logits"]).freeze()
    unseen = evaluate(head, stream)  # the source answers, as it does
    assert unseen["correct"] == evaluate(adapt(network(), "source"), stream)["correct"]


def test_evaluate_counts_positions_of_dense_predictions() -> None:
    logits = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.randint(3, (2, 4, 5), generator=torch.Generator().manual_seed(1))
    labels[0, 0, :3] = 255
    found = evaluate(adapt(nn.Identity().eval(), "source"), [(logits, labels)])
    real = labels != 255
    assert found["count"] == int(real.sum()) == 37
    wrong = (logits.argmax(1) != labels)[real].float().mean()
    assert found["error"] == pytest.approx(float(wrong))
    with pytest.raises(ValueError, match="`labels` must be one per prediction"):
        evaluate(adapt(nn.Identity().eval(), "source"), [(logits, labels[:, 0, 0])])

"""What a new user tries first: calls, outputs and networks as other code has them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typing_extensions import get_overloads

import driftnorm
from driftnorm import adapt
from driftnorm.parts import Statistics

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


class Wrapped(nn.Module):
    """A network with another kind of call and output."""

    def __init__(self, network: nn.Module, change: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.network, self.change = network, change
        self.class_names = ["a", "b", "c", "d"]

    def forward(self, pixel_values: Tensor, labels: Tensor | None = None) -> Any:
        return self.change(self.network(pixel_values))

    def describe(self) -> str:
        return f"{len(self.class_names)} classes"


@dataclass
class Output:
    logits: Tensor


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda y: {"out": y, "aux": y.mean()}, "out"),
        (lambda y: SimpleNamespace(scores=y), "scores"),
        (lambda y: Output(y), "logits"),
        (lambda y: Output(y), None),
    ],
)
def test_logits_by_name(change: Any, name: Any, network: Build, batches: Draw) -> None:
    plain = adapt(network(), "gprebn", guard="off")
    wrapped = adapt(Wrapped(network(), change).eval(), "gprebn", logits=name, guard="off")
    for x in batches():
        assert torch.equal(wrapped.logits_in(wrapped(x)), plain(x))


@pytest.mark.parametrize("method", ["steady", "gprebn+rt3a", "cotta"])
@pytest.mark.parametrize(
    ("change", "name", "take"),
    [
        (lambda y: Output(y), None, lambda answer: answer.logits),
        (lambda y: SimpleNamespace(scores=y, aux=y.mean()), "scores", lambda answer: answer.scores),
        (lambda y: {"out": y, "aux": y.mean()}, "out", lambda answer: answer["out"]),
        (lambda y: (y, y.mean()), lambda answer: answer[0], lambda answer: answer[0]),
    ],
)
def test_logits_that_a_method_makes_are_in_the_networks_output(
    method: str, change: Any, name: Any, take: Any, network: Build, batches: Draw
) -> None:
    """Adapting, frozen and refused alike, so that code around the network need not change."""
    plain = adapt(network(), method, guard="off")
    wrapped = adapt(Wrapped(network(), change).eval(), method, logits=name, guard="off")
    for x in [*batches(count=5), batches()[0][:0]]:
        answer = wrapped(x)
        assert type(answer) is type(change(x))
        assert torch.equal(take(answer), plain(x))
        assert torch.equal(wrapped.logits_in(answer), take(answer))
    answer = wrapped.freeze()(batches()[0])
    assert torch.equal(take(answer), plain.freeze()(batches()[0]))


def test_logits_that_are_computed_from_an_output_come_alone(network: Build, batches: Draw) -> None:
    plain = adapt(network(), guard="off")
    source = Wrapped(network(), lambda y: {"half": y / 2}).eval()
    wrapped = adapt(source, logits=lambda answer: answer["half"] * 2, guard="off")
    for x in batches():
        assert torch.equal(wrapped.logits_in(wrapped(x)), plain(x))


def test_a_wrong_name_of_the_logits_is_told(network: Build, batches: Draw) -> None:
    adapter = adapt(Wrapped(network(), lambda y: {"out": y}).eval(), "bn", logits="logits")
    with pytest.raises(TypeError, match=r"no such key or attribute; it has: out"):
        adapter(batches()[0])


def test_a_number_for_the_logits_is_told_before_the_first_batch(network: Build) -> None:
    with pytest.raises(TypeError, match=r"`logits` must be a function, .*output\[0\].* got 0"):
        adapt(network(), "bn", logits=0)  # type: ignore[call-overload]


def test_integer_labels_are_not_the_batch(network: Build, batches: Draw) -> None:
    plain = adapt(network(), "gprebn", guard="off")
    wrapped = adapt(Wrapped(network(), lambda y: y).eval(), "gprebn", guard="off")
    for x in batches():
        labels = torch.zeros(len(x), 2, dtype=torch.int64)
        assert torch.equal(wrapped(labels=labels, pixel_values=x), plain(x))


def test_the_batch_by_name(network: Build, batches: Draw) -> None:
    """Soft labels are floating-point, too."""
    plain = adapt(network(), "gprebn", guard="off")
    source = Wrapped(network(), lambda y: y).eval()
    wrapped = adapt(source, "gprebn", batch="pixel_values", guard="off")
    for x in batches():
        assert torch.equal(wrapped(labels=torch.rand(len(x), 4), pixel_values=x), plain(x))
    with pytest.raises(TypeError, match="no tensor of that name"):
        wrapped(batches()[0], labels=torch.rand(9, 4))


@pytest.mark.parametrize("kind", ["list", "tuple", "dict"])
def test_batches_of_a_loader_say_what_to_pass(kind: str, network: Build, batches: Draw) -> None:
    x, y = batches()[0], torch.zeros(9, dtype=torch.int64)
    given = {"list": [x, y], "tuple": (x, y), "dict": {"image": x, "label": y}}[kind]
    adapter = adapt(network(), "bn")
    words = r"adapter\(batch\['image'\]\)" if kind == "dict" else r"adapter\(batch\[0\]\)"
    with pytest.raises(TypeError, match=words):
        adapter(given)
    assert adapter.batches == 0


def test_attributes_of_the_network(network: Build, batches: Draw) -> None:
    adapter = adapt(Wrapped(network(), lambda y: y).eval(), "bn")
    assert adapter.class_names == ["a", "b", "c", "d"]
    assert adapter.describe() == "4 classes"
    assert adapter.method == "bn"  # its own come first
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        adapter.nothing  # noqa: B018
    assert not hasattr(adapter, "_change")


def test_sigmoids_are_told(network: Build, batches: Draw) -> None:
    adapter = adapt(Wrapped(network(), torch.sigmoid).eval(), "bn", guard="off")
    with pytest.warns(driftnorm.DriftnormWarning, match="sigmoids of several labels"):
        adapter(batches()[0])


@pytest.mark.parametrize("method", ["gprebn", "bn-window"])
def test_text_for_a_number(method: str, network: Build) -> None:
    with pytest.raises((TypeError, ValueError), match=r"theta.*abc"):
        adapt(network(), method, theta="abc")


class Conditional(nn.BatchNorm2d):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 1


def test_only_leaves_out_an_unknown_batch_norm(network: Build, batches: Draw) -> None:
    source = network()
    source.bn2 = Conditional(6).eval()
    with pytest.raises(TypeError, match=r"only=lambda name: name != 'bn2'"):
        adapt(source, "bn")
    adapter = adapt(source, "bn", only=lambda name: name != "bn2", guard="off")
    for x in batches():
        adapter(x)
    assert [*adapter.state["layers"]] == ["bn1"]
    assert type(adapter.bake().bn2) is Conditional
    assert [*adapt(source, "bn", only="bn1").converted.layers] == ["bn1"]


@pytest.mark.filterwarnings("ignore:statistics of a batch of 1:driftnorm.DriftnormWarning")
def test_a_batch_that_taught_nothing_says_so() -> None:
    source = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()
    adapter = adapt(source, "bn", guard="off")
    adapter(torch.randn(1, 4))
    assert adapter.last.status == "adapted"
    assert "nothing to learn" in adapter.last.reason
    adapter(torch.randn(5, 4))
    assert adapter.last.reason == ""
    plain = adapt(source, "source")
    plain(torch.randn(5, 4))
    assert plain.last.reason == ""


@pytest.mark.parametrize(("method", "told"), [("gprebn", True), ("bn-prior", False)])
def test_episodes_of_one_image(method: str, told: bool, network: Build, batches: Draw) -> None:
    adapter = adapt(network(), method, episodic=True, guard="off")
    x = batches()[0]
    adapter(x)  # of nine: nothing to be said
    if told:
        with pytest.warns(driftnorm.DriftnormWarning, match="episodic=True.*'bn-prior'"):
            adapter(x[:1])
    adapter(x[:1])


def test_episodes_that_end_before_the_default_begins(network: Build, batches: Draw) -> None:
    x = batches()[0]
    adapter = adapt(network(), episodic=True)
    with pytest.warns(driftnorm.DriftnormWarning, match="until 16 images.*batches of 9.*bn-prior"):
        adapter(x)
    assert torch.equal(adapter(x), network()(x))
    loader = adapt(network(), episodic=True)
    for batch in (torch.cat([x, x]), x[:2]):  # the last one is short, which is no news
        loader(batch)


def test_an_affine_free_network_is_told_of_bn() -> None:
    source = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False)).eval()
    with pytest.raises(ValueError, match=r"nothing to optimise.*'bn'"):
        adapt(source, "tent")


@pytest.mark.parametrize("method", ["t3a", "rt3a", "lame"])
def test_dense_output_is_refused_by_name(method: str) -> None:
    source = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 3, 1)).eval()
    adapter = adapt(source, method)
    with pytest.raises(ValueError, match=r"dense prediction.*'gprebn'"):
        adapter(torch.randn(5, 3, 6, 6))


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("gprebn", {"guard": driftnorm.Guard(policy="warn")}),
        ("sar", {"margin": 1.0}),
        ("cotta", {"views": 2, "confidence": 1.0}),
        ("rotta", {"every": 9, "bank": 4}),
        ("eata", {"margin": 1.0}),
        ("rt3a", {}),
    ],
)
def test_hooks_can_tell_the_users_passes(
    method: str, options: dict[str, Any], network: Build, batches: Draw
) -> None:
    """Each batch is one pass that is not hidden, and it shows the batch."""
    source, seen = network(), []
    adapter = adapt(source, method, inplace=True, channels_last=False, **options)

    def note(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        if not adapter.probing:
            seen.append(inputs[0])

    source.register_forward_hook(note)
    adapter.fit(batches()[0])
    for place, x in enumerate(batches(), start=1):
        adapter(x)
        assert len(seen) == place
        assert torch.equal(seen[-1], x)


def test_a_few_logits_between_0_and_1_are_no_sigmoids(network: Build, batches: Draw) -> None:
    adapter = adapt(Wrapped(network(), torch.sigmoid).eval(), "bn-window", guard="off")
    adapter(batches()[0][:1])  # one image of four classes: a warning would be an error


def test_evaluate_and_diagnose_say_what_to_pass(network: Build, batches: Draw) -> None:
    x = batches()[0]
    labels = torch.zeros(len(x), dtype=torch.int64)
    named: Any = [{"image": x, "label": labels}]
    with pytest.raises(TypeError, match=r"keys 'image', 'label'.*\(b\['image'\], b\['label'\]\)"):
        driftnorm.evaluate(adapt(network(), "bn"), named)
    with pytest.raises(TypeError, match=r"`batches` must give batches as pairs.*b\['image'\]"):
        driftnorm.diagnose(network(), named)
    three: Any = [(x, labels, labels)]
    with pytest.raises(TypeError, match=r"`stream` must give .* got tuple"):
        driftnorm.evaluate(adapt(network(), "bn"), three)
    with pytest.raises(TypeError, match=r"`batches.split\(64\)`"):
        driftnorm.diagnose(network(), x)
    assert driftnorm.diagnose(network(), [[x, labels]]).run.images == len(x)


def test_every_signature_has_the_default_method() -> None:
    defaults = {
        inspect.signature(each).parameters["method"].default
        for each in (adapt, *get_overloads(adapt))
    }
    assert defaults == {"steady", inspect.Parameter.empty}


def test_diagnose_and_evaluate_are_public(network: Build, batches: Draw) -> None:
    found = driftnorm.diagnose(network(), batches())
    assert repr(found).startswith("Diagnosis: ")
    assert found.verdict() in repr(found)
    assert len(repr(found)) < 2000
    stream = [(x, torch.zeros(len(x), dtype=torch.int64)) for x in batches()]
    numbers = driftnorm.evaluate(adapt(network(), "bn"), stream)
    assert isinstance(numbers["error"], float)
    assert numbers["count"] == 36


@dataclass(frozen=True)
class Forgetful(Statistics):
    """Returns the moments without a memory."""

    as_plain_tuple: bool = False

    def propose(self, memory: Any, at: Any, source: Any, seen: Any) -> Any:
        return ((at.moments.mean, at.moments.var), {}) if self.as_plain_tuple else at.moments

    def settled(self, memory: Any, source: Any, shared: Any) -> Any:
        return source


@pytest.mark.parametrize(
    ("as_plain_tuple", "got"),
    [(False, "got `Moments`"), (True, "got a tuple of a tuple of `Tensor`, `Tensor`, `dict`")],
)
def test_what_own_statistics_must_return_is_told(
    as_plain_tuple: bool, got: str, network: Build, batches: Draw
) -> None:
    recipe = driftnorm.Recipe(statistics=Forgetful(as_plain_tuple), gradient="detached")
    with pytest.raises(TypeError, match=rf"`Forgetful.propose` must return a tuple .*{got}"):
        adapt(network(), recipe)(batches()[0])

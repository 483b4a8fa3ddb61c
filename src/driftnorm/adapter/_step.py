"""A step on a batch, as the engine runs it and its parts see it."""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from driftnorm.adapter._network import Call, ConvertedNetwork, laid_out_as
from driftnorm.adapter._pass import Pass
from driftnorm.adapter._tree import mapped
from driftnorm.functional import is_finite
from driftnorm.parts.contract import (
    Forward,
    Lesson,
    Mode,
    NoStep,
    Part,
    Serving,
    Signal,
    Statistics,
    Step,
    Values,
)
from driftnorm.recipe import Recipe


class Refused(Exception):
    """This batch must leave no trace; the last good state answers it."""


@dataclass(frozen=True)
class Setting:
    """What does not change from batch to batch.

    Attributes:
        recipe: The recipe.
        network: The converted network.
        order: The batch-norm layers in forward order.
        start: The source's values of what is trained.
        classifier: Weight and bias of the source's linear classifier, if a part needs them.
        fitted: What parts learned from source-domain images.
        seed: For parts that draw random numbers.
    """

    recipe: Recipe
    network: ConvertedNetwork
    order: tuple[str, ...]
    start: Values
    classifier: tuple[Tensor, Tensor | None] | None
    fitted: Mapping[str, Any]
    seed: int


@dataclass
class Draft:
    """The state as a batch proposes it. Entries are replaced, never changed in place.

    Attributes:
        values: Trained parameters; empty: the source's.
        layers: The layers' memories.
        parts: The parts' memories, by name.
        batches: Batches adapted to since the start or restart.
    """

    values: Values = field(default_factory=dict)
    layers: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Any] = field(default_factory=dict)
    batches: int = 0

    @classmethod
    def of(cls, tree: Mapping[str, Any]) -> Draft:
        """A draft that starts from a state."""
        return cls(**tree)

    def tree(self) -> dict[str, Any]:
        """The draft as a state."""
        return dict(vars(self))


class LiveStep(Step):
    """One step. ``draft`` is written to, ``known`` is what was known as the step began."""

    def __init__(
        self,
        setting: Setting,
        draft: Draft,
        call: Call,
        *,
        facts: Mapping[str, Tensor] | None = None,
        index: int = 0,
        known: Draft | None = None,
        frozen: bool = False,
    ) -> None:
        self._setting = setting
        self._draft = draft
        self._known = copy.copy(draft) if known is None else known
        self._call = call
        self._asked: dict[Signal, Any] = {}
        self._given: Values | None = None
        self.x = call.x
        self.facts = facts or {}
        self.batch, self.index, self.frozen = draft.batches, index, frozen
        self.start = setting.start
        self.values = self._values()
        self.live = self.values
        self.loss = None
        self.kept = self.among = None

    # ------------------------------------------------------------------ what the engine does

    def look(
        self,
        mode: Mode,
        *,
        grad: bool = False,
        serving: Serving | None = None,
        hidden: bool = False,
    ) -> Forward:
        """The pass at hand."""
        values, layers = (serving or Serving(self.values))[:2]
        layers = self._known.layers if layers is None else layers
        if grad:
            values = {name: v.detach().requires_grad_(True) for name, v in values.items()}
        self.live = values
        now = Pass(mode, layers)
        self.forward = self._setting.network.run(self._call, now, values, grad=grad, hidden=hidden)
        return self.forward

    def reviewed(self) -> LiveStep:
        """The same step for a review, which sees what the batch proposes."""
        twin = copy.copy(self)
        twin._known, twin.values = self._draft, self._values()
        return twin

    def _values(self) -> Values:
        """The parameters in the draft."""
        start, proposed = self.start, self._draft.values
        # In the source's order: random draws depend on it, and a file may have another.
        return {n: laid_out_as(proposed[n], v) for n, v in start.items()} if proposed else start

    # ------------------------------------------------------------------ what parts see

    @property
    def classifier(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the source's linear classifier."""
        assert self._setting.classifier is not None
        return self._setting.classifier

    def _name(self, part: Part) -> str:
        try:
            return self._setting.recipe.names[part]
        except KeyError:
            raise ValueError(
                f"{part} is not a part of the recipe, so it has no memory: name it in a field of "
                "the recipe, or in a field of one of its parts."
            ) from None

    def __getitem__(self, part: Part) -> Mapping[str, Any]:
        parts = self._draft.parts if part.in_turn else self._known.parts
        found: Mapping[str, Any] = parts.get(self._name(part), {})
        return found

    def __setitem__(self, part: Part, memory: Mapping[str, Any]) -> None:
        if torch.is_grad_enabled():  # in a loss; a graph must not outlive its step
            memory = mapped(memory, Tensor.detach)
        self._draft.parts = {**self._draft.parts, self._name(part): dict(memory)}

    def ask(self, signal: Signal) -> Any:
        """A fact about the batch, computed once per step."""
        if signal not in self._asked:
            with torch.no_grad():
                self._asked[signal] = signal(self)
        return self._asked[signal]

    def random(self, part: Part) -> torch.Generator:
        """Random numbers that follow from the seed, the batch, the step and the part alone."""
        place = (self._setting.seed, self._draft.batches, self.index, self._name(part))
        digest = hashlib.blake2b(repr(place).encode(), digest_size=8).digest()
        return torch.Generator().manual_seed(int.from_bytes(digest, "big") >> 1)

    def fitted(self, part: Part) -> Any:
        """What the part learned from source-domain images."""
        return self._setting.fitted.get(self._name(part))

    def given(self, gradient: Values) -> Step:
        """The same step with a gradient that is known already."""
        twin = copy.copy(self)
        twin._given = gradient
        return twin

    def run(
        self,
        x: Tensor,
        *,
        values: Values | None = None,
        mode: Mode = "again",
        layers: Mapping[str, Any] | None = None,
        statistics: Statistics | None = None,
        grad: bool = False,
    ) -> Forward:
        """One more pass; see :meth:`driftnorm.parts.contract.Step.run`."""
        if mode == "source":
            values = {}
        elif values is None:
            values = self.live
        begun = self._known.layers if layers is None else layers
        now = Pass(mode, begun, statistics, self.forward.used if mode == "again" else None)
        return self._setting.network.run(
            self._call._replace(x=x), now, values, grad=grad, hidden=True
        )

    def gradient(self, values: Values, among: Tensor | None = None) -> Values:
        """Of the loss, at these parameters."""
        if self._given is not None:
            return self._given
        if values is self.values and among is None:
            return self._descended(self)
        there = copy.copy(self)
        there.live = {name: v.detach().requires_grad_(True) for name, v in values.items()}
        # The loss there uses the statistics there; what they propose is dropped.
        there.forward = there.run(self.x, mode="adapt", grad=True)
        there.among = among
        found = self._descended(there)
        self.loss = there.loss
        return found

    def _descended(self, at: LiveStep) -> Values:
        loss_of, live = self._setting.recipe.loss, dict(at.live)
        assert loss_of is not None
        with torch.enable_grad():
            loss = loss_of(at)
            if loss is None:
                raise NoStep
            loss = loss.mean() if isinstance(loss, Tensor) and loss.dim() else loss
        _check_loss(loss)
        found = torch.autograd.grad(loss, [*live.values()], allow_unused=True)
        gradient = {n: g for n, g in zip(live, found, strict=True) if g is not None}
        at.loss = float(loss.detach())
        if not math.isfinite(at.loss) or not is_finite(gradient.values()):
            raise Refused("the loss, its gradient or the parameters after it are not finite")
        return gradient


def learn(
    setting: Setting,
    draft: Draft,
    call: Call,
    lesson: Lesson,
    *,
    before: int = 0,
    hidden: bool = False,
) -> LiveStep:
    """The gradient steps on one lesson; what the last pass proposed is in the draft.

    ``before``: steps that the batch has taken already. ``hidden``: its images are not the caller's
    batch.
    """
    recipe = setting.recipe
    known = copy.copy(draft)
    call = setting.network.lay_out(call._replace(x=lesson.x))
    taken: float | None = None
    for index in range(recipe.steps):
        if index and recipe.count == "step":
            known = copy.copy(draft)
        known.values = draft.values
        place = before + index
        step = LiveStep(setting, draft, call, facts=lesson.facts, index=place, known=known)
        draft.layers = step.look("adapt", grad=True, hidden=hidden).proposed
        values = step.values
        try:
            with torch.no_grad():
                for update in recipe.update:
                    values = update(step, values)
        except NoStep:
            step.loss = taken
            continue
        if not is_finite(values.values()):
            raise Refused("the loss, its gradient or the parameters after it are not finite")
        draft.values = values
        taken = step.loss
    return step


def _check_loss(loss: object) -> None:
    """A user's loss may return anything."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return
    got = type(loss).__name__
    if isinstance(loss, Tensor):
        got = f"a tensor of shape {tuple(loss.shape)}"
        got += "" if loss.requires_grad else " without a gradient"
    raise TypeError(
        f"`loss` must return a tensor that depends on the logits, or None for no step; got {got}."
    )

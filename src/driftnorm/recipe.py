"""A test-time method as data: statistics × gradient path × objective × trainable set × head.

A method of a paper is a recipe with that paper's defaults; a row of an ablation is the recipe with
one field changed (:func:`dataclasses.replace`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypedDict

import torch
from torch import nn

from driftnorm.functional import GradientPath
from driftnorm.heads import Head
from driftnorm.objectives import Objective
from driftnorm.selection import Selector
from driftnorm.statistics import Source, Statistics

__all__ = ["OPTIMIZERS", "Optimising", "OptimizerChoice", "Recipe", "Trainable", "learning_rate"]

Trainable: TypeAlias = Literal["none", "affine", "features", "classifier", "all"]
OptimizerBuilder: TypeAlias = Callable[
    [Iterable[nn.Parameter], float, float], torch.optim.Optimizer
]
OptimizerChoice: TypeAlias = str | OptimizerBuilder

# (parameters, learning rate, weight decay) -> optimiser. SGD is set as Tent sets it.
OPTIMIZERS: dict[str, OptimizerBuilder] = {
    "adam": lambda p, lr, wd: torch.optim.Adam(p, lr=lr, weight_decay=wd),
    "adamw": lambda p, lr, wd: torch.optim.AdamW(p, lr=lr, weight_decay=wd),
    "sgd": lambda p, lr, wd: torch.optim.SGD(
        p, lr=lr, weight_decay=wd, momentum=0.9, nesterov=True
    ),
}
_TRAINABLE = ("none", "affine", "features", "classifier", "all")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What an adapter does with each batch.

    Attributes:
        statistics: Which moments normalise, in the layers that ``only`` selects.
        gradient: ``"preserved"`` (training-mode gradient, eq. 6) or ``"detached"``.
        objective: What a step minimises; ``None`` takes no step.
        trainable: What a step changes: BN ``"affine"`` parameters, ``"features"`` (all but the
            classifier), the ``"classifier"``, ``"all"``, or ``"none"``.
        head: What answers instead of the linear classifier.
        only: The layers that take part; the others keep source statistics and are not trained.
        per_layer: Pairs (selector, statistics) that override ``statistics``; the last match wins.
        optimizer: ``"adam"``, ``"sgd"`` (momentum 0.9, Nesterov), ``"adamw"``, or a function of
            (parameters, learning rate, weight decay).
        lr: Learning rate.
        weight_decay: As the optimiser means it.
        steps: Gradient steps for each batch (the paper's delta).
        predict: Answer with the forward pass ``"before"`` the last step (Tent, this paper), or with
            one more pass ``"after"`` it.
        count: A batch enters the running statistics once (``"batch"``), or once for every
            ``"step"``.
    """

    statistics: Statistics = field(default_factory=Source)
    gradient: GradientPath = "preserved"
    objective: Objective | None = None
    trainable: Trainable = "none"
    head: Head | None = None
    only: Selector | None = None
    per_layer: tuple[tuple[Selector, Statistics], ...] = ()
    optimizer: OptimizerChoice = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    steps: int = 1
    predict: Literal["before", "after"] = "before"
    count: Literal["batch", "step"] = "batch"

    def __post_init__(self) -> None:
        _expect(
            self.gradient in ("preserved", "detached"),
            "gradient",
            "'preserved' or 'detached'",
            self.gradient,
        )
        _expect(self.trainable in _TRAINABLE, "trainable", f"one of {_TRAINABLE}", self.trainable)
        _expect(self.predict in ("before", "after"), "predict", "'before' or 'after'", self.predict)
        _expect(self.count in ("batch", "step"), "count", "'batch' or 'step'", self.count)
        _expect(type(self.steps) is int and self.steps >= 1, "steps", "an integer >= 1", self.steps)
        _expect(self.lr >= 0 and self.lr < float("inf"), "lr", "a finite number >= 0", self.lr)
        finite = 0 <= self.weight_decay < float("inf")
        _expect(finite, "weight_decay", "a finite number >= 0", self.weight_decay)
        one_of_ours = isinstance(self.statistics, Statistics)
        _expect(one_of_ours, "statistics", "a Statistics object", self.statistics)
        fits = self.head is None or isinstance(self.head, Head)
        _expect(fits, "head", "a Head object or None", self.head)
        pairs = isinstance(self.per_layer, tuple) and all(
            isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], Statistics)
            for p in self.per_layer
        )
        _expect(pairs, "per_layer", "a tuple of (selector, Statistics) pairs", self.per_layer)
        known = callable(self.optimizer) or self.optimizer in OPTIMIZERS
        _expect(known, "optimizer", f"one of {tuple(OPTIMIZERS)} or a function", self.optimizer)
        if (self.objective is None) != (self.trainable == "none"):
            raise ValueError(
                "`objective` and `trainable` go together: an objective needs parameters to train, "
                f"and they need an objective; got objective={self.objective!r} and "
                f"trainable={self.trainable!r}."
            )

    @property
    def all_statistics(self) -> tuple[Statistics, ...]:
        """Every choice of statistics that some layer may get."""
        return (self.statistics, *(statistics for _, statistics in self.per_layer))

    @property
    def needs_backward(self) -> bool:
        """Whether a batch costs a backward pass."""
        return self.objective is not None

    @property
    def needs_batch_norm(self) -> bool:
        """Whether the method does anything to batch-norm layers."""
        return self.trainable == "affine" or any(s.uses_batch for s in self.all_statistics)

    @property
    def needs_source_statistics(self) -> bool:
        """Whether every selected layer must have kept its training statistics."""
        return any(s.uses_source for s in self.all_statistics)

    @property
    def needs_classifier(self) -> bool:
        """Whether the linear classifier must be told from the features."""
        return self.head is not None or self.trainable in ("features", "classifier")

    @property
    def order_dependent(self) -> bool:
        """Whether earlier batches change the answer to later ones."""
        history = any(s.keeps_history for s in self.all_statistics)
        return self.needs_backward or self.head is not None or history

    @property
    def batch_dependent(self) -> bool:
        """Whether the other images of a batch change the answer to one of them."""
        sees_own_step = self.needs_backward and (self.steps > 1 or self.predict == "after")
        uses_batch = any(s.uses_batch for s in self.all_statistics)
        return uses_batch or self.head is not None or sees_own_step

    def settings(self) -> str:
        """What the recipe does, in one line: how it optimises, and what differs from doing nothing.

        >>> from driftnorm.statistics import Running
        >>> Recipe(statistics=Running(momentum=0.1)).settings()
        'statistics=Running(momentum=0.1)'
        """
        optimising = ("optimizer", "lr", "steps", "predict") if self.needs_backward else ()
        return ", ".join(
            f"{f.name}={readable(getattr(self, f.name))}"
            for f in fields(self)
            if f.name in optimising or getattr(self, f.name) != getattr(_DEFAULTS, f.name)
        )


def readable(value: object) -> str:
    """A dataclass with only the fields that are not at their default; a function by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = [
            f"{f.name}={readable(getattr(value, f.name))}"
            for f in fields(value)
            if f.default is MISSING or getattr(value, f.name) != f.default
        ]
        return f"{type(value).__name__}({', '.join(changed)})"
    if isinstance(value, partial):
        given = [*map(readable, value.args)]
        given += [f"{name}={readable(each)}" for name, each in value.keywords.items()]
        return f"partial({', '.join((readable(value.func), *given))})"
    if type(value).__repr__ is object.__repr__ and not hasattr(value, "__qualname__"):
        # Its own repr holds an address, which is another one in the next process.
        held = [f"{name}={readable(each)}" for name, each in getattr(value, "__dict__", {}).items()]
        return f"{type(value).__qualname__}({', '.join(held)})"
    return str(getattr(value, "__qualname__", None) or repr(value))


class Optimising(TypedDict, total=False):
    """The options that every method with a gradient takes.

    Attributes:
        lr: Learning rate; each method has its own default.
        rho: Learning rate as a multiple of ``source_lr``.
        source_lr: The rate that the network was trained with.
        weight_decay: As the optimiser means it.
        steps: Gradient steps for each batch (the paper's delta).
        optimizer: ``"adam"``, ``"sgd"`` (momentum 0.9, Nesterov), ``"adamw"`` or a function.
        predict: Answer with the pass ``"before"`` the last step, or one more ``"after"`` it.
    """

    lr: float | None
    rho: float | None
    source_lr: float | None
    weight_decay: float
    steps: int
    optimizer: OptimizerChoice
    predict: Literal["before", "after"]


def optimised(recipe: Recipe, options: Optimising, default_lr: float = 1e-3) -> Recipe:
    """The recipe with these options."""
    rest: dict[str, Any] = {**options}
    for name in rest:
        if name not in Optimising.__annotations__:
            raise TypeError(f"got an unexpected option `{name}`.")
    rates = (rest.pop("lr", None), rest.pop("rho", None), rest.pop("source_lr", None))
    return replace(recipe, lr=learning_rate(*rates, default_lr), **rest)


def learning_rate(
    lr: float | None, rho: float | None, source_lr: float | None, default: float = 1e-3
) -> float:
    """The rate, given itself or as ``rho`` times the rate that the source was trained with.

    >>> learning_rate(None, rho=10, source_lr=5e-5)
    0.0005
    """
    if rho is None and source_lr is None:
        return default if lr is None else lr
    if lr is not None:
        raise ValueError("give either `lr`, or `rho` with `source_lr`, not both.")
    if rho is None or source_lr is None:
        raise ValueError(
            "`rho` multiplies the learning rate that the source network was trained with: "
            f"give both `rho` and `source_lr`, got rho={rho} and source_lr={source_lr}."
        )
    return rho * source_lr


def _expect(holds: bool, name: str, expected: str, got: object) -> None:
    if not holds:
        raise ValueError(f"`{name}` must be {expected}, got {got!r}.")


_DEFAULTS = Recipe()

"""A test-time method as data: what normalises, what learns, what answers, what reviews.

A method of a paper is a recipe with that paper's defaults; a row of an ablation is the recipe with
one field changed (:func:`dataclasses.replace`); two methods are joined by :func:`compose`.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, Literal, TypeAlias, TypedDict

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm.functional import GradientPath
from driftnorm.parts.contract import (
    Answer,
    Cost,
    Loss,
    Memory,
    Part,
    Review,
    Statistics,
    Update,
    Weight,
    parts_in,
)
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import Function
from driftnorm.parts.statistics import Source
from driftnorm.parts.updates import Ascent, Descent, OptimizerChoice, bounded, with_rate

Trainable: TypeAlias = Literal["none", "affine", "features", "classifier", "all"]
Side: TypeAlias = Literal["normalise", "learn", "answer", "review"]
_TRAINABLE = ("none", "affine", "features", "classifier", "all")
_SIDES: dict[Side, tuple[str, ...]] = {
    "normalise": ("statistics", "gradient", "per_layer"),
    "learn": ("trainable", "memory", "loss", "update", "steps", "count", "predict"),
    "answer": ("answer",),
    "review": ("review", "reset_every"),
}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What an adapter does with each batch.

    Attributes:
        statistics: Which moments normalise, in the layers that ``only`` selects.
        gradient: ``"preserved"`` (training-mode gradient, eq. 6) or ``"detached"``.
        only: The layers that take part; the others keep source statistics and are not trained.
        per_layer: Pairs (selector, statistics) that override ``statistics``; the last match wins.
        trainable: What a step changes: BN ``"affine"`` parameters, ``"features"`` (all but the
            classifier), the ``"classifier"``, ``"all"``, or ``"none"``.
        memory: Which images are learned from, and when; ``None``: each batch, once.
        loss: What a step minimises: a part, or a function of the logits; ``None``: no step.
        update: What a step does, in this order; an optimiser comes first.
        steps: Gradient steps for each batch (the paper's delta).
        count: A batch enters running averages once (``"batch"``), or once for every ``"step"``.
        predict: Answer with the forward pass ``"before"`` the last step (Tent, this paper), or with
            one more pass ``"after"`` it.
        answer: What becomes of the logits, in this order.
        review: What looks at a batch before it is kept.
        reset_every: Start from the source again after this many batches.
    """

    statistics: Statistics = field(default_factory=Source)
    gradient: GradientPath = "preserved"
    only: Selector | None = None
    per_layer: tuple[tuple[Selector, Statistics], ...] = ()
    trainable: Trainable = "none"
    memory: Memory | None = None
    loss: Loss | None = None
    update: tuple[Update, ...] = ()
    steps: int = 1
    count: Literal["batch", "step"] = "batch"
    predict: Literal["before", "after"] = "before"
    answer: tuple[Answer, ...] = ()
    review: tuple[Review, ...] = ()
    reset_every: int | None = None

    def __post_init__(self) -> None:
        if self.loss is not None and not isinstance(self.loss, Loss) and callable(self.loss):
            object.__setattr__(self, "loss", Function(self.loss))
        self._check_words()
        self._check_kinds()
        if (self.loss is None) != (self.trainable == "none"):
            raise ValueError(
                "`loss` and `trainable` go together: a loss needs parameters to train, and they "
                f"need a loss; got loss={self.loss!r} and trainable={self.trainable!r}."
            )
        if (self.loss is None) != (not self.update):
            raise ValueError(
                "`loss` and `update` go together: a step needs both; got "
                f"loss={self.loss!r} and update={self.update!r}."
            )
        if self.memory is not None and self.loss is None:
            raise ValueError("`memory` keeps images to learn from, so the recipe needs a `loss`.")
        if self.loss is not None and self.loss.penalty:
            raise ValueError(f"{self.loss} is only a penalty: add it to a loss that causes steps.")
        descents = [isinstance(part, Descent | Ascent) for part in self.update]
        if self.update and (sum(descents) > 1 or (any(descents) and not descents[0])):
            raise ValueError("`update` must begin with its one optimiser, `Descent` or `Ascent`.")
        acting = [*self.answer, *(p for p in parts_in(self.loss) if isinstance(p, Weight))]
        for part in acting:
            if acting.count(part) > 1:
                raise ValueError(f"{part} acts in two places, but it has one memory only.")
        self._check_answers()
        for part in self.parts:
            part.check(self)

    def _check_answers(self) -> None:
        """Refuse an answer that would throw away those before it."""
        acting = [part for part in self.answer if part.starts_from != "none"]
        for before, part in pairwise(acting):
            if part.starts_from != "pass":
                continue
            first, second = readable(before), readable(part)
            if before.starts_from == "pass":
                raise ValueError(f"{first} and {second} both answer from the pass: choose one.")
            raise ValueError(
                f"{second} answers from the pass, so nothing would be left of what {first} makes "
                f"of the logits: put {type(part).__name__} first."
            )

    def _check_words(self) -> None:
        for name, allowed in (
            ("gradient", ("preserved", "detached")),
            ("trainable", _TRAINABLE),
            ("predict", ("before", "after")),
            ("count", ("batch", "step")),
        ):
            given = getattr(self, name)
            check_choice(name, given, allowed)
        check_whole("steps", self.steps)
        if self.reset_every is not None:
            check_whole("reset_every", self.reset_every)

    def _check_kinds(self) -> None:
        for name, kind in (("statistics", Statistics), ("memory", Memory), ("loss", Loss)):
            given = getattr(self, name)
            fits = isinstance(given, kind) or (given is None and name != "statistics")
            _expect(fits, name, f"a {kind.__name__} part", given)
        for name, role in (("update", Update), ("answer", Answer), ("review", Review)):
            given = getattr(self, name)
            fits = isinstance(given, tuple) and all(isinstance(part, role) for part in given)
            _expect(fits, name, f"a tuple of {role.__name__} parts", given)
        pairs = isinstance(self.per_layer, tuple) and all(
            isinstance(p, tuple) and len(p) == 2 and isinstance(p[1], Statistics)
            for p in self.per_layer
        )
        _expect(pairs, "per_layer", "a tuple of (selector, Statistics) pairs", self.per_layer)

    # ------------------------------------------------------------------ what follows from it

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Every part, each once, in order of mention."""
        found = [part for f in fields(self) for part in parts_in(getattr(self, f.name))]
        for part in found:
            try:
                hash(part)
            except TypeError as error:
                raise TypeError(
                    f"{part!r} must be a frozen dataclass of numbers, words, tuples and other "
                    f"parts, since its memory is found by its value: {error}."
                ) from error
        return tuple(dict.fromkeys(found))

    @cached_property
    def names(self) -> dict[Part, str]:
        """What each part's memory is called: its class, numbered where there are several."""
        names: dict[Part, str] = {}
        for part in self.parts:
            plain = type(part).__name__.lower()
            taken = sum(name.split(".")[0] == plain for name in names.values())
            names[part] = f"{plain}.{taken + 1}" if taken else plain
        return names

    @property
    def all_statistics(self) -> tuple[Statistics, ...]:
        """Every choice of statistics that some layer may get."""
        return (self.statistics, *(statistics for _, statistics in self.per_layer))

    @property
    def needs_backward(self) -> bool:
        """Whether a batch costs a backward pass."""
        return self.loss is not None

    @property
    def needs_batch_norm(self) -> bool:
        """Whether the method does anything to batch-norm layers."""
        return self.trainable == "affine" or any(s.uses_batch for s in self.all_statistics)

    @property
    def needs_source_statistics(self) -> bool:
        """Whether every selected layer must have kept its training statistics."""
        return any(s.uses_source for s in self.all_statistics)

    @property
    def needs_features(self) -> bool:
        """Whether some part looks at what enters the linear classifier."""
        return any(part.features for part in self.parts)

    @property
    def needs_classifier(self) -> bool:
        """Whether the linear classifier must be distinguished from the features."""
        return self.needs_features or self.trainable in ("features", "classifier")

    @property
    def needs_fit(self) -> bool:
        """Whether some part must see images of the source's domain first: ``adapter.fit``."""
        return any(type(part).fit is not Part.fit for part in self.parts)

    @property
    def order_dependent(self) -> bool:
        """Whether earlier batches change the answer to later ones."""
        history = any(s.keeps_history for s in self.all_statistics)
        lasting = any(part.lasting for part in self.answer)
        return self.needs_backward or lasting or history

    @property
    def batch_dependent(self) -> bool:
        """Whether the other images of a batch change the answer to one of them."""
        sees_own_step = self.needs_backward and (self.steps > 1 or self.predict == "after")
        uses_batch = any(s.uses_batch for s in self.all_statistics)
        return uses_batch or bool(self.answer) or sees_own_step

    @property
    def cost(self) -> Cost:
        """Forward and backward passes for each batch, known without running it."""
        counted: set[Part] = set()

        def passes(*held: object) -> Cost:
            """Of parts that were not counted yet: a signal is found out once per step."""
            total = Cost()
            for part in parts_in(held):
                if part not in counted:
                    counted.add(part)
                    total = total + part.cost
            return total

        learning = Cost()
        if self.loss is not None:
            lessons = 1.0 if self.memory is None else self.memory.share
            learning = (Cost(1, 1) + passes(self.memory, self.loss, self.update)) * (
                self.steps * lessons
            )
        apart = self.loss is None or self.memory is not None
        after = self.loss is not None and self.predict == "after"
        if apart or after:
            counted.clear()  # the pass that answers finds out its signals itself
        return learning + Cost(int(apart) + int(after)) + passes(self.answer, self.review)

    @property
    def unbakeable(self) -> tuple[str, ...]:
        """Why no plain network answers the same as the frozen adapter, if none does."""
        return tuple(part.per_batch for part in self.answer if part.per_batch is not None)

    def sides(self) -> tuple[Side, ...]:
        """What the recipe defines: how to normalise, learn, answer or review."""
        return tuple(
            side
            for side, names in _SIDES.items()
            if any(getattr(self, name) != getattr(_DEFAULTS, name) for name in names)
        )

    def settings(self) -> str:
        """What the recipe does, in one line: how it optimises, and what differs from doing nothing.

        >>> from driftnorm.parts import Running
        >>> Recipe(statistics=Running(momentum=0.1)).settings()
        'statistics=Running(momentum=0.1)'
        """
        optimising = ("update", "steps", "predict") if self.needs_backward else ()
        return ", ".join(
            f"{f.name}={readable(getattr(self, f.name))}"
            for f in fields(self)
            if f.name in optimising or getattr(self, f.name) != getattr(_DEFAULTS, f.name)
        )


def compose(first: Recipe, *others: Recipe) -> Recipe:
    """Recipes that define different things, as one; answers and reviews are joined in order.

    >>> from driftnorm.parts import Running, T3A
    >>> compose(Recipe(statistics=Running()), Recipe(answer=(T3A(),))).answer
    (T3A(supports=20),)
    """
    joined = first
    for other in others:
        clash = [
            side
            for side in ("normalise", "learn")
            if side in joined.sides() and side in other.sides()
        ]
        if clash or (joined.only != other.only and None not in (joined.only, other.only)):
            what = clash[0] if clash else "only"
            raise ValueError(
                f"both define how to {what}: join methods that define different things "
                "(normalise, learn, answer, review), or use the statistics of one with '@'."
            )
        taken = {name for side in other.sides() for name in _SIDES[side]}
        changes: dict[str, Any] = {name: getattr(other, name) for name in taken}
        changes["answer"] = (*joined.answer, *other.answer)
        changes["review"] = (*joined.review, *other.review)
        changes["only"] = joined.only if other.only is None else other.only
        if other.reset_every is None:
            changes.pop("reset_every", None)
        joined = replace(joined, **changes)
    return joined


def normalised_as(recipe: Recipe, other: Recipe) -> Recipe:
    """The recipe with the other's statistics and gradient path: ``eata@gprebn``."""
    said = other.sides()
    if said and "normalise" not in said:
        raise ValueError(
            f"what follows '@' defines how to {' and '.join(said)}, but not how to normalise: join "
            "it with '+', or take 'source' for the source's statistics."
        )
    taken = {name: getattr(other, name) for name in _SIDES["normalise"]}
    return replace(recipe, **taken)


def readable(value: object) -> str:
    """A dataclass with only the fields that are not at their default; a function by its name."""
    if is_dataclass(value) and not isinstance(value, type):
        changed = [
            f"{f.name}={readable(getattr(value, f.name))}"
            for f in fields(value)
            if f.metadata.get("shown")
            or f.default is MISSING
            or getattr(value, f.name) != f.default
        ]
        return f"{type(value).__name__}({', '.join(changed)})"
    if isinstance(value, tuple):
        inside = ", ".join(map(readable, value))
        return f"({inside},)" if len(value) == 1 else f"({inside})"
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
        optimizer: ``"adam"``, ``"sgd"`` (momentum 0.9, Nesterov), ``"sgd-plain"``, ``"adamw"`` or
            a function.
        predict: Answer with the pass ``"before"`` the last step, or one more ``"after"`` it.
        cap: No parameter moves further in one step than this share of its layer's scale.
        anchor: After every step, this share of the way back to the source.
        leash: No parameter is ever further from the source than this share of its layer's scale.
    """

    lr: float | None
    rho: float | None
    source_lr: float | None
    weight_decay: float
    steps: int
    optimizer: OptimizerChoice
    predict: Literal["before", "after"]
    cap: float | None
    anchor: float | None
    leash: float | None


def optimised(recipe: Recipe, options: Optimising, default_lr: float = 1e-3) -> Recipe:
    """The recipe with these options."""
    rest: dict[str, Any] = {**options}
    for name in rest:
        if name not in Optimising.__annotations__:
            raise TypeError(f"got an unexpected option `{name}`.")
    rates = (rest.pop("lr", None), rest.pop("rho", None), rest.pop("source_lr", None))
    own = {name: rest.pop(name) for name in ("optimizer", "weight_decay") if name in rest}
    chain = with_rate(recipe.update, lr=learning_rate(*rates, default_lr), **own)
    bounds = {name: rest.pop(name, None) for name in ("cap", "anchor", "leash")}
    return replace(recipe, update=bounded(chain, **bounds), **rest)


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

"""The contract: what a part of a test-time method is, and what it sees.

A *part* is a frozen dataclass without state. All that a stream changes is one immutable tree of
tensors and numbers that the adapter holds; ``step[self]`` is a part's memory in it, and assigning
to ``step[self]`` proposes a new one, which is kept if the batch is. Equal parts share one memory:
every ``Teacher(0.999)`` is the same teacher. So reset, resume, roll-back, copies and device moves
are written once, for all parts.

A part's role is the type of what flows through it: :class:`Statistics`, :class:`Loss`,
:class:`Weight`, :class:`Update`, :class:`Memory`, :class:`Answer`, :class:`Review`,
:class:`Signal`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from driftnorm.functional import Moments, batch_moments, instance_moments

Tree: TypeAlias = "Tensor | bool | int | float | dict[str, Tree] | tuple[Tree, ...]"
Values: TypeAlias = Mapping[str, Tensor]
"""Parameters by name."""
Mode: TypeAlias = Literal["adapt", "again", "settled", "source"]


SHOWN = MappingProxyType({"shown": True})
"""Metadata of a field that is always printed, even at its default."""


SHARED = ""
"""Key among the layers' memories: what all layers with the same statistics share."""
THETA = "theta"
"""Key in there: a theta that replaces the statistics' own, for all layers."""


class NoStep(Exception):
    """Nothing to learn from this batch; statistics and averages still count it."""


@dataclass(frozen=True)
class Cost:
    """Passes through the network per batch, beyond the one that answers it.

    Attributes:
        forwards: Forward passes.
        backwards: Backward passes.
        bound: Whether these are upper bounds rather than exact numbers.
    """

    forwards: float = 0
    backwards: float = 0
    bound: bool = False

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.forwards + other.forwards,
            self.backwards + other.backwards,
            self.bound or other.bound,
        )

    def __mul__(self, times: float) -> Cost:
        return Cost(self.forwards * times, self.backwards * times, self.bound)


class Part(ABC):  # noqa: B024 (its roles have the abstract methods)
    """A frozen dataclass of numbers, words and other parts; constants are checked when built."""

    in_turn: ClassVar[bool] = False
    """Whether it reads its own latest proposal, not the memory from before the step."""
    stays: ClassVar[bool] = False
    """Whether its memory survives a restart that a review asks for."""
    features: ClassVar[bool] = False
    """Whether it needs what enters the linear classifier."""

    @property
    def cost(self) -> Cost:
        """Extra passes that it needs."""
        return Cost()

    def check(self, recipe: Whole) -> None:  # noqa: B027 (most parts fit everywhere)
        """Raise ``ValueError`` if the part has no meaning in this recipe."""

    def fit(self, step: Step) -> Tree | None:
        """What it learns from source-domain images, if anything."""
        return None

    def judge(self, memory: Mapping[str, Any]) -> None:  # noqa: B027 (most take any number)
        """Raise ``ValueError`` if a saved memory, or what was fitted, cannot be this part's."""


def check_counts(memory: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raise ``ValueError`` if numbers or tensors that count or add up something are negative."""
    for name in names:
        held = torch.as_tensor(memory.get(name, 0))
        if held.numel() and not float(held.min()) >= 0:
            raise ValueError(f"`{name}` must be >= 0, got {float(held.min()):g}.")


def check_shares(memory: Mapping[str, Any], name: str, images: str = "images") -> None:
    """Raise ``ValueError`` if sums of predictions over images cannot be that."""
    if name not in memory:
        return
    check_counts(memory, [name])
    total, expected = float(memory[name].sum()), float(memory.get(images, 0.0))
    if not abs(total - expected) <= 0.01 * expected:
        raise ValueError(
            f"`{name}` must add up to the {expected:g} of `{images}`, since the shares of an image "
            f"add up to 1, got {total:g}."
        )


class Whole(Protocol):
    """What a part may read of the recipe that contains it."""

    @property
    def statistics(self) -> Statistics: ...  # noqa: D102
    @property
    def trainable(self) -> str: ...  # noqa: D102
    @property
    def memory(self) -> Memory | None: ...  # noqa: D102
    @property
    def loss(self) -> Loss | None: ...  # noqa: D102
    @property
    def update(self) -> tuple[Update, ...]: ...  # noqa: D102
    @property
    def answer(self) -> tuple[Answer, ...]: ...  # noqa: D102
    @property
    def review(self) -> tuple[Review, ...]: ...  # noqa: D102


def parts_in(value: object) -> Iterator[Part]:
    """All parts in a value, outermost first: itself, those in its fields, and so on."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from parts_in(each)
        return
    if isinstance(value, Part):
        yield value
    if is_dataclass(value) and not isinstance(value, type):
        for one in fields(value):
            yield from parts_in(getattr(value, one.name))


# ------------------------------------------------------------------ what normalises


class Measured:
    """A layer's input, measured lazily.

    Attributes:
        x: The layer's input.
        eps: What the layer adds to a variance.
    """

    __slots__ = ("_instance", "_moments", "eps", "x")

    def __init__(self, x: Tensor, eps: float = 1e-5) -> None:
        self.x = x
        self.eps = eps
        self._moments: Moments | None = None
        self._instance: Moments | None = None

    @property
    def samples(self) -> int:
        """How many samples the batch has."""
        return len(self.x)

    @property
    def moments(self) -> Moments:
        """Of the whole batch, one value per channel."""
        if self._moments is None:
            self._moments = batch_moments(self.x)
        return self._moments

    @property
    def instance(self) -> Moments:
        """Of each sample, shape (N, C)."""
        if self._instance is None:
            self._instance = instance_moments(self.x)
        return self._instance


class Statistics(Part):
    """Which mean and variance normalise a layer's input.

    Pure functions of a memory, which the adapter keeps for every layer; ``{}`` at first. ``shared``
    is one memory for all layers that these statistics govern.
    """

    single_values: ClassVar[bool] = False
    """Whether a batch with one value per channel, which has no variance, is of use."""

    @property
    def uses_source(self) -> bool:
        """Whether the source statistics are needed."""
        return False

    @property
    def uses_batch(self) -> bool:
        """Whether the current batch matters."""
        return True

    @property
    def keeps_history(self) -> bool:
        """Whether earlier batches matter, so that their order does."""
        return False

    @property
    def trusts_one_batch(self) -> bool:
        """Whether a single batch, however small, stands for the whole target."""
        return False

    @property
    def takes_theta(self) -> bool:
        """Whether a `THETA` in the shared memory replaces the statistics' own."""
        return False

    def observe(
        self, shared: Mapping[str, Any], memory: Mapping[str, Any], at: Measured
    ) -> tuple[Any, Mapping[str, Any]]:
        """One decision for all layers: what they get in this pass, and the shared memory.

        Called once per pass, at the first layer, before anything is normalised.
        """
        return None, shared

    @abstractmethod
    def propose(
        self, memory: Mapping[str, Any], at: Measured, source: Moments | None, seen: Any
    ) -> tuple[Moments, Mapping[str, Any]]:
        """The moments that normalise this batch, and the layer's memory after it."""

    @abstractmethod
    def settled(
        self, memory: Mapping[str, Any], source: Moments | None, shared: Mapping[str, Any]
    ) -> Moments | None:
        """The fixed moments that summarise the stream; ``None`` if there are none yet."""

    def judge(self, memory: Mapping[str, Any]) -> None:
        """Refuse what no statistics can be: a negative variance."""
        check_counts(memory, ("var",))


# ------------------------------------------------------------------ what learns


class Loss(Part):
    """What a step minimises."""

    penalty: ClassVar[bool] = False
    """Whether it is a mere penalty, which never causes a step by itself."""

    @abstractmethod
    def __call__(self, step: Step) -> Tensor | None:
        """One number per sample (or position), or one for all; ``None``: nothing to learn."""

    def __add__(self, other: Loss) -> Loss:
        from driftnorm.parts.losses import Sum

        return Sum((self, other))


class Weight(Part):
    """How much each sample counts in a loss."""

    @abstractmethod
    def __call__(self, step: Step, weights: Tensor) -> Tensor:
        """The weights, >= 0 and without gradient, given those of the parts before; 0 drops."""


class Update(Part):
    """What a step does to the parameters; the first of a chain asks for the gradient."""

    in_turn = True

    @abstractmethod
    def __call__(self, step: Step, values: Values) -> Values:
        """The parameters after it."""


class Lesson(NamedTuple):
    """Images to learn from, and what is known about them."""

    x: Tensor
    facts: Mapping[str, Tensor] = {}


class Memory(Part):
    """Which images are learned from, and when."""

    in_turn = True

    @property
    def share(self) -> float:
        """Lessons per batch of the stream, at most; larger batches may give more."""
        return 1.0

    @abstractmethod
    def __call__(self, step: Step, x: Tensor) -> Iterable[Lesson]:
        """Any number of lessons, or none."""


# ------------------------------------------------------------------ what answers, what reviews


class Serving(NamedTuple):
    """Who answers, if not the student: parameters, and its own statistics if any."""

    values: Values
    layers: Mapping[str, Any] | None = None


class Answer(Part):
    """What happens to the logits before the caller gets them."""

    per_batch: ClassVar[str | None] = None
    """Why a plain network cannot give the same answers, if it cannot."""

    @property
    def lasting(self) -> bool:
        """Whether earlier batches change it."""
        return self.per_batch is None

    @property
    def starts_from(self) -> Literal["pass", "logits", "none"]:
        """What it answers from: the ``"logits"`` that the parts before made, or the ``"pass"``.

        ``"none"``: it leaves the logits as they are, and only says who serves.
        """
        return "logits"

    @abstractmethod
    def __call__(self, step: Step, logits: Tensor) -> Tensor:
        """The answer, given that of the parts before."""

    def serving(self, step: Step) -> Serving | None:
        """Who answers; ``None``: the student."""
        return None

    def fold(self, step: Step) -> Tensor | None:
        """The weights of an equivalent linear classifier without bias."""
        return None


class Verdict(NamedTuple):
    """What a review asks for.

    Attributes:
        restart: Forget the stream, but for parts that `stay`.
        keep: With a restart: entries of ``values`` that survive it.
        undo: Drop the batch's changes; the source answers it.
        freeze: Stop adapting.
        reason: In words.
    """

    restart: bool = False
    keep: Mapping[str, Tensor] | None = None
    undo: bool = False
    freeze: bool = False
    reason: str = ""


class Review(Part):
    """Looks at a batch when all is done, before its changes are kept."""

    in_turn = True

    @abstractmethod
    def __call__(self, step: Step) -> Verdict | None:
        """What must be done about it; ``None``: nothing."""


class Signal(Part):
    """A fact about a batch that several parts need; computed once per step, without gradient."""

    @abstractmethod
    def __call__(self, step: Step) -> Any:
        """The fact."""


# ------------------------------------------------------------------ what a part sees


@dataclass(frozen=True)
class Forward:
    """One pass through the network.

    Attributes:
        output: What the network returned.
        logits: The logits in it.
        features: What entered the linear classifier, if a part needs it.
        proposed: The layers' memories after the pass.
        used: The moments that normalised, call by call.
    """

    output: Any
    logits: Tensor
    features: Tensor | None = None
    linear: Tensor | None = None
    proposed: Mapping[str, Any] = field(default_factory=dict)
    used: Mapping[str, Any] = field(default_factory=dict)


class Step(ABC):
    """One step on one batch, as its parts see it.

    Attributes:
        x: The images.
        facts: What a memory knows about them.
        forward: The pass at hand; ``logits`` and ``features`` are its.
        batch: Batches adapted to since the start or restart.
        index: Number of the step in its batch.
        frozen: Whether nothing that this step proposes will be kept.
        values: The trained parameters before the step.
        start: Those of the source.
        live: Those of the pass at hand, as autograd leaves.
        loss: Loss of the last step, if one was taken.
        kept: Which samples the loss counted, if it left any out.
        among: Which samples a second evaluation may count, if not all.
    """

    x: Tensor
    facts: Mapping[str, Tensor]
    forward: Forward
    batch: int
    index: int
    frozen: bool
    values: Values
    start: Values
    live: Values
    loss: float | None
    kept: Tensor | None
    among: Tensor | None

    @property
    def logits(self) -> Tensor:
        """Of the pass at hand, in float32 or wider, with gradient where there is one."""
        from driftnorm.parts.losses import wide_logits

        return wide_logits(self.forward.logits)

    @property
    def features(self) -> Tensor:
        """What entered the linear classifier in the pass at hand."""
        if self.forward.features is None:
            raise TypeError(
                "`step.features` is only known if the class of a part of the recipe says "
                "`features = True`."
            )
        return self.forward.features

    @property
    @abstractmethod
    def classifier(self) -> tuple[Tensor, Tensor | None]:
        """Weight and bias of the source's linear classifier."""

    @abstractmethod
    def __getitem__(self, part: Part) -> Mapping[str, Any]:
        """A part's memory; ``{}`` at first."""

    @abstractmethod
    def __setitem__(self, part: Part, memory: Mapping[str, Any]) -> None:
        """Propose a memory; kept if the batch is. Nothing in it may be changed in place later."""

    @abstractmethod
    def ask(self, signal: Signal) -> Any:
        """A fact about the batch, computed once per step."""

    @abstractmethod
    def random(self, part: Part) -> torch.Generator:
        """Random numbers that follow from the seed, the batch, the step and the part alone."""

    @abstractmethod
    def fitted(self, part: Part) -> Any:
        """What the part learned from source-domain images; ``None`` if nothing was fitted."""

    @abstractmethod
    def gradient(self, values: Values, among: Tensor | None = None) -> Values:
        """Gradient of the loss with respect to the parameters, at these values.

        Raises:
            NoStep: There is nothing to learn from.
        """

    @abstractmethod
    def given(self, gradient: Values) -> Step:
        """The same step with a gradient that is known already."""

    @abstractmethod
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
        """One more pass; what it proposes is only in the result.

        Args:
            x: Images.
            values: Parameters; those of the pass at hand by default.
            mode: ``"again"`` normalises as the pass at hand did, ``"adapt"`` adapts to these
                images, ``"settled"`` is the frozen network, ``"source"`` the original one.
            layers: The layers' memories to start from; those of the stream by default.
            statistics: In place of the recipe's.
            grad: Whether to build a graph.
        """

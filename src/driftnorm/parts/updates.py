"""What a step does to the parameters: a chain, whose order matters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_number
from driftnorm.parts.contract import SHOWN, Cost, Step, Update, Values, check_counts

OptimizerBuilder: TypeAlias = Callable[
    [Iterable[nn.Parameter], float, float], torch.optim.Optimizer
]
OptimizerChoice: TypeAlias = str | OptimizerBuilder

# (parameters, learning rate, weight decay) -> optimiser. "sgd" is set as Tent sets it.
OPTIMIZERS: dict[str, OptimizerBuilder] = {
    "adam": lambda p, lr, wd: torch.optim.Adam(p, lr=lr, weight_decay=wd),
    "adamw": lambda p, lr, wd: torch.optim.AdamW(p, lr=lr, weight_decay=wd),
    "sgd": lambda p, lr, wd: torch.optim.SGD(
        p, lr=lr, weight_decay=wd, momentum=0.9, nesterov=True
    ),
    "sgd-plain": lambda p, lr, wd: torch.optim.SGD(p, lr=lr, weight_decay=wd, momentum=0.9),
}


@dataclass(frozen=True)
class Descent(Update):
    """A step of an optimiser along the gradient of the loss.

    Attributes:
        optimizer: ``"adam"``, ``"sgd"`` (momentum 0.9, Nesterov), ``"sgd-plain"`` (without
            Nesterov), ``"adamw"``, or a function of (parameters, learning rate, weight decay).
        lr: Learning rate.
        weight_decay: As the optimiser defines it.
    """

    optimizer: OptimizerChoice = field(default="adam", metadata=SHOWN)
    lr: float = field(default=1e-3, metadata=SHOWN)
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if not (callable(self.optimizer) or self.optimizer in OPTIMIZERS):
            raise ValueError(
                f"`optimizer` must be one of {tuple(OPTIMIZERS)} or a function, "
                f"got {self.optimizer!r}."
            )
        for name in ("lr", "weight_decay"):
            check_number(name, getattr(self, name), least=0)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        gradient = step.gradient(values)
        parameters = {name: nn.Parameter(value.clone()) for name, value in values.items()}
        build = OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer
        optimizer = build([*parameters.values()], self.lr, self.weight_decay)
        known = step[self]
        for name, parameter in parameters.items():
            # An optimiser changes its state in place, but the stream's state must not change.
            if name in known:
                optimizer.state[parameter] = {
                    key: _followed(value, parameter) for key, value in known[name].items()
                }
            parameter.grad = gradient.get(name)
        with torch.no_grad():
            optimizer.step()
        step[self] = {
            name: {k: _kept(k, v) for k, v in optimizer.state[p].items() if v is not None}
            for name, p in parameters.items()
            if p in optimizer.state
        }
        return {name: parameter.detach() for name, parameter in parameters.items()}

    def judge(self, memory: Mapping[str, Any]) -> None:
        """Steps are counted, and averages of squares are never negative."""
        for name, state in memory.items():
            try:
                check_counts(state, [key for key in state if key == "step" or "sq" in key])
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from error


def _followed(value: Any, parameter: Tensor) -> Any:
    """A copy where the parameter is; step counters are scalars that stay where they are."""
    if not isinstance(value, Tensor):
        return value
    return value.to(parameter, copy=True) if value.dim() else value.clone()


def _kept(key: str, value: Any) -> Any:
    if isinstance(value, Tensor | bool | int | float):
        return value
    raise TypeError(
        f"the optimiser keeps `{key}` as a {type(value).__name__}, which a state dict cannot hold; "
        f"use one whose state is tensors and numbers."
    )


@dataclass(frozen=True)
class Ascent(Update):
    """The gradient where the loss is worst nearby, then a step from the original point (SAM, SAR).

    Attributes:
        of: The step that is taken.
        radius: Length of the step uphill, over all parameters together.
    """

    of: Update
    radius: float = 0.05

    def __post_init__(self) -> None:
        check_number("radius", self.radius)

    @property
    def cost(self) -> Cost:  # noqa: D102
        return Cost(1, 1)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        first = step.gradient(values)
        length = torch.stack([g.norm() for g in first.values()]).norm()
        scale = self.radius / (length + 1e-12)
        there = {n: v + scale * first[n] if n in first else v for n, v in values.items()}
        return self.of(step.given(step.gradient(there, among=step.kept)), values)


def _sizes(step: Step) -> dict[str, Tensor]:
    """The root mean square that scales each parameter's movement: that of its layer."""
    sizes = {}
    for name, value in step.start.items():
        scale = step.start.get(f"{name.rpartition('.')[0]}.weight", value)
        sizes[name] = scale.square().mean().sqrt()
    return sizes


def _within(moved: Tensor, limit: Tensor) -> Tensor:
    """A movement, shortened to a root mean square of at most ``limit``."""
    size = moved.square().mean().sqrt()
    return moved * (limit / size.clamp(min=1e-12)).clamp(max=1.0)


@dataclass(frozen=True)
class Cap(Update):
    """No parameter moves further in one step than this share of its layer's scale.

    Attributes:
        share: Root mean square of the movement, as a share of that of the layer's source weight.
        images: Batches of fewer images move proportionally less.
    """

    share: float = 0.004
    images: int = 64

    def __post_init__(self) -> None:
        _check_share(self.share, self.images)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        share, sizes = self.share * min(1, len(step.x) / self.images), _sizes(step)
        return {
            name: step.values[name] + _within(value - step.values[name], share * sizes[name])
            for name, value in values.items()
        }


@dataclass(frozen=True)
class Anchor(Update):
    """After every step, go this share of the way back to the source (weight ensembling).

    Attributes:
        share: Share of the way.
        images: Smaller batches go back proportionally less; ``None``: all alike, as in ROID.
    """

    share: float = 0.01
    images: int | None = 64

    def __post_init__(self) -> None:
        _check_share(self.share, 1 if self.images is None else self.images)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        share = self.share
        if self.images is not None:
            share *= min(1, len(step.x) / self.images)
        return {name: torch.lerp(v, step.start[name], share) for name, v in values.items()}


@dataclass(frozen=True)
class Leash(Update):
    """No parameter is ever further from the source than this share of its layer's scale."""

    share: float = 0.1

    def __post_init__(self) -> None:
        _check_share(self.share, 1)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        sizes = _sizes(step)
        return {
            name: step.start[name] + _within(value - step.start[name], self.share * sizes[name])
            for name, value in values.items()
        }


@dataclass(frozen=True)
class Restore(Update):
    """After every step, each weight returns to the source with this probability (CoTTA)."""

    probability: float = 0.01

    def __post_init__(self) -> None:
        check_number("probability", self.probability, least=0, most=1)

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        draw = step.random(self)
        restored = {}
        for name, value in values.items():
            drawn = torch.rand(value.shape, generator=draw).to(value.device)
            restored[name] = torch.where(drawn < self.probability, step.start[name], value)
        return restored


def _check_share(share: float, images: int) -> None:
    check_number("share", share)
    check_number("images", images, least=1)


def bounded(chain: tuple[Update, ...], **bounds: float | None) -> tuple[Update, ...]:
    """The chain followed by a cap, an anchor and a leash, if given."""
    kinds: dict[str, Callable[[float], Update]] = {"cap": Cap, "anchor": Anchor, "leash": Leash}
    return (*chain, *(kinds[name](share) for name, share in bounds.items() if share is not None))


def with_rate(chain: tuple[Update, ...], **changes: Any) -> tuple[Update, ...]:
    """The chain with other settings of its optimiser, wherever that is in it."""

    def changed(part: Update) -> Update:
        if isinstance(part, Descent):
            return replace(part, **changes)
        if isinstance(part, Ascent):
            return replace(part, of=changed(part.of))
        return part

    return tuple(map(changed, chain))

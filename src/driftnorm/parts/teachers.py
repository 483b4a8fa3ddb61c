"""A teacher: a slow average of the parameters that gives labels, and may answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number, check_whole
from driftnorm.parts.contract import (
    Answer,
    Cost,
    Forward,
    Part,
    Serving,
    Signal,
    Step,
    Update,
    Values,
    Whole,
)


@dataclass(frozen=True)
class Teacher(Update):
    """An exponential average of the parameters, which pass through unchanged.

    Attributes:
        decay: Decay of the average, per step.
        own_statistics: Whether it keeps its own statistics, or normalises as the student does.
    """

    decay: float = 0.999
    own_statistics: bool = False

    def __post_init__(self) -> None:
        check_number("decay", self.decay, least=0, most=1)

    def values(self, step: Step) -> Values:
        """The teacher's parameters: the source's at first."""
        known: Values = step[self].get("values", step.start)
        return known

    def layers(self, step: Step) -> Mapping[str, Any] | None:
        """Its own statistics, if it has any."""
        return step[self].get("layers", {}) if self.own_statistics else None

    def __call__(self, step: Step, values: Values) -> Values:  # noqa: D102
        slow = {n: torch.lerp(v, values[n], 1 - self.decay) for n, v in self.values(step).items()}
        step[self] = {**step[self], "values": slow}
        return values

    def look(self, step: Step, x: Tensor) -> Forward:
        """The teacher's pass over some images."""
        seen = step.run(x, values=self.values(step), mode="adapt", layers=self.layers(step))
        if self.own_statistics:
            step[self] = {**step[self], "layers": seen.proposed}
        return seen


@dataclass(frozen=True)
class View(Part):
    """A random augmentation of images of any kind: shift, mirror, brightness and noise.

    Works on the network's own input, whatever its normalisation: strengths are in units of the
    batch's standard deviation.

    Attributes:
        shift: Largest shift in pixels, in each direction.
        mirror: Whether to mirror half of them left to right.
        brightness: Standard deviation of a factor around 1, per image.
        noise: Standard deviation of the noise added to each value.
    """

    shift: int = 2
    mirror: bool = True
    brightness: float = 0.1
    noise: float = 0.05

    def __call__(self, x: Tensor, draw: torch.Generator) -> Tensor:
        """The augmented images."""

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=draw).to(x)

        shape = (len(x), *(1,) * (x.dim() - 1))
        seen = x * (1 + self.brightness * normal(*shape)) + self.noise * x.std() * normal(*x.shape)
        if x.dim() != 4:
            return seen
        if self.shift and min(x.shape[2:]) > self.shift:
            down, right = torch.randint(-self.shift, self.shift + 1, (2,), generator=draw).tolist()
            padded = F.pad(seen, (self.shift,) * 4, mode="reflect")
            top, left = self.shift + down, self.shift + right
            seen = padded[:, :, top : top + x.shape[2], left : left + x.shape[3]]
        if self.mirror:
            turned = (torch.rand(len(x), generator=draw) < 0.5).to(x.device).view(shape)
            seen = torch.where(turned, seen.flip(3), seen)
        return seen


@dataclass(frozen=True)
class SourceLogits(Signal):
    """The logits of the unadapted network."""

    @property
    def cost(self) -> Cost:  # noqa: D102
        return Cost(1)

    def __call__(self, step: Step) -> Tensor:  # noqa: D102
        return step.run(step.x, mode="source").logits


@dataclass(frozen=True)
class Taught(Signal):
    """The teacher's logits; the mean over views where the source is unsure (CoTTA).

    The teacher sees the images of a memory as they came, whatever the student sees.

    Attributes:
        by: The teacher.
        views: How many views are averaged.
        confidence: Views are taken where the source's mean confidence is below this.
        view: What a view is.
    """

    by: Teacher
    views: int = 0
    confidence: float = 0.92
    view: View = View()

    def __post_init__(self) -> None:
        check_whole("views", self.views, 0)
        check_number("confidence", self.confidence, least=0, most=1)

    @property
    def cost(self) -> Cost:  # noqa: D102
        return Cost(1) + (Cost(1 + self.views, bound=True) if self.views else Cost())

    def check(self, recipe: Whole) -> None:  # noqa: D102
        if self.by not in recipe.update:
            raise ValueError(f"{self.by} teaches, so it must be in `update` as well.")

    def __call__(self, step: Step) -> Tensor:  # noqa: D102
        x = step.facts.get("plain", step.x)
        plain = self.by.look(step, x).logits
        if not self.views:
            return plain
        sure = F.softmax(step.run(x, mode="source").logits.float(), dim=1).amax(dim=1).mean()
        if float(sure) >= self.confidence:
            return plain
        draw = step.random(self)
        looks = [self.by.look(step, self.view(x, draw)).logits for _ in range(self.views)]
        return torch.stack(looks).mean(dim=0)


@dataclass(frozen=True)
class By(Answer):
    """The teacher answers.

    Attributes:
        teacher: The teacher.
        live: Its logits for this batch, if known. A recipe with a memory does not need them: there
            the pass that answers is the teacher's.
    """

    teacher: Teacher
    live: Signal | None = None

    @property
    def starts_from(self) -> Literal["pass", "none"]:  # noqa: D102
        return "none" if self.live is None else "pass"

    def check(self, recipe: Whole) -> None:  # noqa: D102
        if self.teacher not in recipe.update:
            raise ValueError(f"{self.teacher} answers, so it must be in `update` as well.")
        if self.live is None and recipe.memory is None:
            raise ValueError(
                "By(teacher) answers with the teacher's logits for the batch: pass them, "
                "`live=Taught(teacher)`."
            )

    def serving(self, step: Step) -> Serving:  # noqa: D102
        return Serving(self.teacher.values(step), self.teacher.layers(step))

    def __call__(self, step: Step, logits: Tensor) -> Tensor:  # noqa: D102
        if step.frozen or self.live is None:
            return logits
        return torch.as_tensor(step.ask(self.live))

"""Whether labels come in order, from predictions alone, and answers that are given only then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.parts.answers import Lame
from driftnorm.parts.contract import Answer, Signal, Step, check_counts, check_shares
from driftnorm.parts.losses import of_classes

Remembered: TypeAlias = Mapping[str, Any]


def neighbour_sums(last: Tensor, rows: Tensor) -> dict[str, Any]:
    """What the order is computed from: sums over new predictions and the pairs that they close.

    Args:
        last: The prediction before them, (1, K), or none, (0, K).
        rows: One per image, (N, K).
    """
    chain = torch.cat([last, rows])
    return {
        "pairs": (chain[1:] * chain[:-1]).sum(),
        "pair_count": float(len(chain) - 1),
        "squares": rows.square().sum(),
    }


def likeness(pairs: float, squares: float, mean_p: Tensor) -> float:
    """How alike neighbours are: 0 in random order, near 1 class by class.

    ``(mean p_i.p_{i+1} - |mean p|^2) / (mean |p_i|^2 - |mean p|^2)``. The predictions of a source
    that has collapsed onto few classes are all alike, neighbours no more than others: near 0.
    """
    apart = float(mean_p.square().sum())
    own = squares - apart
    return (pairs - apart) / own if own > 1e-6 else 0.0


@dataclass(frozen=True)
class LabelOrder(Signal):
    """How ordered the labels of recent images are, by the predictions of the pass at hand.

    ``(mean p_i.p_{i+1} - |mean p|^2) / (mean |p_i|^2 - |mean p|^2)``, all means over the images so
    far with weights that fall by ``1 - 1/memory`` per image: 0 where labels come in random order,
    near 1 where they come class by class. It sees nothing before a second class comes.

    Attributes:
        memory: Images over which it looks; a few hundred, or the onset of a drift may look ordered.
        enough: Images needed; until then it is 0.
    """

    memory: float = 256.0
    enough: int = 64

    def __post_init__(self) -> None:
        for name, least in (("memory", 1), ("enough", 0)):
            check_number(name, getattr(self, name), least=least, most=math.inf)

    def __call__(self, step: Step) -> float:  # noqa: D102
        known = step[self]
        if not step.frozen and len(step.logits):
            step[self] = known = self._counted(known, step.logits.detach())
        if known.get("images", 0.0) < self.enough or not known.get("pair_count", 0.0):
            return 0.0
        images = known["images"]
        pairs = float(known["pairs"]) / known["pair_count"]
        return likeness(pairs, float(known["squares"]) / images, known["p"] / images)

    def _counted(self, known: Remembered, logits: Tensor) -> dict[str, Any]:
        p = F.softmax(of_classes(logits), dim=1)
        rows = p.flatten(2).mean(dim=2) if p.dim() > 2 else p  # one for each image
        new = {
            "images": float(len(rows)),
            "p": rows.sum(dim=0),
            **neighbour_sums(known.get("last", rows[:0]), rows),
        }
        kept = (1 - 1 / self.memory) ** len(rows)
        sums = {name: value + kept * known.get(name, 0.0) for name, value in new.items()}
        return {**sums, "last": rows[-1:]}

    def judge(self, memory: Remembered) -> None:  # noqa: D102
        check_counts(memory, ("images", "pairs", "pair_count", "squares", "last"))
        check_shares(memory, "p")


@dataclass(frozen=True)
class Gated(Answer):
    """Another answer, as far as labels come in order, and no further.

    ``log p + g (log q - log p)``, normalised, with p the predictions so far and q those of ``of``;
    ``g = clip((order - low) / (high - low), 0, 1)``, with the order that `LabelOrder` found. Where
    labels come in random order g is 0, and nothing is touched.

    Attributes:
        of: An answer to a batch as a whole, such as `Lame` or `PriorCorrection`: they gain much
            where labels come in order and harm where they do not.
        order: How the order is found.
        low: Order up to which nothing happens; shuffled streams stay below 0.1.
        high: Order from which ``of`` answers alone.
    """

    of: Answer = field(default_factory=Lame)
    order: LabelOrder = field(default_factory=LabelOrder)
    low: float = 0.1
    high: float = 0.2

    per_batch: ClassVar[str | None] = "a gated answer is one to a batch as a whole, not one image"

    @property
    def lasting(self) -> bool:
        """Through the order."""
        return True

    def __post_init__(self) -> None:
        if not isinstance(self.of, Answer) or self.of.per_batch is None or self.of.lasting:
            raise ValueError(
                "`of` must be an answer to a batch as a whole that remembers nothing, such as "
                f"`Lame()` or `PriorCorrection()`, got {self.of!r}."
            )
        if not 0 <= self.low < self.high:
            raise ValueError(
                f"`low` must be at least 0 and below `high`, got {self.low} and {self.high}."
            )

    def __call__(self, step: Step, logits: Tensor) -> Tensor:  # noqa: D102
        gate = min(max((step.ask(self.order) - self.low) / (self.high - self.low), 0.0), 1.0)
        if gate == 0:
            return logits
        answer = self.of(step, logits)
        if gate == 1:
            return answer
        before, after = (F.log_softmax(each.float(), dim=1) for each in (logits, answer))
        return F.log_softmax(before + gate * (after - before), dim=1).to(logits.dtype)

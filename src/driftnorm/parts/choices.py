"""Several mixtures with the source side by side; weighted averages of them, without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.parts.contract import Answer, Cost, Forward, Serving, Statistics, Step, Whole
from driftnorm.parts.evidence import (
    Counted,
    coherence,
    counted,
    information,
    is_ordered,
    judge,
    spread_of,
)
from driftnorm.parts.statistics import Mixture, Window, counted_jumps, forgotten, of_theta


def mixed(theta: float | Literal["auto"], target: Statistics) -> Statistics:
    """The target's statistics mixed with the source; ``"auto"`` starts from the target alone."""
    if theta == "auto":
        return Mixture(1.0, target)
    return target if theta == 1 else Mixture(theta, target)


@dataclass(frozen=True)
class ThetaChoice(Answer):
    """Every theta keeps its own statistics; the more its predictions say, the more weight it has.

    The network's own pass uses the recipe's statistics. Every other theta is one more pass, as if
    it answered; 0 is the source, which never changes. For each, sums of predictions and entropies
    over recent images are kept, and ``J`` is their `information`. Two things are added to it, for
    labels that come in order: to the source's, ``trust (1 - H(mean p) / ln K)^2 (1 + 64 / n)``
    after n images, since a source that predicts few classes may be right, and least is known about
    it at the beginning; and to each, where neighbouring images are seen
    to be alike, ``order`` times the `coherence` of its predictions, since those that stay with a
    class are right then. The answer is the mean of the probabilities with weights ``exp(J / t)``.
    ``t`` is ``temperature`` where predictions are spread over all classes; where one of the thetas
    predicts few of them, ``t`` is near 0 and the best one answers alone, because every theta but 0
    is wrong when the labels shift.

    Attributes:
        thetas: Those beside the recipe's own.
        short: Images of one more window, with theta 1, that follows changes from batch to batch;
            0 turns it off.
        caution: How much more the certainty of predictions counts than their spread.
        memory: Images over which the certainty of predictions and the order are averaged.
        spread_memory: Images over which their spread is: longer, since images may come class by
            class.
        enough: Images needed for a choice; until then the source answers.
        trust: How much the source is favoured where it predicts few classes; at 0, not at all.
        order: How much coherence counts where labels come in order; at 0, not at all.
        forget: The share of the sum of entropies that survives a jump of the statistics.
        spread_forget: The share of the sum of predictions that does: the next class of sorted
            images may be taken for a jump.
        temperature: How far behind a theta may be and still have a third of the best one's weight.
        margin: A theta this far behind is only run now and then,
        every: namely once in this many batches, until the statistics jump.
    """

    thetas: tuple[float, ...] = (0.0, 0.2)
    short: float = 0.0
    caution: float = 3.0
    memory: float = 256.0
    spread_memory: float = 4000.0
    enough: int = 16
    trust: float = 0.2
    order: float = 2.0
    forget: float = 0.1
    spread_forget: float = 0.5
    temperature: float = 0.1
    margin: float = 0.2
    every: int = 8

    def __post_init__(self) -> None:
        known = all(isinstance(t, int | float) and 0 <= t <= 1 for t in self.thetas)
        if not known or len(set(self.thetas)) < len(self.thetas) or 0 not in self.thetas:
            raise ValueError(
                "`thetas` must be different numbers in [0, 1], 0 (the source) among them, got "
                f"{self.thetas}."
            )
        least_of = {"memory": 1, "spread_memory": 1, "enough": 0, "every": 1, "caution": 0}
        least_of |= {"trust": 0, "order": 0, "margin": 0, "temperature": 0}
        for name, least in least_of.items():
            check_number(name, getattr(self, name), least=least, most=math.inf)
        if self.short and not self.short >= 1:
            raise ValueError(f"`short` must be at least 1 image, or 0, got {self.short}.")
        for name in ("forget", "spread_forget"):
            check_number(name, getattr(self, name), least=0, most=1)

    @property
    def starts_from(self) -> Literal["pass"]:  # noqa: D102
        return "pass"

    @property
    def cost(self) -> Cost:
        """One more pass for every theta, at most."""
        return Cost(forwards=len(_names(self)), bound=True)

    def check(self, recipe: Whole) -> None:
        """It needs statistics with a theta to choose."""
        if not recipe.statistics.takes_theta:
            raise ValueError(
                f"{type(self).__name__} chooses theta, but {recipe.statistics} has none: use "
                "`Mixture` or `Window`."
            )
        if self.short and not isinstance(recipe.statistics, Window):
            raise ValueError(f"`short` needs `Window` statistics, got {recipe.statistics}.")

    def __call__(self, step: Step, logits: Tensor) -> Tensor:
        """The predictions of the thetas, weighted by what they said about recent images."""
        if step.frozen:
            return logits  # it is the best one's already: see `serving`
        known, jumps = step[self], counted_jumps(step.forward.proposed)
        jumped = jumps > known.get("jumps", 0)
        own = self._counted(known.get("own", {}), logits, jumped)
        others: dict[str, Counted] = {}
        answers = {"own": logits}
        names = ("own", *_names(self))
        worth = self._worth({name: known[name] for name in names if name in known})
        seen_images = known.get("seen", 0) + len(logits)
        turn = known.get("batch", 0) % self.every == 0 or seen_images < self.enough
        for name, theta in _names(self).items():
            behind = name in worth and max(worth.values()) - worth[name] > self.margin
            if behind and not jumped and not turn:
                others[name] = {key: held for key, held in known[name].items() if key != "last"}
                continue
            seen = self._asked(step, name, known.get(name, {}), jumped)
            answers[name] = seen.logits
            layers = {"layers": seen.proposed} if theta else {}
            others[name] = {**self._counted(known.get(name, {}), seen.logits, jumped), **layers}
        every = {"own": own, **others}
        weights = self._weights(every, answers)
        if seen_images < self.enough:
            weights = {name: float(_names(self).get(name) == 0) for name in answers}
        choice = names.index(max(weights, key=lambda name: weights[name]))
        counts = {"batch": known.get("batch", 0) + 1, "seen": seen_images, "jumps": jumps}
        step[self] = {**every, **counts, "choice": choice}
        return _average(answers, weights).to(logits.dtype)

    def _asked(self, step: Step, name: str, memory: Counted, jumped: bool) -> Forward:
        theta = _names(self)[name]
        if theta == 0:
            return step.run(step.x, mode="source")
        layers = memory.get("layers", of_theta(theta))
        if jumped:
            layers = forgotten(layers, self.forget)
        if name == _SHORT:
            layers = forgotten(layers, (1 - 1 / self.short) ** len(step.x))
        return step.run(step.x, values=step.values, mode="adapt", layers=layers)

    def _counted(self, memory: Counted, logits: Tensor, jumped: bool) -> dict[str, Any]:
        """The sums after some images; at a jump, some of the past is forgotten."""
        return counted(
            memory,
            logits,
            self.memory,
            self.forget if jumped else 1.0,
            spread_memory=self.spread_memory,
            spread_kept=self.spread_forget if jumped else 1.0,
        )

    def _worth(self, every: Mapping[str, Counted]) -> dict[str, float]:
        """``J`` of each, and what trust and coherence add to it."""
        gentle = every.get(_gentlest(self))
        weight = self.order * is_ordered(gentle) if gentle else 0.0
        return {
            name: information(_mean_p(counts), counts["entropy"] / counts["images"], self.caution)
            + weight * coherence(counts)
            + (self.trust * _doubt(counts) if _names(self).get(name) == 0 else 0.0)
            for name, counts in every.items()
        }

    def curve(self, memory: Mapping[str, Any], own: float) -> dict[float, float]:
        """What every theta that has been run over the whole window is worth, by theta.

        Args:
            memory: This part's, from an adapter's state.
            own: The theta of the recipe's statistics.
        """
        thetas = {"own": own, **{n: t for n, t in _names(self).items() if n != _SHORT}}
        worth = self._worth({name: memory[name] for name in thetas})
        return dict(sorted((theta, worth[name]) for name, theta in thetas.items()))

    def _weights(
        self, every: Mapping[str, Counted], asked: Mapping[str, Tensor]
    ) -> dict[str, float]:
        """Of each answer; they sum to 1."""
        spread = 1 - max(_unspread(every[name]) for name in asked)
        sharpness = max(self.temperature * spread**2, 1e-6)
        worth = {name: value for name, value in self._worth(every).items() if name in asked}
        best = max(worth.values())
        raw = {name: math.exp((value - best) / sharpness) for name, value in worth.items()}
        return {name: value / sum(raw.values()) for name, value in raw.items()}

    def serving(self, step: Step) -> Serving | None:
        """Whoever weighed most in the last answer."""
        choice = step[self].get("choice", 0)
        if choice == 0:
            return None
        name, theta = [*_names(self).items()][choice - 1]
        values = step.values if theta else step.start
        return Serving(values, step[self][name].get("layers", of_theta(theta)))

    def judge(self, memory: Mapping[str, Any]) -> None:
        """Counts and sums are never negative, and the choice is one of the thetas."""
        for name in ("own", *_names(self)):
            try:
                judge(memory.get(name, {}))
            except ValueError as error:
                raise ValueError(f"`{name}`: {error}") from error
        if not 0 <= memory.get("choice", 0) <= len(_names(self)):
            raise ValueError(f"`choice` must be from 0 to {len(_names(self))}.")


_SHORT = "short"
_BEGINNING = 64.0
"""Images after which the source is favoured twice as much as later."""


def _names(choice: ThetaChoice) -> dict[str, float]:
    """Names of the others' memories; a dot would split a name in the saved state."""
    long = {f"other{number}": theta for number, theta in enumerate(choice.thetas)}
    return {**long, _SHORT: 1.0} if choice.short else long


def _gentlest(choice: ThetaChoice) -> str:
    """Whose statistics are nearest to the source's, but not the source's."""
    adapted = {name: theta for name, theta in _names(choice).items() if theta and name != _SHORT}
    return min(adapted, key=lambda name: adapted[name], default="own")


def _mean_p(counts: Counted) -> Tensor:
    mean: Tensor = counts["p"] / counts["p_images"]
    return mean


def _unspread(counts: Counted) -> float:
    """``1 - H(mean p) / ln K``: 0 if predictions spread over all classes, 1 if they name one."""
    mean = _mean_p(counts)
    return 1 - spread_of(mean) / math.log(max(len(mean), 2))


def _doubt(counts: Counted) -> float:
    """Whether a source that predicts few classes has collapsed cannot be known yet."""
    return _unspread(counts) ** 2 * (1 + _BEGINNING / float(counts["p_images"]))


def _average(answers: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Logits of the mean probabilities; where one answers alone, its own."""
    if max(weights.values()) > 1 - 1e-6:
        return answers[max(weights, key=lambda name: weights[name])]
    shares = [weights[name] * F.softmax(each.float(), dim=1) for name, each in answers.items()]
    return torch.stack(shares).sum(dim=0).clamp(min=1e-12).log()

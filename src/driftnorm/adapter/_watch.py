"""Warnings (each given once) and alarms while a stream runs."""

from __future__ import annotations

from torch import Tensor

from driftnorm.adapter._checks import looks_unnormalized
from driftnorm.adapter.guard import Alarm, Evidence, Guard
from driftnorm.errors import warn
from driftnorm.functional import Moments
from driftnorm.parts.choices import ThetaChoice
from driftnorm.recipe import Recipe

__all__ = ["Watch"]

_ORDERED = 0.3  # shuffled streams stay below 0.1
_TINY = 8  # predictions; below this, statistics of the batch alone are mostly noise


class Watch:
    """Remembers which warnings were given; the guard's memory is in the adapter's state.

    Attributes:
        asked: The source's logits on the first images of the last batch, if it was run.
        guards: Whether there is anything to guard.
        adapts: Whether what enters the classifier can change.
    """

    def __init__(self, guard: Guard, recipe: Recipe, episodic: bool) -> None:
        self.guard = guard
        self.asked: Tensor | None = None
        self._recipe, self._episodic = recipe, episodic
        # Features that never change are the source's own: the comparison costs nothing.
        self.adapts = recipe.needs_backward or any(s.uses_batch for s in recipe.all_statistics)
        # A method that always compares itself with the source is its own guard.
        compares = any(isinstance(part, ThetaChoice) for part in recipe.answer)
        needed = self.adapts or recipe.order_dependent
        self.guards = needed and not episodic and not compares and guard.policy != "off"
        self._said: set[str] = set()
        self._before = 0

    def forget(self) -> None:
        """Allow every warning again."""
        self._said.clear()
        self._before = 0

    def say_once(self, kind: str, message: str) -> None:
        """Warn, once for each kind of warning."""
        if kind not in self._said:
            self._said.add(kind)
            warn(message)

    def look_at_episode(self, images: int, samples: int) -> None:
        """Warn if every batch starts anew and is too small to start with."""
        if not self._episodic:
            return
        statistics = self._recipe.statistics
        alone = statistics.keeps_history and not statistics.uses_source
        advice = "take 'bn-prior', which weighs each batch against the source"
        if samples == 1 and alone:
            self.say_once(
                "episode",
                "with `episodic=True` every batch starts anew, so the running statistics of a "
                f"batch of 1 are those of one image: {advice}.",
            )
        enough = max(
            (p.enough for p in self._recipe.answer if isinstance(p, ThetaChoice)), default=0
        )
        if images < enough and self._before < enough:  # not just a loader's last batch
            self.say_once(
                "episode",
                f"with `episodic=True` every batch starts anew, and the source answers until "
                f"{enough} images were seen: batches of {images} are not adapted to; {advice}.",
            )

    def look_at_size(self, samples: int) -> None:
        """Warn about batches of few predictions, unless it is one after larger ones.

        That is how a data loader ends.
        """
        ends, self._before = self._before >= _TINY, samples
        if samples < _TINY and not ends and self._recipe.statistics.trusts_one_batch:
            self.say_once(
                "tiny batch",
                f"statistics of a batch of {samples} are mostly noise: use larger batches, "
                "'steady' or 'bn-window'; where nothing may be carried from batch to batch, "
                "'bn-prior'.",
            )

    def look_at_order(self, found: Evidence) -> None:
        """Warn if the stream seems to be ordered by class."""
        ordered = found.order > _ORDERED and found.images >= self.guard.enough
        if ordered and self._recipe.order_dependent:
            self.say_once(
                "class order",
                f"the stream looks ordered by class (neighbours are alike by {found.order:.2f} "
                "of 1): shuffle it, or take 'steady', which notices.",
            )

    def look_at_first(self, x: Tensor, seen: Moments | None, source: Moments | None) -> None:
        """Warn if the first batch does not seem to be normalised."""
        why = looks_unnormalized(x, seen, source)
        if why:
            self.say_once("normalisation", f"the input looks un-normalised: {why}.")

    def look_at_logits(self, logits: Tensor) -> None:
        """Warn if the network seems to return probabilities instead of logits."""
        if logits.shape[1] < 2 or bool((logits < 0).any()):
            return
        if bool(((logits.sum(dim=1) - 1).abs() < 1e-3).all()):
            self.say_once(
                "probabilities",
                "the network's outputs are all >= 0 and sum to 1, as probabilities do, but logits "
                "are needed: adapt it without its softmax.",
            )

    def tell(self, alarm: Alarm) -> None:
        """Warn of an alarm, and say what is done about it."""
        done = {
            "warn": "`guard='reset'` or 'freeze' would go back to the source",
            "reset": "the adapter starts again from the source",
            "freeze": "the source answers for a while, then the adapter tries again",
        }[self.guard.policy]
        warn(f"adaptation seems to do harm after {alarm.batch} batches: {alarm.reason}. {done}.")

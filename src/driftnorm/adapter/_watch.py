"""What an adapter says about a stream while it runs: warnings, once each, and alarms."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from driftnorm.adapter._checks import looks_unnormalized
from driftnorm.adapter.guard import Finding, Guard, GuardState, Signals, read_signals
from driftnorm.errors import warn
from driftnorm.functional import Moments
from driftnorm.recipe import Recipe

__all__ = ["Watch"]

_TINY = 8  # images; below this, statistics of the batch alone are mostly noise


class Watch:
    """Holds what was said already; what the guard remembers is in the adapter's state.

    Attributes:
        asked: The source's logits on the first images of the last batch, if they were asked for.
    """

    def __init__(self, guard: Guard, recipe: Recipe, episodic: bool) -> None:
        self.guard = guard
        self.asked: Tensor | None = None
        self._recipe = recipe
        # Without memory, or with features that never change, there is nothing to go wrong.
        adapts = recipe.needs_backward or any(s.uses_batch for s in recipe.all_statistics)
        self._guards = adapts and not episodic
        self._said: set[str] = set()
        self._jumps = 0

    def forget(self) -> None:
        """As if nothing had been said yet."""
        self._said.clear()
        self._jumps = 0

    def say_once(self, kind: str, message: str) -> None:
        """Warn, unless something of this kind was said before."""
        if kind not in self._said:
            self._said.add(kind)
            warn(message)

    def look(self, x: Tensor, signals: Signals, known: GuardState) -> None:
        """Warn about a batch that makes results silently wrong."""
        if len(x) < _TINY and self._recipe.statistics.trusts_one_batch:
            self.say_once(
                "tiny batch",
                f"statistics of a batch of {len(x)} are mostly noise: use larger batches or "
                "'bn-window'; where nothing may be carried from batch to batch, 'bn-prior'.",
            )
        if self.guard.ordered(signals, known.marginal, known.batches):
            self._jumps += 1
        if self._recipe.order_dependent and self._jumps > 1:  # once may be chance
            self.say_once(
                "class order",
                "the predicted classes changed abruptly between batches: if the stream is ordered "
                "by class, shuffle it, or adapt less (smaller `theta`, guard='freeze').",
            )

    def look_at_first(self, x: Tensor, seen: Moments | None, source: Moments | None) -> None:
        """Warn if the first batch seems to have missed the network's normalisation."""
        why = looks_unnormalized(x, seen, source)
        if why:
            self.say_once("normalisation", f"the input looks un-normalised: {why}.")

    def look_at_logits(self, logits: Tensor) -> None:
        """Warn if the network seems to give probabilities, of which a softmax makes nonsense."""
        if logits.shape[1] < 2 or bool((logits < 0).any()):
            return
        if bool(((logits.sum(dim=1) - 1).abs() < 1e-3).all()):
            self.say_once(
                "probabilities",
                "the network's outputs are all >= 0 and sum to 1, as probabilities do, but logits "
                "are needed: adapt it without its softmax.",
            )

    def audit(
        self,
        known: GuardState,
        logits: Tensor,
        signals: Signals,
        ask_source: Callable[[int], Tensor],
        moved: float,
    ) -> tuple[Finding, Finding, GuardState]:
        """Ask the source about some images of this batch, if the guard wants to.

        Args:
            known: What the guard remembers.
            logits: The adapted network's.
            signals: What they look like.
            ask_source: The source's logits on about this many of the batch's first images.
            moved: How far the trained parameters are from the source.

        Returns:
            What was found, what the adapter must act on, and what the guard remembers now.
        """
        fine, learns, self.asked = Finding("fine"), self._recipe.needs_backward, None
        if not self._guards or not self.guard.wants_audit(known, signals, moved, learns):
            return fine, fine, known
        answer = self.asked = ask_source(self.guard.images)
        source, adapted = read_signals(answer), read_signals(logits[: len(answer)])
        found = self.guard.finding(known, adapted, source, moved)
        acts = self.guard.policy != "warn"
        known = known.audited(source, held=acts and found.kind == "doubt")
        if acts:
            return found, found, known
        if found.kind == "harm":
            self.say_once(
                "harm",
                f"adaptation may be doing harm: {found.why}. `guard='reset'` or 'freeze' would "
                f"go back to the source.",
            )
        return found, fine, known

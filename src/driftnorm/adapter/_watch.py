"""Warnings (each given once) and alarms while a stream runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from driftnorm._internal.counts import agreeing, counted
from driftnorm.adapter._checks import looks_multi_label, looks_unnormalized, normalizes_input
from driftnorm.adapter._network import Call, ConvertedNetwork
from driftnorm.adapter._pass import Pass
from driftnorm.adapter._step import Draft, Setting
from driftnorm.adapter.guard import Alarm, Evidence, Guard
from driftnorm.errors import warn
from driftnorm.parts.choices import ThetaChoice
from driftnorm.parts.contract import Forward, Values
from driftnorm.parts.statistics import tracked_moments
from driftnorm.recipe import Recipe

GUARD = "guard"  # its entry among the parts' memories
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

    # ------------------------------------------------------------------ warnings

    def look(self, draft: Draft, x: Tensor, forward: Forward, setting: Setting) -> None:
        """Warn about a batch that makes results silently wrong."""
        # Of dense predictions, one image holds as many as it has positions.
        samples = forward.logits.numel() // forward.logits.shape[1]
        self._look_at_episode(len(forward.logits), samples)
        self._look_at_size(samples)
        if draft.batches == 0:
            self._look_at_logits(forward.logits)
            self._look_at_first(draft, x, setting)

    def _look_at_size(self, samples: int) -> None:
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

    def _look_at_episode(self, images: int, samples: int) -> None:
        """Warn if every batch starts anew and is too small to start with."""
        if not self._episodic:
            return
        statistics = self._recipe.statistics
        alone = statistics.keeps_history and not statistics.uses_source
        advice = "use 'bn-prior', which weighs each batch against the source"
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
                "with `episodic=True` every batch starts anew, and the source answers until "
                f"{counted(enough, 'image')} {agreeing(enough, 'has', 'have')} been seen: batches "
                f"of {images} are not adapted to; "
                f"{advice}.",
            )

    def _look_at_first(self, draft: Draft, x: Tensor, setting: Setting) -> None:
        """Warn if the first batch does not seem to be normalised."""
        if not setting.order or normalizes_input(setting.network.network):
            return
        first = setting.order[0]
        seen = tracked_moments(draft.layers.get(first, {}))
        why = looks_unnormalized(x, seen, setting.network.layers[first].source)
        if why:
            self.say_once("normalisation", f"the input looks un-normalised: {why}.")

    def _look_at_logits(self, logits: Tensor) -> None:
        """Warn if the network seems to return probabilities, of one label or several."""
        if looks_multi_label(logits):
            self.say_once(
                "multi-label",
                "the network's outputs all lie between 0 and 1 without adding up to 1, as "
                "sigmoids of several labels do, but logits of classes that exclude each other "
                "are needed: adapt it without its sigmoid; for several labels per image, use "
                "a method that reads no logits, such as 'bn' or 'bn-prior'.",
            )
        if logits.shape[1] < 2 or bool((logits < 0).any()):
            return
        if bool(((logits.sum(dim=1) - 1).abs() < 1e-3).all()):
            self.say_once(
                "probabilities",
                "the network's outputs are all >= 0 and sum to 1, as probabilities do, but logits "
                "are needed: adapt it without its softmax.",
            )

    # ------------------------------------------------------------------ the guard

    def audit(self, draft: Draft, call: Call, forward: Forward, setting: Setting) -> Alarm | None:
        """Run the source on some images when that is due; returns an alarm to act on."""
        known = dict(draft.parts.get(GUARD, {}))
        known["since"] = known.get("since", 0) + len(call.x)
        known = self._compared(known, call, forward, setting.network)
        moved = distance_moved(draft.values, setting.start)
        alarm = None
        if self.asked is not None or moved > self.guard.distance:
            alarm = self.guard.alarm(known, moved)
            known = self._noted(known, alarm)
        known["served"] = known.get("served", 0) + 1
        draft.parts = {**draft.parts, GUARD: known}
        return alarm if self.guard.policy != "warn" else None

    def _compared(
        self, known: Mapping[str, Any], call: Call, forward: Forward, network: ConvertedNetwork
    ) -> dict[str, Any]:
        """What the guard knows after the source has seen as many images as are due."""
        # Where the features never change the comparison is free.
        free = (len(call.x), 0.0)
        due, owed = self.guard.due(known, len(call.x)) if self.adapts else free
        known, self.asked = {**known, "owed": owed}, None
        if not due:
            return known
        self.asked = forward.logits[:due]
        if self.adapts:
            self.asked = network.run(call.first(due), Pass("source", {}), hidden=True).logits
        known = self.guard.counted(known, forward.logits[: len(self.asked)], self.asked)
        found = self.guard.evidence(known)
        assert found is not None
        self._look_at_order(found)
        return known

    def _noted(self, known: Mapping[str, Any], alarm: Alarm | None) -> dict[str, Any]:
        """What the guard knows after its judgement. While it only warns, once for each harm."""
        acts, begins = self.guard.policy != "warn", not known.get("harmful", False)
        if alarm is None:
            return {**known, "harmful": False}
        if acts or begins:
            self._tell(alarm)
        alarms = known.get("alarms", ())
        if begins and not acts:
            alarms = (*alarms, alarm._asdict())
        return {**known, "harmful": True, "alarms": alarms}

    def _look_at_order(self, found: Evidence) -> None:
        """Warn if the stream seems to be ordered by class."""
        ordered = found.order > _ORDERED and found.images >= self.guard.enough
        if ordered and self._recipe.order_dependent:
            self.say_once(
                "class order",
                f"the stream looks ordered by class (similarity of neighbours {found.order:.2f}, "
                "at most 1): shuffle it, or use 'steady', which detects this.",
            )

    def _tell(self, alarm: Alarm) -> None:
        """Warn about an alarm, and say what is done about it."""
        done = {
            "warn": "With `guard='reset'` or 'freeze', the adapter would go back to the source",
            "reset": "The adapter starts again from the source",
            "freeze": "The source answers for a while, then the adapter tries again",
        }[self.guard.policy]
        warn(f"adaptation seems to do harm, in batch {alarm.batch + 1:,}: {alarm.reason}. {done}.")


@torch.no_grad()
def distance_moved(values: Values, start: Values) -> float:
    """How far the trained parameters are from the source, as a share of their norm."""
    if not values:
        return 0.0
    moved = [(value - start[name]).float().norm() for name, value in values.items()]
    length = [value.float().norm() for value in start.values()]
    return float(torch.stack(moved).norm() / torch.stack(length).norm().clamp(min=1e-12))

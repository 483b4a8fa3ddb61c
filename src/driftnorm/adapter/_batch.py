"""One batch: its passes and steps, its answer, and what is checked before the commit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from driftnorm.adapter._network import Call
from driftnorm.adapter._outputs import replaced
from driftnorm.adapter._step import Draft, LiveStep, Refused, Setting, learn
from driftnorm.adapter._tree import new_tensors
from driftnorm.functional import is_finite
from driftnorm.parts.contract import Lesson, Memory, Serving, Verdict
from driftnorm.recipe import Recipe


class Stopped(Exception):
    """A review undoes the batch; the source answers it."""

    def __init__(self, verdict: Verdict, parts: Mapping[str, Any]) -> None:
        super().__init__(verdict.reason)
        self.verdict, self.parts = verdict, parts


def serving(recipe: Recipe, step: LiveStep) -> Serving:
    """Whose parameters and statistics answer: the last part that names someone decides."""
    named = [s for part in recipe.answer if (s := part.serving(step)) is not None]
    return named[-1] if named else Serving(step.values)


def experience(setting: Setting, draft: Draft, call: Call) -> LiveStep:
    """The passes and steps of a batch; returns the step whose pass answers it."""
    recipe = setting.recipe
    if recipe.loss is None:
        step = LiveStep(setting, draft, call)
        draft.layers = step.look("adapt").proposed
        return step
    if recipe.memory is None:
        step = learn(setting, draft, call, Lesson(call.x))
    else:
        step = LiveStep(setting, draft, call)
        step.look("settled", serving=serving(recipe, step))
        _refuse_companions(recipe.memory, call)
        for number, lesson in enumerate(recipe.memory(step, call.x)):
            before = number * recipe.steps
            step.loss = learn(setting, draft, call, lesson, before=before, hidden=True).loss
    if recipe.predict == "before":
        return step
    after = LiveStep(setting, draft, call, index=recipe.steps, known=step._known)
    after.loss = step.loss
    if recipe.memory is None:
        draft.layers = after.look("adapt").proposed
    else:
        after.look("settled", serving=serving(recipe, after))
    return after


def _refuse_companions(memory: Memory, call: Call) -> None:
    """A memory mixes images of several batches, so other tensors of a call do not match."""
    if any(isinstance(leaf, Tensor) for leaf in tree_leaves((call.args, dict(call.kwargs)))):
        raise ValueError(
            f"{type(memory).__name__} keeps images of earlier batches, but the network takes "
            "further tensors with each batch: choose a method without a memory."
        )


def answer_of(recipe: Recipe, step: LiveStep) -> Any:
    """What the caller gets: the network's output, with the logits that parts have made."""
    forward = step.forward
    if not recipe.answer:
        return forward.output
    logits = forward.logits
    with torch.no_grad():
        for part in recipe.answer:
            logits = part(step, logits)
    if not step.frozen and not is_finite([logits]):
        raise Refused("the answer is not finite")
    return replaced(forward.output, forward.logits, logits)


def check_draft(draft: Draft, begun: Mapping[str, Any]) -> None:
    """Nothing that is kept may be NaN or infinite."""
    if not is_finite(new_tensors(draft.layers, begun.get("layers", {}))):
        raise Refused("the batch makes the statistics of a layer non-finite")
    memories = new_tensors(draft.parts, begun.get("parts", {}))
    if not is_finite([t for t in memories if t.is_floating_point()]):
        raise Refused("the batch makes the memory of a part non-finite")


def kept_parts(recipe: Recipe, draft: Draft, *others: str) -> dict[str, Any]:
    """The memories that survive a restart which a review asks for."""
    staying = {recipe.names[part] for part in recipe.parts if part.stays}
    return {name: memory for name, memory in draft.parts.items() if name in staying.union(others)}


@torch.no_grad()
def review(recipe: Recipe, step: LiveStep, draft: Draft) -> Verdict:
    """What the recipe's reviews ask for together; one that undoes the batch ends it."""
    if not recipe.review:
        return Verdict()
    verdicts: list[Verdict] = []
    proposed = step.reviewed()
    for part in recipe.review:
        asked = part(proposed) or Verdict()
        if asked.undo:
            raise Stopped(asked, kept_parts(recipe, draft))
        verdicts.append(asked)
    return Verdict(
        restart=any(v.restart for v in verdicts),
        keep=next((v.keep for v in verdicts if v.keep is not None), None),
        freeze=any(v.freeze for v in verdicts),
        reason="; ".join(v.reason for v in verdicts if v.reason),
    )

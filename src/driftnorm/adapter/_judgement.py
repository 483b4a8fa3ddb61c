"""Whether a saved state can belong to an adapter: judged as a whole, before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from driftnorm.adapter import _saving as saving
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._step import Draft
from driftnorm.adapter.guard import Guard
from driftnorm.parts.contract import SHARED, THETA
from driftnorm.recipe import Recipe, readable

__all__ = ["GUARD", "judge_state"]

GUARD = "guard"
"""The guard's entry among the parts' memories."""


def judge_state(
    trees: Mapping[str, Any],
    recipe: Recipe,
    layers: Mapping[str, AdaptiveBatchNorm],
    shapes: Mapping[str, torch.Size],
) -> None:
    """Raise ``ValueError``, which names the entry, if a state cannot belong to an adapter.

    Args:
        trees: What was saved: ``state`` and ``fitted``.
        recipe: The adapter's.
        layers: Its batch-norm layers by name.
        shapes: Those of the parameters that it trains.
    """
    tree, judge = trees["state"], _Judge(recipe, layers, shapes)
    saving.check_names("has the entry", tree, vars(Draft()))
    judge.memories(tree.get("parts", {}))
    judge.values("values", tree.get("values", {}))
    judge.layers("layers", tree.get("layers", {}))
    for name, memory in trees["fitted"].items():
        with saving.about(f"fitted/{name}"):
            judge.part(name, memory)


@dataclass(frozen=True)
class _Judge:
    recipe: Recipe
    known: Mapping[str, AdaptiveBatchNorm]
    shapes: Mapping[str, torch.Size]

    def memories(self, memories: Mapping[str, Any]) -> None:
        """Those of the parts and of the guard."""
        names = [*self.recipe.names.values(), GUARD]
        saving.check_names("has the memory of", memories, names)
        for name, memory in memories.items():
            with saving.about(f"parts/{name}"):
                self.part(name, memory)
            self.inside(f"parts/{name}/", memory)

    def part(self, name: str, memory: Mapping[str, Any]) -> None:
        """What a part itself knows about its numbers."""
        if name == GUARD:
            Guard.judge(memory)
        for part, own in self.recipe.names.items():
            if own == name:
                part.judge(memory)

    def inside(self, place: str, memory: Mapping[str, Any]) -> None:
        """Parameters and layers' memories that parts keep, as teachers do."""
        for name, value in memory.items():
            if not isinstance(value, Mapping):
                continue
            # A part of one's own may call other things by these names.
            if name == "values" and not self.shapes.keys().isdisjoint(value):
                self.values(f"{place}{name}", value)
            elif name == "layers" and not {*self.known, SHARED}.isdisjoint(value):
                self.layers(f"{place}{name}", value)
            else:
                self.inside(f"{place}{name}/", value)

    def values(self, place: str, values: Mapping[str, Any]) -> None:
        """Parameters have the shapes of those that are trained."""
        saving.check_names("trains", values, self.shapes)
        for name, value in values.items():
            saving.check_shape(f"{place}/{name}", value, self.shapes[name])

    def layers(self, place: str, layers: Mapping[str, Any]) -> None:
        """Statistics fit their layers."""
        saving.check_names("has the statistics of", layers, [*self.known, SHARED])
        for name, layer in self.known.items():
            with saving.about(f"{place}/{name}"):
                memory = layers.get(name, {})
                for key, value in memory.items():
                    if isinstance(value, Tensor) and value.dim() == 1:
                        saving.check_shape(key, value, torch.Size([layer.num_features]))
                layer.statistics.judge(memory)
        shared = layers.get(SHARED, {})
        if not 0 <= shared.get(THETA, 0.0) <= 1:
            raise ValueError(
                f"the state is damaged: `{place}/{THETA}` must be in [0, 1], got {shared[THETA]}."
            )
        for statistics in self.recipe.all_statistics:
            with saving.about(f"{place}/{readable(statistics)}"):
                statistics.judge(shared.get(readable(statistics), {}))

"""Whether a saved state can belong to this adapter; asked before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from driftnorm._internal.counts import counted
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._saved_state import PREFIX, check_entry, has_numbers
from driftnorm.adapter._step import Draft
from driftnorm.adapter._watch import GUARD
from driftnorm.adapter.guard import Guard
from driftnorm.parts.contract import SHARED, THETA
from driftnorm.recipe import Recipe, readable


def check_network(given: Mapping[str, Any], own: Mapping[str, Tensor]) -> None:
    """Raise if the network's part of a state belongs to another network or is damaged."""
    network = {k: v for k, v in given.items() if not k.startswith(PREFIX)}
    expected = {k: v for k, v in own.items() if not k.startswith(PREFIX)}
    if len(network) == len(given):
        return  # not an adapter's state: `read_about` raises
    for what, names in (
        ("lacks", expected.keys() - network.keys()),
        ("has unexpected", network.keys() - expected.keys()),
    ):
        if names:
            raise ValueError(
                f"the state is of another network, or incomplete: it {what} "
                f"{counted(len(names), 'entry')}, such as `{min(names)}`."
            )
    for key, value in expected.items():
        if network[key].shape != value.shape:
            raise ValueError(
                f"the state is of another network: `{key}` has shape {tuple(network[key].shape)}, "
                f"expected {tuple(value.shape)}."
            )
        if has_numbers(value):  # a mask of the network's own may be infinite
            check_entry(key, network[key])
        if key.endswith(("source_var", "running_var")) and bool((network[key] < 0).any()):
            raise ValueError(f"the state is damaged: `{key}` is a variance and must be >= 0.")


def check_state(
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
    _check_names("has the entry", tree, vars(Draft()))
    judge.memories(tree.get("parts", {}))
    judge.values("values", tree.get("values", {}))
    judge.layers("layers", tree.get("layers", {}))
    for name, memory in trees["fitted"].items():
        with _naming(f"fitted/{name}"):
            judge.part(name, memory)


@dataclass(frozen=True)
class _Judge:
    recipe: Recipe
    known: Mapping[str, AdaptiveBatchNorm]
    shapes: Mapping[str, torch.Size]

    def memories(self, memories: Mapping[str, Any]) -> None:
        """Those of the parts and of the guard."""
        names = [*self.recipe.names.values(), GUARD]
        _check_names("has the memory of", memories, names)
        for name, memory in memories.items():
            with _naming(f"parts/{name}"):
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
            # A user's own part may call other things by these names.
            if name == "values" and not self.shapes.keys().isdisjoint(value):
                self.values(f"{place}{name}", value)
            elif name == "layers" and not {*self.known, SHARED}.isdisjoint(value):
                self.layers(f"{place}{name}", value)
            else:
                self.inside(f"{place}{name}/", value)

    def values(self, place: str, values: Mapping[str, Any]) -> None:
        """Parameters have the shapes of those that are trained."""
        _check_names("trains", values, self.shapes)
        for name, value in values.items():
            _check_shape(f"{place}/{name}", value, self.shapes[name])

    def layers(self, place: str, layers: Mapping[str, Any]) -> None:
        """Statistics fit their layers."""
        _check_names("has the statistics of", layers, [*self.known, SHARED])
        for name, layer in self.known.items():
            with _naming(f"{place}/{name}"):
                memory = layers.get(name, {})
                for key, value in memory.items():
                    if isinstance(value, Tensor) and value.dim() == 1:
                        _check_shape(key, value, torch.Size([layer.num_features]))
                layer.statistics.judge(memory)
        shared = layers.get(SHARED, {})
        if not 0 <= shared.get(THETA, 0.0) <= 1:
            raise ValueError(
                f"the state is damaged: `{place}/{THETA}` must be in [0, 1], got {shared[THETA]}."
            )
        for statistics in self.recipe.all_statistics:
            with _naming(f"{place}/{readable(statistics)}"):
                statistics.judge(shared.get(readable(statistics), {}))


def _check_names(what: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise if a state has entries for something that this adapter lacks."""
    unknown = set(given) - set(known)
    if unknown:
        raise ValueError(
            f"this state {what} `{min(unknown)}`, which the adapter does not: its recipe "
            "selects other layers or parameters, or has other parts."
        )


def _check_shape(key: str, value: Tensor, shape: torch.Size) -> None:
    """Raise if a tensor cannot belong to this network."""
    if value.shape != shape:
        raise ValueError(
            f"the state is damaged: `{key}` has shape {tuple(value.shape)}, expected "
            f"{tuple(shape)}."
        )


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Add the name of the entry to errors about its values."""
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"the state is damaged: `{key}`: {error}") from error

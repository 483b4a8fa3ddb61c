"""Whether a saved state can belong to this adapter; asked before anything changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._saving import PREFIX, check_entry, has_numbers
from driftnorm.adapter._step import Draft
from driftnorm.adapter._watch import GUARD
from driftnorm.adapter.guard import Guard
from driftnorm.parts.contract import SHARED, Values
from driftnorm.recipe import Recipe, readable

__all__ = ["check_network", "check_tree"]


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
                f"the state is of another network, or incomplete: it {what} {len(names)} entries, "
                f"such as `{min(names)}`."
            )
    for key, value in expected.items():
        if network[key].shape != value.shape:
            raise ValueError(
                f"the state is of another network: `{key}` has shape {tuple(network[key].shape)}, "
                f"expected {tuple(value.shape)}."
            )
        if has_numbers(value):  # a mask of the network's own may be infinite
            check_entry(key, network[key])


def check_tree(
    tree: Mapping[str, Any],
    recipe: Recipe,
    layers: Mapping[str, AdaptiveBatchNorm],
    start: Values,
) -> None:
    """Raise if a state cannot belong to an adapter with this recipe on this network."""
    parts = {name: part for part, name in recipe.names.items()}
    values, moments = tree.get("values", {}), tree.get("layers", {})
    memories = tree.get("parts", {})
    _check_names("has the entry", tree, vars(Draft()))
    _check_names("trains", values, start)
    _check_names("has the statistics of", moments, [*layers, SHARED])
    _check_names("has the memory of", memories, [*parts, GUARD])
    for name, value in values.items():
        _check_shape(f"values/{name}", value, start[name].shape)
    for name, memory in memories.items():
        with _naming(f"parts/{name}"):
            (Guard if name == GUARD else parts[name]).judge(memory)
    for name, layer in layers.items():
        with _naming(f"layers/{name}"):
            memory = moments.get(name, {})
            for key, value in memory.items():
                if isinstance(value, Tensor) and value.dim() == 1:
                    _check_shape(key, value, torch.Size([layer.num_features]))
            layer.statistics.judge(memory)
    for name, shared in moments.get(SHARED, {}).items():
        for statistics in recipe.all_statistics:
            if readable(statistics) == name:
                with _naming(f"layers/{name}"):
                    statistics.judge(shared)


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

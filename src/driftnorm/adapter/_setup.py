"""Turn a recipe into choices for one network: layer by layer, parameter by parameter."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._learner import Learner
from driftnorm.adapter._probe import Layout
from driftnorm.adapter._surgery import describe_norms
from driftnorm.errors import NoBatchNormError
from driftnorm.heads import HeadState
from driftnorm.recipe import OPTIMIZERS, Recipe, readable
from driftnorm.selection import select
from driftnorm.statistics import Source

__all__ = ["assign_statistics", "build_learner", "check_batch_norm", "start_head"]


def assign_statistics(
    layers: Mapping[str, AdaptiveBatchNorm], recipe: Recipe, layout: Layout
) -> set[str]:
    """Give every layer its statistics and gradient path; returns the layers that take part."""
    chosen = select(recipe.only, layout.order) if layers else set()
    if layers and not chosen:
        raise ValueError(
            f"`only` must select at least one of the {len(layers)} batch-norm layers, but "
            f"{readable(recipe.only)} selects none of them; they begin with `{layout.order[0]}`."
        )
    for name in layout.order:
        layers[name].gradient = recipe.gradient
        layers[name].statistics = recipe.statistics if name in chosen else Source()
    for selector, statistics in recipe.per_layer:
        for name in select(selector, layout.order):
            layers[name].statistics = statistics
    return chosen


def build_learner(
    network: nn.Module, recipe: Recipe, layout: Layout, chosen: set[str]
) -> Learner | None:
    """The parameters that the recipe trains, with their optimiser; ``None`` if it trains none."""
    if recipe.objective is None:
        return None
    parameters = _trainable(dict(network.named_parameters()), recipe, layout, chosen)
    if not parameters:
        raise ValueError(
            f"`trainable={recipe.trainable!r}` selects no parameter of {type(network).__name__}: "
            f"there is nothing to optimise."
        )
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    choice = recipe.optimizer
    build = OPTIMIZERS[choice] if isinstance(choice, str) else choice
    return Learner(parameters, build(list(parameters.values()), recipe.lr, recipe.weight_decay))


def _trainable(
    named: dict[str, nn.Parameter], recipe: Recipe, layout: Layout, chosen: set[str]
) -> dict[str, nn.Parameter]:
    if recipe.trainable == "affine":
        wanted = [
            f"{name}.{part}"
            for name in layout.order
            if name in chosen
            for part in ("weight", "bias")
        ]
        return {name: named[name] for name in wanted if name in named}
    if recipe.trainable in ("features", "classifier"):
        # The network itself may be the classifier; then its name is empty.
        prefix = f"{layout.classifier}." if layout.classifier else ""
        inside = recipe.trainable == "classifier"
        return {name: p for name, p in named.items() if name.startswith(prefix) == inside}
    return named


def start_head(network: nn.Module, recipe: Recipe, layout: Layout) -> HeadState | None:
    """The head's state before any batch, or ``None`` if the linear classifier answers."""
    if recipe.head is None or layout.classifier is None:
        return None
    linear = network.get_submodule(layout.classifier)
    if not isinstance(linear, nn.Linear):
        raise TypeError(
            f"{type(recipe.head).__name__} needs a linear classifier, but "
            f"`{layout.classifier}` is a {type(linear).__name__}."
        )
    return recipe.head.start(linear.weight.detach(), _detached(linear.bias))


def _detached(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()


def check_batch_norm(
    network: nn.Module, layers: Mapping[str, AdaptiveBatchNorm], recipe: Recipe, method: str
) -> None:
    """Raise if the network lacks the batch-norm layers or statistics that the recipe needs."""
    if recipe.needs_batch_norm and not layers:
        raise NoBatchNormError(
            f"`adapt` found no batch-norm layer in {type(network).__name__}, and {method!r} adapts "
            f"those. Normalisation layers it has: {describe_norms(network)}. Methods that work "
            f"without batch norm: t3a, rt3a, pl, pl-c, shot, shot-im."
        )
    without = [name for name, layer in layers.items() if layer.source is None]
    if recipe.needs_source_statistics and without and recipe.only is None:
        raise ValueError(
            f"{method!r} needs the source statistics, but {len(without)} layers keep none "
            f"(track_running_stats=False), the first is `{without[0]}`. Choose a method with batch "
            f"or running statistics, such as 'bn', 'tent' or 'gprebn'."
        )

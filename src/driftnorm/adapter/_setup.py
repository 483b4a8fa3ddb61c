"""Turn a recipe into choices for one network: layer by layer, parameter by parameter."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from driftnorm._internal.counts import agreeing, counted
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._network import ConvertedNetwork
from driftnorm.adapter._probe import Layout
from driftnorm.adapter._surgery import describe_norms
from driftnorm.errors import NoBatchNormError
from driftnorm.functional import statistics_dtype
from driftnorm.methods import methods_without_batch_norm
from driftnorm.parts.layers import select
from driftnorm.parts.statistics import Source
from driftnorm.recipe import Recipe, readable


def assign_statistics(
    layers: Mapping[str, AdaptiveBatchNorm], recipe: Recipe, layout: Layout
) -> set[str]:
    """Give every layer its statistics and gradient path; returns the layers that take part."""
    chosen = select(recipe.only, layout.order) if layers else set()
    if layers and not chosen:
        raise ValueError(
            f"`only` must select at least one of the {counted(len(layers), 'batch-norm layer')}, "
            f"but {readable(recipe.only)} selects none of them; they begin with "
            f"`{layout.order[0]}`."
        )
    for name in layout.order:
        layers[name].gradient = recipe.gradient
        layers[name].statistics = recipe.statistics if name in chosen else Source()
    for selector, statistics in recipe.per_layer:
        for name in select(selector, layout.order):
            layers[name].statistics = statistics
    return chosen


def trained_names(
    network: nn.Module, recipe: Recipe, layout: Layout, chosen: set[str]
) -> tuple[str, ...]:
    """The parameters that the recipe trains; none if it has no loss."""
    if recipe.loss is None:
        return ()
    names = tuple(_trainable(dict(network.named_parameters()), recipe, layout, chosen))
    if not names:
        affine_free = recipe.trainable == "affine" and recipe.only is None
        advice = " Methods that only change statistics do not need any: 'bn', 'bn-window'."
        raise ValueError(
            f"`trainable={recipe.trainable!r}` selects no parameter of {type(network).__name__}: "
            f"there is nothing to optimise.{advice if affine_free else ''}"
        )
    return names


def _trainable(
    named: Mapping[str, nn.Parameter], recipe: Recipe, layout: Layout, chosen: set[str]
) -> list[str]:
    if recipe.trainable == "affine":
        wanted = [
            f"{name}.{part}"
            for name in layout.order
            if name in chosen
            for part in ("weight", "bias")
        ]
        return [name for name in wanted if name in named]
    left_out = {f"{n}.{p}" for n in layout.order if n not in chosen for p in ("weight", "bias")}
    if recipe.trainable in ("features", "classifier"):
        # The network itself may be the classifier; then its name is empty.
        prefix = f"{layout.classifier}." if layout.classifier else ""
        inside = recipe.trainable == "classifier"
        return [n for n in named if n not in left_out and n.startswith(prefix) == inside]
    return [name for name in named if name not in left_out]


def start_values(network: ConvertedNetwork) -> dict[str, Tensor]:
    """The source's values of what is trained.

    Raises:
        TypeError: Their precision is so low that small steps are lost.
    """
    start = network.source_values()
    for name, value in start.items():
        if statistics_dtype(value.dtype) != value.dtype:
            raise TypeError(
                f"`{name}` would be trained in {value.dtype}, in which small steps are lost. Adapt "
                "the network in float32, under `torch.autocast` for speed; methods that train "
                "only batch norm also work in half precision."
            )
    return start


def source_classifier(
    network: nn.Module, recipe: Recipe, layout: Layout
) -> tuple[Tensor, Tensor | None] | None:
    """Weight and bias of the linear classifier, if a part needs it."""
    if not recipe.needs_features or layout.classifier is None:
        return None
    linear = network.get_submodule(layout.classifier)
    if not isinstance(linear, nn.Linear):
        part = next(part for part in recipe.parts if part.features)
        raise TypeError(
            f"{type(part).__name__} needs a linear classifier, but "
            f"`{layout.classifier}` is a {type(linear).__name__}."
        )
    bias = None if linear.bias is None else linear.bias.detach()
    return linear.weight.detach(), bias


def check_batch_norm(
    network: nn.Module, layers: Mapping[str, AdaptiveBatchNorm], recipe: Recipe, method: str
) -> None:
    """Raise if the network lacks the batch-norm layers or statistics that the recipe needs."""
    if recipe.needs_batch_norm and not layers:
        raise NoBatchNormError(
            f"`adapt` found no batch-norm layer in {type(network).__name__}, and {method!r} adapts "
            f"those. Normalisation layers it has: {describe_norms(network)}. Methods that work "
            f"without batch norm: {', '.join(methods_without_batch_norm())}."
        )
    without = [name for name, layer in layers.items() if layer.source is None]
    if recipe.needs_source_statistics and without and recipe.only is None:
        raise ValueError(
            f"{method!r} needs the source statistics, but {counted(len(without), 'layer')} "
            f"{agreeing(len(without), 'keeps', 'keep')} none (track_running_stats=False), the "
            f"first is `{without[0]}`. Choose a method with "
            "batch or running statistics, such as 'bn', 'tent' or 'gprebn'."
        )

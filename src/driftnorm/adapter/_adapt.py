"""The front door: :func:`adapt` and :func:`list_methods`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Literal, TypedDict, TypeVar

from torch import Tensor, nn
from typing_extensions import Unpack, overload

from driftnorm.adapter._contract import Adapter
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter.guard import Guard, Policy
from driftnorm.methods import Method, check_options, known_methods
from driftnorm.methods.spec import parse_method
from driftnorm.parts.layers import Selector
from driftnorm.recipe import Recipe

Own = TypeVar("Own", bound=Adapter)
_ENGINE_OPTIONS = tuple(
    name
    for name, parameter in inspect.signature(RecipeAdapter.__init__).parameters.items()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name != "method"
)


class Options(TypedDict, total=False):
    """Options of every adapter and of many methods, for completion in editors.

    A method may take more; see also :class:`RecipeAdapter`.
    """

    guard: Policy | Guard
    on_bad_batch: Literal["keep", "raise"]
    episodic: bool
    reset_every: int | None
    classifier: str | None
    logits: Callable[[Any], Tensor] | str | None
    batch: str | None
    channels_last: bool | None
    seed: int | None
    inplace: bool
    lr: float | None
    steps: int
    predict: Literal["before", "after"]
    only: Selector | None
    momentum: float | None


@overload
def adapt(
    network: nn.Module, method: str | Recipe = "steady", **options: Unpack[Options]
) -> RecipeAdapter: ...


@overload
def adapt(network: nn.Module, method: type[Own], **options: Any) -> Own: ...


@overload
def adapt(network: nn.Module, method: str | Recipe = "steady", **options: Any) -> RecipeAdapter: ...


def adapt(
    network: nn.Module, method: str | Recipe | type[Adapter] = "steady", **options: Any
) -> Adapter:
    """Wrap a trained network so that it adapts to what it predicts on.

    ``network`` itself is never changed (unless ``inplace=True``).

    Args:
        network: Any trained ``nn.Module``; most methods need batch-norm layers in it.
        method: A name (:func:`list_methods` lists them), several joined by ``+`` and ``@``
            (``"gprebn+rt3a"``, ``"eata@gprebn"``), a :class:`Recipe` of your own, or a class
            of adapters of your own, which is called with the network and the options.
        **options: Options of the method (``lr``, ``steps``, ``theta``, ...) and of every
            adapter (``guard``, ``on_bad_batch``, ``episodic``, ``reset_every``, ``classifier``,
            ``logits``, ``batch``, ``channels_last``, ``seed``, ``inplace``; see
            :class:`RecipeAdapter`).

    Returns:
        An ``nn.Module`` to be called like the network.

    Example:
        >>> import torch
        >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
        >>> model = adapt(net.eval())
        >>> logits = model(torch.randn(32, 4))
        >>> logits.shape
        torch.Size([32, 3])
    """
    if isinstance(method, type) and issubclass(method, Adapter):
        return method(network, **options)
    engine = {k: options.pop(k) for k in [*options] if k in _ENGINE_OPTIONS}
    if isinstance(method, Recipe):
        if options:
            raise TypeError(
                f"a Recipe holds its own options: change it with `dataclasses.replace`, "
                f"got `{next(iter(options))}`."
            )
        return RecipeAdapter(network, method, **engine)
    if not isinstance(method, str):
        raise TypeError(
            "`method` must be a name, a Recipe or a class of adapters of your own, got "
            f"{type(method).__name__}."
        )
    spec = parse_method(method)
    check_options(spec.name, options, _ENGINE_OPTIONS)
    recipe = spec.with_options(options).recipe
    return RecipeAdapter(network, recipe, method=spec.name, **engine)


def list_methods() -> dict[str, Method]:
    """Every registered method by name, with its paper, options and recipe."""
    return dict(known_methods())

"""Conversion between a method as users write it and as cells store it."""

from __future__ import annotations

from collections.abc import Iterable

from driftnorm._internal.options import Options
from driftnorm.bench.cell import MethodId
from driftnorm.methods.spec import MethodSpec

__all__ = ["check_fit", "method_id", "spec_of"]


def check_fit(methods: Iterable[MethodSpec], instead: str = "") -> None:
    """Refuse methods that must see source-domain images first, where there are none.

    Args:
        methods: To be measured.
        instead: What else the user could do.
    """
    for method in methods:
        if method.recipe.needs_fit:
            raise ValueError(
                f"`methods`: {str(method)!r} must first see images like those that the network was "
                f"trained on, and this benchmark has none: leave it out{instead}."
            )


def method_id(spec: MethodSpec, settings: Options = ()) -> MethodId:
    """A method as a cell stores it, with a study's settings where its own word has none."""
    own, recipe = dict(spec.options), spec.recipe
    chosen = {name: value for name, value in settings if name not in own}
    if recipe.needs_backward and "steps" not in own and recipe.steps != 1:
        chosen.setdefault("steps", recipe.steps)  # a default of the method's
    return MethodId(spec.name, spec.options, tuple(chosen.items()))


def spec_of(method: MethodId) -> MethodSpec:
    """The method of a cell with all its options, ready to be built."""
    return MethodSpec(method.name, method.options).with_defaults(method.settings)

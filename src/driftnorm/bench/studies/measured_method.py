"""Conversion between a method as users write it and as cells store it."""

from __future__ import annotations

from driftnorm._internal.options import Options
from driftnorm.bench.cell import MethodId
from driftnorm.methods.spec import MethodSpec


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

"""Every method by name. To add one: a file with a ``METHOD``, a line here, a row in the tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from driftnorm._internal.names import nearest
from driftnorm.methods import (
    alpha_bn,
    bn,
    bn_prior,
    gprebn,
    pl,
    pl_c,
    rt3a,
    shot,
    shot_im,
    source,
    t3a,
    tent,
)
from driftnorm.methods._method import Method
from driftnorm.recipe import Recipe

__all__ = ["METHODS", "Method", "build", "options_of", "register"]

METHODS: dict[str, Method] = {
    module.METHOD.name: module.METHOD
    for module in (
        source,
        bn,
        bn_prior,
        alpha_bn,
        tent,
        gprebn,
        t3a,
        rt3a,
        pl,
        pl_c,
        shot,
        shot_im,
    )
}


def register(method: Method) -> Method:
    """Make a method of your own known by its name."""
    if method.name in METHODS:
        raise ValueError(f"`name` {method.name!r} is taken; choose another one.")
    if "+" in method.name:
        raise ValueError(f"`name` must not contain '+', which joins methods, got {method.name!r}.")
    METHODS[method.name] = method
    return method


def lookup(name: str) -> Method:
    """The method of that name; an unknown one gets a suggestion."""
    if name not in METHODS:
        raise ValueError(
            f"`method` {name!r} is not known.{nearest(name, METHODS)} "
            f"Known: {', '.join(METHODS)}; join a feature-side and a classifier-side one with '+'."
        )
    return METHODS[name]


def options_of(name: str) -> tuple[str, ...]:
    """The keyword arguments that a method, or a composition such as ``gprebn+rt3a``, takes."""
    return tuple(dict.fromkeys(o for part in name.split("+") for o in lookup(part).options))


def build(name: str, options: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a method or of a composition, with some options changed.

    >>> build("gprebn+rt3a", {"theta": 0.5}).head
    RunningCentroids(reading='normalized', labels='linear')
    """
    options = dict(options or {})
    parts = [lookup(part) for part in name.split("+")]
    unknown = [o for o in options if not any(o in part.options for part in parts)]
    if unknown:
        known = options_of(name)
        raise TypeError(
            f"{name!r} has no option `{unknown[0]}`.{nearest(unknown[0], known)} "
            f"It takes: {', '.join(known) or 'none'}."
        )
    try:
        recipes = [p.build(**{k: v for k, v in options.items() if k in p.options}) for p in parts]
    except TypeError as error:  # text where a number belongs
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        raise TypeError(f"{name!r} with {given}: a value is of the wrong kind: {error}.") from error
    return _compose(name, recipes)


def _compose(name: str, recipes: list[Recipe]) -> Recipe:
    """One feature side and one classifier side: what happens before the features, and after."""
    if len(recipes) == 1:
        return recipes[0]
    heads = [r for r in recipes if r.head is not None]
    features = [r for r in recipes if r.head is None]
    if len(heads) != 1 or len(features) != 1:
        raise ValueError(
            f"{name!r} must join one feature-side method (such as 'gprebn') and one "
            f"classifier-side method ('t3a' or 'rt3a')."
        )
    return replace(features[0], head=heads[0].head)

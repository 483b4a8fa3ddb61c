"""The options of a method: default, values and meaning, from its signature and docstrings."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from driftnorm._internal.docstrings import documented
from driftnorm.methods import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe

__all__ = ["method_options"]

_KINDS = {float: "number", int: "whole number", bool: "True or False", str: "text"}
_LAYERS = "a layer's name, first(0.5), last(0.5)"


def method_options(method: Method) -> dict[str, dict[str, object]]:
    """By name: the default, the values that the command line takes, and the meaning."""
    build = getattr(method.build, "func", method.build)  # a partial has no docstring of its own
    hints = get_type_hints(build) | get_type_hints(Optimising)
    meanings = documented(Optimising.__doc__, "Attributes") | documented(build.__doc__, "Args")
    signature = inspect.signature(method.build).parameters
    shared = _optimising(method.recipe)
    return {
        name: {
            "default": signature[name].default if name in signature else shared.get(name),
            "values": _values(hints[name]),
            "meaning": meanings.get(name, "").replace("``", ""),
        }
        for name in method.options
    }


def _optimising(recipe: Recipe) -> dict[str, Any]:
    """A recipe's default optimiser settings; those it does not have are None."""
    parts = [getattr(part, "of", part) for part in recipe.update]
    descent = next((part for part in parts if isinstance(part, Descent)), None)
    own = {} if descent is None else asdict(descent)
    return {**own, "steps": recipe.steps, "predict": recipe.predict}


def _values(hint: Any) -> str:
    """The allowed values, as far as they can be written on a command line."""
    if hint == Selector | None:
        return _LAYERS
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        words = [_values(each) for each in get_args(hint)]
        return " or ".join(word for word in words if word)
    return "None" if hint is type(None) else _KINDS.get(hint, "")

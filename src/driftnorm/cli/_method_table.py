"""Facts about every method, from its recipe, for the command line and the docs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from driftnorm._internal.docstrings import documented
from driftnorm.methods import Method, known_methods, members_of
from driftnorm.methods.spec import parse_method
from driftnorm.parts.layers import Selector
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe
from driftnorm.views.table import Column, Table

_KINDS = {float: "number", int: "whole number", bool: "True or False", str: "text"}
_LAYERS = "a layer's name, first(0.5), last(0.5)"


def method_facts() -> dict[str, dict[str, object]]:
    """Facts of every method by name, plain enough for JSON."""
    return {name: facts_of(name) for name in known_methods()}


def facts_of(word: str) -> dict[str, object]:
    """Facts of a method, with options or not, or of a composition: what the recipe tells."""
    spec = parse_method(word)
    recipe, members = spec.recipe, members_of(spec.name)

    def described(field: str) -> str:
        texts = [str(getattr(member, field)) for member in members]
        if len(members) == 1:
            return texts[0]
        return "; ".join(f"{m.name}: {text}" for m, text in zip(members, texts, strict=True))

    options: dict[str, object] = {}
    for member in members:
        for option, told in method_options(member).items():
            options.setdefault(option, told)
    return {
        **{field: described(field) for field in ("summary", "paper", "helps", "hurts")},
        "recipe": recipe.settings(),
        "backward": recipe.needs_backward,
        "batch_norm": recipe.needs_batch_norm,
        "source_statistics": recipe.needs_source_statistics and recipe.needs_batch_norm,
        "order_dependent": recipe.order_dependent,
        "forwards": recipe.cost.forwards,
        "backwards": recipe.cost.backwards,
        "cost_is_a_bound": recipe.cost.bound,
        "bakes": not recipe.unbakeable,
        "needs_fit": recipe.needs_fit,
        "options": options,
    }


def passes(facts: Mapping[str, object]) -> str:
    """Forward and backward passes per batch, in short."""
    most = "≤ " if facts["cost_is_a_bound"] else ""
    return f"{most}{facts['forwards']:g} + {facts['backwards']:g}"


def method_table() -> Table:
    """The same as a short table."""
    rows = tuple(
        (
            name,
            str(facts["summary"]),
            passes(facts),
            "yes" if facts["batch_norm"] else "no",
            "yes" if facts["bakes"] else "no",
        )
        for name, facts in method_facts().items()
    )
    return Table(
        "Test-time methods",
        (
            Column("method"),
            Column("what it does", align="left"),
            Column("passes"),
            Column("needs BN"),
            Column("bakes"),
        ),
        rows,
        "Passes: forward + backward per batch. Join methods with '+' (gprebn+rt3a), or use the "
        "statistics of another with '@' (eata@gprebn). "
        "`driftnorm methods NAME` shows when a method helps and hurts, its paper and its options.",
    )


def option_table(name: str, options: Mapping[str, Mapping[str, object]]) -> Table:
    """The options of a method or composition, as they are written after its name."""
    rows = tuple(
        (option, str(told["default"]), str(told["values"]), str(told["meaning"]))
        for option, told in options.items()
    )
    titles = ("option", "default", "values", "meaning")
    return Table(
        "Options",
        tuple(Column(title, align="left") for title in titles),
        rows,
        f"Written after the name: {name}:{rows[0][0]}=VALUE, more with commas between them.",
    )


def method_options(method: Method) -> dict[str, dict[str, object]]:
    """By name: the default, the values that the command line takes, and the meaning.

    From the signature and the docstrings of the method's function.
    """
    build = getattr(method.build, "func", method.build)  # a partial has no docstring of its own
    hints = method.hints
    meanings = documented(Optimising.__doc__, "Attributes") | documented(build.__doc__, "Args")
    signature = inspect.signature(method.build).parameters
    shared = _optimising(method.recipe)
    return {
        name: {
            "default": signature[name].default if name in signature else shared.get(name),
            "values": _values(hints.get(name)),
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

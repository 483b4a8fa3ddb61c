"""Facts about every method, from its recipe, for the command line and the docs."""

from __future__ import annotations

from collections.abc import Mapping

from driftnorm.cli._method_options import method_options
from driftnorm.methods import Method, known_methods
from driftnorm.views.table import Column, Table

__all__ = ["method_facts", "method_table", "option_table", "passes"]


def method_facts() -> dict[str, dict[str, object]]:
    """Facts by method name, plain enough for JSON."""
    return {
        name: {
            "summary": method.summary,
            "paper": method.paper,
            "helps": method.helps,
            "hurts": method.hurts,
            "backward": method.recipe.needs_backward,
            "batch_norm": method.recipe.needs_batch_norm,
            "source_statistics": method.recipe.needs_source_statistics
            and method.recipe.needs_batch_norm,
            "order_dependent": method.recipe.order_dependent,
            "forwards": method.recipe.cost.forwards,
            "backwards": method.recipe.cost.backwards,
            "cost_is_a_bound": method.recipe.cost.bound,
            "bakes": not method.recipe.unbakeable,
            "needs_fit": method.recipe.needs_fit,
            "options": method_options(method),
        }
        for name, method in known_methods().items()
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


def option_table(method: Method) -> Table:
    """The options of a method, as they are written after its name."""
    rows = tuple(
        (name, str(told["default"]), str(told["values"]), str(told["meaning"]))
        for name, told in method_options(method).items()
    )
    titles = ("option", "default", "values", "meaning")
    return Table(
        "Options",
        tuple(Column(title, align="left") for title in titles),
        rows,
        f"Written after the name: {method.name}:{rows[0][0]}=VALUE, more with commas between them.",
    )

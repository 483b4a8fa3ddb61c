"""What is known of every method, read off its recipe: for the command line and the docs."""

from __future__ import annotations

from collections.abc import Mapping

from driftnorm.methods import known_methods
from driftnorm.views.table import Column, Table

__all__ = ["method_facts", "method_table"]


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
            "options": list(method.options),
        }
        for name, method in known_methods().items()
    }


def passes(facts: Mapping[str, object]) -> str:
    """Forward and backward passes for each batch, in short."""
    most = "≤ " if facts["cost_is_a_bound"] else ""
    return f"{most}{facts['forwards']:g} + {facts['backwards']:g}"


def method_table() -> Table:
    """The same for people, in short."""
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
        "Passes: forward + backward per batch. Join methods with '+' (gprebn+rt3a), or take the "
        "statistics of another with '@' (eata@gprebn). "
        "`driftnorm methods NAME` tells when a method helps and hurts, its paper and its options.",
    )

"""What is known of every method, read off its recipe: for the command line and the docs."""

from __future__ import annotations

from driftnorm.methods import METHODS
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
            "options": list(method.options),
        }
        for name, method in METHODS.items()
    }


def method_table() -> Table:
    """The same for people, in short."""
    rows = tuple(
        (
            name,
            str(facts["summary"]),
            "yes" if facts["backward"] else "no",
            "yes" if facts["batch_norm"] else "no",
        )
        for name, facts in method_facts().items()
    )
    return Table(
        "Test-time methods",
        (
            Column("method"),
            Column("what it does", align="left"),
            Column("backward"),
            Column("needs BN"),
        ),
        rows,
        "Join a feature-side and a classifier-side method with '+', for example gprebn+rt3a. "
        "`driftnorm methods NAME` tells when a method helps and hurts, its paper and its options.",
    )

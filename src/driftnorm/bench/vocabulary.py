"""Words that studies write into rows and views look for; nothing here needs torch."""

from __future__ import annotations

from typing import Literal, TypeAlias

FINE_TUNED = "fine-tuned"
"""Study name of rows whose network was fine-tuned on all corruptions but the tested one."""
TARGET, VALIDATION = "in", "out"
"""Splits of a domain: the larger one, scored on the target; the held-out one, which selects."""
TENT_ON_SOURCE = "tent:gradient=detached,statistics=source"
TENT_STOPPED = "tent:gradient=detached"

GridSize: TypeAlias = Literal["full", "short", "single"]

METHOD_ORDER = (
    *("source", "bn", "bn-prior", "alpha-bn", "tent", "gprebn", "t3a", "rt3a"),
    *("pl", "pl-c", "shot", "shot-im"),
)
"""The order of methods on a page, as in the registry; others follow by name."""

MAIN = ("source", "tent", "alpha-bn", "pl-c", "shot", "t3a", "gprebn", "gprebn+rt3a")
ABLATIONS = (
    "source",
    "tent:gradient=detached,statistics=source",
    "gprebn:statistics=source",
    "tent:gradient=detached",
    "tent",
    "bn",
    "bn:running=True",
    "gprebn",
    "gprebn:momentum=0.1",
)

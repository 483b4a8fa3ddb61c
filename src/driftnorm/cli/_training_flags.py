"""How networks are trained on domains: the flags that one training and a sweep share."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from cyclopts import Parameter

from driftnorm.training.domains.plans import PlanOptions

__all__ = ["Settings", "Shared"]

Shared: TypeAlias = Annotated[PlanOptions, Parameter(name="*")]
"""Its fields are flags of the command itself, described by its docstring."""

Settings: TypeAlias = Annotated[tuple[str, ...], Parameter(name="--set", negative=())]
"""Words `name=value`, one per flag."""

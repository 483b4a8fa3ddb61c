"""What the registry knows about a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from driftnorm.recipe import Optimising, Recipe

__all__ = ["Method"]


@dataclass(frozen=True)
class Method:
    """A named recipe.

    Attributes:
        name: What users type.
        build: Keyword arguments -> recipe; its signature is the method's configuration.
        paper: Where it comes from.
        summary: One line.
        helps: When to use it.
        hurts: When not to.
    """

    name: str
    build: Callable[..., Recipe]
    paper: str
    summary: str
    helps: str
    hurts: str

    @property
    def options(self) -> tuple[str, ...]:
        """The keyword arguments that ``build`` takes."""
        parameters = inspect.signature(self.build).parameters.values()
        own = [p.name for p in parameters if p.kind is not inspect.Parameter.VAR_KEYWORD]
        shared = Optimising.__annotations__ if len(own) < len(parameters) else ()
        return (*own, *shared)

    @property
    def recipe(self) -> Recipe:
        """The recipe with the paper's defaults; its properties are the method's facts."""
        return self.build()

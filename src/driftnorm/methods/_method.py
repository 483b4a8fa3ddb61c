"""What the registry knows about a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from driftnorm.recipe import Optimising, Recipe


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
        return self.made({})

    @property
    def hints(self) -> dict[str, Any]:
        """The types of its options, as far as ``build`` annotates them."""
        build = getattr(self.build, "func", self.build)  # a partial has no annotations of its own
        try:
            own = get_type_hints(build)
        except NameError:  # names that are imported for type checkers only
            own = {}
        return get_type_hints(Optimising) | own

    def made(self, options: Mapping[str, Any]) -> Recipe:
        """The recipe with these options; errors name the method and what it was given."""
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        what = f"{self.name!r} with {given}" if given else repr(self.name)
        hints = self.hints if options else {}
        for key, value in options.items():
            if hints.get(key) is bool and not isinstance(value, bool):
                raise TypeError(f"{what}: `{key}` must be True or False, got {value!r}.")
        try:
            recipe: object = self.build(**options)
        except ValueError as error:  # a part calls its numbers by names of its own
            raise ValueError(f"{what}: {error}") from error
        except TypeError as error:  # text where a number belongs
            raise TypeError(f"{what}: a value is of the wrong kind: {error}.") from error
        if not isinstance(recipe, Recipe):
            raise TypeError(f"{what}: `build` must return a Recipe, got {type(recipe).__name__}.")
        return recipe

"""A method with options as one word: ``gprebn:theta=0.5,momentum=0.1``, ``bn:only=first(0.5)``."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from driftnorm._internal.options import Options, options_text, read_options
from driftnorm.methods import build
from driftnorm.recipe import Recipe
from driftnorm.selection import First, Last

__all__ = ["MethodSpec", "parse_method"]

_PLACES = {"first": First, "last": Last}


@dataclass(frozen=True)
class MethodSpec:
    """A name and options that can be written down (numbers, text, truth values)."""

    name: str
    options: Options = ()

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}:{options_text(self.options)}"

    def with_defaults(self, defaults: Options) -> MethodSpec:
        """The same with these options as well, where it does not have its own."""
        return replace(
            self, options=tuple(sorted({**dict(defaults), **dict(self.options)}.items()))
        )

    def recipe(self) -> Recipe:
        """What it does; unknown names and options raise."""
        return build(self.name, {key: _decoded(value) for key, value in self.options})


def parse_method(text: str) -> MethodSpec:
    """Read ``name`` or ``name:key=value,key=value``, and check that it can be built.

    >>> parse_method("gprebn:theta=0.5").options
    (('theta', 0.5),)
    """
    name, _, rest = text.partition(":")
    spec = MethodSpec(name.strip(), read_options(filter(None, rest.split(","))))
    spec.recipe()
    return spec


def _decoded(value: Any) -> Any:
    """``first(0.5)`` and ``last(0.5)`` select layers by their place."""
    place = re.fullmatch(r"(first|last)\(([\d.]+)\)", value) if isinstance(value, str) else None
    return _PLACES[place[1]](float(place[2])) if place else value

"""A method with options as one word: ``gprebn:theta=0.5,momentum=0.1``, ``bn:only=first(0.5)``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from driftnorm._internal.options import Options, options_text, read_joined
from driftnorm.methods import build, options_of
from driftnorm.parts.layers import First, Last
from driftnorm.recipe import Recipe

_PLACES = {"first": First, "last": Last}


@dataclass(frozen=True)
class MethodSpec:
    """A name, and options that can be written as text (numbers, strings, booleans)."""

    name: str
    options: Options = ()

    def __str__(self) -> str:
        if not self.options:
            return self.name
        return f"{self.name}:{options_text(self.options)}"

    def with_defaults(self, defaults: Options) -> MethodSpec:
        """The same with these options added, where it takes them and does not set them itself."""
        if not defaults:
            return self
        known = options_of(self.name)
        taken = {key: value for key, value in defaults if key in known}
        return replace(self, options=tuple(sorted({**taken, **dict(self.options)}.items())))

    def with_options(self, options: Mapping[str, Any]) -> MethodSpec:
        """The same with these options in place of its own."""
        if not options:
            return self  # whose recipe may be built already
        return replace(self, options=tuple({**dict(self.options), **options}.items()))

    @cached_property
    def recipe(self) -> Recipe:
        """Its recipe; unknown names and options raise."""
        return build(self.name, {key: _decoded(value) for key, value in self.options})


def parse_method(text: str) -> MethodSpec:
    """Read ``name``, ``name:key=value,key=value`` or a composition, and check that it can be built.

    >>> parse_method("gprebn:theta=0.5").options
    (('theta', 0.5),)
    >>> str(parse_method("eta:margin=0.3@gprebn:theta=0.5+rt3a"))
    'eta@gprebn+rt3a:margin=0.3,theta=0.5'
    """
    spec = MethodSpec(*read_joined(text, "+@"))
    _ = spec.recipe  # raises
    return spec


def _decoded(value: Any) -> Any:
    """``first(0.5)`` and ``last(0.5)`` select layers by position."""
    place = re.fullmatch(r"(first|last)\(([\d.]+)\)", value) if isinstance(value, str) else None
    return _PLACES[place[1]](float(place[2])) if place else value

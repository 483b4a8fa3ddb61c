"""Options as people write them, ``theta=0.5,statistics=source``, and as values; no torch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any, TypeAlias

Options: TypeAlias = tuple[tuple[str, Any], ...]
"""Names with values that can be written down: numbers, text, truth values."""


def read_options(words: Iterable[str]) -> Options:
    """Read ``key=value`` words: numbers, truth values, else text; sorted by key.

    >>> read_options(["theta=0.5", "statistics=source"])
    (('statistics', 'source'), ('theta', 0.5))
    """
    options = []
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"expected an option as `key=value`, got {word!r}.")
        options.append((key.strip(), _read(value.strip())))
    return tuple(sorted(options))


def read_joined(text: str, joints: str) -> tuple[str, Options]:
    """Read names with options that are joined: all names with their joints, and all options.

    >>> read_joined("continual:part=100+sorted:seed=3", "+")
    ('continual+sorted', (('part', 100), ('seed', 3)))
    """
    names: list[str] = []
    options: dict[str, Any] = {}
    for part in re.split(rf"(?=[{re.escape(joints)}][a-z])", text):  # not the sign in 1e+3
        name, _, rest = part.partition(":")
        names.append(name.strip())
        for key, value in read_options(filter(None, rest.split(","))):
            if options.setdefault(key, value) != value:
                raise ValueError(f"`{key}` is given twice in {text!r}, with different values.")
    return "".join(names), tuple(sorted(options.items()))


def options_text(options: Options) -> str:
    """The inverse of `read_options`, as one word.

    >>> options_text((("statistics", "source"), ("theta", 0.5)))
    'statistics=source,theta=0.5'
    """
    return ",".join(f"{key}={value}" for key, value in options)


def _read(value: str) -> Any:
    if value in ("true", "false"):  # as in YAML and JSON
        return value == "true"
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value  # plain text, such as statistics=source

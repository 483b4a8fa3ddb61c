"""Sections of Google-style docstrings, for pages and tables that quote them."""

from __future__ import annotations

import inspect
import re


def documented(docstring: str | None, section: str) -> dict[str, str]:
    r"""What a section of a docstring says of each name.

    >>> documented("Sums.\n\nArgs:\n    left: One.\n    right: Two,\n        or more.", "Args")
    {'left': 'One.', 'right': 'Two, or more.'}
    """
    _, _, rest = inspect.cleandoc(docstring or "").partition(f"\n{section}:\n")
    found: dict[str, str] = {}
    name = ""
    for line in rest.splitlines():
        if line and not line.startswith(" "):
            break
        start = re.match(r" {4}(\*{0,2}\w+): (.*)", line)
        if start is not None:
            name = start[1]
            found[name] = start[2]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found

"""Make our docstrings read well on the site: no Sphinx roles, and examples as code.

Named in mkdocs.yml as an extension of griffe, which reads the source without importing it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|attr|math):`~?([^`]+)`")
# A doctest that stands in running text: from ">>>" to the next empty line.
_DOCTEST = re.compile(r"(?:^|\n\n)((?:[ ]*>>> )(?:.+\n?)+)")


def plain(text: str) -> str:
    """The docstring with roles as code, and doctests where griffe looks for them."""
    text = _ROLE.sub(lambda found: f"`{found[1].rpartition('.')[2] or found[1]}`", text)
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)
    if "Examples:" in text:
        return text
    return _DOCTEST.sub(lambda found: f"\n\n```pycon\n{found[1].rstrip()}\n```\n", text)


class PlainDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = plain(obj.docstring.value)

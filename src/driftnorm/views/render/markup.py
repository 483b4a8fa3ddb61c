"""Text and elements for a page; whatever is not `markupsafe.Markup` is escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from markupsafe import Markup, escape

_JOINTS = re.compile("(?<=[_:=+/@])(?=.)")
# Characters that XML and HTML do not allow; tab and newline are fine.
_CONTROL = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0)} - {*map(ord, "\t\n\r")}, "\N{REPLACEMENT CHARACTER}"
)

Child: TypeAlias = "str | Iterable[Child]"


def joined(*children: Child) -> Markup:
    """Children one after another: markup as it is, other text escaped."""
    parts = (escape(c) if isinstance(c, str) else joined(*c) for c in children)
    return Markup("").join(parts)


def tag(name: str, /, *children: Child, **attributes: str | float) -> Markup:
    """An element of a drawing; ``class_`` is ``class``, other underscores are hyphens.

    >>> tag("text", "a < b", class_="note")
    Markup('<text class="note">a &lt; b</text>')
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(_written(value))}"')
    return Markup(f"<{' '.join(words)}>{joined(*children)}</{name}>")


def breakable(text: str) -> Markup:
    """Text whose lines may break within compound words.

    >>> breakable("gaussian_noise")
    Markup('gaussian_<wbr>noise')
    """
    return Markup("<wbr>").join(_JOINTS.split(text))


def prose(text: str) -> Markup:
    """Text with words in backticks as code.

    >>> prose("see `driftnorm table`")
    Markup('see <code>driftnorm table</code>')
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them has no partner
        return escape(text)
    return joined(*(tag("code", part) if odd % 2 else part for odd, part in enumerate(parts)))


def sound(text: str) -> str:
    """Text that can be written as UTF-8 and read as HTML, whatever the names in it hold."""
    # File names may contain lone surrogates, which cannot be encoded.
    encodable = text.encode("utf-8", "backslashreplace").decode()
    return encodable.translate(_CONTROL)


def _written(value: str | float) -> str:
    """Coordinates with no more digits than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

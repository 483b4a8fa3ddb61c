"""HTML and SVG built so that text is always escaped: only `Markup` is taken as it is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["Child", "Markup", "escape", "joined", "tag", "verbatim"]

_VOID = {"img", "meta", "link", "br"}
# Characters that XML and HTML do not allow; tab and newline are fine.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class Markup(str):
    """Text that already is HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"


def escape(text: str) -> Markup:
    """Text for any place in a page: an element, a quoted attribute, SVG.

    >>> escape('<a b="c">')
    '&lt;a b=&quot;c&quot;&gt;'
    """
    # File names may hold halves of surrogate pairs, which no file can be written with.
    sound = text.encode("utf-8", "backslashreplace").decode()
    return Markup(html.escape(_CONTROL.sub("\N{REPLACEMENT CHARACTER}", sound)))


def joined(*children: Child) -> Markup:
    """Children one after another: markup as it is, anything else escaped, ``None`` left out."""
    parts = []
    for child in children:
        if isinstance(child, Markup):
            parts.append(child)
        elif isinstance(child, str | int | float):
            parts.append(escape(str(child)))
        elif child is not None:
            parts.append(joined(*child))
    return Markup("".join(parts))


def tag(name: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """An element; ``class_`` is ``class``, other underscores are hyphens, ``None`` is left out.

    >>> tag("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    words = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        words.append(key if value is True else f'{key}="{escape(_written(value))}"')
    begin = f"<{' '.join(words)}>"
    return Markup(begin if name in _VOID else f"{begin}{joined(*children)}</{name}>")


def verbatim(name: str, text: str) -> Markup:
    """A ``style`` or ``script`` element; browsers do not unescape what is in it."""
    if f"</{name}" in text.lower():
        raise ValueError(f"`text` of a {name} element must not contain its end, '</{name}'.")
    return Markup(f"<{name}>{text}</{name}>")


def _written(value: str | int | float) -> str:
    """Coordinates with no more digits than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

"""HTML and SVG builders that always escape text: only `Markup` is kept as it is."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["Child", "Markup", "breakable", "escape", "joined", "prose", "tag", "verbatim"]

_VOID = {"img", "meta", "link", "br", "wbr"}
_JOINTS = re.compile("(?<=[_:=+/@])(?=.)")
# Characters that XML and HTML do not allow; tab and newline are fine.
_CONTROL = dict.fromkeys(
    {*range(0x20), *range(0x7F, 0xA0)} - {*map(ord, "\t\n\r")}, "\N{REPLACEMENT CHARACTER}"
)


class Markup(str):
    """Text that already is HTML."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Iterable[Child] | None"


def escape(text: str) -> Markup:
    """Text for any place in a page: an element, a quoted attribute, SVG.

    >>> escape('<a b="c">')
    '&lt;a b=&quot;c&quot;&gt;'
    """
    # File names may contain lone surrogates, which cannot be encoded.
    sound = text.encode("utf-8", "backslashreplace").decode()
    return Markup(html.escape(sound.translate(_CONTROL)))


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


def breakable(text: str) -> Markup:
    """Text whose lines may break within compound words.

    >>> breakable("gaussian_noise")
    'gaussian_<wbr>noise'
    """
    first, *rest = _JOINTS.split(text)
    return joined(first, *((tag("wbr"), part) for part in rest))


def prose(text: str) -> Markup:
    """Text with words in backticks as code.

    >>> prose("see `driftnorm table`")
    'see <code>driftnorm table</code>'
    """
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one of them has no partner
        return escape(text)
    return joined(*(tag("code", part) if odd % 2 else part for odd, part in enumerate(parts)))


def verbatim(name: str, text: str) -> Markup:
    """A ``style`` or ``script`` element; browsers do not unescape what is in it."""
    if f"</{name}" in text.lower():
        raise ValueError(f"`text` of a {name} element must not contain its end, '</{name}'.")
    return Markup(f"<{name}>{text}</{name}>")


def _written(value: str | int | float) -> str:
    """Coordinates with no more digits than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)

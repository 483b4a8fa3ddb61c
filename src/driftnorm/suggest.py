"""Did you mean ...? For error messages about names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """`` Did you mean ...?``, or nothing if no known name is close.

    >>> nearest("GprBN", ["tent", "gprebn"])
    " Did you mean 'gprebn'?"
    """
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=most)
    return f" Did you mean {' or '.join(repr(by_lower[c]) for c in close)}?" if close else ""

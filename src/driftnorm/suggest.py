"""Did you mean ...? For error messages about names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> str:
    """`` Did you mean ...?``, or nothing if no known name is close.

    >>> nearest("GprBN", ["tent", "gprebn"])
    " Did you mean 'gprebn'?"
    """
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""

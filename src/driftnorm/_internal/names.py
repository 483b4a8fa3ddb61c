"""Names as people write them: in any spelling, or nearly right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def find_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is meant: case, dashes and underscores do not matter.

    >>> find_name("Rotated_MNIST", ["mnist", "rotated-mnist"])
    'rotated-mnist'
    """
    return next((each for each in known if _letters(each) == _letters(name)), None)


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def nearest(name: str, known: Iterable[str], most: int = 1) -> str:
    """`` Did you mean ...?``, or nothing if no known name is close.

    >>> nearest("GprBN", ["tent", "gprebn"])
    " Did you mean 'gprebn'?"
    """
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=most)
    return f" Did you mean {' or '.join(repr(by_lower[c]) for c in close)}?" if close else ""

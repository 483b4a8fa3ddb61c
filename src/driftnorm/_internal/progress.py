"""How long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Report: TypeAlias = Callable[[str, int, int | None], None]
"""Takes what is being done, how much is done, and the total, or None if it is unknown."""


def no_report(text: str, done: int, total: int | None) -> None:
    """Tell nobody."""

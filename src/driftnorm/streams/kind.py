"""What courses and orders have in common: a name, a summary, and parameters that are checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

from driftnorm._internal.options import Options

__all__ = ["Domain", "Kind", "check_number", "check_whole"]


class Domain(NamedTuple):
    """Where images come from, or what was done to them.

    Attributes:
        name: A corruption, a domain, or ``clean``.
        severity: From 1; 0 where strength means nothing.
    """

    name: str
    severity: int = 0


@dataclass(frozen=True)
class Kind:
    """A course or an order: its fields are its parameters, all of which can be written down."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @property
    def settings(self) -> Options:
        """Every parameter with its value."""
        return tuple((field.name, getattr(self, field.name)) for field in fields(self))


def check_whole(name: str, value: Any, low: int) -> None:
    """Refuse what is not a whole number of at least `low`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(f"`{name}` must be a whole number of at least {low}, got {value!r}.")


def check_number(name: str, value: Any, low: float, high: float = float("inf")) -> None:
    """Refuse what is not a number above `low` and not above `high`."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low < value <= high or value == float("inf"):
        limit = "" if high == float("inf") else f" and at most {high:g}"
        raise ValueError(f"`{name}` must be a number above {low:g}{limit}, got {value!r}.")

"""What courses and orders have in common: a name, a summary, and parameters."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

from driftnorm._internal.options import Options


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

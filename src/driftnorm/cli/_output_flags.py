"""The flags that say how a command talks; nothing here waits for torch."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

__all__ = ["AsJson", "Quiet"]

Quiet = Annotated[bool, Parameter(negative="", help="Print nothing but errors.")]
AsJson = Annotated[
    bool,
    Parameter(name="--json", negative="", help="Print the table as JSON; all else goes to stderr."),
]

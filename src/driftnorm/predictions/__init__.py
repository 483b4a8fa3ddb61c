"""Adapt a network to images of the user's own: one CSV file of predictions, resumable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.predictions.run import Began as Began
    from driftnorm.predictions.run import Note as Note
    from driftnorm.predictions.run import Outcome as Outcome
    from driftnorm.predictions.run import Plan as Plan
    from driftnorm.predictions.run import Snapshot as Snapshot
    from driftnorm.predictions.run import adapt_stream as adapt_stream

_HOMES = {
    "Began": "run",
    "Note": "run",
    "Outcome": "run",
    "Plan": "run",
    "Snapshot": "run",
    "adapt_stream": "run",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

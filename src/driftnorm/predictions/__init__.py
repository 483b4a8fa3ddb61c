"""Adapt a network to images of the user's own: one CSV file of predictions, resumable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.predictions.adapted_stream import Began as Began
    from driftnorm.predictions.adapted_stream import Note as Note
    from driftnorm.predictions.adapted_stream import Outcome as Outcome
    from driftnorm.predictions.adapted_stream import Plan as Plan
    from driftnorm.predictions.adapted_stream import Snapshot as Snapshot
    from driftnorm.predictions.adapted_stream import adapt_stream as adapt_stream

_HOMES = {
    "Began": "adapted_stream",
    "Note": "adapted_stream",
    "Outcome": "adapted_stream",
    "Plan": "adapted_stream",
    "Snapshot": "adapted_stream",
    "adapt_stream": "adapted_stream",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

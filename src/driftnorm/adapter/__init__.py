"""Run a recipe on a network: the contract, the adapter of recipes, and callbacks for logging."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.adapter import callbacks as callbacks
    from driftnorm.adapter._contract import Adapter as Adapter
    from driftnorm.adapter._contract import BatchReport as BatchReport
    from driftnorm.adapter._engine import RecipeAdapter as RecipeAdapter

_HOMES = {
    "Adapter": "_contract",
    "BatchReport": "_contract",
    "RecipeAdapter": "_engine",
    "callbacks": "callbacks:",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

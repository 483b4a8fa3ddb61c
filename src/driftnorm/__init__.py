"""Keep trained BatchNorm networks accurate when the data drift.

    import driftnorm
    model = driftnorm.adapt(net, "gprebn")  # an nn.Module; `net` itself is never changed
    logits = model(batch)                   # predicts, and adapts to what it sees

Names are imported on first use, so that ``driftnorm --help`` does not wait for torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from driftnorm._version import __version__ as __version__

if TYPE_CHECKING:
    from driftnorm import functional as functional
    from driftnorm.adapter import Adapter as Adapter
    from driftnorm.adapter import BadBatchError as BadBatchError
    from driftnorm.adapter import BatchReport as BatchReport
    from driftnorm.adapter import DriftnormWarning as DriftnormWarning
    from driftnorm.api import adapt as adapt
    from driftnorm.api import methods as methods
    from driftnorm.export import export_onnx as export_onnx
    from driftnorm.guard import Guard as Guard
    from driftnorm.recipe import Recipe as Recipe
    from driftnorm.recipes import Method as Method
    from driftnorm.recipes import register as register
    from driftnorm.selection import First as First
    from driftnorm.selection import Last as Last
    from driftnorm.surgery import NoBatchNormError as NoBatchNormError

_HOMES = {
    "Adapter": "adapter",
    "BadBatchError": "adapter",
    "BatchReport": "adapter",
    "DriftnormWarning": "adapter",
    "First": "selection",
    "Guard": "guard",
    "Last": "selection",
    "Method": "recipes",
    "NoBatchNormError": "surgery",
    "Recipe": "recipe",
    "adapt": "api",
    "export_onnx": "export",
    "methods": "api",
    "register": "recipes",
}
__all__ = [*_HOMES, "__version__", "functional"]


def __getattr__(name: str) -> object:
    if name == "functional":
        return importlib.import_module("driftnorm.functional")
    if name in _HOMES:
        value = getattr(importlib.import_module(f"driftnorm.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'driftnorm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

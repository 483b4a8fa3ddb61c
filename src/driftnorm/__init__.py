"""Keep trained BatchNorm networks accurate when the data drift.

    import driftnorm
    model = driftnorm.adapt(net)  # an nn.Module; `net` itself is never changed
    logits = model(batch)         # predicts, and adapts to what it sees

Names are imported on first use, so that ``driftnorm --help`` does not wait for torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports
from driftnorm._version import __version__ as __version__

if TYPE_CHECKING:
    from driftnorm import errors as errors
    from driftnorm import functional as functional
    from driftnorm._internal.process_memory import keep_freed_memory as keep_freed_memory
    from driftnorm.adapter import Adapter as Adapter
    from driftnorm.adapter import BatchReport as BatchReport
    from driftnorm.adapter._adapt import adapt as adapt
    from driftnorm.adapter._adapt import list_methods as list_methods
    from driftnorm.adapter.guard import Guard as Guard
    from driftnorm.adapter.onnx_file import export_onnx as export_onnx
    from driftnorm.bench.stream_scores import evaluate as evaluate
    from driftnorm.diagnosis import diagnose as diagnose
    from driftnorm.errors import BadBatchError as BadBatchError
    from driftnorm.errors import DriftnormError as DriftnormError
    from driftnorm.errors import DriftnormWarning as DriftnormWarning
    from driftnorm.errors import NoBatchNormError as NoBatchNormError
    from driftnorm.methods import Method as Method
    from driftnorm.methods import register as register
    from driftnorm.parts.layers import First as First
    from driftnorm.parts.layers import Last as Last
    from driftnorm.recipe import Recipe as Recipe

_HOMES = {
    "Adapter": "adapter._contract",
    "BadBatchError": "errors",
    "BatchReport": "adapter._contract",
    "DriftnormError": "errors",
    "DriftnormWarning": "errors",
    "First": "parts.layers",
    "Guard": "adapter.guard",
    "Last": "parts.layers",
    "Method": "methods",
    "NoBatchNormError": "errors",
    "Recipe": "recipe",
    "adapt": "adapter._adapt",
    "diagnose": "diagnosis",
    "errors": "errors:",
    "evaluate": "bench.stream_scores",
    "export_onnx": "adapter.onnx_file",
    "functional": "functional:",
    "keep_freed_memory": "_internal.process_memory",
    "list_methods": "adapter._adapt",
    "register": "methods",
}
__all__ = [*_HOMES, "__version__"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

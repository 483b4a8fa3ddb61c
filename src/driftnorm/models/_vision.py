"""The only door to torchvision and timm.

PyPI's torchvision wheel is linked against CUDA. Beside a CPU build of torch its C++ operators do
not load, and `import torchvision` dies with "operator torchvision::nms does not exist", which takes
timm down too. Declaring the missing operators' signatures is enough for the rest of the package to
work; `ops.nms` itself and the image codecs stay unusable. Where torchvision imports by itself,
nothing is touched.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import torch

from driftnorm._internal.optional import import_optional

# Declared operators live as long as this object.
_declared: Any = None


def import_torchvision() -> Any:
    """Imports torchvision, repairing the CUDA wheel beside a CPU torch."""
    try:
        return _quiet_import("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
    _declare_missing_operators()
    for name in [n for n in sys.modules if n.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return _quiet_import("torchvision")


def import_timm() -> Any:
    """Imports timm, which needs a working torchvision."""
    import_torchvision()
    return _quiet_import("timm")


def _quiet_import(package: str) -> Any:
    """Imports without torchvision's warning about codecs that driftnorm never uses."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to load image Python extension")
        return import_optional(package, "This model", "timm")


def _declare_missing_operators() -> None:
    global _declared
    if _declared is None:
        library: Any = torch.library  # its constructor carries no types
        _declared = library.Library("torchvision", "FRAGMENT")
        _declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

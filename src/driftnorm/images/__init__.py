"""Images of the user's own, as one ordered stream: folders, lists, arrays, archives.

Names are imported on first use: most of what lies in this package does without torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driftnorm.images.collate import as_batch as as_batch
    from driftnorm.images.collate import in_batches as in_batches
    from driftnorm.images.inputs import open_inputs as open_inputs
    from driftnorm.images.labels import Labels as Labels
    from driftnorm.images.labels import open_labels as open_labels
    from driftnorm.images.shuffled import Shuffled as Shuffled
    from driftnorm.images.stream import Inputs as Inputs
    from driftnorm.images.stream import Item as Item
    from driftnorm.images.stream import Survey as Survey

_HOMES = {
    "Inputs": "stream",
    "Item": "stream",
    "Labels": "labels",
    "Shuffled": "shuffled",
    "Survey": "stream",
    "as_batch": "collate",
    "in_batches": "collate",
    "open_inputs": "inputs",
    "open_labels": "labels",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'driftnorm.images' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"driftnorm.images.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

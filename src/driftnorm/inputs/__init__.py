"""Images of the user's own, as one ordered stream: folders, lists, arrays, archives."""

from driftnorm.inputs.batches import as_batch, in_batches
from driftnorm.inputs.labels import Labels, open_labels
from driftnorm.inputs.opening import open_inputs
from driftnorm.inputs.streaming import Inputs, Item, Survey

__all__ = [
    "Inputs",
    "Item",
    "Labels",
    "Survey",
    "as_batch",
    "in_batches",
    "open_inputs",
    "open_labels",
]

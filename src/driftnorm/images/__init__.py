"""Images of the user's own, as one ordered stream: folders, lists, arrays, archives."""

from driftnorm.images.collate import as_batch, in_batches
from driftnorm.images.labels import Labels, open_labels
from driftnorm.images.opener import open_inputs
from driftnorm.images.shuffled import Shuffled
from driftnorm.images.stream import Inputs, Item, Survey

__all__ = [
    "Inputs",
    "Item",
    "Labels",
    "Shuffled",
    "Survey",
    "as_batch",
    "in_batches",
    "open_inputs",
    "open_labels",
]

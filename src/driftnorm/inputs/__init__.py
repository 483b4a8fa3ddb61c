"""Images of the user's own, as one ordered stream: folders, lists, arrays, archives."""

from driftnorm.inputs.labels import Labels, open_labels
from driftnorm.inputs.opening import open_inputs
from driftnorm.inputs.streaming import Inputs, Item, Survey, in_batches

__all__ = ["Inputs", "Item", "Labels", "Survey", "in_batches", "open_inputs", "open_labels"]

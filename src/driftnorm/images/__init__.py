"""Images as data: your own in folders, lists, arrays and archives, and known data sets.

Most of this package does not import torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.images.embedded_digits import Digits as Digits
    from driftnorm.images.embedded_digits import split_digits as split_digits
    from driftnorm.images.image_set import Images as Images
    from driftnorm.images.image_set import ImageSet as ImageSet
    from driftnorm.images.inputs import open_inputs as open_inputs
    from driftnorm.images.labelled import load_clean as load_clean
    from driftnorm.images.labels import Labels as Labels
    from driftnorm.images.labels import open_labels as open_labels
    from driftnorm.images.pictures import PictureSet as PictureSet
    from driftnorm.images.shuffled import Shuffled as Shuffled
    from driftnorm.images.stream import Inputs as Inputs
    from driftnorm.images.stream import Item as Item
    from driftnorm.images.stream import Survey as Survey
    from driftnorm.images.stream import in_batches as in_batches
    from driftnorm.images.tensors import as_batch as as_batch

_HOMES = {
    "Digits": "embedded_digits",
    "ImageSet": "image_set",
    "Images": "image_set",
    "Inputs": "stream",
    "Item": "stream",
    "Labels": "labels",
    "PictureSet": "pictures",
    "Shuffled": "shuffled",
    "Survey": "stream",
    "as_batch": "tensors",
    "in_batches": "stream",
    "load_clean": "labelled",
    "open_inputs": "inputs",
    "open_labels": "labels",
    "split_digits": "embedded_digits",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

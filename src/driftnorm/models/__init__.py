"""Networks, weights and checkpoints.

`open_model` turns a name, with or without a weight file, or a file that describes itself into a
network that takes images in [0, 1], with all that goes with it; `load` gives the network alone.
`save_checkpoint` and `open_checkpoint` write and read files that need no name at all. Importing
this package imports torch only; safetensors, timm and torchvision are imported when first needed.
"""

from driftnorm.errors import CheckpointError
from driftnorm.models.architectures import MODELS, ModelFacts, build
from driftnorm.models.checkpoint_files import (
    Checkpoint,
    facts_in,
    open_checkpoint,
    save_checkpoint,
    weights_hash,
)
from driftnorm.models.loader import load, load_published
from driftnorm.models.normalized import Normalized, Preprocessing
from driftnorm.models.opened_model import Model, open_model
from driftnorm.models.sources import resolve
from driftnorm.models.weight_layouts import (
    fit_weights,
    head_of,
    load_weights,
    matching_architectures,
)

__all__ = [
    "MODELS",
    "Checkpoint",
    "CheckpointError",
    "Model",
    "ModelFacts",
    "Normalized",
    "Preprocessing",
    "build",
    "facts_in",
    "fit_weights",
    "head_of",
    "load",
    "load_published",
    "load_weights",
    "matching_architectures",
    "open_checkpoint",
    "open_model",
    "resolve",
    "save_checkpoint",
    "weights_hash",
]

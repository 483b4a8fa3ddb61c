"""Training: one loop, and recipes of losses.

`train` runs any step function over any source of batches, resumable to the bit; `RobustTraining`
is the training of the augmentation baselines on top of it.
"""

from driftnorm.errors import TrainingError
from driftnorm.training.augmentation.catalog import RECIPES, TrainingRecipe, make_recipe
from driftnorm.training.batches import Batch, ShuffledBatches, random_numbers
from driftnorm.training.loop import Hooks, LoopSettings, Progress, Stop, TrainState, train
from driftnorm.training.optimization import FULL, SHORT, Optimization, descend
from driftnorm.training.resume_file import ResumeFile
from driftnorm.training.robust import RobustTraining
from driftnorm.training.schedule import constant, cosine
from driftnorm.training.training_run import Outcome

__all__ = [
    "FULL",
    "RECIPES",
    "SHORT",
    "Batch",
    "Hooks",
    "LoopSettings",
    "Optimization",
    "Outcome",
    "Progress",
    "ResumeFile",
    "RobustTraining",
    "ShuffledBatches",
    "Stop",
    "TrainState",
    "TrainingError",
    "TrainingRecipe",
    "constant",
    "cosine",
    "descend",
    "make_recipe",
    "random_numbers",
    "train",
]

"""SGD along a cosine, and the step function that a recipe's losses make with it.

Schedule of the AugMix paper for all recipes: SGD with Nesterov momentum 0.9, weight decay 5e-4 on
all parameters, learning rate 0.1 falling to 1e-6 along a cosine, batch 128, 100 epochs.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from driftnorm._internal.arguments import check_number
from driftnorm.training.augmentation.catalog import TrainingRecipe
from driftnorm.training.batches import Batch
from driftnorm.training.loop import StepFunction, TrainState
from driftnorm.training.schedule import Schedule, cosine


@dataclasses.dataclass(frozen=True)
class Optimization:
    """SGD with a cosine schedule.

    Attributes:
        learning_rate: At the start.
        final_rate: At the end.
        momentum: Nesterov's.
        weight_decay: On all parameters.
        batch_size: Images per step.
        epochs: Passes over the training images, unless a time budget allows fewer.
    """

    learning_rate: float = 0.1
    final_rate: float = 1e-6
    momentum: float = 0.9
    weight_decay: float = 5e-4
    batch_size: int = 128
    epochs: float = 100

    def __post_init__(self) -> None:
        for name in ("learning_rate", "batch_size", "epochs"):
            check_number(name, getattr(self, name))
        for name in ("momentum", "weight_decay"):
            check_number(name, getattr(self, name), least=0)
        if not 0 <= self.final_rate <= self.learning_rate:
            raise ValueError(
                f"`final_rate` must be from 0 to the learning rate {self.learning_rate}, "
                f"got {self.final_rate}."
            )

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD at the rate of the start."""
        return torch.optim.SGD(
            parameters,
            lr=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.momentum > 0,
        )

    def schedule(self) -> Schedule:
        """From the rate of the start to that of the end."""
        return cosine(self.final_rate / self.learning_rate)

    def steps(self, images: int) -> int:
        """Steps for all epochs of a data set of this size."""
        return math.ceil(self.epochs * images / self.batch_size)


FULL = Optimization()
# For two CPU cores, starting from trained weights: a fifth of the rate, annealed to nothing.
SHORT = Optimization(learning_rate=0.02, final_rate=0.0, epochs=20)


def descend(recipe: TrainingRecipe) -> StepFunction[Batch]:
    """The step function of a recipe: one step down its loss."""

    def step(state: TrainState, batch: Batch) -> Mapping[str, float]:
        state.module.train()
        parts = recipe.losses(state.module, batch)
        for optimizer in state.optimizers.values():
            optimizer.zero_grad()
        parts["loss"].backward()  # type: ignore[no-untyped-call]
        for optimizer in state.optimizers.values():
            optimizer.step()
        return {name: float(value.detach()) for name, value in parts.items()}

    return step

"""PL: train every parameter on the own confident predictions (Lee 2013, as run online by T3A).

Formula:
    loss = mean cross-entropy to argmax where max softmax > threshold; no such sample, no step.

When it helps: rarely; it is a baseline. When it hurts: confident errors teach themselves.
"""

from typing import Literal

from driftnorm.objectives import PseudoLabel
from driftnorm.recipe import OptimizerChoice, Recipe, Trainable, learning_rate
from driftnorm.recipes.method import Method

__all__ = ["METHOD", "pl"]


def pl(
    *,
    threshold: float = 0.9,
    trainable: Trainable = "all",
    lr: float | None = None,
    rho: float | None = None,
    source_lr: float | None = None,
    weight_decay: float = 0.0,
    steps: int = 1,
    optimizer: OptimizerChoice = "adam",
    predict: Literal["before", "after"] = "before",
) -> Recipe:
    """Pseudo labels, source statistics.

    Args:
        threshold: Confidence that a pseudo label needs.
        trainable: What the labels teach: ``"all"``, or the ``"classifier"`` (PL-C).
        lr: Learning rate, 5e-5 (T3A's setting) unless ``rho`` is given.
        rho: Learning rate as a multiple of ``source_lr``.
        source_lr: The rate that the network was trained with.
        weight_decay: As the optimiser means it.
        steps: Gradient steps for each batch.
        optimizer: ``"adam"``, ``"sgd"``, ``"adamw"`` or a function.
        predict: Answer ``"before"`` or ``"after"`` the last step.
    """
    return Recipe(
        gradient="detached",
        objective=PseudoLabel(threshold),
        trainable=trainable,
        optimizer=optimizer,
        lr=learning_rate(lr, rho, source_lr, default=5e-5),
        weight_decay=weight_decay,
        steps=steps,
        predict=predict,
    )


METHOD = Method(
    name="pl",
    build=pl,
    paper="Lee 2013, ICML workshop",
    summary="confident pseudo labels, all parameters",
    helps="mild shift with a well-calibrated source; low rates",
    hurts="confident errors reinforce themselves",
)

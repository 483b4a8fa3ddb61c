"""SHOT, online: information maximisation plus confident pseudo labels (Liang et al. 2020).

Formula:
    loss = mean H(p) + sum_k pbar_k log(pbar_k + 1e-5) + weight * CE(confident pseudo labels);
    the whole feature extractor is trained, the classifier is fixed.

This is the online form of T3A's comparison; the original runs epochs with cluster labels. When it
helps: balanced classes, enough data. When it hurts: unbalanced classes (the diversity term spreads
predictions evenly), high rates.
"""

from typing import Literal

from driftnorm.objectives import InformationMaximization
from driftnorm.recipe import OptimizerChoice, Recipe, learning_rate
from driftnorm.recipes.method import Method

__all__ = ["METHOD", "shot"]


def shot(
    *,
    pseudo_label: float = 0.1,
    threshold: float = 0.9,
    lr: float | None = None,
    rho: float | None = None,
    source_lr: float | None = None,
    weight_decay: float = 0.0,
    steps: int = 1,
    optimizer: OptimizerChoice = "adam",
    predict: Literal["before", "after"] = "before",
) -> Recipe:
    """Information maximisation on the features, source statistics.

    Args:
        pseudo_label: Weight of the pseudo-label term; 0 is SHOT-IM.
        threshold: Confidence that a pseudo label needs.
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
        objective=InformationMaximization(pseudo_label, threshold),
        trainable="features",
        optimizer=optimizer,
        lr=learning_rate(lr, rho, source_lr, default=5e-5),
        weight_decay=weight_decay,
        steps=steps,
        predict=predict,
    )


METHOD = Method(
    name="shot",
    build=shot,
    paper="Liang et al. 2020, arXiv 2002.08546",
    summary="certain and diverse predictions, plus pseudo labels; trains all features",
    helps="balanced classes, other domains",
    hurts="unbalanced classes; high rates",
)

"""Tent: minimise entropy over the BN affine parameters, with batch statistics (Wang et al. 2021).

Formula:
    loss = mean over the batch of H(softmax(f(x))); gamma and beta of every BN layer are trained,
    through training-mode batch norm (paper, eq. 1 and 4).

When it helps: low-level shifts with i.i.d. classes and batches of 64 or more. When it hurts: many
classes with small batches, class-ordered streams, long streams with a high rate (collapse),
networks fine-tuned with frozen BN statistics. The answer is that of the pass before the step.
"""

from typing import Literal

from driftnorm.layers import GradientPath
from driftnorm.objectives import Entropy
from driftnorm.recipe import OptimizerChoice, Recipe, learning_rate
from driftnorm.recipes.method import Method
from driftnorm.selection import Selector
from driftnorm.statistics import Batch, Source, Statistics

__all__ = ["METHOD", "tent"]


def tent(
    *,
    statistics: Literal["batch", "source"] | Statistics = "batch",
    gradient: GradientPath = "preserved",
    lr: float | None = None,
    rho: float | None = None,
    source_lr: float | None = None,
    weight_decay: float = 0.0,
    steps: int = 1,
    optimizer: OptimizerChoice = "adam",
    predict: Literal["before", "after"] = "before",
    only: Selector | None = None,
) -> Recipe:
    """Entropy minimisation on the affine parameters.

    Args:
        statistics: ``"batch"`` is Tent; ``"source"`` is the paper's "BN, mu_r" row (an ordinary
            eval-mode layer: set ``gradient="detached"``).
        gradient: ``"detached"`` stops the gradient at the statistics: Tent(de), BN(de).
        lr: Learning rate, 1e-3 unless ``rho`` is given.
        rho: Learning rate as a multiple of ``source_lr``.
        source_lr: The rate that the network was trained with.
        weight_decay: As the optimiser means it.
        steps: Gradient steps for each batch.
        optimizer: ``"adam"``, ``"sgd"``, ``"adamw"`` or a function.
        predict: Answer ``"before"`` or ``"after"`` the last step.
        only: The layers that take part.
    """
    named: dict[str, Statistics] = {"batch": Batch(), "source": Source()}
    chosen = named.get(statistics) if isinstance(statistics, str) else statistics
    if chosen is None:
        raise ValueError(
            f"`statistics` must be 'batch', 'source' or a Statistics object, got {statistics!r}."
        )
    return Recipe(
        statistics=chosen,
        gradient=gradient,
        objective=Entropy(),
        trainable="affine",
        only=only,
        optimizer=optimizer,
        lr=learning_rate(lr, rho, source_lr),
        weight_decay=weight_decay,
        steps=steps,
        predict=predict,
    )


METHOD = Method(
    name="tent",
    build=tent,
    paper="Wang et al. 2021, arXiv 2006.10726",
    summary="entropy on the affine parameters, batch statistics",
    helps="corruptions, i.i.d. classes, batches of 64 or more",
    hurts="class-ordered or tiny batches; high rates; networks fine-tuned with frozen BN",
)

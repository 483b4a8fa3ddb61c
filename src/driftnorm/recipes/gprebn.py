"""GpreBN: gradient-preserving batch norm with dataset-level statistics (Yang et al. 2022).

Formula:
    y = ((x - mu_c) / s_c * sg(s_c) + sg(mu_c) - mu) / s * gamma + beta                    (eq. 6)
    mu, s^2: running over the test batches (eq. 9), mixed with the source by theta (eq. 10);
    gamma and beta are trained by entropy; sg stops the gradient.

When it helps: wherever Tent does, and also with small batches, because the statistics average over
the stream; theta < 1 carries it over to networks fine-tuned with frozen BN statistics. When it
hurts: streams whose shift changes abruptly without a reset (running statistics lag; use
``momentum``), and, like every entropy method, class-ordered streams at high rates.
"""

from typing import Literal

from driftnorm.layers import GradientPath
from driftnorm.objectives import Entropy
from driftnorm.recipe import OptimizerChoice, Recipe, learning_rate
from driftnorm.recipes.method import Method
from driftnorm.selection import Selector
from driftnorm.statistics import Batch, Mixture, Running, Source, Statistics

__all__ = ["METHOD", "gprebn"]


def gprebn(
    *,
    theta: float = 1.0,
    momentum: float | None = None,
    statistics: Literal["running", "source", "batch"] | Statistics = "running",
    gradient: GradientPath = "preserved",
    lr: float | None = None,
    rho: float | None = None,
    source_lr: float | None = None,
    weight_decay: float = 0.0,
    steps: int = 1,
    optimizer: OptimizerChoice = "adam",
    predict: Literal["before", "after"] = "before",
    count: Literal["batch", "step"] = "batch",
    only: Selector | None = None,
) -> Recipe:
    """The paper's method.

    Args:
        theta: Weight of the target statistics against the source's (eq. 10). 1 is the robustness
            setting; the domain-generalization one selects it on validation data.
        momentum: Exponential running average; ``None`` is the cumulative one.
        statistics: ``"running"`` (eq. 9), ``"source"``, ``"batch"`` (which is Tent), or an object.
        gradient: ``"preserved"`` (eq. 7), or ``"detached"`` for the ablation.
        lr: Learning rate, 1e-3 unless ``rho`` is given.
        rho: Learning rate as a multiple of ``source_lr``.
        source_lr: The rate that the network was trained with.
        weight_decay: As the optimiser means it.
        steps: Gradient steps for each batch (delta).
        optimizer: ``"adam"``, ``"sgd"``, ``"adamw"`` or a function.
        predict: Answer ``"before"`` or ``"after"`` the last step.
        count: Whether a batch enters the running statistics once or with every step.
        only: The layers that take part.
    """
    named: dict[str, Statistics] = {
        "running": Running(momentum=momentum),
        "source": Source(),
        "batch": Batch(),
    }
    chosen = named.get(statistics) if isinstance(statistics, str) else statistics
    if momentum is not None and statistics != "running":
        raise ValueError(
            f"`momentum` is that of running statistics, but `statistics` is {statistics!r}."
        )
    if chosen is None:
        raise ValueError(
            f"`statistics` must be one of {', '.join(map(repr, named))} or a Statistics object, "
            f"got {statistics!r}."
        )
    return Recipe(
        statistics=chosen if theta == 1 else Mixture(theta, chosen),
        gradient=gradient,
        objective=Entropy(),
        trainable="affine",
        only=only,
        optimizer=optimizer,
        lr=learning_rate(lr, rho, source_lr),
        weight_decay=weight_decay,
        steps=steps,
        predict=predict,
        count=count,
    )


METHOD = Method(
    name="gprebn",
    build=gprebn,
    paper="Yang et al. 2022, arXiv 2205.10210",
    summary="entropy on the affine parameters, running statistics, training-time gradient",
    helps="corruptions; small batches; with theta < 1, frozen-BN fine-tuned networks",
    hurts="abrupt changes of shift without a reset; class-ordered streams at high rates",
)

"""BN adapt: normalise with the statistics of the current batch (Nado et al. 2020).

Formula:
    mu, v = mean and biased variance of the batch, in every layer; the affine parameters stay.
"""

from typing import Literal

from driftnorm.methods._method import Method
from driftnorm.parts.choices import ThetaChoice, mixed
from driftnorm.parts.contract import Statistics
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Batch, Running
from driftnorm.recipe import Recipe


def bn(
    *,
    running: bool = False,
    momentum: float | None = None,
    theta: float | Literal["auto"] = 1.0,
    average: Literal["var", "std", "total"] = "var",
    only: Selector | None = None,
) -> Recipe:
    """Target statistics without optimisation.

    Args:
        running: Use test-time running statistics instead of the batch's own (the paper's rows
            "BN, mu_r^t" without optimisation).
        momentum: Weight of the new batch, in (0, 1]; ``None`` averages all batches equally.
        theta: Weight of the target statistics against the source's, in [0, 1]. ``"auto"`` runs
            theta 0, 0.2, 0.5 and 1 side by side and answers by the best, without labels.
        average: What running statistics average: variances (``"var"``, the paper), standard
            deviations (``"std"``), or raw second moments (``"total"``), which include the variance
            between batches, as batches of a few images need.
        only: The layers that use target statistics (``First(0.5)`` is the paper's "50 % target").
    """
    if momentum is not None and not running:
        raise ValueError("`momentum` belongs to running statistics: set `running=True` as well.")
    if average != "var" and not running:
        raise ValueError("`average` belongs to running statistics: set `running=True` as well.")
    statistics: Statistics = Running(momentum=momentum, average=average) if running else Batch()
    return Recipe(
        statistics=mixed(theta, statistics),
        gradient="detached",
        only=only,
        answer=(ThetaChoice(thetas=(0.0, 0.2, 0.5)),) if theta == "auto" else (),
    )


METHOD = Method(
    name="bn",
    build=bn,
    paper="Nado et al. 2020, arXiv 2006.10963; Schneider et al. 2020, arXiv 2006.16971",
    summary="statistics of the current batch, no gradient",
    helps=(
        "low-level shifts (noise, blur, weather), in batches of 64 or more; as cheap as inference"
    ),
    hurts=(
        "tiny or class-ordered batches; networks fine-tuned with frozen BN statistics, whose "
        "weights never saw normalised features"
    ),
)

"""GpreBN: gradient-preserving batch norm with dataset-level statistics (Yang et al. 2022).

Formula:
    y = ((x - mu_c) / s_c * sg(s_c) + sg(mu_c) - mu) / s * gamma + beta                    (eq. 6)
    mu, s^2: running over the test batches (eq. 9), mixed with the source by theta (eq. 10);
    gamma and beta are trained by entropy; sg stops the gradient.
"""

from typing import Literal

from typing_extensions import Unpack

from driftnorm.functional import GradientPath
from driftnorm.methods._method import Method
from driftnorm.parts.choices import ThetaChoice, mixed
from driftnorm.parts.contract import Statistics
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import Entropy
from driftnorm.parts.statistics import Batch, Running, Source
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe, optimised


def gprebn(
    *,
    theta: float | Literal["auto"] = 1.0,
    momentum: float | None = None,
    statistics: Literal["running", "source", "batch"] | Statistics = "running",
    gradient: GradientPath = "preserved",
    count: Literal["batch", "step"] = "batch",
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """The paper's method.

    Args:
        theta: Weight of the target statistics against the source's, in [0, 1] (eq. 10). 1 is the
            robustness setting; the domain-generalization one selects it on validation data.
            ``"auto"`` runs theta 0, 0.2, 0.5 and 1 side by side and answers by the best, without
            labels.
        momentum: Weight of the new batch, in (0, 1]; ``None`` averages all batches equally.
        statistics: ``"running"`` (eq. 9), ``"source"``, ``"batch"`` (which is Tent), or an object.
        gradient: ``"preserved"`` (eq. 7), or ``"detached"`` for the ablation.
        count: Whether a batch enters the running statistics once or with every step.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    named: dict[str, Statistics] = {
        "running": Running(momentum=momentum),
        "source": Source(),
        "batch": Batch(),
    }
    chosen = named.get(statistics) if isinstance(statistics, str) else statistics
    if momentum is not None and statistics != "running":
        raise ValueError(
            f"`momentum` belongs to running statistics, but `statistics` is {statistics!r}."
        )
    if chosen is None:
        raise ValueError(
            f"`statistics` must be one of {', '.join(map(repr, named))} or a Statistics object, "
            f"got {statistics!r}."
        )
    recipe = Recipe(
        statistics=mixed(theta, chosen),
        gradient=gradient,
        trainable="affine",
        loss=Entropy(),
        update=(Descent(),),
        only=only,
        count=count,
        answer=(ThetaChoice(thetas=(0.0, 0.2, 0.5)),) if theta == "auto" else (),
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="gprebn",
    build=gprebn,
    paper="Yang et al. 2022, arXiv 2205.10210",
    summary="entropy on the affine parameters, running statistics, training-time gradient",
    helps=(
        "corruptions, in batches of 16 or more; theta < 1, selected on held-out source images, "
        "does much less harm than Tent to networks fine-tuned with frozen BN statistics"
    ),
    hurts=(
        "fewer than 16 images per batch (use steady), at the default rate and on all but small "
        "digits; rates of 0.01 over long streams, where Tent still gained; shifts that change "
        "abruptly without a reset, since running statistics lag (use momentum); class-ordered "
        "streams at high rates"
    ),
)

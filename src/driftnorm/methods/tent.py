"""Tent: minimise entropy over the BN affine parameters, with batch statistics (Wang et al. 2021).

Formula:
    loss = mean over the batch of H(softmax(f(x))); gamma and beta of every BN layer are trained,
    through training-mode batch norm (paper, eq. 1 and 4).

Predictions come from the pass before the step.
"""

from typing import Literal

from typing_extensions import Unpack

from driftnorm.functional import GradientPath
from driftnorm.methods._method import Method
from driftnorm.parts.contract import Statistics
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import Entropy
from driftnorm.parts.statistics import Batch, Source
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe, optimised


def tent(
    *,
    statistics: Literal["batch", "source"] | Statistics = "batch",
    gradient: GradientPath = "preserved",
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Entropy minimisation on the affine parameters.

    Args:
        statistics: ``"batch"`` is Tent; ``"source"`` is the paper's "BN, mu_r" row (an ordinary
            eval-mode layer: set ``gradient="detached"``).
        gradient: ``"detached"`` stops the gradient at the statistics: Tent(de), BN(de).
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    named: dict[str, Statistics] = {"batch": Batch(), "source": Source()}
    chosen = named.get(statistics) if isinstance(statistics, str) else statistics
    if chosen is None:
        raise ValueError(
            f"`statistics` must be 'batch', 'source' or a Statistics object, got {statistics!r}."
        )
    recipe = Recipe(
        statistics=chosen,
        gradient=gradient,
        trainable="affine",
        loss=Entropy(),
        update=(Descent(),),
        only=only,
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="tent",
    build=tent,
    paper="Wang et al. 2021, arXiv 2006.10726",
    summary="entropy on the affine parameters, batch statistics",
    helps="low-level shifts with i.i.d. classes, in batches of 64 or more",
    hurts=(
        "many classes in small batches; class-ordered streams; long streams at a high rate "
        "(collapse); networks fine-tuned with frozen BN statistics"
    ),
)

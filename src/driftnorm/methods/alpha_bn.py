"""alpha-BN: a fixed mixture of source and current-batch statistics (You, Li and Zhao 2021).

Formula:
    mu = alpha mu_c + (1 - alpha) mu_s, likewise the variance.

Conventions clash between papers, so the argument says whose weight it is: the target's.
"""

from driftnorm._internal.arguments import check_number
from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Batch, Mixture
from driftnorm.recipe import Recipe


def alpha_bn(
    *, target_weight: float = 0.5, unbiased: bool = False, only: Selector | None = None
) -> Recipe:
    """Mix source and batch statistics, without optimisation.

    Args:
        target_weight: Weight of the batch's statistics, in [0, 1]; 0 is the source, 1 is BN adapt.
        unbiased: Take the unbiased variance of the batch, as public ports do.
        only: The layers that take part.
    """
    check_number("target_weight", target_weight, least=0, most=1)
    statistics = Mixture(target_weight, Batch(unbiased))
    return Recipe(statistics=statistics, gradient="detached", only=only)


METHOD = Method(
    name="alpha-bn",
    build=alpha_bn,
    paper="You, Li and Zhao 2021, arXiv 2110.04065",
    summary="fixed mixture of source and batch statistics, no gradient",
    helps=(
        "target statistics that help but do not fully fit the weights, as in networks fine-tuned "
        "with frozen BN"
    ),
    hurts=(
        "small batches, which stay noisy, since only the current one counts; needs a weight that "
        "suits the data"
    ),
)

"""BN adapt with a source prior (Schneider et al. 2020).

Formula:
    mu = N / (N + n) mu_s + n / (N + n) mu_c, likewise the variance; n images in the batch, N the
    number of images that the source statistics are worth.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Prior
from driftnorm.recipe import Recipe


def bn_prior(
    *, strength: float = 16.0, unbiased: bool = False, only: Selector | None = None
) -> Recipe:
    """The source as a prior worth ``strength`` images, mixed with the current batch.

    Args:
        strength: N above.
        unbiased: Take the unbiased variance of the batch, as public ports do.
        only: The layers that take part.
    """
    return Recipe(statistics=Prior(strength, unbiased), gradient="detached", only=only)


METHOD = Method(
    name="bn-prior",
    build=bn_prior,
    paper="Schneider et al. 2020, arXiv 2006.16971",
    summary="source statistics as a prior worth N images, updated by each batch",
    helps=(
        "batches too small to be trusted alone, where nothing may be carried from batch to batch "
        "(otherwise use steady)"
    ),
    hurts="strong shift with a large N, which keeps the statistics wrong",
)

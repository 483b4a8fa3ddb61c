"""Prior correction: move predictions towards the classes a batch seems to contain (ROID, 2024).

Formula:
    prior_k = mean p_k, smoothed by g = max(1/N, 1/K) / max prior to (prior + g) / (1 + g K);
    answer = log p + log prior. Gated: log p + g (log answer - log p), with g from 0 to 1 as far as
    labels seem to come in order.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.answers import PriorCorrection
from driftnorm.parts.neighbours import Gated
from driftnorm.recipe import Recipe


def prior(*, multiply: bool = False, gated: bool = False) -> Recipe:
    """Correct the predictions of a batch by their mean.

    Args:
        multiply: Multiply the logits by the prior, as the public code does, instead of adding its
            logarithm.
        gated: Only as far as labels come in order, by the predictions of recent images.
    """
    answer = PriorCorrection(multiply)
    return Recipe(answer=(Gated(answer) if gated else answer,))


METHOD = Method(
    name="prior",
    build=prior,
    paper="Marsden, Döbler and Yang 2024, arXiv 2306.00650",
    summary="predictions of a batch corrected by their mean, no gradient",
    helps="batches that contain few of the classes; networks without batch norm",
    hurts="networks that have collapsed, which it reinforces; balanced batches gain nothing",
)

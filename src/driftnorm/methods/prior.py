"""Prior correction: move answers towards the classes that a batch seems to hold (ROID, 2024).

Formula:
    prior_k = mean p_k, smoothed by g = max(1/N, 1/K) / max prior to (prior + g) / (1 + g K);
    answer = log p + log prior.

When it helps: batches that hold few of the classes. When it hurts: balanced batches gain nothing,
and a network that has collapsed is confirmed in it.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.answers import PriorCorrection
from driftnorm.recipe import Recipe

__all__ = ["METHOD", "prior"]


def prior(*, multiply: bool = False) -> Recipe:
    """Correct the answers to a batch by its mean prediction.

    Args:
        multiply: Multiply the logits by the prior, as the public code does, instead of adding its
            logarithm.
    """
    return Recipe(answer=(PriorCorrection(multiply),))


METHOD = Method(
    name="prior",
    build=prior,
    paper="Marsden, Döbler and Yang 2024, arXiv 2306.00650",
    summary="answers of a batch corrected by its mean prediction, no gradient",
    helps="batches that hold few of the classes; networks without batch norm",
    hurts="networks that have collapsed already",
)

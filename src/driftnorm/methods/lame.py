"""LAME: neighbours in feature space should agree (Boudiaf et al. 2022).

Formula:
    Y = softmax(log p + A Y), with A the affinity of unit features within the batch. Gated:
    log p + g (log Y - log p), with g from 0 to 1 as far as labels seem to come in order.
"""

from typing import Literal

from driftnorm.methods._method import Method
from driftnorm.parts.answers import Lame
from driftnorm.parts.neighbours import Gated
from driftnorm.recipe import Recipe


def lame(
    *,
    k: int = 5,
    kernel: Literal["rbf", "knn"] = "rbf",
    rounds: int = 100,
    gated: bool = False,
) -> Recipe:
    """Correct the predictions of a batch by their neighbours.

    Args:
        k: Neighbours, at least 1.
        kernel: ``"rbf"`` or ``"knn"``.
        rounds: Largest number of iterations of the fixed point, at least 1.
        gated: Only as far as labels come in order, by the predictions of recent images.
    """
    answer = Lame(k, kernel, rounds)
    return Recipe(answer=(Gated(answer) if gated else answer,))


METHOD = Method(
    name="lame",
    build=lame,
    paper="Boudiaf et al. 2022, arXiv 2201.05718",
    summary="predictions of a batch corrected by neighbours in feature space, no gradient",
    helps=(
        "labels that come in order, on top of any statistics (bn-window+lame); networks without "
        "batch norm"
    ),
    hurts="shuffled labels, where it blurs classes into each other, unless it is gated",
)

"""Source: no adaptation, the baseline that every gain is measured against.

Formula:
    y = (x - mu_r) / sigma_r * gamma + beta, with the statistics of training (paper, eq. 3).
"""

from driftnorm.methods._method import Method
from driftnorm.recipe import Recipe


def source() -> Recipe:
    """The network as it was trained."""
    return Recipe()


METHOD = Method(
    name="source",
    build=source,
    paper="-",
    summary="no adaptation",
    helps="data like those of training; batches of one",
    hurts="drifted data",
)

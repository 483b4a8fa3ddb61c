"""rT3A: running class centroids instead of a bank of supports (Yang et al. 2022).

Formula:
    c_i <- N_i / (N_i + m) c_i + m / (N_i + m) mean(z of class i in the batch);
    p = softmax(z . c_i)                                                                  (eq. 11)
"""

from typing import Literal

from driftnorm.methods._method import Method
from driftnorm.parts.answers import RunningCentroids
from driftnorm.recipe import Recipe


def rt3a(
    *,
    reading: Literal["normalized", "literal"] = "normalized",
    labels: Literal["linear", "centroids"] = "linear",
) -> Recipe:
    """Running-centroid classifier on unchanged features.

    Args:
        reading: How to read eq. 11: ``"normalized"``, as T3A treats features, or ``"literal"``.
        labels: Pseudo labels from the ``"linear"`` classifier or the ``"centroids"``.
    """
    return Recipe(answer=(RunningCentroids(reading, labels),))


METHOD = Method(
    name="rt3a",
    build=rt3a,
    paper="Yang et al. 2022, arXiv 2205.10210",
    summary="running class centroids as classifier, no gradient, constant memory",
    helps=(
        "other domains; on top of a feature-side method (gprebn+rt3a), where the classifier never "
        "saw the adapted features"
    ),
    hurts="mostly wrong pseudo labels; it does not save a feature-side method that collapses",
)

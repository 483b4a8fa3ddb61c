"""SHOT, online: information maximisation plus confident pseudo labels (Liang et al. 2020).

Formula:
    loss = mean H(p) + sum_k pbar_k log(pbar_k + 1e-5) + weight * CE(confident pseudo labels);
    the whole feature extractor is trained, the classifier is fixed.

This is the online form of T3A's comparison; the original runs epochs with cluster labels.
"""

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.parts.losses import InformationMaximization
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe, optimised


def shot(
    *,
    pseudo_label: float = 0.1,
    threshold: float = 0.9,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Information maximisation on the features, source statistics.

    Args:
        pseudo_label: Weight of the pseudo-label term; 0 is SHOT-IM.
        threshold: Confidence that a pseudo label needs.
        **optimising: Options of every method with a gradient; see ``Optimising``. The rate is 5e-5
            (T3A's setting) unless given.
    """
    recipe = Recipe(
        gradient="detached",
        trainable="features",
        loss=InformationMaximization(pseudo_label, threshold),
        update=(Descent(),),
    )
    return optimised(recipe, optimising, default_lr=5e-5)


METHOD = Method(
    name="shot",
    build=shot,
    paper="Liang et al. 2020, arXiv 2002.08546",
    summary="certain and diverse predictions, plus pseudo labels; trains all features",
    helps="balanced classes and enough data; other domains",
    hurts="unbalanced classes, since the diversity term spreads predictions evenly; high rates",
)

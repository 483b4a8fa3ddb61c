"""PL: train every parameter on confident predictions of its own (Lee 2013, as run online by T3A).

Formula:
    loss = mean cross-entropy to argmax where max softmax > threshold; without such a sample, no
    step.

A baseline.
"""

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.parts.losses import PseudoLabel
from driftnorm.parts.updates import Descent
from driftnorm.recipe import Optimising, Recipe, Trainable, optimised


def pl(
    *,
    threshold: float = 0.9,
    trainable: Trainable = "all",
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Pseudo labels, source statistics.

    Args:
        threshold: Confidence that a pseudo label needs.
        trainable: What is trained: ``"all"``, or the ``"classifier"`` (PL-C).
        **optimising: Options of every method with a gradient; see ``Optimising``. The rate is 5e-5
            (T3A's setting) unless given.
    """
    recipe = Recipe(
        gradient="detached",
        trainable=trainable,
        loss=PseudoLabel(threshold),
        update=(Descent(),),
    )
    return optimised(recipe, optimising, default_lr=5e-5)


METHOD = Method(
    name="pl",
    build=pl,
    paper="Lee 2013, ICML workshop",
    summary="confident pseudo labels, all parameters",
    helps="mild shift with a well-calibrated source, at low rates",
    hurts="confident errors, which reinforce themselves",
)

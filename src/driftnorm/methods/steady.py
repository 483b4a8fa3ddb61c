"""Steady: the default, for streams about which nothing is known.

Formula:
    Statistics of a window of the stream that forgets at a jump (``bn-window``), with its own window
    for each theta of a small grid; theta = 0 is the source.
    J(theta) = (H(mean p) - (1 + caution) mean H(p)) / (H(mean p) + 1/2) over about 256 recent
    images, from predictions alone; the theta with the highest J answers. theta: 0, 0.2, 0.5 and 1;
    the last must be better by 0.1.

When it helps: any stream, and any batch size from 1: shifts that change, come back or mix, clean
images in between, few of many classes. No gradient: two to three forward passes per batch. When it
hurts: on one long, steady shift in large batches, a gradient (``gprebn``) gains more; just after a
change, the wrong theta may answer for some images.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.choices import ThetaChoice
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Window
from driftnorm.recipe import Recipe

__all__ = ["METHOD", "steady"]


def steady(
    *,
    theta: float = 0.5,
    caution: float = 3.0,
    memory: float = 256.0,
    size: float = 2000.0,
    jump: float = 3.0,
    only: Selector | None = None,
) -> Recipe:
    """Windows of several thetas side by side, answered by the best, without optimisation.

    Args:
        theta: Weight of the window against the source in the network's own pass, in [0, 1]; the
            source itself, 0.2 and 1 are run beside it.
        caution: How much more the certainty of predictions counts than their spread.
        memory: Images over which predictions are averaged.
        size: Images that a window holds.
        jump: Multiple of the usual distance at the first layer that counts as a jump.
        only: The layers that take part.
    """
    return Recipe(
        statistics=Window(theta=theta, size=size, jump=jump),
        gradient="detached",
        answer=(ThetaChoice(thetas=(0.0, 0.2, 1.0), caution=caution, memory=memory),),
        only=only,
    )


METHOD = Method(
    name="steady",
    build=steady,
    paper="this project, after Yang et al. 2022 and Schneider et al. 2020",
    summary="windows of several thetas, answered by the best without labels, no gradient",
    helps="any stream and any batch size: shifts that change, clean images, few of many classes",
    hurts="one long, steady shift in large batches, where a gradient gains more",
)

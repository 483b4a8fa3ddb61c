"""Steady: the default, for streams about which nothing is known.

Formula:
    Statistics of a window of the stream that forgets at a jump (``bn-window``), with its own window
    for each theta of a small grid: 0 (the source), 0.2, 0.5, 1, and 1 over about 16 images only.
    J = (H(mean p) - (1 + caution) mean H(p)) / (H(mean p) + 1/2), from predictions alone: mean p
    over about 4,000 images, mean H(p) over 256. For labels in order, J grows by
    order * (mean p_i . p_(i+1) - |mean p|^2) where neighbours are alike, and that of the source by
    trust * (1 - H(mean p) / ln K)^2 (1 + 64 / n) after n images. The answer is the mean of the
    probabilities with weights exp(J / t), where t = 0.1 (h / ln K)^2 and h is the lowest H(mean p):
    with few classes the best one answers alone.

No gradient: up to five forward passes per batch.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.choices import ThetaChoice
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Window
from driftnorm.recipe import Recipe


def steady(
    *,
    theta: float = 0.5,
    caution: float = 3.0,
    memory: float = 256.0,
    spread_memory: float = 4000.0,
    size: float = 2000.0,
    jump: float = 3.0,
    short: float = 16.0,
    temperature: float = 0.1,
    trust: float = 0.2,
    order: float = 2.0,
    margin: float = 0.2,
    only: Selector | None = None,
) -> Recipe:
    """Windows of several thetas side by side, weighted in the answer, without optimisation.

    Args:
        theta: Weight of the window against the source in the network's own pass, in [0, 1]; the
            source itself, 0.2 and 1 are run beside it, and 1 over a short window.
        caution: How much more the certainty of predictions counts than their spread.
        memory: Images over which the certainty of predictions is averaged.
        spread_memory: Images over which their spread is.
        size: Images that a window holds.
        jump: Multiple of the usual distance at the first layer that counts as a jump.
        short: Images of the short window; 0 turns it off.
        temperature: How far behind a theta may be and still have a third of the best one's weight;
            at 0 the best one answers alone.
        trust: How much the source is favoured where it predicts few classes.
        order: How much it counts that neighbours are predicted alike, where labels come in order.
        margin: How far behind a theta may be and still be run on every batch; less is cheaper.
        only: The layers that take part.
    """
    choice = ThetaChoice(
        thetas=(0.0, 0.2, 1.0),
        short=short,
        caution=caution,
        memory=memory,
        spread_memory=spread_memory,
        trust=trust,
        temperature=temperature,
        order=order,
        margin=margin,
    )
    return Recipe(
        statistics=Window(theta=theta, size=size, jump=jump),
        gradient="detached",
        answer=(choice,),
        only=only,
    )


METHOD = Method(
    name="steady",
    build=steady,
    paper="this project, after Yang et al. 2022 and Schneider et al. 2020",
    summary="windows of several thetas, weighted without labels, no gradient",
    helps=(
        "streams about which nothing is known, and any batch size from 1: shifts that change, come"
        " back or mix, clean images in between, few of many classes"
    ),
    hurts=(
        "images in order of class that the network predicts badly, where it may end below the"
        " source; one long, steady shift in large batches, where a gradient (gprebn) gains more;"
        " just after a change, some images may be answered by the wrong theta"
    ),
)

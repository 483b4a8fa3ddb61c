"""SAR: sharpness-aware entropy on reliable samples, with recovery (Niu et al. 2023).

Formula:
    keep H < margin ln K; e = radius g / |g|; the gradient at w + e, of kept samples that are still
    below the margin there; a step from w. If an average of that loss falls below floor ln K,
    restart.
"""

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.parts.layers import First, Selector
from driftnorm.parts.losses import Entropy, Weighted
from driftnorm.parts.reviews import LossFloor
from driftnorm.parts.statistics import Batch
from driftnorm.parts.updates import Ascent, Descent
from driftnorm.parts.weights import Reliable
from driftnorm.recipe import Optimising, Recipe, optimised


def sar(
    *,
    margin: float = 0.4,
    radius: float = 0.05,
    floor: float = 0.029,
    trained: float = 1.0,
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Sharpness-aware entropy minimisation.

    Args:
        margin: Entropy below which a sample counts, as a share of ln K.
        radius: How far up the loss the gradient is taken.
        floor: Average loss, as a share of ln K, below which the network must have collapsed.
        trained: The first share of the layers that takes part (SAR leaves out the last stage).
        only: The layers that take part, instead of ``trained``.
        **optimising: Options of every method with a gradient; see ``Optimising``. The optimiser is
            "sgd-plain" unless given.
    """
    if only is None and trained != 1:
        only = First(trained)
    recipe = Recipe(
        statistics=Batch(),
        only=only,
        trainable="affine",
        loss=Weighted(Entropy(), (Reliable(margin, weigh=False),)),
        update=(Ascent(Descent("sgd-plain"), radius),),
        review=(LossFloor(floor),),
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="sar",
    build=sar,
    paper="Niu et al. 2023, arXiv 2302.12400",
    summary="sharpness-aware entropy on reliable samples; restarts after a collapse",
    helps=(
        "small batches and mixed shifts, especially on networks with group or layer norm; rates "
        "that collapse Tent"
    ),
    hurts=(
        "tiny batches on batch norm, whose statistics are as noisy as ever; twice the cost of Tent"
    ),
)

"""Window statistics: half source, half a window of the stream that forgets at a jump.

Formula:
    S <- (1 - 1/W)^n S + n samples of evidence; the batch has weight n / S in averages of mean and
    raw second moment; the target has weight min(theta, S / (S + prior)) against the source. If the
    first layer's moments over the last 32 images jump, S <- 0.01 S + n, in all layers.

No gradient: as cheap as inference.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.statistics import Window
from driftnorm.recipe import Recipe

SMALL_BATCH = 16
"""Below this batch size, use steady or this method (docs/choosing.md, small batches)."""


def bn_window(
    *,
    theta: float = 0.5,
    size: float = 2000.0,
    prior: float = 16.0,
    jump: float = 3.0,
    forget: float = 0.01,
    only: Selector | None = None,
) -> Recipe:
    """A sample-counted window, mixed with the source, without optimisation.

    Args:
        theta: Largest weight of the window against the source, in [0, 1].
        size: Samples that the window holds (W above).
        prior: Samples after which the window may reach a weight of 0.5.
        jump: Multiple of the usual distance at the first layer that counts as a jump.
        forget: The share of the evidence that survives a jump.
        only: The layers that take part.
    """
    window = Window(theta=theta, size=size, prior=prior, jump=jump, forget=forget)
    return Recipe(statistics=window, gradient="detached", only=only)


METHOD = Method(
    name="bn-window",
    build=bn_window,
    paper="this project, after Yang et al. 2022 and Schneider et al. 2020",
    summary="half source, half a window of the stream that forgets at a jump, no gradient",
    helps=(
        "streams whose shift changes without notice; batches of any size, especially fewer than 16"
        " images, down to one"
    ),
    hurts=(
        "one long, steady shift, where gprebn gains more; a source that is completely wrong, which"
        " still counts for half"
    ),
)

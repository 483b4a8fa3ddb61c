"""RDumb: ETA that resets after a fixed number of batches (Press et al. 2023).

Formula:
    as ETA; every 1,000 batches all that was learned is forgotten.
"""

from dataclasses import replace

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.methods.eta import eta
from driftnorm.parts.layers import Selector
from driftnorm.recipe import Optimising, Recipe


def rdumb(
    *,
    every: int = 1000,
    margin: float = 0.4,
    similarity: float = 0.4,
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """ETA with periodic resets.

    Args:
        every: Batches between resets.
        margin: As in ``eta``.
        similarity: As in ``eta``.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    recipe = eta(margin=margin, similarity=similarity, only=only, **optimising)
    return replace(recipe, reset_every=every)


METHOD = Method(
    name="rdumb",
    build=rdumb,
    paper="Press et al. 2023, arXiv 2306.05401",
    summary="as eta, with a reset every 1,000 batches",
    helps="streams so long that every method without a reset decays",
    hurts="right after each reset; class-ordered or tiny batches",
)

"""ETA: entropy on reliable, non-redundant samples (Niu et al. 2022, EATA without its Fisher term).

Formula:
    loss = mean over kept of exp(E0 - H_i) H_i, with E0 = margin ln K; kept: H_i < E0 and
    |cos(pbar, p_i)| < similarity, with pbar an average of the mean prediction of those kept.
"""

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import Entropy, Weighted
from driftnorm.parts.statistics import Batch
from driftnorm.parts.updates import Descent
from driftnorm.parts.weights import Diverse, Reliable
from driftnorm.recipe import Optimising, Recipe, optimised


def eta(
    *,
    margin: float = 0.4,
    similarity: float = 0.4,
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Entropy minimisation on selected samples.

    Args:
        margin: Entropy below which a sample counts, as a share of ln K.
        similarity: Cosine to the average prediction from which a sample is redundant: 0.4 for
            10 classes, 0.1 for 100, 0.05 for 1,000 in public settings.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    recipe = Recipe(
        statistics=Batch(),
        only=only,
        trainable="affine",
        loss=Weighted(Entropy(), (Reliable(margin), Diverse(similarity))),
        update=(Descent(),),
    )
    return optimised(recipe, optimising)


METHOD = Method(
    name="eta",
    build=eta,
    paper="Niu et al. 2022, arXiv 2204.02610",
    summary="entropy on reliable, non-redundant samples, batch statistics",
    helps="corruptions, as Tent, with fewer steps on samples that teach nothing",
    hurts="class-ordered or tiny batches; strong shift, of which the margin keeps nearly no sample",
)

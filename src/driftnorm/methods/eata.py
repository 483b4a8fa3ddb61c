"""EATA: ETA that does not forget the source (Niu et al. 2022).

Formula:
    ETA's loss + fisher * sum_j F_j (w_j - w0_j)^2, with F the mean squared gradient of the
    cross-entropy to the network's own predictions on source-domain images.

It must see a few hundred source-domain images first, without labels: ``adapter.fit(images)``, or
`--source-images`.
"""

from dataclasses import replace

from typing_extensions import Unpack

from driftnorm.methods._method import Method
from driftnorm.methods.eta import eta
from driftnorm.parts.layers import Selector
from driftnorm.parts.losses import Fisher
from driftnorm.recipe import Optimising, Recipe


def eata(
    *,
    margin: float = 0.4,
    similarity: float = 0.4,
    fisher: float = 1.0,
    only: Selector | None = None,
    **optimising: Unpack[Optimising],
) -> Recipe:
    """Entropy minimisation on selected samples; parameters that matter to the source are held.

    Args:
        margin: Entropy below which a sample counts, as a share of ln K.
        similarity: As in ``eta``.
        fisher: Weight of the Fisher term: 1 for CIFAR in public settings, 2,000 for ImageNet.
        only: The layers that take part.
        **optimising: Options of every method with a gradient; see ``Optimising``.
    """
    recipe = eta(margin=margin, similarity=similarity, only=only, **optimising)
    assert recipe.loss is not None
    return replace(recipe, loss=recipe.loss + Fisher(fisher))


METHOD = Method(
    name="eata",
    build=eata,
    paper="Niu et al. 2022, arXiv 2204.02610",
    summary="as eta, but holds parameters that matter to the source; needs adapter.fit(images)",
    helps="long streams that return to clean data",
    hurts=(
        "class-ordered or tiny batches; strong shift that leaves no reliable sample; needs source-"
        "domain images"
    ),
)

"""T3A: classify by the most certain features seen (Iwasawa and Matsuo 2021).

Formula:
    w_k = normalised sum of the M lowest-entropy unit features pseudo-labelled k (and the trained
    classifier's rows); logits = z . w_k. The batch is added before it is classified.
"""

from driftnorm.methods._method import Method
from driftnorm.parts.answers import T3A
from driftnorm.recipe import Recipe


def t3a(*, supports: int = 20) -> Recipe:
    """Support-based classifier on unchanged features.

    Args:
        supports: Supports kept per class (M); -1 keeps all.
    """
    return Recipe(answer=(T3A(supports),))


METHOD = Method(
    name="t3a",
    build=t3a,
    paper="Iwasawa and Matsuo 2021, NeurIPS",
    summary="classifier from the M most certain features of each class, no gradient",
    helps=(
        "shifts that move whole classes in feature space (other domains); networks without batch "
        "norm"
    ),
    hurts=(
        "low-level corruptions, which have already spoilt the features; wrong pseudo labels, which"
        " stay in the bank"
    ),
)

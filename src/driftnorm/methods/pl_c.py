"""PL-C: pseudo labels that train the classifier only (Lee 2013, as run online by T3A).

Formula:
    as PL, with the last linear layer as the only trainable part.

No gradient enters the features, so it is cheap.
"""

from functools import partial

from driftnorm.methods._method import Method
from driftnorm.methods.pl import pl

METHOD = Method(
    name="pl-c",
    build=partial(pl, trainable="classifier"),
    paper="Lee 2013, ICML workshop",
    summary="confident pseudo labels, classifier only",
    helps="mild shift; networks without batch norm",
    hurts=(
        "features that are spoilt, which it cannot repair; confident errors, which reinforce "
        "themselves"
    ),
)

"""SHOT-IM: SHOT without pseudo labels (Liang et al. 2020).

Formula:
    loss = mean H(p) + sum_k pbar_k log(pbar_k + 1e-5).
"""

from functools import partial

from driftnorm.methods._method import Method
from driftnorm.methods.shot import shot

METHOD = Method(
    name="shot-im",
    build=partial(shot, pseudo_label=0.0),
    paper="Liang et al. 2020, arXiv 2002.08546",
    summary="certain and diverse predictions; trains all features",
    helps="balanced classes and enough data; other domains",
    hurts="unbalanced classes, since the diversity term spreads predictions evenly; high rates",
)

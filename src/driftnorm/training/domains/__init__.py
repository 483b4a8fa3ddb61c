"""Training on several domains: twelve algorithms, their hyper-parameters, one run, a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.training.domains.algorithm import Algorithm as Algorithm
    from driftnorm.training.domains.algorithm import DomainBatch as DomainBatch
    from driftnorm.training.domains.algorithm import Minibatch as Minibatch
    from driftnorm.training.domains.algorithm import descend as descend
    from driftnorm.training.domains.algorithms import ALGORITHMS as ALGORITHMS
    from driftnorm.training.domains.algorithms import find_algorithm as find_algorithm
    from driftnorm.training.domains.domain_training import DomainTraining as DomainTraining
    from driftnorm.training.domains.hparams import default_hparams as default_hparams
    from driftnorm.training.domains.network import DomainNetwork as DomainNetwork
    from driftnorm.training.domains.sweep import Sweep as Sweep

_HOMES = {
    "ALGORITHMS": "algorithms",
    "Algorithm": "algorithm",
    "DomainBatch": "algorithm",
    "DomainNetwork": "network",
    "DomainTraining": "domain_training",
    "Minibatch": "algorithm",
    "Sweep": "sweep",
    "default_hparams": "hparams",
    "descend": "algorithm",
    "find_algorithm": "algorithms",
}
__all__ = [*_HOMES]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

"""ERM: empirical risk minimisation on the pooled domains (Vapnik 1998).

Formula:
    loss = CE(c(f(X)), Y) over the concatenation of all domains' minibatches: with equal sizes, the
    mean of the domains' losses. One forward pass.
"""

from __future__ import annotations

from collections.abc import Mapping

from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend, mean_cross_entropy
from driftnorm.training.loop import TrainState


class ERM(Algorithm):
    """Plain training on everything."""

    name = "erm"

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the joint batch."""
        loss = mean_cross_entropy(self.network, batch.joint())
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

"""Inter-domain Mixup: train on blends of images from different domains.

Xu et al., "Adversarial Domain Adaptation with Domain Mixup", AAAI 2020, and Yan et al., "Improve
Unsupervised Domain Adaptation with Mixup Training", 2020, as DomainBed reads them for
generalization.

Formula:
    A random order p of the K domains makes a ring of pairs (p_0, p_1), ..., (p_{K-1}, p_0), both
    cut to the shorter minibatch. For each pair, one lambda ~ Beta(alpha, alpha):
    z = c(f(lambda x_i + (1 - lambda) x_j)),
    loss = mean over pairs of lambda CE(z, y_i) + (1 - lambda) CE(z, y_j).
    One forward pass per pair, so each step costs what ERM's does.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch, descend
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState


class Mixup(Algorithm):
    """Blends images and labels across domains.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        alpha: Of the Beta distribution of the blend; small means that one image prevails.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "mixup"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        alpha: float = 0.2,
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("alpha", alpha)
        self.alpha = alpha

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the mean loss of the pairs."""
        order = batch.rng.permutation(len(batch.minibatches))
        ring = [batch.minibatches[place] for place in order]
        losses = [
            self._blended_loss(one, other, float(batch.rng.beta(self.alpha, self.alpha)))
            for one, other in zip(ring, ring[1:] + ring[:1], strict=True)
        ]
        loss = torch.stack(losses).mean()
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

    def _blended_loss(self, one: Minibatch, other: Minibatch, share: float) -> Tensor:
        size = min(len(one.labels), len(other.labels))
        logits = self.network(share * one.images[:size] + (1 - share) * other.images[:size])
        own = F.cross_entropy(logits, one.labels[:size])
        return share * own + (1 - share) * F.cross_entropy(logits, other.labels[:size])

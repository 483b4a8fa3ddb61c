"""GroupDRO: the worst domain weighs most.

Sagawa, Koh, Hashimoto and Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR
2020, algorithm 1, with the domains as groups.

Formula:
    q in R^K starts at 1/K. With l_k = CE(c(f(x_k)), y_k), one forward pass per domain:
    q_k <- q_k exp(eta l_k), q <- q / sum q (no gradient through it), loss = sum_k q_k l_k.
    DomainBed starts q at ones, which the first normalisation makes the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend, mean_cross_entropy
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState


class GroupDRO(Algorithm):
    """Weights the domains' losses by how large they have been.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        eta: How fast the weights follow the losses.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "groupdro"
    q: Tensor

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        eta: float = 1e-2,
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("eta", eta, least=0)
        self.eta = eta
        self.register_buffer("q", torch.full((domains,), 1 / domains))

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """Update the weights of the domains, then take one Adam step on the weighted loss."""
        losses = torch.stack([mean_cross_entropy(self.network, m) for m in batch.minibatches])
        grown = self.q * torch.exp(self.eta * losses.detach())
        self.q.copy_(grown / grown.sum())
        loss = (self.q * losses).sum()
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

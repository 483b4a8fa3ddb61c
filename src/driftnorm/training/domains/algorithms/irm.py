"""IRM: a classifier that is optimal in every domain at once.

Arjovsky, Bottou, Gulrajani and Lopez-Paz, "Invariant Risk Minimization", 2019 (IRMv1).

Formula:
    One joint forward pass, logits z split by domain. With a dummy scale w = 1 on the logits,
    penalty_k = (d/dw CE(w z_even, y_even)) (d/dw CE(w z_odd, y_odd)) over the samples at even and
    at odd places of the domain's minibatch: an unbiased estimate of the squared derivative, which
    can be negative. d/dw CE(w z, y) at w = 1 is the mean of sum_c softmax(z)_c z_c - z_y.
    loss = mean_k CE_k + P mean_k penalty_k, P = 1 in the first ``anneal_steps`` steps, then
    ``penalty_weight``. At the change, Adam is restarted, since its moments belong to another loss.
    As in DomainBed, the loss is not divided by P.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState


class IRM(Algorithm):
    """Penalises how much each domain would rescale the logits.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        penalty_weight: Of the penalty, once training has settled (lambda).
        anneal_steps: How many steps the weight is 1 before.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "irm"
    updates: Tensor

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        penalty_weight: float = 100.0,
        anneal_steps: int = 500,
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("penalty_weight", penalty_weight, least=0)
        check_number("anneal_steps", anneal_steps, least=0, whole=True)
        self.penalty_weight, self.anneal_steps = penalty_weight, anneal_steps
        self.register_buffer("updates", torch.zeros((), dtype=torch.long))

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step, the first of a new Adam where the weight of the penalty changes."""
        sizes = [len(m.labels) for m in batch.minibatches]
        logits = self.network(batch.joint().images).split(sizes)
        labels = [m.labels for m in batch.minibatches]
        both = list(zip(logits, labels, strict=True))
        risk = torch.stack([F.cross_entropy(*own) for own in both]).mean()
        penalty = torch.stack([_penalty(*own) for own in both]).mean()
        updates, adam = int(self.updates), state.optimizers["adam"]
        weight = 1.0 if updates < self.anneal_steps else self.penalty_weight
        loss = risk + weight * penalty
        if updates == self.anneal_steps:
            adam.state.clear()
        descend(adam, loss)
        self.updates += 1
        return {"loss": loss.item(), "risk": risk.item(), "penalty": penalty.item()}


def _penalty(logits: Tensor, labels: Tensor) -> Tensor:
    if len(labels) < 2:
        raise ValueError(
            f"`batch` must have at least 2 images of each domain to split, got {len(labels)}."
        )
    return _scale_slope(logits[::2], labels[::2]) * _scale_slope(logits[1::2], labels[1::2])


def _scale_slope(logits: Tensor, labels: Tensor) -> Tensor:
    """How the cross-entropy changes with a factor on the logits, at the factor 1."""
    expected = (logits.softmax(1) * logits).sum(1)
    return (expected - logits.gather(1, labels[:, None]).squeeze(1)).mean()

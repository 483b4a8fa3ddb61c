"""What CORAL and MMD share: classification, and features that are alike in every two domains.

Formula:
    loss = mean_k CE(c(F_k), y_k) + gamma x mean over the K (K - 1) / 2 pairs of D(F_i, F_j),
    F_k = f(x_k) what the classifier gets (pooled, after dropout), one forward pass per domain.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from itertools import combinations

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState


class FeaturePenalty(Algorithm):
    """Classification, and a penalty on the distance between the features of every two domains.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        gamma: Weight of the penalty.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    trains_features = "its penalty acts on the features alone"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        gamma: float = 1.0,
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("gamma", gamma, least=0)
        self.gamma = gamma

    @abstractmethod
    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        """D of two domains' features, (N, width) and (M, width)."""

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on classification and penalty."""
        features = [self.network.features(m.images) for m in batch.minibatches]
        classification = torch.stack(
            [
                F.cross_entropy(self.network.classifier(own), m.labels)
                for own, m in zip(features, batch.minibatches, strict=True)
            ]
        ).mean()
        distances = [self.distance(*pair) for pair in combinations(features, 2)]
        # One domain has nothing to be matched with.
        penalty = torch.stack(distances).mean() if distances else torch.zeros(())
        loss = classification + self.gamma * penalty
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item(), "penalty": penalty.item()}

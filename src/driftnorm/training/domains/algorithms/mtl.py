"""MTL: a classifier that also gets an embedding of the domain.

Blanchard, Deshmukh, Dogan, Lee and Scott, "Domain Generalization by Marginal Transfer Learning",
JMLR 2021; the networks' version of it is DomainBed's.

Formula:
    Per-domain forward passes. With m_k the mean feature of domain k's minibatch and E_k a memory
    that starts at 0, e_k = ema m_k + (1 - ema) E_k (ema weighs the *new* mean), then E_k <- e_k
    without gradient. loss = **sum** over the domains of CE(c([f(x_k) ; e_k]), y_k). At test time
    e is the mean feature of the batch, without memory. Two readings:

    * ``"paper"``: as written.
    * ``"domainbed"``: as DomainBed's code runs: e is overwritten by standard normal noise, new for
      every image, in training and at test time, so that no gradient flows through it and
      predictions are random.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.models.deployed import Embedding, MtlHead
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.settings import Reading
from driftnorm.training.loop import TrainState


class MTL(Algorithm):
    """Trains on features and the embedding of their domain.

    Args:
        network: Changed in place; its classifier is replaced by one that takes an embedding too.
        domains: How many training domains there are.
        ema: Weight of the new mean feature in a domain's embedding.
        reading: Whose, see above.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "mtl"
    embeddings: Tensor

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        ema: float = 0.99,
        reading: Reading = "paper",
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("ema", ema, least=0, most=1)
        check_choice("reading", reading, get_args(Reading))
        self.ema, self.reading = ema, reading
        weight = network.classifier.weight
        embedding: Embedding = "noise" if reading == "domainbed" else "mean"
        head = MtlHead(network.width, network.num_classes, embedding)
        network.classifier = head.to(weight)
        self.register_buffer("embeddings", weight.new_zeros(domains, network.width))

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the sum of the domains' losses."""
        losses = []
        for number, own in enumerate(batch.minibatches):
            features = self.network.features(own.images)
            logits = self.network.classifier(features, self._embedding(features, number))
            losses.append(F.cross_entropy(logits, own.labels))
        loss = torch.stack(losses).sum()
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

    def _embedding(self, features: Tensor, domain: int) -> Tensor:
        # A clone: the memory changes below, and the graph must keep what it was computed with.
        before = self.embeddings[domain].clone()
        embedding = self.ema * features.mean(0) + (1 - self.ema) * before
        self.embeddings[domain] = embedding.detach()
        return torch.randn_like(features) if self.reading == "domainbed" else embedding

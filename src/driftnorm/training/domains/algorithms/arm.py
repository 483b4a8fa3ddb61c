"""ARM-CML: a network that learns to use a context of the images around it.

Zhang, Marklund, Dhawan, Gupta, Levine and Finn, "Adaptive Risk Minimization: Learning to Adapt to
Domain Shift", NeurIPS 2021 (the contextual meta-learner).

Formula:
    One joint forward pass. A context network g (5x5 convolutions C -> 64 -> 64 -> 1 with BN and
    ReLU between them, same size) makes a map of every image; the maps of a group of images of one
    domain are averaged and appended to each image of the group: loss = CE of
    c(f([x ; mean over the group of g(x')])). The backbone's first convolution takes one channel
    more, which starts with the filters of the first. Test time: see `ArmNetwork`. Two readings:

    * ``"paper"``: the context network is trained with the rest.
    * ``"domainbed"``: as DomainBed's code runs: the optimiser is made before the context network,
      which therefore keeps its first weights; and the network for digits, which no pre-training
      gave any filters, starts with a new first convolution for all its channels.

    In both, the context network's batch norm is trained normally, whatever the backbone's mode is:
    it is new, and frozen statistics of a new network would describe nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import torch
from torch import nn

from driftnorm._internal.arguments import check_choice
from driftnorm.models import Normalized
from driftnorm.models.channels import first_convolution
from driftnorm.models.deployed import ArmNetwork
from driftnorm.models.mnist_cnn import MnistNet
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend, mean_cross_entropy
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.settings import Reading
from driftnorm.training.loop import TrainState


class ARM(Algorithm):
    """Trains with the context of each domain's minibatch.

    Args:
        network: Changed in place: a context network stands before it.
        domains: How many training domains there are.
        group_size: Images that share a context; each domain's minibatch must be a multiple of it.
            DomainBed trains with minibatches of this size (8; on MNIST, as many as there are).
        context_channels: Channels of the context (the authors take 12 in their MNIST example).
        reading: Whose, see above.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "arm"
    trains_features = "its context is a new input of the features"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        group_size: int = 8,
        context_channels: int = 1,
        reading: Reading = "paper",
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_choice("reading", reading, get_args(Reading))
        self.reading, self.group_size = reading, group_size
        whole = network.featurizer
        if isinstance(whole, Normalized):  # the context is made of normalised images
            whole.network = ArmNetwork(whole.network, group_size, context_channels)
        else:
            network.featurizer = ArmNetwork(whole, group_size, context_channels)
        if reading == "domainbed" and isinstance(base := self._network.network, MnistNet):
            first_convolution(base).reset_parameters()
        network.head_name = f"network.{network.head_name}"
        self.train(self.training)

    @property
    def context(self) -> nn.Module:
        """The context network."""
        return self._network.context

    @property
    def _network(self) -> ArmNetwork:
        found = (m for m in self.network.featurizer.modules() if isinstance(m, ArmNetwork))
        return next(found)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """One Adam, in DomainBed's reading without the context network."""
        aside = set(self.context.parameters()) if self.reading == "domainbed" else set()
        return {"adam": self.adam(*(p for p in self.parameters() if p not in aside))}

    def train(self, mode: bool = True) -> ARM:
        """As usual; the context network's statistics are never frozen."""
        super().train(mode)
        self.context.train(mode)
        return self

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the joint batch, each group with its context."""
        for own in batch.minibatches:
            if len(own.images) % self.group_size:
                raise ValueError(
                    f"`group_size` must divide the number of images of each domain, got groups of "
                    f"{self.group_size} and a minibatch of {len(own.images)}; a group across "
                    "domains would have a context of neither."
                )
        loss = mean_cross_entropy(self.network, batch.joint())
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

"""The contract of a training algorithm on several domains.

A step gets one minibatch from each training domain, in the order of the domains, and changes the
parameters. What is deployed afterwards is an ordinary network, or says how it differs from one.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.loop import TrainState


@dataclasses.dataclass(frozen=True)
class Minibatch:
    """Augmented images in [0, 1], (N, C, H, W), and class numbers (N,) of one domain."""

    images: Tensor
    labels: Tensor


@dataclasses.dataclass(frozen=True)
class DomainBatch:
    """One step's minibatches and random numbers.

    Attributes:
        minibatches: One per training domain, in the order of the domains.
        rng: Fresh for this step, the same for every visit to it. Draw from it, or from torch's
            generator, which the loop seeds for each step; never from anything else, or a resumed
            run would differ.
    """

    minibatches: tuple[Minibatch, ...]
    rng: np.random.Generator

    def joint(self) -> Minibatch:
        """All domains in one batch."""
        return Minibatch(
            torch.cat([m.images for m in self.minibatches]),
            torch.cat([m.labels for m in self.minibatches]),
        )


class Algorithm(nn.Module, ABC):
    """Trains a network on domains.

    A subclass sets ``name``, takes its own hyper-parameters as keyword arguments, keeps everything
    that changes between steps in parameters, buffers and optimisers (so that a run resumes bit for
    bit), and implements :meth:`step`.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name: ClassVar[str]
    trains_features: ClassVar[str | None] = None
    """Why the algorithm means nothing on fixed features; None if it does mean something."""

    def __init__(
        self, network: DomainNetwork, domains: int, *, lr: float = 5e-5, weight_decay: float = 0.0
    ) -> None:
        super().__init__()
        check_whole("domains", domains)
        self.network = network
        self.domains = domains
        self.lr, self.weight_decay = lr, weight_decay

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """By name; called once, after construction. One Adam over all that is trained."""
        return {"adam": self.adam(*self.parameters())}

    def adam(self, *parameters: nn.Parameter) -> torch.optim.Optimizer:
        """Adam with the algorithm's rate and weight decay, for those that are not fixed."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        return torch.optim.Adam(trained, lr=self.lr, weight_decay=self.weight_decay)

    @abstractmethod
    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """Train on one batch; returns its losses. ``state.module`` is the algorithm itself."""

    def forward(self, images: Tensor) -> Tensor:
        """Logits, for evaluation."""
        logits: Tensor = self.network(images)
        return logits

    def deployed(self) -> nn.Module:
        """An independent network for test time, in evaluation mode."""
        return self.network.assembled()


def descend(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Zero gradients, backward, step."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def mean_cross_entropy(network: DomainNetwork, batch: Minibatch) -> Tensor:
    """Cross-entropy of one minibatch."""
    return F.cross_entropy(network(batch.images), batch.labels)

"""MixStyle: feature maps that borrow part of their style from another image.

Zhou, Yang, Qiao and Xiang, "Domain Generalization with MixStyle", ICLR 2021.

Formula:
    One joint forward pass. After each of the chosen stages, with probability p (a coin for each
    stage and step): for a feature map x of an image, per channel, mean m and standard deviation
    s = sqrt(unbiased variance over positions + eps), both without gradient; with the same of a
    partner image, m' and s', and lambda ~ Beta(alpha, alpha) for each image,
    x <- (x - m) / s (lambda s + (1 - lambda) s') + lambda m + (1 - lambda) m'.
    loss = CE of the joint batch. Predictions are not mixed.

    Partners: ``"random"`` permutes the joint batch; ``"crossdomain"`` takes shuffled images of the
    next domain in a ring (with two domains: crossed halves, as the authors have it).
    Stages: the first three (the authors' choice for PACS; they take two on OfficeHome).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, descend, mean_cross_entropy
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.stages import stage_names
from driftnorm.training.loop import TrainState

Mixing = Literal["random", "crossdomain"]


class MixStyle(Algorithm):
    """Trains on mixed styles; the network itself stays as it is.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        p: Probability that a stage mixes.
        alpha: Of the Beta distribution of the mixing weights.
        eps: Added to the variances.
        mixing: Who the partners are.
        stages: Names of the modules in the featurizer whose outputs are mixed; the first three
            stages if None.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "mixstyle"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        p: float = 0.5,
        alpha: float = 0.1,
        eps: float = 1e-6,
        mixing: Mixing = "random",
        stages: Sequence[str] | None = None,
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("p", p, least=0, most=1)
        check_number("alpha", alpha)
        check_choice("mixing", mixing, get_args(Mixing))
        self.p, self.alpha, self.eps, self.mixing = p, alpha, eps, mixing
        self.stages = tuple(stage_names(network.featurizer)[:3] if stages is None else stages)
        for name in self.stages:
            network.featurizer.get_submodule(name)  # complains about a name that is not there

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the joint batch with mixed styles."""
        with self._mixing_stages(batch):
            loss = mean_cross_entropy(self.network, batch.joint())
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

    @contextmanager
    def _mixing_stages(self, batch: DomainBatch) -> Iterator[None]:
        """Mixes while open. No hook outlives a step, so none gets into a copy of the network."""
        modules = [self.network.featurizer.get_submodule(name) for name in self.stages]
        hook = self._hook([len(own.labels) for own in batch.minibatches], batch.rng)
        handles = [module.register_forward_hook(hook) for module in modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hook(self, sizes: list[int], rng: np.random.Generator) -> Callable[..., Tensor | None]:
        def mix(module: nn.Module, inputs: Any, maps: Tensor) -> Tensor | None:
            if rng.random() >= self.p:
                return None
            weights = torch.from_numpy(rng.beta(self.alpha, self.alpha, len(maps))).to(maps)
            partners = torch.from_numpy(_partners(sizes, self.mixing, rng))
            return mix_styles(maps, weights, partners.to(maps.device), self.eps)

        return mix


def mix_styles(maps: Tensor, weights: Tensor, partners: Tensor, eps: float) -> Tensor:
    """Feature maps (N, C, H, W), their style mixed with that of the partners.

    Args:
        maps: The feature maps.
        weights: How much of its own style each keeps, (N,).
        partners: Number of the image that gives the rest, (N,).
        eps: Added to the variances.
    """
    if maps.ndim != 4 or maps[0, 0].numel() < 2:
        raise ValueError(
            "MixStyle needs feature maps with more than one position, got the shape "
            f"{tuple(maps.shape)}; choose earlier stages or larger images."
        )
    with torch.no_grad():
        variance, mean = torch.var_mean(maps, (2, 3), keepdim=True)
        deviation = (variance + eps).sqrt()
        own = weights.view(-1, 1, 1, 1)
        new_mean = own * mean + (1 - own) * mean[partners]
        new_deviation = own * deviation + (1 - own) * deviation[partners]
    return (maps - mean) / deviation * new_deviation + new_mean


def _partners(sizes: list[int], mixing: Mixing, rng: np.random.Generator) -> NDArray[np.int64]:
    if mixing == "random":
        return rng.permutation(sum(sizes))
    if len(set(sizes)) > 1:
        raise ValueError(
            f'`mixing="crossdomain"` needs as many images of each domain, got {sizes}.'
        )
    starts = np.cumsum([0, *sizes[:-1]])
    following = np.roll(starts, -1)
    return np.concatenate([start + rng.permutation(sizes[0]) for start in following])

"""SagNet: features that tell the class by content, and not by style.

Nam, Lee, Park, Yoon and Yoo, "Reducing Domain Gap by Reducing Style Bias", CVPR 2021.

Formula:
    Style is the mean m and the unbiased variance v of a sample's features, content what is left,
    u = (F - m) / sqrt(v + 1e-5). For a permutation of the joint batch and a ~ U(0, 1) per sample,
    style-randomised F:   u sqrt(a v + (1-a) v' + 1e-5) + a m + (1-a) m'   (own content)
    content-randomised F: u' sqrt(v + 1e-5) + m, u' without gradient       (own style)
    A content classifier learns from the first, a style classifier from the second, and the features
    are trained against the latter by w_adv x the mean over samples and classes of -log softmax.
    Predictions: the content classifier, nothing randomised. Two readings:

    * ``"paper"``: F are the feature maps that enter stage 3, statistics per channel over positions.
      The style classifier has its own copy of what follows. Three losses from one forward pass;
      their gradients are taken at the same parameters and applied in the order style, adversary,
      content. The adversary changes only the affine parameters of the normalisation layers before
      stage 3, its gradient clipped to a norm of 0.1. (The authors' optimisers are SGD.)
    * ``"domainbed"``: F are pooled features, statistics over the feature axis; the style classifier
      is a linear layer. Three passes: (1) content loss, step of features and classifier; (2) style
      loss, step of the style classifier; (3) adversarial loss, step of the features.

    Adam for each of the three. Random numbers: a, then the permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch, descend
from driftnorm.training.domains.later_stages import (
    Tail,
    affine_names,
    replaced_output,
    stateful_until,
)
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.settings import Reading
from driftnorm.training.domains.stages import stage_names
from driftnorm.training.loop import TrainState

EPS = 1e-5


class SagNet(Algorithm):
    """Trains the content classifier against style.

    Args:
        network: Changed in place.
        domains: How many training domains there are.
        w_adv: Weight of the adversarial loss.
        clip: Largest norm of the adversary's gradient ("paper" only).
        after: Name of the module in the featurizer whose output is randomised ("paper" only); the
            end of the second stage if None.
        reading: Whose, see above.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "sagnet"
    trains_features = "its adversary changes the features alone"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        w_adv: float = 0.1,
        clip: float = 0.1,
        after: str | None = None,
        reading: Reading = "paper",
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("w_adv", w_adv, least=0)
        check_number("clip", clip)
        check_choice("reading", reading, get_args(Reading))
        self.w_adv, self.clip, self.reading = w_adv, clip, reading
        self.style: nn.Module
        if reading == "paper":
            self.after = stage_names(network.featurizer)[1] if after is None else after
            before = stateful_until(network.featurizer, self.after)
            self.adversary = affine_names(network.featurizer, before)
            if not self.adversary:
                raise ValueError(
                    "SagNet trains the affine parameters of the normalisation layers up to "
                    f"`{self.after}` against style, and there are none; use reading='domainbed'."
                )
            self.style = Tail(network, self.after, before)
        else:
            linear = nn.Linear(network.width, network.num_classes)
            self.style = linear.to(network.classifier.weight)

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Three Adams."""
        style = self.adam(*self.style.parameters())
        if self.reading == "paper":
            named = dict(self.network.featurizer.named_parameters())
            adversary = self.adam(*(named[name] for name in self.adversary))
            content = self.adam(*self.network.parameters())
            return {"style": style, "adversary": adversary, "content": content}
        features = self.adam(*self.network.featurizer.parameters())
        classifier = self.adam(*self.network.classifier.parameters())
        return {"features": features, "classifier": classifier, "style": style}

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """Three Adam steps."""
        joint = batch.joint()
        step = self._step_on_maps if self.reading == "paper" else self._step_on_features
        losses = step(state, joint, batch.rng)
        return {name: loss.item() for name, loss in losses.items()}

    def _step_on_maps(
        self, state: TrainState, batch: Minibatch, rng: np.random.Generator
    ) -> dict[str, Tensor]:
        place = self.network.featurizer.get_submodule(self.after)
        with replaced_output(place, lambda maps: randomised_style(maps, rng)) as originals:
            content = F.cross_entropy(self.network(batch.images), batch.labels)
        style_logits = self.style(randomised_content(originals[0], rng))
        losses = {
            "style": F.cross_entropy(style_logits, batch.labels),
            "adversary": self.w_adv * _uniform_cross_entropy(style_logits),
            "content": content,
        }
        trained = {name: _parameters(state.optimizers[name]) for name in losses}
        # All gradients first: a step changes what the others' graphs were made with.
        # The adversary's are asked for along with those of all features: of group norm's parameters
        # alone, in the channels-last layout, torch 2.13 crashes.
        asked = trained | {"adversary": [*self.network.featurizer.parameters()]}
        gradients = {
            name: dict(
                zip(
                    asked[name],
                    torch.autograd.grad(loss, asked[name], retain_graph=True, allow_unused=True),
                    strict=True,
                )
            )
            for name, loss in losses.items()
        }
        for name, own in trained.items():
            for parameter in own:
                parameter.grad = gradients[name][parameter]
            if name == "adversary":
                nn.utils.clip_grad_norm_(own, self.clip)
            state.optimizers[name].step()
        return losses

    def _step_on_features(
        self, state: TrainState, batch: Minibatch, rng: np.random.Generator
    ) -> dict[str, Tensor]:
        optimizers, network = state.optimizers, self.network
        features = randomised_style(network.features(batch.images), rng)
        content = F.cross_entropy(network.classifier(features), batch.labels)
        optimizers["classifier"].zero_grad(set_to_none=True)
        descend(optimizers["features"], content)
        optimizers["classifier"].step()
        with torch.no_grad():  # only the style classifier learns from the style loss
            features = randomised_content(network.features(batch.images), rng)
        style = F.cross_entropy(self.style(features), batch.labels)
        descend(optimizers["style"], style)
        features = randomised_content(network.features(batch.images), rng)
        adversary = self.w_adv * _uniform_cross_entropy(self.style(features))
        descend(optimizers["features"], adversary)
        return {"style": style, "adversary": adversary, "content": content}


def randomised_style(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Every sample's own content, in a style between its own and another's."""
    content, mean, variance = _apart(features)
    own = torch.from_numpy(rng.random(len(features))).to(features)
    own = own.view(-1, *[1] * (features.ndim - 1))
    other = torch.from_numpy(rng.permutation(len(features))).to(features.device)
    mean = own * mean + (1 - own) * mean[other]
    variance = own * variance + (1 - own) * variance[other]
    return content * (variance + EPS).sqrt() + mean


def randomised_content(features: Tensor, rng: np.random.Generator) -> Tensor:
    """Every sample's own style, around the content of another, which gets no gradient."""
    content, mean, variance = _apart(features)
    other = torch.from_numpy(rng.permutation(len(features))).to(features.device)
    return content[other].detach() * (variance + EPS).sqrt() + mean


def _apart(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Content, mean and variance; over positions, or over the features of pooled ones."""
    axes = (2, 3) if features.ndim == 4 else (1,)
    if features[0, 0].numel() < 2 and features.ndim == 4:
        raise ValueError(
            "SagNet on feature maps needs more than one position, got the shape "
            f"{tuple(features.shape)}; use larger images or reading='domainbed'."
        )
    variance, mean = torch.var_mean(features, axes, keepdim=True)
    return (features - mean) / (variance + EPS).sqrt(), mean, variance


def _uniform_cross_entropy(logits: Tensor) -> Tensor:
    return -F.log_softmax(logits, 1).mean()


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]

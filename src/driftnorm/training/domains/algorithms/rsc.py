"""RSC: mute what the network relies on most, and train on the rest.

Huang, Wang, Xing and Huang, "Self-Challenging Improves Cross-Domain Generalization", ECCV 2020.

Formula:
    One joint forward pass. A score tells what the true class's logit relies on; in each sample the
    parts with the highest scores, a share ``f_drop``, are muted. Among the samples, those whose
    true-class probability falls most by it, a share ``b_drop``, stay muted; the others are left
    whole. loss = CE of the logits so obtained; no gradient flows through the choice. "Highest"
    means at or above the (1 - share) percentile. Predictions are never muted. Two readings:

    * ``"paper"``: on the feature map A of the last stage. G is the gradient of the true logit with
      respect to A. Each step mutes, with probability 1/2 each, whole positions, scored by
      sum_c (mean of G_c over positions) A_c, or whole channels, scored by the mean of G_c. (The
      paper's text scores positions by G alone; where the map is averaged before a linear
      classifier, that is the same number at every position, so the authors' code weights the map.)
      Scores and probabilities are taken without dropout. From the authors' code, but not here: a
      share of 1/3.2 for channels, ``b_drop`` growing by epochs, mirrored copies of the images.
    * ``"domainbed"``: on the pooled features after dropout; score = gradient of the true logit.

    The classifier is linear, so the gradient with respect to pooled features is W_y, and that with
    respect to a map that is averaged is W_y / positions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_choice, check_number
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch, Minibatch, descend
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.training.domains.settings import Reading
from driftnorm.training.domains.stages import outputs_of, stage_names
from driftnorm.training.loop import TrainState


class RSC(Algorithm):
    """Trains on what is left when the dominant features are muted.

    Args:
        network: Changed in place. The paper's reading needs a network with stages, the last of
            which is averaged over its positions and classified.
        domains: How many training domains there are.
        f_drop: Share of the features, positions or channels that are muted.
        b_drop: Share of the samples in which they are.
        reading: Whose, see above.
        lr: Adam's rate.
        weight_decay: Adam's L2.
    """

    name = "rsc"

    def __init__(
        self,
        network: DomainNetwork,
        domains: int,
        *,
        f_drop: float = 1 / 3,
        b_drop: float = 1 / 3,
        reading: Reading = "paper",
        lr: float = 5e-5,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(network, domains, lr=lr, weight_decay=weight_decay)
        check_number("f_drop", f_drop, least=0, most=1)
        check_number("b_drop", b_drop, least=0, most=1)
        check_choice("reading", reading, get_args(Reading))
        self.f_drop, self.b_drop, self.reading = f_drop, b_drop, reading
        if reading == "paper":
            self.last_stage = stage_names(network.featurizer)[-1]

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """One Adam step on the muted batch."""
        joint = batch.joint()
        if self.reading == "paper":
            logits = self._challenged_maps(joint, batch.rng)
        else:
            logits = self._challenged_features(joint)
        loss = F.cross_entropy(logits, joint.labels)
        descend(state.optimizers["adam"], loss)
        return {"loss": loss.item()}

    def _challenged_features(self, batch: Minibatch) -> Tensor:
        features = self.network.features(batch.images)
        muted = highest(self._importance(batch.labels), self.f_drop)
        stay = self._challenged(features, features * ~muted, batch.labels)
        logits: Tensor = self.network.classifier(features * ~(muted & stay[:, None]))
        return logits

    def _challenged_maps(self, batch: Minibatch, rng: np.random.Generator) -> Tensor:
        maps = self._last_maps(batch.images)
        importance = self._importance(batch.labels)
        if rng.random() < 0.5:
            scores = torch.einsum("nchw,nc->nhw", maps.detach(), importance)
            muted = highest(scores.flatten(1), self.f_drop).view_as(scores)[:, None]
        else:
            muted = highest(importance, self.f_drop)[:, :, None, None]
        stay = self._challenged(_pooled(maps), _pooled(maps * ~muted), batch.labels)
        left = maps * ~(muted & stay[:, None, None, None])
        logits: Tensor = self.network.classifier(self.network.dropout(_pooled(left)))
        return logits

    def _last_maps(self, images: Tensor) -> Tensor:
        featurizer = self.network.featurizer
        with outputs_of(featurizer.get_submodule(self.last_stage)) as seen:
            features = featurizer(images)
        maps = seen[-1]
        advice = "choose another network, larger images or reading='domainbed'."
        if maps.ndim != 4 or maps[0, 0].numel() < 2:
            raise ValueError(
                f"RSC on feature maps needs more than one position in `{self.last_stage}`, whose "
                f"output has the shape {tuple(maps.shape)}; {advice}"
            )
        pooled = _pooled(maps)
        if pooled.shape != features.shape or not torch.allclose(pooled, features, 1e-3, 1e-5):
            raise ValueError(
                f"RSC on feature maps needs a network whose features are the mean of the output of "
                f"`{self.last_stage}` over its positions, and these are not; {advice}"
            )
        return maps

    def _importance(self, labels: Tensor) -> Tensor:
        """The gradient of the true logits with respect to the pooled features, (N, width)."""
        return self.network.classifier.weight.detach()[labels]

    @torch.no_grad()
    def _challenged(self, whole: Tensor, muted: Tensor, labels: Tensor) -> Tensor:
        """Which samples lose most of their true class's probability by muting, (N,)."""
        before, after = (
            self.network.classifier(features).softmax(1).gather(1, labels[:, None])[:, 0]
            for features in (whole, muted)
        )
        return highest(before - after, self.b_drop)


def highest(scores: Tensor, share: float) -> Tensor:
    """Where the scores are at or above the (1 - share) percentile of their last axis.

    The percentile interpolates linearly between neighbours; nothing lies between them, so that the
    upper neighbour is the same threshold, without the rounding of an interpolation.
    """
    above = math.floor((scores.shape[-1] - 1) * share + 1e-9)
    threshold = scores.topk(above + 1, dim=-1).values[..., -1:]
    return scores >= threshold


def _pooled(maps: Tensor) -> Tensor:
    return maps.mean((2, 3))

"""Steps of training algorithms on domains, computed slowly and literally.

A copy of the network, Adam and every formula written out: loops, and autograd where the code under
test has a closed form. Only the networks' own forward passes are shared with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from driftnorm.training.domains.algorithm import DomainBatch
from driftnorm.training.domains.network import DomainNetwork

DOMAINS, LR, DECAY = 3, 1e-2, 1e-3


class Literal:
    """A network, its Adam, and what else the formula remembers."""

    def __init__(self, network: DomainNetwork) -> None:
        self.network = network
        self.memory: dict[str, list[float] | int] = {}
        self.restart()

    def restart(self) -> None:
        self.moments = {n: (0.0, 0.0) for n, _ in self.network.named_parameters()}
        self.steps = 0

    def adam(self, loss: Tensor) -> None:
        named = dict(self.network.named_parameters())
        gradients = torch.autograd.grad(loss, list(named.values()))
        self.steps += 1
        for (name, parameter), plain in zip(named.items(), gradients, strict=True):
            gradient = plain + DECAY * parameter.detach()
            first = 0.9 * self.moments[name][0] + 0.1 * gradient
            second = 0.999 * self.moments[name][1] + 0.001 * gradient**2
            self.moments[name] = (first, second)
            deviation = (second / (1 - 0.999**self.steps)).sqrt() + 1e-8
            parameter.data -= LR * first / (1 - 0.9**self.steps) / deviation


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    terms = [torch.logsumexp(z, 0) - z[y] for z, y in zip(logits, labels, strict=True)]
    return sum(terms) / len(terms)


def groupdro_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    losses = [cross_entropy(literal.network(m.images), m.labels) for m in batch.minibatches]
    q = literal.memory.get("q", [1.0] * DOMAINS)  # DomainBed's start
    q = [weight * math.exp(0.5 * loss.item()) for weight, loss in zip(q, losses, strict=True)]
    literal.memory["q"] = [weight / sum(q) for weight in q]
    return sum(w * loss for w, loss in zip(literal.memory["q"], losses, strict=True))


def mixup_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    order, total = batch.rng.permutation(DOMAINS), 0.0
    for place in range(DOMAINS):
        one = batch.minibatches[order[place]]
        other = batch.minibatches[order[(place + 1) % DOMAINS]]
        share, size = batch.rng.beta(0.7, 0.7), min(len(one.labels), len(other.labels))
        mixed = [share * one.images[n] + (1 - share) * other.images[n] for n in range(size)]
        logits = literal.network(torch.stack(mixed))
        total = total + share * cross_entropy(logits, one.labels[:size])
        total = total + (1 - share) * cross_entropy(logits, other.labels[:size])
    return total / DOMAINS


def coral_distance(one: Tensor, other: Tensor) -> Tensor:
    def covariance(features: Tensor, d: int, e: int) -> Tensor:
        products = [
            (row[d] - features[:, d].mean()) * (row[e] - features[:, e].mean()) for row in features
        ]
        return sum(products) / (len(features) - 1)

    width = one.shape[1]
    means = sum((one[:, d].mean() - other[:, d].mean()) ** 2 for d in range(width)) / width
    places = [(d, e) for d in range(width) for e in range(width)]
    apart = sum((covariance(one, *p) - covariance(other, *p)) ** 2 for p in places)
    return means + apart / width**2


def mmd_distance(one: Tensor, other: Tensor) -> Tensor:
    def mean_kernel(some: Tensor, others: Tensor) -> Tensor:
        squares = [((a - b) ** 2).sum() for a in some for b in others]
        return sum(torch.exp(-(10.0**g) * s) for s in squares for g in range(-3, 4)) / len(squares)

    return mean_kernel(one, one) + mean_kernel(other, other) - 2 * mean_kernel(one, other)


def matching_loss(distance: Callable[..., Tensor], literal: Literal, batch: DomainBatch) -> Tensor:
    features = [literal.network.features(m.images) for m in batch.minibatches]
    labels = [m.labels for m in batch.minibatches]
    pairs = list(combinations(features, 2))
    logits = [literal.network.classifier(f) for f in features]
    risk = sum(cross_entropy(z, y) for z, y in zip(logits, labels, strict=True)) / DOMAINS
    return risk + 0.6 * sum(distance(*pair) for pair in pairs) / len(pairs)


def erm_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    images = torch.cat([minibatch.images for minibatch in batch.minibatches])
    labels = torch.cat([minibatch.labels for minibatch in batch.minibatches])
    log_p = literal.network(images).log_softmax(dim=1)
    return -sum(log_p[i, int(label)] for i, label in enumerate(labels)) / len(labels)


def irm_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    count = literal.memory.setdefault("count", 0)
    literal.memory["count"] += 1
    if count == 2:
        literal.restart()
    logits = literal.network(torch.cat([m.images for m in batch.minibatches])).split(
        [len(m.labels) for m in batch.minibatches]
    )
    total = 0.0
    for own, minibatch in zip(logits, batch.minibatches, strict=True):
        slopes = []
        for start in (0, 1):
            scale = torch.ones((), dtype=own.dtype, requires_grad=True)
            loss = cross_entropy(own[start::2] * scale, minibatch.labels[start::2])
            slopes += torch.autograd.grad(loss, scale, create_graph=True)
        penalty = (1.0 if count < 2 else 30.0) * slopes[0] * slopes[1]
        total = total + cross_entropy(own, minibatch.labels) + penalty
    return total / DOMAINS


def at_percentile(scores: np.ndarray, share: float) -> np.ndarray:
    return scores >= np.percentile(scores, 100 * (1 - share))


def muted_where_it_hurts(
    given: Tensor, labels: Tensor, muted: list[Tensor], classify: Callable[[Tensor], Tensor]
) -> Tensor:
    """The samples' features or maps, muted in the share that suffers most by it."""
    kept = torch.stack([1.0 - m.to(given.dtype) for m in muted])
    places = range(len(labels)), labels
    fall = classify(given).softmax(1)[places] - classify(given * kept).softmax(1)[places]
    suffers = at_percentile(fall.detach().numpy(), 0.4)
    return torch.stack([x * k if s else x for x, k, s in zip(given, kept, suffers, strict=True)])


def rsc_features_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    joint, classifier = batch.joint(), literal.network.classifier
    features = literal.network.features(joint.images)
    muted = []
    for sample, label in zip(features, joint.labels, strict=True):
        leaf = sample.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(classifier(leaf)[label], leaf)
        muted.append(torch.tensor(at_percentile(gradient.numpy(), 0.3)))
    left = muted_where_it_hurts(features, joint.labels, muted, classifier)
    return cross_entropy(classifier(left), joint.labels)


def rsc_maps_loss(literal: Literal, batch: DomainBatch) -> Tensor:
    joint, network = batch.joint(), literal.network
    maps = network.featurizer.layer2(network.featurizer.layer1(joint.images))
    spatial, muted = batch.rng.random() < 0.5, []
    literal.memory["kinds"] = [*literal.memory.get("kinds", []), spatial]
    for sample, label in zip(maps, joint.labels, strict=True):
        leaf = sample.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(network.classifier(leaf.mean((1, 2)))[label], leaf)
        slopes = gradient.mean((1, 2))
        weighted = sum(slope * channel for slope, channel in zip(slopes, leaf, strict=True))
        scores = (weighted if spatial else slopes).detach().numpy()
        chosen = torch.tensor(at_percentile(scores, 0.3))
        muted.append(chosen.expand(5, 4, 4) if spatial else chosen[:, None, None].expand(5, 4, 4))
    left = muted_where_it_hurts(
        maps, joint.labels, muted, lambda a: network.classifier(a.mean((2, 3)))
    )
    logits = network.classifier(network.dropout(left.mean((2, 3))))
    return cross_entropy(logits, joint.labels)

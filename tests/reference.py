"""Slow, obvious answers to compare with: every formula as it is written, or a plain loop.

Nothing here calls driftnorm, and nothing is clever: when a test disagrees, this side is the one
that can be checked by eye against the paper.
"""

import math

import torch


def wide(vector, x):
    """A vector of one value a channel, ready to meet an ``x`` of shape ``(N, C, ...)``."""
    return vector.reshape(1, -1, *[1] * (x.dim() - 2))


def axes(x):
    return [0, *range(2, x.dim())]


def own_moments(x):
    """Mean and biased variance of each channel; gradients flow through both."""
    mean = x.mean(axes(x))
    return mean, (x - wide(mean, x)).square().mean(axes(x))


def moments_by_loop(x):
    """The same in exact-summation Python floats."""
    means, variances = [], []
    for channel in range(x.shape[1]):
        values = x[:, channel].flatten().tolist()
        mean = math.fsum(values) / len(values)
        means.append(mean)
        variances.append(math.fsum((v - mean) ** 2 for v in values) / len(values))
    return torch.tensor(means, dtype=torch.float64), torch.tensor(variances, dtype=torch.float64)


def affine(y, weight, bias):
    y = y if weight is None else y * wide(weight, y)
    return y if bias is None else y + wide(bias, y)


def literal_gprebn(x, mean, var, weight=None, bias=None, eps=1e-5):
    """Eq. 6: ((x - mu_c) / s_c * sg(s_c) + sg(mu_c) - mu) / s * gamma + beta."""
    mu_c, v_c = own_moments(x)
    s_c, s = (v_c + eps).sqrt(), (var + eps).sqrt()
    restored = (x - wide(mu_c, x)) / wide(s_c, x) * wide(s_c.detach(), x) + wide(mu_c.detach(), x)
    return affine((restored - wide(mean, x)) / wide(s, x), weight, bias)


def plain_bn(x, mean, var, weight=None, bias=None, eps=1e-5):
    """Eq. 3: fixed statistics, nothing crosses the batch."""
    return affine((x - wide(mean, x)) / wide((var + eps).sqrt(), x), weight, bias)


def tent_bn(x, weight=None, bias=None, eps=1e-5):
    """Eq. 1: the batch's own statistics, with the gradient through them."""
    mu_c, v_c = own_moments(x)
    return affine((x - wide(mu_c, x)) / wide((v_c + eps).sqrt(), x), weight, bias)


class TBR:
    """DELTA's layer: r and d as in batch renormalisation, std averaged, used before updated."""

    def __init__(self, new_weight=0.05):
        self.new_weight = new_weight
        self.mean = self.std = None

    def __call__(self, x, weight, bias, eps):
        mu_c, v_c = own_moments(x)
        s_c = (v_c + eps).sqrt()
        now_mean, now_std = mu_c.detach(), s_c.detach()
        if self.mean is None:
            self.mean, self.std = now_mean, now_std
        r, d = now_std / self.std, (now_mean - self.mean) / self.std
        y = (x - wide(mu_c, x)) / wide(s_c, x) * wide(r, x) + wide(d, x)
        self.mean = (1 - self.new_weight) * self.mean + self.new_weight * now_mean
        self.std = (1 - self.new_weight) * self.std + self.new_weight * now_std
        return affine(y, weight, bias)


def average(values, momentum=None, start=None):
    """The running average after ``values``: equal weights, or an exponential one in closed form."""
    if momentum is None:
        return sum(values) / len(values)
    begin, rest = (values[0], values[1:]) if start is None else (start, values)
    total = begin * (1 - momentum) ** len(rest)
    for age, value in enumerate(reversed(rest)):
        total = total + momentum * (1 - momentum) ** age * value
    return total


def running_statistics(
    stream,
    momentum=None,
    start="batch",
    update="before",
    average_of="var",
    unbiased=False,
    source=None,
    eps=1e-5,
):
    """The (mean, var) that normalise each batch of ``stream``, a list of (mean, var, values)."""
    power, added = (0.5, eps) if average_of == "std" else (1.0, 0.0)
    begin_mean, begin_spread = None, None
    if start == "source":
        begin_mean, begin_spread = source[0], (source[1] + added) ** power
    used = []
    for now in range(len(stream)):
        until = now + 1 if update == "before" else now
        if until == 0 and start == "batch":
            used.append(stream[0][:2])
            continue
        means = [mean for mean, _, _ in stream[:until]]
        spreads = [
            ((var * n / (n - 1) if unbiased else var) + added) ** power
            for _, var, n in stream[:until]
        ]
        spread = average(spreads, momentum, begin_spread)
        used.append((average(means, momentum, begin_mean), spread ** (1 / power) - added))
    return used


def mixture(source, target, target_weight):
    """alpha-BN and the paper's theta: on the mean and on the variance, not on the std."""
    return tuple(
        (1 - target_weight) * s + target_weight * t for s, t in zip(source, target, strict=True)
    )


def prior_mixture(source, batch, prior, samples):
    """N / (N + n) of the source and n / (N + n) of the batch."""
    total = prior + samples
    return tuple(
        prior / total * s + samples / total * b for s, b in zip(source, batch, strict=True)
    )


def probabilities(row):
    exponentials = [(value - row.max().detach()).exp() for value in row]
    return [e / sum(exponentials) for e in exponentials]


def entropy(row):
    return -sum(p * p.log() for p in probabilities(row))


def mean_entropy(logits):
    return sum(entropy(row) for row in logits) / len(logits)


def pseudo_label_loss(logits, threshold):
    """Mean of -log p of the most probable class, over the rows where that p > threshold."""
    best = [max(probabilities(row)) for row in logits]
    losses = [-p.log() for p in best if p > threshold]
    return sum(losses) / len(losses) if losses else None


def shot_loss(logits, pseudo_label, threshold):
    """Mean entropy + sum of pbar log(pbar + 1e-5) + weight * confident pseudo labels."""
    rows = [probabilities(row) for row in logits]
    marginal = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    loss = mean_entropy(logits) + sum(q * (q + 1e-5).log() for q in marginal)
    labelled = pseudo_label_loss(logits, threshold)
    return loss if labelled is None else loss + pseudo_label * labelled


class SlowT3A:
    """A list of (entropy, label, unit feature); -1 supports keep every one of them."""

    def __init__(self, weight, bias, supports):
        self.classes, self.supports, self.bank = len(weight), supports, []
        for row in weight:
            self._add(row, weight @ row if bias is None else weight @ row + bias)

    def _add(self, feature, logits):
        label = int(logits.argmax())
        self.bank.append((float(entropy(logits.double())), label, feature / feature.norm()))

    def update(self, features, logits):
        for feature, row in zip(features, logits, strict=True):
            self._add(feature, row)
        if self.supports == -1:
            return
        kept = []
        for label in range(self.classes):
            mine = [support for support in self.bank if support[1] == label]
            kept += sorted(mine, key=lambda support: support[0])[: self.supports]
        self.bank = kept

    def weights(self):
        rows = []
        for label in range(self.classes):
            total = torch.zeros_like(self.bank[0][2])
            for _, own, feature in self.bank:
                total = total + feature if own == label else total
            norm = total.norm()
            rows.append(total / norm if norm > 0 else total)
        return torch.stack(rows)


class SlowCentroids:
    """Eq. 11 for one class after the other, in the literal or the normalised reading."""

    def __init__(self, weight, reading="literal", labels="linear"):
        self.literal, self.labels = reading == "literal", labels
        self.counts = [0 if self.literal else 1 for _ in weight]
        self.centroids = [row if self.literal else row / row.norm() for row in weight]

    def update(self, features, logits):
        if self.labels == "centroids":
            logits = features @ self.weights().T
        labels = [int(row.argmax()) for row in logits]
        for k in range(len(self.counts)):
            members = [z for z, label in zip(features, labels, strict=True) if label == k]
            if not members:
                continue
            members = members if self.literal else [z / z.norm() for z in members]
            n, m, centre = self.counts[k], len(members), sum(members) / len(members)
            self.centroids[k] = n / (n + m) * self.centroids[k] + m / (n + m) * centre
            self.counts[k] = n + m

    def weights(self):
        return torch.stack([c if self.literal else c / c.norm() for c in self.centroids])

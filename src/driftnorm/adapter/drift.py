r"""How far the statistics that an adapter tracks are from the source's.

Per channel, with the source's mean :math:`\mu_s` and deviation
:math:`\sigma_s = \sqrt{v_s + \epsilon}` and the other's :math:`\mu_t`, :math:`\sigma_t`:

.. math:: d = \sqrt{(\mu_t - \mu_s)^2 + (\sigma_t - \sigma_s)^2} \; / \; \sigma_s

which is the 2-Wasserstein distance of the two Gaussians in units of the source's deviation: 0 for
the same statistics, 1 where the mean is off by one deviation.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from driftnorm.adapter._contract import Adapter
from driftnorm.functional import Moments


def channel_distance(source: Moments, target: Moments, eps: float | Tensor) -> Tensor:
    """The distance of each channel, in deviations of the source."""
    deviation = (source.var.double() + eps).sqrt()
    other = (target.var.double() + eps).sqrt()
    moved = (target.mean.double() - source.mean.double()).square()
    return (moved + (other - deviation).square()).sqrt() / deviation


def layer_distances(adapter: Adapter) -> dict[str, tuple[float, float] | None]:
    """Mean and largest distance over the channels of each layer that has source statistics.

    Only remembered moments are read, so this costs next to nothing. None for a layer that has
    tracked nothing, as with methods that keep the source's statistics.
    """
    moments = adapter.layer_moments()
    found: dict[str, tuple[float, float] | None] = {
        name: None for name, (source, _, _) in moments.items() if source is not None
    }
    moved = {
        name: (source, tracked, eps)
        for name, (source, tracked, eps) in moments.items()
        if source is not None and tracked is not None
    }
    if moved:
        found.update(zip(moved, _mean_and_largest([*moved.values()]), strict=True))
    return found


def _mean_and_largest(
    layers: list[tuple[Moments, Moments, float]],
) -> Iterable[tuple[float, float]]:
    """One reduction over all layers is cheaper than one per layer."""
    widths = np.array([len(source.mean) for source, _, _ in layers])
    source = _joined([source for source, _, _ in layers])
    eps = source.mean.new_tensor(np.repeat([eps for _, _, eps in layers], widths)).double()
    each = channel_distance(source, _joined([tracked for _, tracked, _ in layers]), eps).numpy()
    first = widths.cumsum() - widths
    means = np.add.reduceat(each, first) / widths
    return zip(means.tolist(), np.maximum.reduceat(each, first).tolist(), strict=True)


def _joined(parts: list[Moments]) -> Moments:
    # To the CPU: not every device has float64.
    means, variances = ([m.mean for m in parts], [m.var for m in parts])
    return Moments(torch.cat(means).cpu(), torch.cat(variances).cpu())

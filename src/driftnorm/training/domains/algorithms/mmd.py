"""MMD: features with the same distribution in every domain, as a kernel sees it.

Gretton et al., "A Kernel Two-Sample Test", JMLR 2012; Li et al., "Domain Generalization with
Adversarial Feature Learning", CVPR 2018, as DomainBed reads it.

Formula:
    The loss of `feature_penalty` with D = mean k(F_i, F_i) + mean k(F_j, F_j) - 2 mean k(F_i, F_j),
    the biased estimate (diagonals count), k(a, b) = sum_g exp(-g |a - b|^2), g from 0.001 to 1000.
"""

from __future__ import annotations

import torch
from torch import Tensor

from driftnorm.training.domains.algorithms.feature_penalty import FeaturePenalty

WIDTHS = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
SMALLEST_DISTANCE = 1e-30  # rounding makes squared distances of equal features negative


class MMD(FeaturePenalty):
    """Matches kernel mean embeddings."""

    name = "mmd"

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        """The squared maximum mean discrepancy."""
        within = _kernel(one, one).mean() + _kernel(other, other).mean()
        return within - 2 * _kernel(one, other).mean()


def _kernel(one: Tensor, other: Tensor) -> Tensor:
    lengths = one.square().sum(1)[:, None] + other.square().sum(1)
    squared = (lengths - 2 * one @ other.T).clamp_min(SMALLEST_DISTANCE)
    return torch.stack([torch.exp(-width * squared) for width in WIDTHS]).sum(0)

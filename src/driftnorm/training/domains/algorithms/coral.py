"""CORAL: features with the same mean and covariance in every domain.

Sun and Saenko, "Deep CORAL: Correlation Alignment for Deep Domain Adaptation", ECCV Workshops 2016,
as DomainBed reads it for generalization.

Formula:
    The loss of `feature_penalty` with D = mean_d (m_i - m_j)_d^2 + mean_{d,d'} (C_i - C_j)_{dd'}^2,
    m the mean feature, C the unbiased covariance. Deep CORAL has no term for the means and
    1 / (4 d^2) where this has 1 / d^2.
"""

from __future__ import annotations

from torch import Tensor

from driftnorm.training.domains.algorithms.feature_penalty import FeaturePenalty


class CORAL(FeaturePenalty):
    """Matches the first two moments."""

    name = "coral"

    def distance(self, one: Tensor, other: Tensor) -> Tensor:
        """Squared differences of means and covariances."""
        (mean, covariance), (other_mean, other_covariance) = _moments(one), _moments(other)
        apart = (mean - other_mean).square().mean()
        return apart + (covariance - other_covariance).square().mean()


def _moments(features: Tensor) -> tuple[Tensor, Tensor]:
    if len(features) < 2:
        raise ValueError(
            "`batch` must have at least 2 images of each domain for a covariance, got "
            f"{len(features)}."
        )
    mean = features.mean(0)
    centred = features - mean
    return mean, centred.T @ centred / (len(features) - 1)

"""The robustness half: corrupted images, a grid of methods, and the paper's tables."""

from driftnorm.robustness.grid import Study

__all__ = ["Study"]

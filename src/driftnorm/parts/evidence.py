"""What predictions on recent images say about the network that made them, without labels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm.parts.contract import check_counts, check_shares
from driftnorm.parts.losses import of_classes, softmax_entropy
from driftnorm.parts.neighbours import neighbour_sums

Counted: TypeAlias = Mapping[str, Any]
"""Sums over recent images, the latest counting most; ``{}`` before the first."""

_CHANCE = 0.8
"""Coherence of shuffled images, times the square root of how many were counted, at most."""
_CLEAR = 0.03
"""How far above chance coherence must be to count in full."""


def information(mean_p: Tensor, mean_entropy: Tensor, caution: float) -> float:
    """How informative predictions are, without labels: certain for each image, varied over all.

    ``(H(mean p) - (1 + caution) mean H(p)) / (H(mean p) + 1/2)``. With ``caution=0`` the numerator
    is the mutual information of image and prediction. That alone is fooled when wrong predictions
    spread over many classes, or when the images show few of them; so certainty counts more.
    Dividing by the spread keeps a source that predicts one class for all images from looking good.
    The spread may be that of more images than the certainty: where the images come class by class,
    right predictions spread only over a long time.
    """
    spread = spread_of(mean_p)
    return (spread - (1 + caution) * float(mean_entropy)) / (spread + 0.5)


def spread_of(mean_p: Tensor) -> float:
    """``H(mean p)`` in nats: how widely predictions spread over classes."""
    return float(-(mean_p * mean_p.clamp(min=1e-12).log()).sum())


def coherence(counts: Counted) -> float:
    """How much more alike the predictions of neighbours are than those of any two images.

    ``mean p_i . p_(i+1) - |mean p|^2``: about 0 if the images are shuffled. If they come class by
    class, it is the higher, the better the predictions: right ones stay with a class as long as
    the images do. Predictions that are always the same have 0.
    """
    if not counts.get("pair_count", 0):
        return 0.0
    usual = counts["usual"] / counts["pair_count"]
    return float(counts["pairs"] / counts["pair_count"] - usual.dot(usual))


def is_ordered(counts: Counted) -> float:
    """Whether images come in order, by predictions that are adapted a little: 0 no, 1 yes.

    Those of the source would not do: where shifts follow each other, a source that collapses onto
    another class under each of them predicts alike for neighbours. Nor would those of statistics
    that are all the target's, which lose labels that come in order.
    """
    above = coherence(counts) - _CHANCE / math.sqrt(counts.get("pair_count", 0) + 1)
    return min(1.0, max(0.0, above / _CLEAR))


def counted(
    before: Counted,
    logits: Tensor,
    memory: float,
    kept: float = 1.0,
    *,
    spread_memory: float = math.inf,
    spread_kept: float = 1.0,
) -> dict[str, Any]:
    """The sums after some more images.

    Args:
        before: The sums so far.
        logits: Of the images, in their order.
        memory: Images over which entropies and neighbours are averaged.
        kept: The share of the sum of entropies that is kept beyond that, as after a jump; the order
            of the images is another matter, and is not forgotten.
        spread_memory: Images over which predictions are averaged.
        spread_kept: The share of their sum that is kept beyond that.
    """
    wide = of_classes(logits).detach().float()
    images = len(wide)
    fade, long = (1 - 1 / memory) ** images, spread_kept * (1 - 1 / spread_memory) ** images
    every = F.softmax(wide, dim=1)
    p = every.mean(dim=[0, *range(2, wide.dim())])
    entropy = softmax_entropy(wide).mean()
    sums = {
        "p": images * p + long * before.get("p", torch.zeros_like(p)),
        "p_images": images + long * before.get("p_images", 0.0),
        "entropy": images * entropy + kept * fade * before.get("entropy", torch.zeros_like(p[0])),
        "images": images + kept * fade * before.get("images", 0.0),
    }
    return sums if wide.dim() > 2 else {**sums, **_neighbours(before, every, fade)}


def _neighbours(before: Counted, p: Tensor, fade: float) -> dict[str, Any]:
    sums = neighbour_sums(before.get("last", p[:0]), p)
    new = {**sums, "usual": sums["pair_count"] * p.mean(dim=0)}
    return {
        **{name: value + fade * before.get(name, 0.0) for name, value in new.items()},
        "last": p[-1:],
    }


def judge(counts: Counted) -> None:
    """Raise ``ValueError`` if sums cannot be what they are said to be."""
    if not counts:
        return
    if not counts["images"] > 0:
        raise ValueError(f"`images` must be > 0, got {counts['images']}.")
    check_counts(counts, ("entropy", "pairs", "pair_count", "squares", "last"))
    check_shares(counts, "p", "p_images")
    check_shares(counts, "usual", "pair_count")

"""Classifier-side adaptation: what turns features into the answer, without any gradient.

Like statistics, a head is a frozen choice without state; ``propose`` is pure and returns the
answer with the state that a commit would make current. The state is a dictionary of tensors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm.objectives import softmax_entropy

__all__ = ["T3A", "Head", "HeadState", "RunningCentroids"]

HeadState: TypeAlias = dict[str, Tensor]


class Head(ABC):
    """Replaces the linear classifier's answer; subclasses are frozen dataclasses."""

    @abstractmethod
    def start(self, weight: Tensor, bias: Tensor | None) -> HeadState:
        """The state before any batch, from the trained linear classifier."""

    @abstractmethod
    def update(self, state: HeadState, features: Tensor, logits: Tensor) -> HeadState:
        """The state after a batch of ``features`` whose linear answer is ``logits``; pure."""

    @abstractmethod
    def weights(self, state: HeadState) -> Tensor:
        """One row a class; the answer to ``z`` is ``z @ weights.T``."""


def _pseudo_labels(logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.argmax(dim=1), softmax_entropy(logits)


@dataclass(frozen=True)
class T3A(Head):
    """Class sums of the most certain normalised features (Iwasawa and Matsuo 2021).

    Attributes:
        supports: How many supports a class keeps, those of lowest entropy (the paper's ``M``);
            -1 keeps all. Keeping all needs no bank: only the sums matter, so memory stays flat.
    """

    supports: int = 20

    def __post_init__(self) -> None:
        if not isinstance(self.supports, int) or self.supports == 0 or self.supports < -1:
            raise ValueError(
                f"`supports` must be a positive integer, or -1 to keep all, got {self.supports}."
            )

    def start(self, weight: Tensor, bias: Tensor | None) -> HeadState:  # noqa: D102
        weight = weight.float()
        labels, entropy = _pseudo_labels(F.linear(weight, weight, _float(bias)))
        rows = F.normalize(weight, dim=1)
        if self.supports == -1:
            sums = torch.zeros_like(rows).index_add_(0, labels, rows)
            return {"sums": sums}
        classes = torch.tensor(len(rows), device=rows.device)
        bank = {"features": rows, "labels": labels, "entropy": entropy, "classes": classes}
        return self._keep_best(bank)

    def update(  # noqa: D102
        self, state: HeadState, features: Tensor, logits: Tensor
    ) -> HeadState:
        labels, entropy = _pseudo_labels(logits)
        rows = F.normalize(features, dim=1)
        if self.supports == -1:
            return {"sums": state["sums"].index_add(0, labels, rows)}
        bank = {
            "features": torch.cat([state["features"], rows]),
            "labels": torch.cat([state["labels"], labels]),
            "entropy": torch.cat([state["entropy"], entropy]),
            "classes": state["classes"],
        }
        return self._keep_best(bank)

    def weights(self, state: HeadState) -> Tensor:  # noqa: D102
        sums = state.get("sums")
        if sums is None:
            rows = state["features"]
            sums = rows.new_zeros(int(state["classes"]), rows.shape[1])
            sums.index_add_(0, state["labels"], rows)
        return F.normalize(sums, dim=1)

    def _keep_best(self, bank: HeadState) -> HeadState:
        # Stable sorts, first by entropy and then by label, rank every support within its class.
        order = torch.argsort(bank["entropy"], stable=True)
        order = order[torch.argsort(bank["labels"][order], stable=True)]
        labels = bank["labels"][order]
        counts = torch.bincount(labels, minlength=int(bank["classes"]))
        rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels]
        kept = order[rank < self.supports].sort().values  # back in order of arrival
        state = {name: bank[name][kept] for name in ("features", "labels", "entropy")}
        return {**state, "classes": bank["classes"]}


@dataclass(frozen=True)
class RunningCentroids(Head):
    """rT3A: a running centroid and a count for each class (paper, eq. 11).

    Attributes:
        reading: ``"normalized"`` starts from the unit-length classifier row with a count of one
            and averages unit-length features (T3A with every support kept, in constant memory).
            ``"literal"`` follows the letter of eq. 11: counts start at zero, raw features, and a
            class that was never predicted keeps its raw classifier row.
        labels: Pseudo labels from the trained ``"linear"`` classifier or from the ``"centroids"``.
    """

    reading: Literal["normalized", "literal"] = "normalized"
    labels: Literal["linear", "centroids"] = "linear"

    def __post_init__(self) -> None:
        if self.reading not in ("normalized", "literal"):
            raise ValueError(f"`reading` must be 'normalized' or 'literal', got {self.reading!r}.")
        if self.labels not in ("linear", "centroids"):
            raise ValueError(f"`labels` must be 'linear' or 'centroids', got {self.labels!r}.")

    def start(self, weight: Tensor, bias: Tensor | None) -> HeadState:  # noqa: D102
        weight = weight.float()
        counts = weight.new_zeros(len(weight))
        if self.reading == "literal":
            return {"centroids": weight.clone(), "counts": counts}
        return {"centroids": F.normalize(weight, dim=1), "counts": counts + 1}

    def update(  # noqa: D102
        self, state: HeadState, features: Tensor, logits: Tensor
    ) -> HeadState:
        if self.labels == "centroids":
            logits = features @ self.weights(state).T
        rows = features if self.reading == "literal" else F.normalize(features, dim=1)
        labels = logits.argmax(dim=1)
        seen = torch.zeros_like(state["counts"]).index_add_(0, labels, torch.ones_like(rows[:, 0]))
        sums = torch.zeros_like(state["centroids"]).index_add_(0, labels, rows)
        counts = state["counts"] + seen
        # c <- N/(N+m) c + m/(N+m) zbar, where m zbar is the sum; a class without samples keeps c.
        total = counts.clamp(min=1).unsqueeze(1)
        mixed = (state["counts"].unsqueeze(1) * state["centroids"] + sums) / total
        return {
            "centroids": torch.where(seen.unsqueeze(1) > 0, mixed, state["centroids"]),
            "counts": counts,
        }

    def weights(self, state: HeadState) -> Tensor:  # noqa: D102
        centroids = state["centroids"]
        return centroids if self.reading == "literal" else F.normalize(centroids, dim=1)


def _float(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.float()

"""What happens to the logits before the caller gets them, without any gradient."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm.parts.contract import Answer, Step, check_counts
from driftnorm.parts.losses import of_classes, softmax_entropy

Remembered: TypeAlias = Mapping[str, Any]


class Centroids(Answer):
    """One row for each class in place of the trained linear classifier.

    Pure functions of a memory; before any batch the network's own classifier answers.
    """

    features = True

    @property
    def starts_from(self) -> Literal["pass"]:  # noqa: D102
        return "pass"

    @abstractmethod
    def start(self, weight: Tensor, bias: Tensor | None) -> Remembered:
        """The memory before any batch, from the trained linear classifier."""

    @abstractmethod
    def update(self, memory: Remembered, features: Tensor, logits: Tensor) -> Remembered:
        """The memory after a batch of ``features`` whose linear answer is ``logits``."""

    @abstractmethod
    def weights(self, memory: Remembered) -> Tensor:
        """One row per class; the answer to ``z`` is ``z @ weights.T``."""

    def __call__(self, step: Step, logits: Tensor) -> Tensor:  # noqa: D102
        memory, linear = step[self], step.forward.linear
        if step.frozen and not memory:
            return logits
        assert linear is not None
        if step.features.dim() != 2:
            raise TypeError(
                f"{type(self).__name__} gives each image one class, but the classifier takes "
                f"features of shape {tuple(step.features.shape)}, as for dense prediction; choose "
                f"a method that adapts batch norm, such as 'gprebn' or 'bn'."
            )
        features = step.features.detach().float()
        if not step.frozen:
            memory = memory or self.start(*step.classifier)
            memory = self.update(memory, features, of_classes(linear).detach().float())
            step[self] = memory
        return F.linear(features, self.weights(memory)).to(linear.dtype)

    def fold(self, step: Step) -> Tensor | None:  # noqa: D102
        return self.weights(step[self]) if step[self] else None


def _pseudo_labels(logits: Tensor) -> tuple[Tensor, Tensor]:
    return logits.argmax(dim=1), softmax_entropy(logits)


@dataclass(frozen=True)
class T3A(Centroids):
    """Per-class sums of the most certain normalised features (Iwasawa and Matsuo 2021).

    Attributes:
        supports: Supports kept per class, those of lowest entropy (the paper's ``M``); -1 keeps
            all, which needs no bank: only the sums matter, so memory stays constant.
    """

    supports: int = 20

    def __post_init__(self) -> None:
        if not isinstance(self.supports, int) or self.supports == 0 or self.supports < -1:
            raise ValueError(
                f"`supports` must be a positive integer, or -1 to keep all, got {self.supports}."
            )

    def start(self, weight: Tensor, bias: Tensor | None) -> Remembered:  # noqa: D102
        weight = weight.float()
        labels, entropy = _pseudo_labels(F.linear(weight, weight, _float(bias)))
        rows = F.normalize(weight, dim=1)
        if self.supports == -1:
            sums = torch.zeros_like(rows).index_add_(0, labels, rows)
            return {"sums": sums}
        bank = {"features": rows, "labels": labels, "entropy": entropy, "classes": len(rows)}
        return self._keep_best(bank)

    def update(  # noqa: D102
        self, memory: Remembered, features: Tensor, logits: Tensor
    ) -> Remembered:
        labels, entropy = _pseudo_labels(logits)
        rows = F.normalize(features, dim=1)
        if self.supports == -1:
            return {"sums": memory["sums"].index_add(0, labels, rows)}
        bank = {
            "features": torch.cat([memory["features"], rows]),
            "labels": torch.cat([memory["labels"], labels]),
            "entropy": torch.cat([memory["entropy"], entropy]),
            "classes": memory["classes"],
        }
        return self._keep_best(bank)

    def weights(self, memory: Remembered) -> Tensor:  # noqa: D102
        sums: Tensor | None = memory.get("sums")
        if sums is None:
            rows = memory["features"]
            sums = rows.new_zeros(memory["classes"], rows.shape[1])
            sums.index_add_(0, memory["labels"], rows)
        return F.normalize(sums, dim=1)

    def judge(self, memory: Remembered) -> None:  # noqa: D102
        check_counts(memory, ("entropy",))
        if "labels" in memory and memory["labels"].numel():
            lowest, highest = int(memory["labels"].min()), int(memory["labels"].max())
            if not 0 <= lowest <= highest < memory["classes"]:
                raise ValueError(f"`labels` must be below {memory['classes']}, got {highest}.")

    def _keep_best(self, bank: Remembered) -> Remembered:
        # Stable sorts, first by entropy and then by label, rank every support within its class.
        order = torch.argsort(bank["entropy"], stable=True)
        order = order[torch.argsort(bank["labels"][order], stable=True)]
        labels = bank["labels"][order]
        counts = torch.bincount(labels, minlength=bank["classes"])
        rank = torch.arange(len(labels), device=labels.device) - (counts.cumsum(0) - counts)[labels]
        kept = order[rank < self.supports].sort().values  # back in order of arrival
        state = {name: bank[name][kept] for name in ("features", "labels", "entropy")}
        return {**state, "classes": bank["classes"]}


@dataclass(frozen=True)
class RunningCentroids(Centroids):
    """rT3A: a running centroid and a count for each class (paper, eq. 11).

    Attributes:
        reading: ``"normalized"`` starts from the unit-length classifier row with a count of one
            and averages unit-length features (T3A with every support kept, in constant memory).
            ``"literal"`` follows eq. 11 literally: counts start at zero, raw features, and a
            class that was never predicted keeps its raw classifier row.
        labels: Pseudo labels from the trained ``"linear"`` classifier or from the ``"centroids"``.
    """

    reading: Literal["normalized", "literal"] = "normalized"
    labels: Literal["linear", "centroids"] = "linear"

    def __post_init__(self) -> None:
        check_choice("reading", self.reading, ("normalized", "literal"))
        check_choice("labels", self.labels, ("linear", "centroids"))

    def start(self, weight: Tensor, bias: Tensor | None) -> Remembered:  # noqa: D102
        weight = weight.float()
        counts = weight.new_zeros(len(weight))
        if self.reading == "literal":
            return {"centroids": weight.clone(), "counts": counts}
        return {"centroids": F.normalize(weight, dim=1), "counts": counts + 1}

    def update(  # noqa: D102
        self, memory: Remembered, features: Tensor, logits: Tensor
    ) -> Remembered:
        if self.labels == "centroids":
            logits = features @ self.weights(memory).T
        rows = features if self.reading == "literal" else F.normalize(features, dim=1)
        labels = logits.argmax(dim=1)
        seen = torch.zeros_like(memory["counts"]).index_add_(0, labels, torch.ones_like(rows[:, 0]))
        sums = torch.zeros_like(memory["centroids"]).index_add_(0, labels, rows)
        counts = memory["counts"] + seen
        # c <- N/(N+m) c + m/(N+m) zbar, where m zbar is the sum; a class without samples keeps c.
        total = counts.clamp(min=1).unsqueeze(1)
        mixed = (memory["counts"].unsqueeze(1) * memory["centroids"] + sums) / total
        return {
            "centroids": torch.where(seen.unsqueeze(1) > 0, mixed, memory["centroids"]),
            "counts": counts,
        }

    def weights(self, memory: Remembered) -> Tensor:  # noqa: D102
        centroids: Tensor = memory["centroids"]
        return centroids if self.reading == "literal" else F.normalize(centroids, dim=1)

    def judge(self, memory: Remembered) -> None:  # noqa: D102
        check_counts(memory, ("counts",))


@dataclass(frozen=True)
class Lame(Answer):
    """Neighbours in feature space should agree: ``Y = softmax(log p + A Y)`` (LAME, CVPR 2022).

    A large gain where labels come in order, and harmful where they do not.

    Attributes:
        k: Neighbours. For ``"rbf"``, the width of the kernel is the mean distance to the ``k``-th
            nearest, counting the sample itself, as in the official code.
        kernel: ``"rbf"`` or ``"knn"``.
        rounds: Iterations of the fixed point, at most.
    """

    k: int = 5
    kernel: Literal["rbf", "knn"] = "rbf"
    rounds: int = 100

    features = True
    per_batch: ClassVar[str | None] = "LAME answers a batch as a whole, not one image"

    def __post_init__(self) -> None:
        check_whole("k", self.k)
        check_whole("rounds", self.rounds)
        check_choice("kernel", self.kernel, ("rbf", "knn"))

    def __call__(self, step: Step, logits: Tensor) -> Tensor:  # noqa: D102
        if logits.dim() != 2 or step.features.dim() != 2:
            raise TypeError("Lame answers whole images, not dense prediction.")
        log_p = F.log_softmax(of_classes(logits).detach().float(), dim=1)
        if len(log_p) < 2:
            return log_p.to(logits.dtype)
        alike = self._affinity(F.normalize(step.features.detach().float(), dim=1))
        return _agreed(log_p, alike, self.rounds).to(logits.dtype)

    def _affinity(self, unit: Tensor) -> Tensor:
        distance = torch.cdist(unit, unit)
        nearest = min(self.k, len(unit))
        if self.kernel == "rbf":
            width = distance.topk(nearest, largest=False).values[:, -1].mean().clamp(min=1e-6)
            return torch.exp(-distance.square() / (2 * width.square()))
        distance.fill_diagonal_(math.inf)
        found = distance.topk(min(self.k, len(unit) - 1), largest=False).indices
        return torch.zeros_like(distance).scatter_(1, found, 1.0)


def _agreed(log_p: Tensor, alike: Tensor, rounds: int) -> Tensor:
    """The fixed point, as log probabilities; stops when its energy no longer changes."""
    base = torch.log(log_p.exp() + 1e-10)
    answer, energy = log_p.exp(), math.inf
    logs = log_p
    for turn in range(rounds):
        pull = alike @ answer
        logs = F.log_softmax(base + pull, dim=1)
        answer = logs.exp()
        now = float((answer * (logs - base) - 0.5 * answer * (alike @ answer)).sum())
        if turn and abs(now - energy) <= 1e-8 * abs(energy):
            break
        energy = now
    return logs


@dataclass(frozen=True)
class PriorCorrection(Answer):
    """Move predictions towards the classes that the batch seems to hold (ROID's correction).

    ``prior_k = mean p_k``, smoothed by ``g = max(1/N, 1/K) / max_k prior_k`` to
    ``(prior + g) / (1 + g K)``; its logarithm is added to the logits. ``multiply`` multiplies the
    logits by it instead, as the public code does, which *raises* negative ones.
    """

    multiply: bool = False
    per_batch: ClassVar[str | None] = "a prior correction answers a batch as a whole, not one image"

    def __call__(self, step: Step, logits: Tensor) -> Tensor:  # noqa: D102
        if not len(logits):
            return logits
        wide = of_classes(logits).detach().float()
        p = F.softmax(wide, dim=1)
        prior = p.mean(dim=[0, *range(2, p.dim())])
        classes = logits.shape[1]
        smooth = max(1 / len(logits), 1 / classes) / prior.max()
        prior = ((prior + smooth) / (1 + smooth * classes)).view(1, -1, *(1,) * (p.dim() - 2))
        answer = wide * prior if self.multiply else F.log_softmax(wide, dim=1) + prior.log()
        return answer.to(logits.dtype)


def _float(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.float()

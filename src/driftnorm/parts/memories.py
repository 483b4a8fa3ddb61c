"""Images that are kept to be learned from later, instead of the stream as it comes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import counted
from driftnorm.parts.contract import Cost, Lesson, Memory, Step
from driftnorm.parts.losses import softmax_entropy
from driftnorm.parts.teachers import View


@dataclass
class Kept:
    """What a bank knows about its images: each list has one entry per image."""

    label: list[int]
    score: list[float]
    age: list[int]


@dataclass(frozen=True)
class Bank(Memory):
    """A bank of images, with a lesson after every ``every`` images of the stream.

    A lesson shows the bank through a view; ``facts`` holds the images as they came (``plain``) and
    their ages in images of the stream (``age``).

    Attributes:
        size: Images that it holds at most.
        every: Images of the stream between lessons, whatever the batch size. A larger batch gives
            several; a recipe's declared cost is for batches of at most this size.
        view: How a lesson shows them; ``None``: as they came.
    """

    size: int = 64
    every: int = 64
    view: View | None = None

    def __post_init__(self) -> None:
        for name in ("size", "every"):
            check_whole(name, getattr(self, name))

    @property
    def cost(self) -> Cost:  # noqa: D102
        return Cost(bound=True)  # a batch of fewer images than `every` often gives no lesson

    @abstractmethod
    def place(self, kept: Kept, label: int, score: float, classes: int) -> int | None:
        """Index of the image to replace; ``len(kept.age)`` adds the new one, ``None`` drops it.

        Args:
            kept: What is known of the images in the bank.
            label: The class predicted for the new image.
            score: The entropy of that prediction, as a share of ln K.
            classes: K.
        """

    def __call__(self, step: Step, x: Tensor) -> Iterator[Lesson]:  # noqa: D102
        logits = step.logits.detach()
        if logits.dim() > 2:
            raise ValueError(
                f"{type(self).__name__} keeps images by their one class, but the network gives "
                f"logits of shape {tuple(logits.shape)}, one class for each position."
            )
        memory = step[self]
        images: list[Tensor] = list(memory.get("x", ()))
        if images and images[0].shape != x.shape[1:]:
            raise ValueError(
                f"{type(self).__name__} holds images of shape {tuple(images[0].shape)}, got a "
                f"batch of {tuple(x.shape)}: give images of one size, or `reset()` in between."
            )
        kept = Kept(
            *(memory[name].tolist() if memory else [] for name in ("label", "score", "age"))
        )
        seen, draw, classes = memory.get("seen", 0), step.random(self), logits.shape[1]
        scores = (softmax_entropy(logits) / math.log(classes)).tolist()
        for image, label, score in zip(x, logits.argmax(dim=1).tolist(), scores, strict=True):
            place = self.place(kept, label, score, classes)
            if place is not None:
                # A copy, not a row of the caller's batch; the layout decides the last bits.
                images[place : place + 1] = [image.clone(memory_format=torch.contiguous_format)]
                for name, value in (("label", label), ("score", score), ("age", 0)):
                    getattr(kept, name)[place : place + 1] = [value]
            kept.age = [age + 1 for age in kept.age]
            seen += 1
            if seen % self.every == 0 and images:
                step[self] = self._memory(images, kept, seen)
                plain = torch.stack(images).to(x)
                shown = plain if self.view is None else self.view(plain, draw)
                age = torch.tensor(kept.age, dtype=torch.float32, device=x.device)
                yield Lesson(shown, {"plain": plain, "age": age})
        step[self] = self._memory(images, kept, seen)

    @staticmethod
    def _memory(images: list[Tensor], kept: Kept, seen: int) -> dict[str, Any]:
        score = torch.tensor(kept.score, dtype=torch.float64)
        counts = {"label": torch.tensor(kept.label), "age": torch.tensor(kept.age)}
        return {"x": tuple(images), "score": score, "seen": seen, **counts}

    def judge(self, memory: Mapping[str, Any]) -> None:  # noqa: D102
        if not memory:
            return
        count = len(memory["x"])
        if count > self.size or memory["seen"] < 0:
            raise ValueError(
                f"holds {counted(count, 'image')} of {self.size} after {memory['seen']} seen."
            )
        for name in ("label", "score", "age"):
            if memory[name].shape != (count,) or bool((memory[name] < 0).any()):
                raise ValueError(f"`{name}` must be {counted(count, 'number')} >= 0.")


@dataclass(frozen=True)
class TimelyUncertain(Bank):
    """Balanced over predicted classes; old and uncertain images go first (RoTTA's CSTU).

    A class may hold ``size / K`` images. Beyond that, and in a full bank, a new image replaces the
    worst one (of its own class, or of the largest classes) by
    ``sigmoid(age / size) + H / ln K``, unless it is worse itself.
    """

    def place(self, kept: Kept, label: int, score: float, classes: int) -> int | None:  # noqa: D102
        held = Counter(kept.label)
        among = {label}
        if held[label] < self.size / classes:
            if len(kept.label) < self.size:
                return len(kept.label)
            most = max(held.values())
            among = {each for each, count in held.items() if count == most}
        worst, place = 0.5 + score, None
        for at, (age, known) in enumerate(zip(kept.age, kept.score, strict=True)):
            rank = 1 / (1 + math.exp(-age / self.size)) + known
            if kept.label[at] in among and rank > worst:
                worst, place = rank, at
        return place

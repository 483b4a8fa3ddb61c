"""The contract: a network that predicts and adapts to what it sees.

Everything that a batch changes is changed at once, when the batch is done. A bad batch, an
exception or Ctrl-C leaves no trace. Exact reset, exact resume, thread safety and the guard all
follow from this one rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from driftnorm.functional import Moments


@dataclass(frozen=True)
class BatchReport:
    """What happened to one batch.

    Attributes:
        status: ``"adapted"``; ``"frozen"`` (answered without adapting); ``"bad"`` (answered by the
            last good state, nothing changed); ``"guarded"`` (the guard stepped in, answered by the
            source); ``"empty"``.
        samples: Size of the batch.
        entropy: Mean entropy of the network's predictions, as a share of its maximum; NaN if the
            batch was not adapted to.
        spread: Entropy of the predicted classes' shares, as a share of its maximum; NaN likewise.
        loss: Value of the objective at the last step, if there was one.
        reason: Why the batch was bad or guarded, taught nothing, or led to a restart.
        disagreement: The share of recent images, of those that the source was run on too, to which
            the two give different classes; NaN if there are none. Their accuracies on these images
            differ by no more than this.
        source: The source's logits on the first images of the batch, if the guard asked for them.
        restarted: Whether adapting began again from the source at this batch: after a set
            number of batches, or because the method or the guard asked for it.
    """

    status: Literal["adapted", "frozen", "bad", "guarded", "empty"]
    samples: int
    entropy: float = float("nan")
    spread: float = float("nan")
    loss: float | None = None
    reason: str = ""
    disagreement: float = float("nan")
    source: Tensor | None = field(default=None, compare=False, repr=False)
    restarted: bool = False


class Adapter(nn.Module):
    """Wraps a trained network; call it like the network.

    ``adapter(x)`` predicts and adapts. Outputs are detached; the wrapped network always runs in
    evaluation mode (no dropout, no stochastic depth), even after ``train()``. Calls from several
    threads are served one after the other. Works inside ``torch.no_grad()`` and
    ``torch.inference_mode()``.

    ``state_dict()`` holds all that the stream changed (statistics, counters, parameters, optimiser,
    centroids). Loaded into an adapter of the same network and method, it resumes the stream with
    bit-identical results.

    Attributes:
        last: What happened to the last batch.
    """

    last: BatchReport | None

    @abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a batch, and adapt to it."""

    @abstractmethod
    def logits_in(self, answer: Any) -> Tensor:
        """The logits in what a call returned."""

    @property
    @abstractmethod
    def frozen(self) -> bool:
        """Whether it predicts without adapting."""

    @property
    @abstractmethod
    def batches(self) -> int:
        """How many batches it has adapted to since the start or the last reset."""

    @property
    @abstractmethod
    def bad_batches(self) -> int:
        """How many batches were refused."""

    @property
    @abstractmethod
    def alarms(self) -> Sequence[object]:
        """One alarm for each time that adapting was found to be harmful."""

    @abstractmethod
    def reset(self) -> None:
        """Back to the state in which the adapter was built, bit for bit."""

    @abstractmethod
    def freeze(self) -> Adapter:
        """From now on, answer with the current state and do not adapt."""

    @abstractmethod
    def unfreeze(self) -> Adapter:
        """Adapt again."""

    def fit(self, images: Tensor | Iterable[Tensor]) -> Adapter:
        """Show source-domain images to a method that needs some; most need none."""
        return self

    def layer_moments(self) -> dict[str, tuple[Moments | None, Moments | None, float]]:
        """For each layer: the source's moments, those of the stream if it tracks any, and eps."""
        return {}

    @abstractmethod
    def bake(self) -> nn.Module:
        """An independent, plain network that answers as the frozen adapter does."""

    @abstractmethod
    def export_onnx(
        self, path: str | Path, example: torch.Tensor, *, tolerance: float = 1e-3
    ) -> float:
        """Write the baked network as ONNX, checked against onnxruntime; returns the difference."""

    @abstractmethod
    def revert(self) -> nn.Module:
        """Return the source network; with ``inplace=True``, the network that was passed in."""

"""A dry run: copies of the network, one for each method, are run on the data and thrown away."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter._surgery import find_batch_norms
from driftnorm.bench.batch_scores import BatchScores
from driftnorm.bench.metrics import Interval, paired_interval
from driftnorm.bench.stream_scores import scores_of, serve
from driftnorm.diagnosis.layer_drift import Drift, DriftMeter
from driftnorm.diagnosis.order import FOLDERS, LABELS, Serial, serial
from driftnorm.errors import DriftnormWarning
from driftnorm.methods.spec import parse_method
from driftnorm.parts import Mixture, Running, ThetaChoice
from driftnorm.recipe import Recipe

_CHOICE = ThetaChoice(
    thetas=(0.0, 0.2, 0.5),
    memory=math.inf,
    spread_memory=math.inf,
    enough=0,
    trust=0.0,
    order=0.0,
    every=1,
)
_THETAS = Recipe(
    statistics=Mixture(1.0, Running(average="total")), gradient="detached", answer=(_CHOICE,)
)
"""Theta 0 (the source), 0.2, 0.5 and 1 side by side, judged over all images."""

Batch: TypeAlias = tuple[Tensor, Tensor | None]
METHODS = ("bn", "bn:running=True", "gprebn")


@dataclass(frozen=True)
class Trial:
    """What one method did with the data.

    Attributes:
        method: Its name.
        entropy: Mean entropy of the predictions, as a share of its maximum.
        spread: Entropy of the predicted classes' shares, as a share of its maximum.
        predicted: How many classes were predicted at all.
        agreement: Share of the images on which it agrees with each method, by name.
        alarms: How often the guard found harm.
        moved: How far the trained parameters went, as a share of their own norm.
        accuracy: Share of the labelled images that were right.
        gain: Its difference to the source's accuracy, paired image by image, with 95 % interval.
    """

    method: str
    entropy: float
    spread: float
    predicted: int
    agreement: dict[str, float]
    alarms: int = 0
    moved: float = 0.0
    accuracy: float | None = None
    gain: Interval | None = None

    @property
    def information(self) -> float:
        """How informative the predictions are: varied over images, and certain for each.

        The spread without the entropy: up to normalisation, the mutual information of images and
        predicted classes.
        """
        return self.spread - self.entropy


@dataclass(frozen=True)
class Looks:
    """What the images look like, before any network.

    Attributes:
        lowest: Smallest value.
        highest: Largest value.
        contrast: Mean over images of the deviation of an image's values.
        images: How many.
    """

    lowest: float = math.inf
    highest: float = -math.inf
    contrast: float = 0.0
    images: int = 0

    def after(self, images: Tensor) -> Looks:
        """With one more batch."""
        low, high = images.aminmax()
        total = self.images + len(images)
        contrast = float(images.flatten(1).std(dim=1, correction=0).mean())
        return Looks(
            min(self.lowest, float(low)),
            max(self.highest, float(high)),
            self.contrast + (contrast - self.contrast) * len(images) / total,
            total,
        )


@dataclass(frozen=True)
class DryRun:
    """Everything that was measured.

    Attributes:
        images: How many images.
        broken: How many more were left out because they hold NaN or infinite values.
        batch_sizes: Sizes of the batches.
        positions: Predictions per image: 1, but in dense prediction.
        looks: Range of the input.
        drift: Of the statistics.
        trials: The source first.
        serial: Whether neighbours are alike, by each method's predictions, by the labels and by
            the folders; for dense predictions, by the folders alone.
        classes: How many outputs the network has.
        repeatable: Whether the source answers the same images twice in the same way.
        thetas: For statistics mixed from source (0) and data (1): how informative predictions are.
    """

    images: int
    broken: int
    batch_sizes: tuple[int, ...]
    positions: int
    looks: Looks
    drift: Drift
    trials: tuple[Trial, ...]
    serial: dict[str, Serial]
    classes: int
    repeatable: bool
    thetas: dict[float, float] = field(default_factory=dict)


@dataclass
class _Tally:
    """Predictions of one method so far."""

    entropy: float = 0.0
    predictions: list[Tensor] = field(default_factory=list)

    def add(self, scores: BatchScores, classes: int) -> None:
        self.entropy += float(scores.entropy.sum()) / math.log(max(classes, 2))
        # Dense predictions are many: two bytes each are enough for all but huge label sets.
        narrow = np.int16 if classes < 2**15 else np.int32
        self.predictions.append(torch.from_numpy(scores.choice.astype(narrow)))


def dry_run(
    network: nn.Module,
    batches: Iterable[Batch],
    methods: Sequence[str] = METHODS,
    most_batches: int = 20,
    folders: Sequence[str] = (),
) -> DryRun:
    """Shows the batches to copies of the network: as it is, and adapting by each method.

    Args:
        network: Never changed.
        batches: Images (N, C, H, W) in [0, 1], each batch with labels (-1 where unknown) or None;
            read once, and never more than one batch in memory.
        methods: Methods beside the source; left out if the network has no batch norm.
        most_batches: Where to stop.
        folders: Of each image, if known; read at the end, so it may grow as the batches are read.

    Returns:
        What was measured.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)  # the findings report it better
        run = _Run(network, methods)
        for images, truth in islice(batches, most_batches):
            run.show(images, truth)
        return run.finished(folders)


class _Run:
    def __init__(self, network: nn.Module, methods: Sequence[str]) -> None:
        norms = find_batch_norms(network)
        wanted = tuple(methods) if norms else ()
        # Before the meter watches: an adapter would take its hooks over.
        self.source = copy.deepcopy(network).eval().requires_grad_(False)
        self.adapters = {
            name: RecipeAdapter(self.source, parse_method(name).recipe, method=name)
            for name in wanted
        }
        tracked = norms and all(norm.running_mean is not None for norm in norms.values())
        self.mixing = RecipeAdapter(self.source, _THETAS) if tracked else None
        self.meter = DriftMeter(self.source)
        self.tallies = {name: _Tally() for name in ("source", *wanted)}
        self.looks = Looks()
        self.sizes: list[int] = []
        self.broken = 0
        self.labels: list[Tensor] = []
        self.last: tuple[Tensor, Tensor] | None = None

    def show(self, images: Tensor, truth: Tensor | None) -> None:
        """Show one batch to every method."""
        whole = images.isfinite().flatten(1).all(dim=1)
        self.broken += int((~whole).sum())
        images = images[whole]
        if len(images) == 0:
            return
        self.looks = self.looks.after(images)
        with torch.no_grad():
            logits = self.source(images)
        if truth is not None:
            if logits.dim() != 2:
                raise ValueError(
                    "`labels` must give one class per image, but this network predicts several."
                )
            self.labels.append(truth[whole].cpu())
        classes = logits.shape[1]
        self.tallies["source"].add(scores_of(logits), classes)
        for name, adapter in self.adapters.items():
            self.tallies[name].add(serve(adapter, images).scores, classes)
        if self.mixing is not None:
            self.mixing(images)
        self.sizes.append(len(images))
        self.last = images, logits

    def finished(self, folders: Sequence[str]) -> DryRun:
        """Everything that was measured."""
        if self.last is None:
            raise ValueError("`batches` gave no usable image; there is nothing to diagnose.")
        images, logits = self.last
        drift = self.meter.read(sum(self.sizes))
        self.meter.close()
        with torch.no_grad():
            again = self.source(images)
        classes = logits.shape[1]
        predictions = {name: torch.cat(t.predictions) for name, t in self.tallies.items()}
        truth = torch.cat(self.labels) if self.labels else torch.empty(0, dtype=torch.int64)
        return DryRun(
            images=sum(self.sizes),
            broken=self.broken,
            batch_sizes=tuple(self.sizes),
            positions=logits[0, 0].numel(),
            looks=self.looks,
            drift=drift,
            trials=tuple(self._trial(name, predictions, truth, classes) for name in predictions),
            serial=_serials(predictions if logits.dim() == 2 else {}, truth, folders),
            classes=classes,
            repeatable=torch.allclose(again, logits, rtol=1e-3, atol=1e-4),
            thetas=self._thetas(),
        )

    def _thetas(self) -> dict[float, float]:
        if self.mixing is None:
            return {}
        memory = self.mixing.state.get("parts", {}).get(_THETAS.names[_CHOICE])
        return {} if memory is None else _CHOICE.curve(memory, own=1.0)

    def _trial(
        self, name: str, predictions: dict[str, Tensor], truth: Tensor, classes: int
    ) -> Trial:
        own = predictions[name]
        shares = torch.bincount(own.long(), minlength=classes) / len(own)
        adapter = self.adapters.get(name)
        accuracy, gain = _scored(own, predictions["source"], truth)
        return Trial(
            method=name,
            entropy=self.tallies[name].entropy / len(own),
            spread=float(torch.special.entr(shares).sum())
            / math.log(max(min(len(own), classes), 2)),
            predicted=int((shares > 0).sum()),
            agreement={n: float((own == p).float().mean()) for n, p in predictions.items()},
            alarms=0 if adapter is None else len(adapter.alarms),
            moved=0.0 if adapter is None else _distance(self.source, adapter.trained_values()),
            accuracy=accuracy,
            gain=None if name == "source" else gain,
        )


def _scored(own: Tensor, source: Tensor, truth: Tensor) -> tuple[float | None, Interval | None]:
    """Accuracy on the labelled images, and the gain over the source."""
    known = truth >= 0
    if not bool(known.any()):
        return None, None
    right, before = ((p[known] == truth[known]).numpy().astype(np.float64) for p in (own, source))
    return float(right.mean()), paired_interval([right - before])


def _serials(
    predictions: dict[str, Tensor], truth: Tensor, folders: Sequence[str]
) -> dict[str, Serial]:
    streams: dict[str, Sequence[Hashable]] = {n: c.tolist() for n, c in predictions.items()}
    streams |= {LABELS: truth[truth >= 0].tolist(), FOLDERS: folders}
    return {name: serial(stream) for name, stream in streams.items() if stream}


def _distance(before: nn.Module, after: Mapping[str, Tensor]) -> float:
    """How far the parameters that differ have gone, as a share of their own norm."""
    start = dict(before.named_parameters())
    both = ((start[name].detach().to(value.dtype), value) for name, value in after.items())
    pairs = [(a, b) for a, b in both if not torch.equal(a, b)]
    length = sum(float(a.square().sum()) for a, _ in pairs)
    moved = sum(float((a - b).square().sum()) for a, b in pairs)
    return (moved / length) ** 0.5 if length else 0.0

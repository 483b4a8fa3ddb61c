"""Networks fine-tuned on all corruptions but one, with frozen BN statistics.

The paper asks whether target statistics still help a network that was trained on much of what it
will meet, and states no recipe. Here each of the other corruptions gives equally many training
images, a fifth of them at each severity, augmented by mirroring and shifting; the network stays in
evaluation mode, so that its BN statistics are those of the pre-training, while every parameter, the
affine ones of BN too, follows SGD along a cosine.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from typing_extensions import Self

from driftnorm._internal.files import write_atomically
from driftnorm._internal.types import Pixels
from driftnorm.images.corruption import SEVERITIES, corrupted
from driftnorm.images.image_set import ImageSet
from driftnorm.images.labelled import load_arrays
from driftnorm.models import save_checkpoint
from driftnorm.shifts import CORRUPTIONS, SHIFTS, frost_source
from driftnorm.training.augmentation.standard import Standard
from driftnorm.training.batches import Batch, ShuffledBatches
from driftnorm.training.evaluation import fingerprint
from driftnorm.training.loop import LoopSettings, Progress, Stop, TrainState
from driftnorm.training.optimization import Optimization, descend
from driftnorm.training.start import Start, file_hash, starting_point
from driftnorm.training.training_run import Limits, Saved, TrainingRun, Work, facts_of_run, run_in

CHECKPOINT_SECONDS = 20.0


class FrozenStatistics(nn.Module):
    """A network that stays in evaluation mode, whatever mode a training loop asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.eval()

    def train(self, mode: bool = True) -> Self:
        """Changes nothing: batch norm keeps its statistics."""
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        """What the network says."""
        logits: Tensor = self.network(images)
        return logits


@dataclass(frozen=True)
class FineTuning:
    """How networks are fine-tuned; only the corruption that is left out differs between them.

    Attributes:
        train: Clean training images: a folder of CIFAR's files or an ``.npz``.
        model: Architecture, as `driftnorm.models.load` takes it.
        weights: The pre-trained ones.
        folder: Gets the corrupted training images and the networks.
        images: Training images per corruption.
        optimization: Optimiser and length.
        corruptions: Trained on, all but the one that is left out.
        seed: Of the choice of images, their noise, their order and their augmentation.
        frost: Where frost's overlay pictures are.
    """

    train: str
    model: str
    weights: str
    folder: Path
    images: int = 1000
    optimization: Optimization = field(
        default_factory=lambda: Optimization(learning_rate=0.001, final_rate=0.0, epochs=2)
    )
    corruptions: tuple[str, ...] = CORRUPTIONS
    seed: int = 0
    frost: str | None = None

    def identity(self, left_out: str) -> dict[str, Any]:
        """All that a network depends on, fit for JSON."""
        return {
            "left_out": left_out,
            "corruptions": [c for c in self.corruptions if c != left_out],
            "severities": list(SEVERITIES),
            "images": self.images,
            "architecture": self.model,
            "init": file_hash(Path(self.weights)),
            "optimization": asdict(self.optimization),
            "seed": self.seed,
            "frost": self._frost("frost" if left_out != "frost" else ""),
            "data": _training_set(self.train)[1],
        }

    def file(self, left_out: str) -> Path:
        """Where the network is, or will be; the name says how it was made (see `tuning_of`)."""
        optimization = self.optimization
        rate = np.format_float_positional(optimization.learning_rate, trim="-")
        words = f"{self.images}-images-{optimization.epochs:g}-epochs-lr-{rate}-seed-{self.seed}"
        digest = _short_hash(self.identity(left_out))
        name = f"{self.model.replace(':', '-')}-without-{left_out}-{words}-{digest}.safetensors"
        return self.folder / "networks" / name

    def pool_file(self, corruption: str) -> Path:
        """Where the training images with a corruption are, or will be."""
        identity = {
            "data": _training_set(self.train)[1],
            "images": self.images,
            "seed": self.seed,
            "frost": self._frost(corruption),
        }
        return self.folder / "pools" / f"{corruption}-{_short_hash(identity)}.npy"

    def make_pool(self, corruption: str) -> Path:
        """Corrupt the training images, unless that was done before."""
        file = self.pool_file(corruption)
        if not file.exists():
            buffer = io.BytesIO()
            np.save(buffer, self._corrupted(corruption))
            file.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(file, buffer.getvalue())
        return file

    def chosen(self, corruption: str) -> ImageSet:
        """The clean training images that a corruption gets: others for each, drawn once."""
        clean, _ = _training_set(self.train)
        if not len(SEVERITIES) <= self.images <= len(clean):
            raise ValueError(
                f"`images` must be from {len(SEVERITIES)}, one per severity, to the {len(clean)} "
                f"of {self.train}, got {self.images}."
            )
        drawn = np.random.default_rng([self.seed, list(SHIFTS).index(corruption)])
        return clean.take(drawn.permutation(len(clean))[: self.images])

    def _corrupted(self, corruption: str) -> Pixels:
        chosen = self.chosen(corruption)
        pixels = np.empty_like(chosen.images)
        for severity in SEVERITIES:
            part = slice(severity - 1, None, len(SEVERITIES))
            made = corrupted(chosen.take(part), corruption, severity, self.seed, self.frost)
            pixels[part] = made.images
        return pixels

    def _frost(self, corruption: str) -> str | None:
        needed = corruption == "frost" and "frost" in self.corruptions
        return frost_source(self.frost) if needed else None

    def tune(self, left_out: str) -> Path:
        """Fine-tune, or resume where an earlier call was stopped; returns the network's file.

        Raises:
            KeyboardInterrupt: Stopped by Ctrl-C or SIGTERM between two steps; all is kept.
        """
        file, identity = self.file(left_out), self.identity(left_out)
        run = TrainingRun(
            identity,
            file,
            file.with_suffix(".resume.pt"),
            file.with_suffix(".lock"),
            run_in,
            lambda: self._work(left_out, file, identity),
        )
        if run.run(Limits(checkpoint_seconds=CHECKPOINT_SECONDS)).stop == "interrupted":
            raise KeyboardInterrupt
        return file

    def _work(self, left_out: str, file: Path, identity: Mapping[str, Any]) -> Work[Batch]:
        clean, _ = _training_set(self.train)
        start = starting_point(self.model, Path(self.weights), clean, self.seed)
        network = FrozenStatistics(start.model).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        images, labels = self._material(left_out)

        def save(progress: Progress, stop: Stop) -> Saved:
            self._save(file, start, clean.classes, facts_of_run(identity, progress, stop))
            return Saved((file,))

        return Work(
            TrainState(network, {"sgd": self.optimization.optimizer(network.parameters())}),
            ShuffledBatches(images, labels, self.optimization.batch_size, self.seed),
            descend(Standard()),
            lambda: Progress(self.optimization.steps(len(images))),
            lambda progress: LoopSettings(self.seed, self.optimization.schedule()),
            save,
        )

    def _material(self, left_out: str) -> tuple[Tensor, Tensor]:
        """Images of all corruptions but one, as bytes (N, C, H, W), and their labels."""
        others = [c for c in self.corruptions if c != left_out]
        pools = [np.load(self.make_pool(c), mmap_mode="r") for c in others]
        planes = np.concatenate([pool.transpose(0, 3, 1, 2) for pool in pools])
        labels = np.concatenate([self.chosen(c).labels for c in others])
        return torch.from_numpy(np.ascontiguousarray(planes)), torch.from_numpy(labels)

    def _save(
        self,
        file: Path,
        start: Start,
        classes: tuple[str, ...],
        facts: Mapping[str, Any],
    ) -> None:
        save_checkpoint(
            file,
            start.model,
            architecture=self.model,
            classes=classes,
            preprocessing=start.preprocessing,
            options=start.options,
            init_file=Path(self.weights).name,
            **facts,
        )


@lru_cache(maxsize=1)
def _training_set(path: str) -> tuple[ImageSet, dict[str, str | int]]:
    """The clean training images, and which they are."""
    found = load_arrays(path, "train")
    return found, fingerprint(found)


def _short_hash(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:10]

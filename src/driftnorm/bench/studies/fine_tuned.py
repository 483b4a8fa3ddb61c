"""The fine-tuned study: for each corruption a network that was fine-tuned on all the others.

Each network and the pre-trained one are tested on the corruption that was left out, with source and
with target statistics, without and with Tent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from torch import Tensor, nn

from driftnorm.bench.cell import Cell, Trainer, Training
from driftnorm.bench.rows import RowStore
from driftnorm.bench.runner import Opened, Outlook, Preparation, Study, Task
from driftnorm.bench.studies.corruptions import CorruptionStudy
from driftnorm.bench.vocabulary import FINE_TUNED, TENT_ON_SOURCE
from driftnorm.methods.spec import parse_method
from driftnorm.training.fine_tuning import FineTuning

METHODS = tuple(map(parse_method, ("source", TENT_ON_SOURCE, "bn", "tent")))


@dataclass(frozen=True)
class FineTunedStudy(Study):
    """Fine-tuned networks against the one they came from.

    Attributes:
        tuning: How the networks are made.
        pretrained: What is measured on the pre-trained network; its corruptions are left out in
            turn, and its other settings apply to the fine-tuned networks too.
    """

    tuning: FineTuning
    pretrained: CorruptionStudy

    def phases(self, store: RowStore) -> Iterator[Iterable[Task]]:
        """Training images, networks, and what is measured on them."""
        yield chain(
            self._make_pools(), self.pretrained.measurements(self.pretrained.cells(), store)
        )
        yield self._tune()
        tuned = [self.tuned(corruption) for corruption in self._tuned_corruptions()]
        yield chain.from_iterable(each.measurements(each.cells(), store) for each in tuned)

    def _make_pools(self) -> list[Task]:
        """The corruptions whose training images are missing."""
        left_out = self.pretrained.corruptions
        needed = [c for c in self.tuning.corruptions if left_out != (c,)]
        return [
            Preparation(f"training images with {c}", self.tuning.make_pool, (c,))
            for c in needed
            if not self.tuning.pool_file(c).exists()
        ]

    def _tune(self) -> list[Task]:
        return [
            Preparation(f"fine-tuning without {c}", self.tuning.tune, (c,))
            for c in self.pretrained.corruptions
            if not self.tuning.file(c).exists()
        ]

    def _tuned_corruptions(self) -> list[str]:
        return [c for c in self.pretrained.corruptions if self.tuning.file(c).exists()]

    def outlook(self, store: RowStore) -> Outlook:
        """Counts the cells of missing networks too."""
        missing = [cell for cell in self.cells() if not store.has(cell)]
        for corruption in self.pretrained.corruptions:
            if not self.tuning.file(corruption).exists():
                missing += replace(self.pretrained, corruptions=(corruption,)).cells()
        return Outlook(missing, len(self._make_pools()) + len(self._tune()))

    def tuned(self, left_out: str) -> CorruptionStudy:
        """The study of the network that did not see a corruption; needs its file."""
        return replace(
            self.pretrained,
            model=str(self.tuning.file(left_out)),
            weights=None,
            corruptions=(left_out,),
            training=self._training(left_out),
            name=FINE_TUNED,
        )

    def _training(self, left_out: str) -> Training:
        tuning = self.tuning
        settings = (
            ("epochs", tuning.optimization.epochs),
            ("images", tuning.images),
            ("learning_rate", tuning.optimization.learning_rate),
            ("seed", tuning.seed),
        )
        return Training(Trainer("fine-tuning"), (left_out,), settings=settings)

    def cells(self) -> list[Cell]:
        """All measurements whose networks exist."""
        cells = self.pretrained.cells()
        for corruption in self._tuned_corruptions():
            cells += self.tuned(corruption).cells()
        return cells

    def open(self, cell: Cell, scratch: Path) -> Opened:
        """As the study of the cell's own network does."""
        return self._study_of(cell).open(cell, scratch)

    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """As the study of the cell's own network does."""
        return self._study_of(cell).sample(cell)

    def _study_of(self, cell: Cell) -> CorruptionStudy:
        training = cell.network.training
        if training is None or training.trainer.algorithm != "fine-tuning":
            return self.pretrained
        return self.tuned(training.left_out[0])

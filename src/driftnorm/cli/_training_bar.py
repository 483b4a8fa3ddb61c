"""The progress bar of everything that trains."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from driftnorm.training.loop import Progress as TrainingProgress

__all__ = ["TrainingBar"]

SPEED_MEMORY = 0.9  # smoothing of the displayed speed


class TrainingBar:
    """Shows losses and speed; its methods are the hooks of the training loop.

    Args:
        console: Where to draw.
        title: What is trained.
        images: Images per step, for the speed.
    """

    def __init__(self, console: Console, title: str, images: int) -> None:
        self._bar = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[numbers]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self.title, self.images = title, images
        self._task = self._bar.add_task("starting", total=None, numbers="")
        self._last, self._duration = time.perf_counter(), 0.0

    def tell(self, text: str) -> None:
        """What is being done."""
        self._bar.update(self._task, description=f"{self.title}: {text}")
        self._last = time.perf_counter()

    def step(self, progress: TrainingProgress, losses: Mapping[str, float]) -> None:
        """After each step."""
        now = time.perf_counter()
        memory = SPEED_MEMORY if self._duration else 0.0
        self._duration = memory * self._duration + (1 - memory) * (now - self._last)
        self._last = now
        shown = [
            f"{name} {100 * value:.0f} %" if name == "accuracy" else f"{name} {value:.3f}"
            for name, value in losses.items()
        ]
        numbers = ", ".join([*shown, f"{self.images / self._duration:.0f} images/s"])
        self._bar.update(self._task, completed=progress.step, total=progress.steps, numbers=numbers)

    def record(self, record: Mapping[str, float]) -> None:
        """After each evaluation: a line that stays."""
        measured = ", ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in record.items()
            if name not in ("step", "seconds")
        )
        minutes = record["seconds"] / 60
        self._bar.console.print(f"step {record['step']:.0f}, {minutes:.1f} minutes: {measured}")
        self._last = time.perf_counter()

    def __enter__(self) -> TrainingBar:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

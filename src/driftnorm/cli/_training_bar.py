"""The progress of everything that trains: a bar, or plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console

from driftnorm.cli._progress import Bar
from driftnorm.training.loop import Progress

SPEED_MEMORY = 0.9  # smoothing of the displayed speed


class TrainingBar:
    """Shows losses and speed; its methods are the hooks of the training loop.

    Args:
        console: Where to draw.
        title: What is trained.
        images: Images per step, for the speed.
    """

    def __init__(self, console: Console, title: str, images: int) -> None:
        self._console, self._bar = console, Bar(console)
        self.title, self.images = title, images
        self._text = title
        self._done: tuple[int, int | None] = (0, None)
        self._last, self._duration = time.perf_counter(), 0.0

    def tell(self, text: str) -> None:
        """What is being done."""
        self._text = f"{self.title}: {text}"
        self._bar(self._text, *self._done)
        self._last = time.perf_counter()

    def step(self, progress: Progress, losses: Mapping[str, float]) -> None:
        """After each step."""
        now = time.perf_counter()
        memory = SPEED_MEMORY if self._duration else 0.0
        self._duration = memory * self._duration + (1 - memory) * (now - self._last)
        self._last = now
        shown = [
            f"{name} {100 * value:.0f} %" if name == "accuracy" else f"{name} {value:.3f}"
            for name, value in losses.items()
        ]
        text = ", ".join([self._text, *shown, f"{self.images / self._duration:.0f} images/s"])
        self._done = progress.step, progress.steps
        self._bar(text, *self._done)

    def record(self, record: Mapping[str, float]) -> None:
        """After each evaluation: a line that stays."""
        measured = ", ".join(
            f"{name.replace('_', ' ')} {value:.4f}"
            for name, value in record.items()
            if name not in ("step", "seconds")
        )
        minutes = record["seconds"] / 60
        self._console.print(f"step {record['step']:.0f}, {minutes:.1f} minutes: {measured}")
        self._last = time.perf_counter()

    def __enter__(self) -> TrainingBar:
        self._bar.__enter__()
        return self

    def __exit__(self, *details: object) -> None:
        self._bar.__exit__(*details)

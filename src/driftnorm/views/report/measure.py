"""Whether a page shows errors or accuracies: the same one everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from driftnorm.bench.metrics import Interval
from driftnorm.bench.rows import Row
from driftnorm.views.report.groups import mean_of


class Measure(NamedTuple):
    """What numbers on a page are, in %.

    Attributes:
        name: The word for it.
        best: Which end is better.
    """

    name: Literal["error", "accuracy"]
    best: Literal["lowest", "highest"]

    @property
    def title(self) -> str:
        """The word at the beginning of a sentence."""
        return self.name.capitalize()

    def of(self, error: float) -> float:
        """From an error between 0 and 1."""
        return 100 * error if self.name == "error" else 100 - 100 * error

    def change(self, error: Interval) -> Interval:
        """From a change of the error in points."""
        return error if self.name == "error" else Interval(-error.value, -error.high, -error.low)

    def mean(self, rows: Sequence[Row]) -> float | None:
        """The mean over rows; None without any."""
        error = mean_of(rows, "error")
        return None if error is None else self.of(error)


ERROR, ACCURACY = Measure("error", "lowest"), Measure("accuracy", "highest")

"""How a number was measured, as data; its one-line text stands beside every number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Protocol"]


@dataclass(frozen=True)
class Protocol:
    """Everything about a measurement that is not the model, the shift or the method.

    Attributes:
        data: Name of the data set.
        count: How many samples a stream has.
        batch_size: The last batch of a stream may be smaller; it is kept.
        order: How a stream is ordered.
        reset: When the adapter starts from the source again.
        predict: Which forward pass is scored.
    """

    data: str
    count: int
    batch_size: int
    order: str = "as stored"
    reset: Literal["per shift", "per batch", "never"] = "per shift"
    predict: Literal["before", "after"] = "before"

    def text(self) -> str:
        """One line for people."""
        return (
            f"{self.data}, {self.count} samples a stream, {self.order}, "
            f"batch {self.batch_size}, reset {self.reset}, scored {self.predict} the update"
        )

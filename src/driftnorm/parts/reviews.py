"""Parts that look at a batch when all is done, and may ask for a restart."""

from __future__ import annotations

import math
from dataclasses import dataclass

from driftnorm._internal.arguments import check_number
from driftnorm.parts.contract import Review, Step, Verdict


@dataclass(frozen=True)
class LossFloor(Review):
    """Restart when an average of the loss falls so low that it must have collapsed (SAR).

    Attributes:
        share: Threshold, as a share of ln K. SAR's 0.2 nats are 0.029 of ln 1000.
        decay: Decay of the average over the steps taken.
    """

    share: float = 0.029
    decay: float = 0.9

    def __post_init__(self) -> None:
        check_number("share", self.share, below=1)
        check_number("decay", self.decay, least=0, below=1)

    def __call__(self, step: Step) -> Verdict | None:  # noqa: D102
        if step.loss is None:
            return None
        mean = step[self].get("mean")
        after = step.loss if mean is None else self.decay * mean + (1 - self.decay) * step.loss
        step[self] = {"mean": after}
        if after < self.share * math.log(step.logits.shape[1]):
            return Verdict(restart=True, reason=f"the loss has fallen to {after:.3g}")
        return None

"""The studies: each describes its cells, and how to measure one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.bench.studies.corruptions import CorruptionStudy as CorruptionStudy
    from driftnorm.bench.studies.digit_shifts import SHIFTS as DIGIT_SHIFTS
    from driftnorm.bench.studies.digits import DigitStudy as DigitStudy
    from driftnorm.bench.studies.digits import normalized as normalized_digits
    from driftnorm.bench.studies.digits import train as train_digits
    from driftnorm.bench.studies.domains import DomainStudy as DomainStudy
    from driftnorm.bench.studies.domains import TrainedNetwork as TrainedNetwork
    from driftnorm.bench.studies.domains import read_trained as read_trained
    from driftnorm.bench.studies.fine_tuned import FineTunedStudy as FineTunedStudy
    from driftnorm.bench.studies.presets import PRESETS as PRESETS
    from driftnorm.bench.studies.presets import Preset as Preset

_HOMES = {
    "CorruptionStudy": "corruptions",
    "DIGIT_SHIFTS": "digit_shifts:SHIFTS",
    "DigitStudy": "digits",
    "DomainStudy": "domains",
    "FineTunedStudy": "fine_tuned",
    "PRESETS": "presets",
    "Preset": "presets",
    "TrainedNetwork": "domains",
    "normalized_digits": "digits:normalized",
    "read_trained": "domains",
    "train_digits": "digits:train",
}
__all__ = [  # literal, for type checkers: some names are others at home
    "DIGIT_SHIFTS",
    "PRESETS",
    "CorruptionStudy",
    "DigitStudy",
    "DomainStudy",
    "FineTunedStudy",
    "Preset",
    "TrainedNetwork",
    "normalized_digits",
    "read_trained",
    "train_digits",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

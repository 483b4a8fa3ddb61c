"""The studies: each describes its cells, and how one of them becomes a row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from driftnorm._internal.exports import lazy_exports

if TYPE_CHECKING:
    from driftnorm.bench.studies.corruptions import Study as Study
    from driftnorm.bench.studies.digit_shifts import SHIFTS as DIGIT_SHIFTS
    from driftnorm.bench.studies.digits import Demo as Demo
    from driftnorm.bench.studies.digits import normalized as normalized_digits
    from driftnorm.bench.studies.digits import train as train_digits
    from driftnorm.bench.studies.domains import DomainStudy as DomainStudy
    from driftnorm.bench.studies.domains import TrainedNetwork as TrainedNetwork
    from driftnorm.bench.studies.domains import open_trained as open_trained
    from driftnorm.bench.studies.fine_tuned import FineTunedStudy as FineTunedStudy
    from driftnorm.bench.studies.presets import PRESETS as PRESETS
    from driftnorm.bench.studies.presets import Preset as Preset

_HOMES = {
    "DIGIT_SHIFTS": "digit_shifts:SHIFTS",
    "Demo": "digits",
    "DomainStudy": "domains",
    "FineTunedStudy": "fine_tuned",
    "PRESETS": "presets",
    "Preset": "presets",
    "Study": "corruptions",
    "TrainedNetwork": "domains",
    "normalized_digits": "digits:normalized",
    "open_trained": "domains",
    "train_digits": "digits:train",
}
__all__ = [  # literal, for type checkers: some names are others at home
    "DIGIT_SHIFTS",
    "PRESETS",
    "Demo",
    "DomainStudy",
    "FineTunedStudy",
    "Preset",
    "Study",
    "TrainedNetwork",
    "normalized_digits",
    "open_trained",
    "train_digits",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_exports(__name__, _HOMES)

"""The parts of a test-time method, and their contract.

`contract` defines what a part is and what it sees; the other modules hold the parts, by
role. A method is a :class:`~driftnorm.Recipe` of them.
"""

from driftnorm.parts.answers import T3A, Centroids, Lame, PriorCorrection, RunningCentroids
from driftnorm.parts.choices import ThetaChoice
from driftnorm.parts.contract import (
    Answer,
    Cost,
    Forward,
    Lesson,
    Loss,
    Measured,
    Memory,
    NoStep,
    Part,
    Review,
    Serving,
    Signal,
    Statistics,
    Step,
    Update,
    Verdict,
    Weight,
)
from driftnorm.parts.layers import First, Last, Selector
from driftnorm.parts.losses import (
    CrossEntropy,
    Entropy,
    Fisher,
    InformationMaximization,
    LogitLoss,
    PseudoLabel,
    Weighted,
    softmax_entropy,
)
from driftnorm.parts.memories import Bank, TimelyUncertain
from driftnorm.parts.neighbours import Gated, LabelOrder
from driftnorm.parts.reviews import LossFloor
from driftnorm.parts.statistics import Batch, Mixture, Prior, Running, Source, Window
from driftnorm.parts.teachers import By, SourceLogits, Taught, Teacher, View
from driftnorm.parts.updates import Anchor, Ascent, Cap, Descent, Leash, Restore
from driftnorm.parts.weights import Diverse, Reliable, Timely

__all__ = [
    "T3A",
    "Anchor",
    "Answer",
    "Ascent",
    "Bank",
    "Batch",
    "By",
    "Cap",
    "Centroids",
    "Cost",
    "CrossEntropy",
    "Descent",
    "Diverse",
    "Entropy",
    "First",
    "Fisher",
    "Forward",
    "Gated",
    "InformationMaximization",
    "LabelOrder",
    "Lame",
    "Last",
    "Leash",
    "Lesson",
    "LogitLoss",
    "Loss",
    "LossFloor",
    "Measured",
    "Memory",
    "Mixture",
    "NoStep",
    "Part",
    "Prior",
    "PriorCorrection",
    "PseudoLabel",
    "Reliable",
    "Restore",
    "Review",
    "Running",
    "RunningCentroids",
    "Selector",
    "Serving",
    "Signal",
    "Source",
    "SourceLogits",
    "Statistics",
    "Step",
    "Taught",
    "Teacher",
    "ThetaChoice",
    "Timely",
    "TimelyUncertain",
    "Update",
    "Verdict",
    "View",
    "Weight",
    "Weighted",
    "Window",
    "softmax_entropy",
]

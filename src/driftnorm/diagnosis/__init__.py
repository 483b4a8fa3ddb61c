"""Will adaptation help? The answer for one network and one set of images, without labels."""

from driftnorm.diagnosis.advice import Advice
from driftnorm.diagnosis.diagnosis import Diagnosis, diagnose
from driftnorm.diagnosis.findings import Finding
from driftnorm.diagnosis.inventory import BatchNormLayer, Inventory, take_inventory
from driftnorm.diagnosis.layer_drift import Drift, LayerDrift
from driftnorm.diagnosis.trial import Trial

__all__ = [
    "Advice",
    "BatchNormLayer",
    "Diagnosis",
    "Drift",
    "Finding",
    "Inventory",
    "LayerDrift",
    "Trial",
    "diagnose",
    "take_inventory",
]

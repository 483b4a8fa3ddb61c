"""A run's state on disk: the adapter's, and how far the predictions are, in one atomic file.

Tensors only (safetensors). The facts about the run are JSON in bytes under ``run.facts``; without
that entry the file is the adapter's own state dict.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from driftnorm._internal.files import write_atomically
from driftnorm.adapter import Adapter
from driftnorm.errors import DataError
from driftnorm.models._weight_files import read_any
from driftnorm.predictions.answers_file import Tally
from driftnorm.predictions.comparison import Comparison
from driftnorm.predictions.drift_log import DriftCourse

FACTS = "run.facts"


@dataclasses.dataclass
class RunState:
    """How far a run is.

    Attributes:
        settings: What identifies the run; a state resumes only with the same settings.
        began: When, in seconds since 1970: data that were changed later are others.
        position: Images done, read or not.
        last_name: Name of the last one.
        length: Bytes of the CSV file that hold them.
        tally: What they add up to.
        comparison: What the source says to some of them.
        drift: How the statistics moved.
    """

    settings: Mapping[str, Any]
    began: float = 0.0
    position: int = 0
    last_name: str = ""
    length: int = 0
    tally: Tally = dataclasses.field(default_factory=Tally)
    comparison: Comparison = dataclasses.field(default_factory=Comparison)
    drift: DriftCourse = dataclasses.field(default_factory=DriftCourse)

    def check_settings(self, settings: Mapping[str, Any], out: Path) -> None:
        """Refuse to resume a run with other settings."""
        keys = [*self.settings, *settings]
        for key in keys:
            was, now = self.settings.get(key), settings.get(key)
            if was != now:
                raise ValueError(
                    f"{out} belongs to a run with {key} {was!r}, this one has {now!r}: choose "
                    "another `--out`, or start over with `--fresh`."
                )


def save_state(file: Path, state: RunState, adapter: Adapter) -> None:
    """Write both, or neither."""
    facts = json.dumps(vars(state), default=vars).encode()  # `asdict` would copy every point
    tensor = torch.frombuffer(bytearray(facts), dtype=torch.uint8)
    _write(file, {**adapter.state_dict(), FACTS: tensor})


def read_state(file: Path) -> tuple[RunState, dict[str, Tensor]]:
    """The state of a run, and its adapter's."""
    tensors: dict[str, Tensor] = read_any(file)
    try:
        facts = json.loads(bytes(tensors.pop(FACTS).numpy()))
        facts["tally"] = Tally.from_mapping(facts["tally"])
        facts["comparison"] = Comparison(**facts["comparison"])
        facts["drift"] = DriftCourse(**facts["drift"])
        return RunState(**facts), tensors
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"{file} is not the state of a run of this driftnorm ({type(error).__name__}: "
            f"{error}). Start over with `--fresh`."
        ) from error


def save_adapter(file: Path, adapter: Adapter) -> None:
    """Write the adapter's state alone; ``load_state_dict`` takes it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _write(file, adapter.state_dict())


def load_adapter(file: Path, adapter: Adapter) -> None:
    """Restore the saved state into an adapter of the same network and method."""
    tensors = read_any(file)
    if isinstance(tensors, dict):
        tensors.pop(FACTS, None)
    adapter.load_state_dict(tensors)


def _write(file: Path, tensors: Mapping[str, Tensor]) -> None:
    from safetensors.torch import save

    write_atomically(file, save(dict(tensors)))

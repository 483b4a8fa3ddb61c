"""Resumable checkpoints: one file with everything a run needs to resume.

A file appears whole or not at all, and it knows which run it belongs to. Random states are not in
it, because nothing depends on them (see `batches`). It is read with `weights_only=True`: opening
one never runs code.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from driftnorm._internal.files import write_atomically
from driftnorm.errors import CheckpointError, TrainingError
from driftnorm.models._weight_files import read_any
from driftnorm.training.loop import Progress, TrainState

FORMAT = 1
KEYS = frozenset({"format", "identity", "progress", "module", "optimizers"})


@dataclasses.dataclass(frozen=True)
class ResumeFile:
    """The last checkpoint of one run.

    Attributes:
        path: Of the file.
        identity: What makes the run this run, fit for JSON; a file of another is refused.
    """

    path: Path
    identity: Mapping[str, Any]

    def save(self, state: TrainState, progress: Progress) -> None:
        """Replaces the file, unless the weights are not finite."""
        weights = state.module.state_dict()
        for name, tensor in weights.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise TrainingError(
                    f"step {progress.step} of {progress.steps}: `{name}` is no longer finite; the "
                    f"last good checkpoint stays in {self.path}. Start again with a lower learning "
                    "rate."
                )
        content = {
            "format": FORMAT,
            "identity": json.dumps(self.identity),
            "progress": json.dumps(dataclasses.asdict(progress)),
            "module": weights,
            "optimizers": {name: o.state_dict() for name, o in state.optimizers.items()},
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())

    def restore(self, state: TrainState) -> Progress:
        """Puts the checkpoint into the state and tells how far it is.

        Raises:
            TrainingError: The file is of another run or another format, or no checkpoint.
        """
        content = self._read()
        check_identity(self.path, json.loads(content["identity"]), self.identity)
        state.module.load_state_dict(content["module"])
        for name, optimizer in state.optimizers.items():
            optimizer.load_state_dict(content["optimizers"][name])
        return Progress(**json.loads(content["progress"]))

    def _read(self) -> dict[str, Any]:
        try:
            content = read_any(self.path)
        except CheckpointError as error:
            raise TrainingError(f"{error} Delete it to start the run again.") from error
        if not isinstance(content, dict) or content.keys() != KEYS:
            raise TrainingError(f"{self.path} is not a checkpoint of a run; name another folder.")
        if content["format"] != FORMAT:
            raise TrainingError(
                f"{self.path} has the format {content['format']}, this driftnorm reads {FORMAT}; "
                "finish the run with the driftnorm that began it."
            )
        return content


def check_identity(path: Path, stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a file of another run, and name what differs.

    Args:
        path: Of the file.
        stored: The identity in it.
        wanted: That of this run.
    """
    own = json.loads(json.dumps(wanted))  # tuples are lists in a file
    for key in sorted(stored.keys() | own.keys()):
        if stored.get(key) != own.get(key):
            raise TrainingError(
                f"{path} holds another run: there `{key}` is {stored.get(key)!r}, here "
                f"{own.get(key)!r}. Use the same settings, or another folder."
            )

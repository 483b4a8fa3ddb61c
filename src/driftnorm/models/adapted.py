"""Adapted networks as plain checkpoints, put in their place once they can be opened again."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from driftnorm._internal.files import written_beside
from driftnorm.adapter import Adapter
from driftnorm.errors import CheckpointError
from driftnorm.models.checkpoint_files import (
    check_description,
    network_weights,
    open_checkpoint,
    save_checkpoint,
)
from driftnorm.models.opened_model import Model


def check_rebuilt(model: Model) -> None:
    """Refuse a model of which a checkpoint could not say how to build it; nothing is written.

    Raises:
        CheckpointError: Its architecture cannot be built again, or comes out another one.
    """
    if model.architecture is None:
        raise CheckpointError(
            "undescribed",
            f"{model.name} came whole out of a file, so a checkpoint could not say how to build "
            "it: name its architecture as the model and give the file as `--weights`, or let "
            "`driftnorm export` write .pt2 or .onnx.",
        )
    check_description(
        network_weights(model.network, model.preprocessing),
        architecture=model.architecture,
        classes=model.classes,
        options=model.options,
    )


def save_adapted(file: Path, adapter: Adapter, model: Model) -> nn.Module:
    """Write the adapted network as a plain one that describes itself.

    Args:
        file: Where; what is there is replaced only by a file that can be opened.
        adapter: Of the model's network.
        model: What the network was opened as.

    Returns:
        The network as it was read back from the file.
    """
    check_rebuilt(model)
    assert model.architecture is not None
    with written_beside(file, ".safetensors") as written:
        save_checkpoint(
            written,
            adapter.bake().cpu(),
            architecture=model.architecture,
            classes=model.classes,
            preprocessing=model.preprocessing,
            options=model.options,
            adapted_from=model.name,
            method=adapter.method,
            batches=adapter.batches,
        )
        # The code that it names is what the user has named just now.
        return open_checkpoint(written, trust=True).model

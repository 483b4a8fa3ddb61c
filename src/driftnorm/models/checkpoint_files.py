"""Checkpoints that describe themselves.

One safetensors file: the network's weights by their plain names, so that any tool can read them,
and in the header, under the key `driftnorm`, a JSON text with the architecture, its options, the
class names, the preprocessing, facts about the training, and a hash of the weights. Opening one
needs no further flags and runs no code that the file names.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm._internal.counts import counted
from driftnorm._internal.files import written_beside
from driftnorm._internal.own_code import given_as
from driftnorm.errors import CheckpointError
from driftnorm.models._weight_files import identify
from driftnorm.models.normalized import Normalized, Preprocessing
from driftnorm.models.sources import is_factory, resolve, takes_classes
from driftnorm.models.weight_layouts import (
    PathLike,
    check_fit,
    fit_weights,
    load_weights,
    matching_architectures,
    plain_weights,
)

FORMAT_VERSION = 1
HEADER_KEY = "driftnorm"
DESCRIPTION_TYPES = {
    "format": int, "architecture": str, "options": dict, "classes": list,
    "preprocessing": dict, "facts": dict, "weights": str,
}  # fmt: skip
# Options of timm and torchvision that fetch other files and say nothing about the network.
FETCHING_OPTIONS = frozenset(
    {"pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"}
)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """An opened self-describing checkpoint.

    Attributes:
        model: The network with its weights and normalisation, in evaluation mode.
        classes: Class names in the order of the outputs.
        preprocessing: What the model's input looks like (the model normalises by itself).
        facts: Whatever the training wrote about itself.
        architecture: Spec of the network, as for `driftnorm.models.load`.
        options: Options of the network.
        weights_hash: SHA-256 of names, types, shapes and values of the weights.
    """

    model: Normalized
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    facts: Mapping[str, Any]
    architecture: str
    options: Mapping[str, Any]
    weights_hash: str


def save_checkpoint(
    path: PathLike,
    model_or_state: nn.Module | Mapping[str, Tensor],
    *,
    architecture: str,
    classes: Sequence[str],
    preprocessing: Preprocessing | Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    **facts: Any,
) -> str:
    """Writes a self-describing checkpoint; the file appears complete or not at all.

    Args:
        path: Where to write; an existing file is replaced.
        model_or_state: The model (a `Normalized` or its bare network) or its state dict.
        architecture: Spec from which `load` builds the network.
        classes: Class names in the order of the outputs.
        preprocessing: Mean, standard deviation, size and interpolation of the input.
        options: Options of the network beside the number of classes.
        **facts: Anything else worth knowing (data, algorithm, seed, accuracy), fit for JSON.

    Returns:
        The hash of the weights.
    """
    wanted = (
        preprocessing
        if isinstance(preprocessing, Preprocessing)
        else Preprocessing.from_mapping(preprocessing)
    )
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise TypeError(f"`classes` must be a sequence of names, got {classes!r}.")
    tensors = network_weights(model_or_state, wanted)
    options = dict(options or {})
    _check_recipe(architecture, options, path, trust=True)
    if ":" not in architecture:  # built in, or an unknown name
        check_description(tensors, architecture=architecture, classes=classes, options=options)
    digest = weights_hash(tensors)
    description = {
        "format": FORMAT_VERSION,
        "architecture": architecture,
        "options": options,
        "classes": list(classes),
        "preprocessing": wanted.to_mapping(),
        "facts": facts,
        "weights": digest,
    }
    _write(Path(path), tensors, _as_json(description))
    return digest


def check_description(
    weights: Mapping[str, Tensor],
    *,
    architecture: str,
    classes: Sequence[str],
    options: Mapping[str, Any],
) -> None:
    """Refuses a description that does not lead to a network for these weights."""
    # What is built in needs no memory for it; other people's code may compute while it builds.
    place = "cpu" if is_factory(architecture) else "meta"
    with torch.device(place):
        network = _rebuilt(architecture, len(classes), options)
    check_fit(network, weights, name=f"{architecture} with {counted(len(classes), 'class')}")


def _rebuilt(architecture: str, classes: int, options: Mapping[str, Any]) -> nn.Module:
    """The network of a description; a factory that takes no `num_classes` is not given any."""
    with given_as("architecture"):
        known = classes if takes_classes(architecture) else None
        network, _ = resolve(architecture, known, **dict(options))
    return network


def open_checkpoint(path: PathLike, *, trust: bool = False) -> Checkpoint:
    """Opens a file that `save_checkpoint` wrote.

    Args:
        path: The file.
        trust: Allow an architecture of the form "package.module:factory", which imports and runs
            code that the file names.

    Returns:
        The checkpoint, its model ready to run.
    """
    description = _description(Path(path))
    architecture, options = description["architecture"], description["options"]
    _check_recipe(architecture, options, path, trust=trust)
    weights = load_weights(path)
    digest = weights_hash(weights)
    if digest != description["weights"]:
        raise CheckpointError(
            "damaged",
            f"{path}: the weights are not those that were saved (hash {digest[:12]}..., recorded "
            f"{description['weights'][:12]}...). Copy the file again.",
        )
    classes = tuple(description["classes"])
    try:
        preprocessing = Preprocessing.from_mapping(description["preprocessing"])
        network = _rebuilt(architecture, len(classes), options)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            "architecture", f"{path}: the network it describes cannot be built: {error}"
        ) from error
    fit_weights(network, weights, name=architecture, source=path)
    model = Normalized(network, preprocessing.mean, preprocessing.std)
    model.eval()
    facts = description["facts"]
    return Checkpoint(model, classes, preprocessing, facts, architecture, options, digest)


def facts_in(path: PathLike) -> Mapping[str, Any]:
    """What the training wrote about itself into a file; nothing for files of other origins."""
    header = _header(Path(path))
    return {} if header is None else _parsed(header, path)["facts"]


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """SHA-256 of names, types, shapes and values, whatever the order or the file format."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def network_weights(
    given: nn.Module | Mapping[str, Tensor], wanted: Preprocessing
) -> dict[str, Tensor]:
    """The bare network's weights as separate, contiguous CPU tensors."""
    state: Mapping[str, Tensor] = given.state_dict() if isinstance(given, nn.Module) else given
    inside = {n: t for n, t in state.items() if n.startswith("network.")}
    if state.keys() - inside.keys() == {"mean", "std"}:  # a Normalized
        for key, value in (("mean", wanted.mean), ("std", wanted.std)):
            held = state[key].detach().cpu().float().flatten()
            if held.shape[0] != len(value) or not torch.allclose(held, torch.tensor(value)):
                raise ValueError(
                    f"`preprocessing` says {key} {list(value)}, the model normalises with "
                    f"{[round(v, 5) for v in held.tolist()]}."
                )
        state = inside
    return {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in plain_weights(state).items()
    }


def _check_recipe(
    architecture: str, options: Mapping[str, Any], path: PathLike, *, trust: bool
) -> None:
    """Refuses descriptions that would fetch files or run code when opened."""
    if is_factory(architecture) and not trust:
        raise CheckpointError(
            "untrusted",
            f"{path} needs its network from {architecture!r}, which imports and runs that code; "
            "pass trust=True (`--trust`) if you trust the source of the file.",
        )
    fetching = sorted(FETCHING_OPTIONS & options.keys())
    if fetching:
        raise CheckpointError(
            "untrusted",
            f"{path}: the option {fetching[0]!r} fetches other weights and does not belong in the "
            "description of a network; leave it out of `options`.",
        )


def _description(path: Path) -> dict[str, Any]:
    """Reads the description in the header of a file, which must have one."""
    header = _header(path)
    if header is None:
        matches = matching_architectures(load_weights(path))
        known = f", e.g. {matches[0]!r} whose names it has" if matches else ""
        raise CheckpointError(
            "undescribed",
            f"{path} holds weights without driftnorm's description; name the architecture{known}: "
            f"load(NAME, weights={str(path)!r}), on the command line `NAME --weights {path}`.",
        )
    return _parsed(header, path)


def _parsed(header: str, path: PathLike) -> dict[str, Any]:
    """The description, checked."""
    try:
        parsed = json.loads(header)
    except ValueError as error:
        why = f"{path}: its description is not JSON: {error}."
        raise CheckpointError("damaged", why) from error
    description: dict[str, Any] = parsed if isinstance(parsed, dict) else {}
    version = description.get("format")
    if isinstance(version, int) and version > FORMAT_VERSION:
        raise CheckpointError(
            "version",
            f"{path} has the format {version}; this driftnorm reads up to {FORMAT_VERSION}. "
            "Upgrade driftnorm.",
        )
    for key, kind in DESCRIPTION_TYPES.items():
        if not isinstance(description.get(key), kind):
            raise CheckpointError(
                "damaged", f"{path}: its description has no {key!r} of type {kind.__name__}."
            )
    return description


def _header(path: Path) -> str | None:
    """The description as it stands in a file, or None if it has none."""
    from safetensors import safe_open

    if identify(path) != "safetensors":
        return None
    with safe_open(path, framework="pt") as file:
        return (file.metadata() or {}).get(HEADER_KEY)


def _as_json(description: Mapping[str, Any]) -> str:
    for name, value in (*description["facts"].items(), *description["options"].items()):
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TypeError(f"`{name}` must be fit for JSON, got {value!r}: {error}") from error
    return json.dumps(description, allow_nan=False)


def _write(path: Path, tensors: Mapping[str, Tensor], description: str) -> None:
    """Writes the file as a whole, so that a killed process leaves the old one or the new one."""
    from safetensors.torch import save

    content = save(dict(tensors), metadata={"format": "pt", HEADER_KEY: description})
    with written_beside(path) as temporary, temporary.open("wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())

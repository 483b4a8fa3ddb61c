"""The user's MODEL, however it is named, as one network that takes images in [0, 1]."""

from __future__ import annotations

import dataclasses
import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from driftnorm._internal.counts import counted
from driftnorm._internal.files import check_regular
from driftnorm._internal.messages import first_line
from driftnorm._internal.own_code import given_as
from driftnorm.adapter._checks import normalizes_input
from driftnorm.errors import CheckpointError
from driftnorm.models._vision import import_timm, import_torchvision
from driftnorm.models._weight_files import is_torchscript, read_any
from driftnorm.models.architectures import MODELS
from driftnorm.models.checkpoint_files import (
    facts_in,
    open_checkpoint,
    weights_hash,
)
from driftnorm.models.efficientnet_lite import NAME as LITE
from driftnorm.models.loader import Constants, constants_of, load, load_published, names_file
from driftnorm.models.normalized import Normalized, Preprocessing, doubt_of_constants
from driftnorm.models.sources import is_factory, resolve
from driftnorm.models.weight_layouts import PathLike

_PUBLISHERS = ("timm", "torchvision")


@dataclasses.dataclass(frozen=True)
class Model:
    """A network with all that one must know to show it pictures and to read its answers.

    Attributes:
        network: Takes images (N, 3, H, W) in [0, 1] and normalises them itself; evaluation mode.
        name: What to call the model.
        digest: SHA-256 of the network's weights and normalisation.
        classes: Class names in the order of the outputs; their numbers where they have no names;
            none where the network could not be tried on the images that were to be shown.
        preprocessing: How a picture becomes such an image.
        architecture: What it was built from, as `driftnorm.models.load` takes it; None if the
            network came whole out of a trusted file, so that nothing could build it again.
        options: Options of the architecture.
        facts: What the file of the weights says about their training; empty for most files.
    """

    network: nn.Module
    name: str
    digest: str
    classes: tuple[str, ...]
    preprocessing: Preprocessing
    architecture: str | None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def adapted_by(self) -> str:
        """The method, where the file says that the network was adapted before; else empty."""
        return str(self.facts.get("method", "")) if "adapted_from" in self.facts else ""


@dataclasses.dataclass(frozen=True)
class _Found:
    """What the model's own source says, before the user's flags."""

    network: nn.Module
    preprocessing: Preprocessing | None
    classes: tuple[str, ...] | None
    architecture: str | None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def open_model(
    model: PathLike,
    *,
    weights: PathLike | None = None,
    classes: PathLike | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    size: int | None = None,
    shown: tuple[int, int] | None = None,
    untrained: bool = False,
    trust: bool = False,
) -> Model:
    """Opens the model that a user names.

    Class names, input size and normalisation come from the file, from timm or torchvision, or from
    what driftnorm knows of the network; the arguments win where they are given.

    Args:
        model: A self-describing driftnorm file, "timm:NAME", "torchvision:NAME", a built-in name,
            or "package.module:factory".
        weights: A weight file. Without one, timm and torchvision networks get the weights that
            those projects publish, and a factory's network is used as returned.
        classes: A text file with one class name per line, or a JSON list of names.
        mean: Mean per channel for images in [0, 1].
        std: Standard deviation per channel.
        size: Height and width of the square input in pixels.
        shown: Height and width of images that come prepared, and are not resized for the network.
            A network that fails on a try with such images is not refused: whoever runs it on them
            records what it raises.
        untrained: Take an architecture with the weights that it is built with: nothing is
            downloaded, and nothing is refused for lack of weights.
        trust: Accept files that can run code when they are opened: pickled modules (as `model` or
            `weights`), TorchScript archives (as `weights`), files that name a factory.

    Returns:
        The network and what goes with it.
    """
    _check_given(model, weights, size, shown)
    constants = _plausible_constants(mean, std)
    if names_file(model):
        name, found = Path(model).stem, _from_file(Path(model), constants, trust)
    else:
        with given_as("model"):
            name, found = str(model), _from_spec(str(model), weights, constants, untrained, trust)
    preprocessing = _settled_preprocessing(found, size or (shown and shown[0]), str(model))
    height, width = shown or (preprocessing.size, preprocessing.size)
    try:
        outputs = _count_outputs(found.network, height, width, str(model))
    except (ValueError, TypeError):
        if shown is None:
            raise
        outputs = 0
    return Model(
        network=found.network,
        name=name,
        digest=weights_hash(found.network.state_dict()),
        classes=_class_names(found.classes, classes, outputs),
        preprocessing=preprocessing,
        architecture=found.architecture,
        options=found.options,
        facts=found.facts,
    )


def _check_given(
    model: PathLike, weights: PathLike | None, size: int | None, shown: tuple[int, int] | None
) -> None:
    """Refuse arguments that contradict each other, and files that do not exist."""
    is_file = names_file(model)
    for flag, file in (("NETWORK", model if is_file else None), ("--weights", weights)):
        if file is not None and not Path(file).exists():
            raise FileNotFoundError(f"`{flag}` must name a file, but {file} does not exist.")
    if is_file and weights is not None:
        raise ValueError(
            f"{model} is a file with its own weights; to use those of {weights}, name the "
            "architecture as `model`, such as 'timm:resnet50'."
        )
    if size is not None and shown not in (None, (size, size)):
        raise ValueError(
            f"`size` must be that of the images, which are shown as they are: {shown[0]} x "
            f"{shown[1]} pixels, got {size}."
        )


def _plausible_constants(
    mean: Sequence[float] | None, std: Sequence[float] | None
) -> Constants | None:
    constants = constants_of(mean, std)
    doubt = None if constants is None else doubt_of_constants(*constants)
    if doubt is not None:
        raise ValueError(f"`mean` and `std`: {doubt}")
    return constants


def check_weights(spec: str, weights: PathLike | None, pretrained: bool) -> None:
    """Refuse to measure an untrained network, where nothing is downloaded unasked.

    Args:
        spec: As `open_model` takes it.
        weights: A weight file, if one is given.
        pretrained: Whether the weights that timm and torchvision publish are asked for.

    Raises:
        ValueError: The spec is that of an architecture and no weights are given, or two are.
    """
    family = spec.partition(":")[0]
    if pretrained and weights is not None:
        raise ValueError("`--weights` and `--pretrained` both name weights: give one of them.")
    if pretrained and family not in _PUBLISHERS:
        raise ValueError(
            f"`--pretrained` takes the weights that timm or torchvision publish, but the model is "
            f"`{spec}`: give `--weights` FILE."
        )
    if weights is None and not pretrained:
        _check_trained(spec)
        if family in _PUBLISHERS:
            raise ValueError(
                f"`{spec}` is an architecture without weights: give `--weights` FILE, or "
                f"`--pretrained` for those that {family} publishes."
            )


def _check_trained(spec: str) -> None:
    """A network that driftnorm builds has no weights of its own."""
    base = spec.split("+")[0]
    if base in MODELS or base == LITE:
        raise ValueError(f"`{spec}` is an architecture without weights: give `--weights` FILE.")


def read_class_names(path: PathLike) -> tuple[str, ...]:
    """Reads class names from a text file, one per line, or from a JSON list."""
    check_regular(Path(path), "--classes")
    text = Path(path).read_text(encoding="utf-8-sig")
    names: Any = [line.strip() for line in text.splitlines() if line.strip()]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError as error:
            raise ValueError(f"`classes` {path} is not a valid JSON list: {error}.") from error
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(
            f"`classes` {path} must hold class names, one per line or as a JSON list of texts."
        )
    return tuple(names)


def _from_file(path: Path, constants: Constants | None, trust: bool) -> _Found:
    try:
        checkpoint = open_checkpoint(path, trust=trust)
    except CheckpointError as error:
        if error.problem != "pickled" or not trust:
            raise
        return _pickled(path, constants)
    if constants is not None:
        raise ValueError(
            f"{path} describes its own normalisation; to use another `mean` and `std`, name the "
            "architecture as the model and give the file as weights."
        )
    return _Found(
        checkpoint.model,
        checkpoint.preprocessing,
        checkpoint.classes,
        checkpoint.architecture,
        checkpoint.options,
        checkpoint.facts,
    )


def _pickled(path: Path, constants: Constants | None) -> _Found:
    network = read_any(path, trust=True)
    if not isinstance(network, nn.Module):
        raise CheckpointError(
            "undescribed",
            f"{path} holds a pickled {type(network).__name__}, not a whole network; name its "
            "architecture as the model and give the file as weights.",
        )
    if constants is not None and normalizes_input(network):
        raise ValueError(
            f"{path} seems to normalise its input itself (it holds a mean and a deviation): leave "
            "out `mean` and `std`."
        )
    network = network.float() if constants is None else Normalized(network.float(), *constants)
    return _Found(network.eval(), None, None, None)


def _from_spec(
    spec: str,
    weights: PathLike | None,
    constants: Constants | None,
    untrained: bool,
    trust: bool,
) -> _Found:
    mean, std = constants or (None, None)
    facts: Mapping[str, Any] = {}
    if weights is None and untrained:
        network = load(spec, mean=mean, std=std)
    elif weights is None:
        network = _published(spec, mean, std)
    else:
        state: PathLike | dict[str, Tensor] = weights
        if trust and is_torchscript(Path(weights)):
            state = dict(torch.jit.load(str(weights), map_location="cpu").state_dict())  # type: ignore[no-untyped-call]
        else:
            facts = facts_in(weights)
        network = load(spec, state, mean=mean, std=std, trust=trust)
    inner = network.network if isinstance(network, Normalized) else network
    if spec in MODELS:
        options = MODELS[spec].options_in(inner.state_dict())
        return _Found(network, MODELS[spec].preprocessing, None, spec, options, facts)
    if is_factory(spec):
        return _Found(network, None, None, spec, {}, facts)
    _, preprocessing = resolve(spec)
    return _Found(network, preprocessing, _published_classes(spec, inner), spec, {}, facts)


def _published(spec: str, mean: Sequence[float] | None, std: Sequence[float] | None) -> nn.Module:
    """The network of a spec with the weights that its own project has for it."""
    _check_trained(spec)
    if spec.partition(":")[0] not in _PUBLISHERS:
        return load(spec, mean=mean, std=std)
    return load_published(spec, mean, std)


def _published_classes(spec: str, network: nn.Module) -> tuple[str, ...] | None:
    """Names of the classes that the project's own weights are for."""
    family, _, name = spec.split("+")[0].partition(":")
    if family not in _PUBLISHERS:
        return None
    if family == "torchvision":
        published = import_torchvision().models.get_model_weights(name)
        return tuple(published.DEFAULT.meta.get("categories", ())) or None
    import_timm()
    data = importlib.import_module("timm.data")
    subset = data.infer_imagenet_subset(network)
    return None if subset is None else tuple(data.ImageNetInfo(subset).label_descriptions())


def _settled_preprocessing(found: _Found, size: int | None, model: str) -> Preprocessing:
    """What the source of the model says, with the constants that are really inside it."""
    known = found.preprocessing
    pixels = size if size is not None or known is None else known.size
    inside = isinstance(found.network, Normalized) or normalizes_input(found.network)
    if pixels is None or not inside:
        _refuse_unknown(model, size=pixels is None, constants=not inside)
    assert pixels is not None
    if isinstance(found.network, Normalized):
        mean, std = (
            tuple(round(v, 6) for v in getattr(found.network, key).flatten().tolist())
            for key in ("mean", "std")
        )
    else:
        mean, std = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # it is fed images in [0, 1] as they are
    if known is None:
        return Preprocessing(mean, std, pixels)
    return dataclasses.replace(known, mean=mean, std=std, size=pixels)


def _refuse_unknown(model: str, *, size: bool, constants: bool) -> NoReturn:
    """Everything that must be given, in one error."""
    asked = [
        *(["which input size it expects: give `size` (`--size`) in pixels, such as 224"] * size),
        *(
            [
                "how it normalises its input: give `mean` and `std` per channel (`--mean`, "
                "`--std`), for images in [0, 1]; 0 0 0 and 1 1 1 if it takes them as they are"
            ]
            * constants
        ),
    ]
    raise ValueError(f"{model!r} does not say {'; nor '.join(asked)}.")


def _count_outputs(network: nn.Module, height: int, width: int, model: str) -> int:
    """The number of classes, from one forward pass of grey images."""
    try:
        with torch.no_grad():
            # Two, because a layer without statistics cannot measure the variance of one.
            answer = network(torch.full((2, 3, height, width), 0.5))
    except Exception as error:  # whatever a network of the user's raises
        reason = first_line(error)
        kinds = {p.dtype for p in network.parameters()} - {torch.float32}
        hint = (
            f" (it is in {min(map(str, kinds))}; images are float32: call `.float()`)"
            if kinds
            else ""
        )
        raise ValueError(
            f"{model!r} does not take a batch of RGB images of {height} x {width} pixels: "
            f"{reason}{hint}"
        ) from error
    if not isinstance(answer, Tensor) or answer.dim() < 2:
        what = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
        raise TypeError(
            f"{model!r} must return logits of shape (N, classes), got {what}: let its `forward` "
            "return nothing else, by a module around it in a factory of your own "
            "(`package.module:factory`)."
        )
    return answer.shape[1]


def _class_names(
    known: tuple[str, ...] | None, path: PathLike | None, outputs: int
) -> tuple[str, ...]:
    if path is not None:
        names = read_class_names(path)
        if outputs not in (0, len(names)):
            raise ValueError(
                f"`classes` {path} must name the {counted(outputs, 'class')} of the network, it "
                f"has {counted(len(names), 'name')}."
            )
        return names
    if known is not None and outputs in (0, len(known)):
        return known
    return tuple(map(str, range(outputs)))

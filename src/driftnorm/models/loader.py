"""From a name or a file to a model that takes images in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from driftnorm._internal.messages import first_line
from driftnorm.adapter._checks import normalizes_input
from driftnorm.models.architectures import MODELS
from driftnorm.models.checkpoint_files import open_checkpoint
from driftnorm.models.normalized import Normalized, Preprocessing
from driftnorm.models.sources import resolve
from driftnorm.models.weight_layouts import (
    PathLike,
    classes_in,
    fit_weights,
    load_weights,
    plain_weights,
)

WEIGHT_SUFFIXES = (".safetensors", ".pt", ".pth", ".ckpt", ".tar")

Constants = tuple[Sequence[float], Sequence[float]]


def load(
    spec: PathLike,
    weights: PathLike | Mapping[str, Tensor] | None = None,
    num_classes: int | None = None,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    new_head: bool = False,
    trust: bool = False,
    **options: Any,
) -> nn.Module:
    """Builds a model that takes images in [0, 1], with weights if given, in evaluation mode.

    Normalisation is inside the returned model (`Normalized`). Its constants are `mean` and `std` if
    given, else those in the weights, else those known for the network. Only a factory's network
    for which none are known, or that has its own, is returned as it is.

    Args:
        spec: A built-in name ("resnet20"), "timm:NAME", "torchvision:NAME",
            "package.module:factory", or a file that `save_checkpoint` wrote.
        weights: A weight file or a state dict.
        num_classes: Number of outputs; when None that of the weights, else the network's usual.
        mean: Mean per channel for images in [0, 1].
        std: Standard deviation per channel.
        new_head: Take all but the classifier from the weights.
        trust: Unpickle Python objects in the weight file, see `load_weights`.
        **options: Options of the network. timm and torchvision networks take `pretrained`.

    Returns:
        The model.
    """
    given = constants_of(mean, std)
    if names_file(spec):
        if weights is not None or num_classes is not None or given or options:
            raise ValueError(
                f"{spec} describes its own network; to give other weights, classes or constants, "
                "name the architecture and pass the file as `weights`."
            )
        return open_checkpoint(spec, trust=trust).model
    name = str(spec)
    state = {} if weights is None else _state(name, weights, trust)
    network, preprocessing = _built_for(name, state, num_classes, new_head, options)
    if weights is not None:
        source = "the given state dict" if isinstance(weights, Mapping) else weights
        fit_weights(network, state, name=name, source=source, new_head=new_head)
    # Has to be guessed only for unknown networks; parts of known ones may have such names.
    normalizes = preprocessing is None and normalizes_input(network)
    constants = None if normalizes else _known_constants(state, preprocessing)
    if given and normalizes:
        raise ValueError(f"{name} normalises its input itself: leave out `mean` and `std`.")
    constants = given or constants
    model = network if constants is None else Normalized(network, *constants)
    return model.eval()


def load_published(
    spec: str, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> nn.Module:
    """Builds a timm or torchvision model with the weights that its project publishes for it.

    Args:
        spec: "timm:NAME" or "torchvision:NAME".
        mean: As for `load`.
        std: As for `load`.

    Returns:
        The model, as `load` gives it.

    Raises:
        OSError: The weights could not be obtained.
    """
    family = spec.partition(":")[0]
    resolve(spec)  # a wrong name is not a failed download
    try:
        return load(spec, mean=mean, std=std, pretrained=True)
    except Exception as error:  # each way of downloading fails in its own way
        reason = first_line(error)
        raise OSError(
            f"the weights that {family} publishes for {spec!r} could not be obtained ({reason}); "
            "give a file as `weights`."
        ) from error


def names_file(spec: PathLike) -> bool:
    """Whether a spec names a file, not an architecture; the file need not exist."""
    if str(spec) in MODELS:
        return False
    return not isinstance(spec, str) or Path(spec).suffix in WEIGHT_SUFFIXES or Path(spec).is_file()


def constants_of(mean: Sequence[float] | None, std: Sequence[float] | None) -> Constants | None:
    """Both, or None if neither is given."""
    if (mean is None) != (std is None):
        raise ValueError("`mean` and `std` go together: give both or neither.")
    return None if mean is None or std is None else (mean, std)


def _state(name: str, weights: PathLike | Mapping[str, Tensor], trust: bool) -> dict[str, Tensor]:
    if isinstance(weights, Mapping):
        state = plain_weights(weights)
    else:
        state = load_weights(weights, trust=trust)
    return MODELS[name].canonical(state) if name in MODELS else state


def _built_for(
    name: str,
    state: Mapping[str, Tensor],
    num_classes: int | None,
    new_head: bool,
    options: Mapping[str, Any],
) -> tuple[nn.Module, Preprocessing | None]:
    """Builds the network with the options and the number of classes that the weights settle."""
    settled = MODELS[name].options_in(state) if name in MODELS else {}
    wanted = {**settled, **options}
    network, preprocessing = resolve(name, num_classes, **wanted)
    if num_classes is None and not new_head:
        usual = classes_in(plain_weights(network.state_dict()), network)
        classes = classes_in(state, network)
        if classes is not None and classes != usual:
            return resolve(name, classes, **wanted)
    return network, preprocessing


def _known_constants(
    state: Mapping[str, Tensor], preprocessing: Preprocessing | None
) -> Constants | None:
    if "mean" in state and "std" in state:
        return state["mean"].flatten().tolist(), state["std"].flatten().tolist()
    return None if preprocessing is None else (preprocessing.mean, preprocessing.std)

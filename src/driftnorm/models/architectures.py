"""The built-in networks by name, with the facts about each.

A new network is one more entry of `MODELS`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.names import nearest
from driftnorm.models.channels import set_in_channels
from driftnorm.models.mnist_cnn import MnistNet
from driftnorm.models.normalized import Preprocessing
from driftnorm.models.resnet import resnet18, resnet50, resnet50_maxblur
from driftnorm.models.resnet_cifar import CifarResNet
from driftnorm.models.wide_resnet import NAME_ALIASES, WideResNet

CIFAR10 = Preprocessing((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010), 32)
CIFAR100 = Preprocessing((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761), 32)
HALF = Preprocessing((0.5, 0.5, 0.5), (0.5, 0.5, 0.5), 32)  # AugMix
UNTOUCHED = Preprocessing((0.0, 0.0, 0.0), (1.0, 1.0, 1.0), 32)  # RobustBench's Standard
DIGITS = Preprocessing((0.0,), (1.0,), 28)
IMAGENET_STD = (0.229, 0.224, 0.225)
IMAGENET = Preprocessing((0.485, 0.456, 0.406), IMAGENET_STD, 224, crop_ratio=0.875)
IMAGENET_V1 = Preprocessing((0.48502, 0.45796, 0.40760), IMAGENET_STD, 224, crop_ratio=0.875)


def _no_options(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    return {}


def _filter_size(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    blur = weights.get("maxpool.1.filt")
    return {} if blur is None else {"filter_size": blur.shape[-1]}


def _in_channels(weights: Mapping[str, Tensor]) -> dict[str, Any]:
    stem = weights.get("conv1.weight")
    return {} if stem is None or stem.ndim != 4 else {"in_channels": stem.shape[1]}


@dataclasses.dataclass(frozen=True)
class ModelFacts:
    """How to build a network and what it expects.

    Attributes:
        builder: Called with `num_classes` and the network's options.
        classes: Number of classes unless another is asked for.
        preprocessing: Input size and normalisation unless the file or the user says otherwise.
        preprocessing_by_classes: Exceptions to it, by number of classes.
        aliases: Parts of state-dict names that other projects spell differently.
        options_in: Reads off a state dict those options that it settles.
    """

    builder: Callable[..., nn.Module]
    classes: int
    preprocessing: Preprocessing
    preprocessing_by_classes: Mapping[int, Preprocessing] = dataclasses.field(default_factory=dict)
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    options_in: Callable[[Mapping[str, Tensor]], dict[str, Any]] = _no_options

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the builder's options beside `num_classes`."""
        given = self.builder.keywords if isinstance(self.builder, partial) else {}
        names = inspect.signature(self.builder).parameters
        return tuple(n for n in names if n != "num_classes" and n not in given)

    def preprocessing_for(self, num_classes: int | None) -> Preprocessing:
        """The preprocessing that goes with this many classes."""
        return self.preprocessing_by_classes.get(num_classes or self.classes, self.preprocessing)

    def canonical(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Returns the weights with every alias replaced by our name."""
        return {
            ".".join(self.aliases.get(part, part) for part in name.split(".")): tensor
            for name, tensor in weights.items()
        }


def _cifar(depth: int) -> ModelFacts:
    return ModelFacts(partial(CifarResNet, depth=depth), 10, CIFAR10, {100: CIFAR100})


def _wide(depth: int, widen: int, preprocessing: Preprocessing) -> ModelFacts:
    builder = partial(WideResNet, depth=depth, widen=widen)
    return ModelFacts(builder, 10, preprocessing, aliases=NAME_ALIASES)


def _mnist(norm: str) -> ModelFacts:
    return ModelFacts(partial(MnistNet, norm=norm), 10, DIGITS, options_in=_in_channels)


MODELS: dict[str, ModelFacts] = {
    "resnet20": _cifar(20),
    "resnet32": _cifar(32),
    "resnet44": _cifar(44),
    "resnet56": _cifar(56),
    "wrn-40-2": _wide(40, 2, HALF),
    "wrn-28-10": _wide(28, 10, UNTOUCHED),
    "resnet18": ModelFacts(resnet18, 1000, IMAGENET),
    "resnet50": ModelFacts(resnet50, 1000, IMAGENET),
    "resnet50-v1": ModelFacts(partial(resnet50, stride_in="conv1"), 1000, IMAGENET_V1),
    "resnet50-maxblur": ModelFacts(resnet50_maxblur, 1000, IMAGENET, options_in=_filter_size),
    "mnist-gn": _mnist("group"),
    "mnist-bn": _mnist("batch"),
}


def facts_of(name: str) -> ModelFacts:
    """Returns the facts of a built-in network; an unknown name gets the nearest suggested."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    return MODELS[name]


def build(name: str, num_classes: int | None = None, **options: Any) -> nn.Module:
    """Builds a network by name, freshly initialised and without normalisation.

    Args:
        name: A key of `MODELS`.
        num_classes: Number of outputs; the network's usual number when None.
        **options: Options of that network, such as `stride_in` of "resnet50", and `in_channels` of
            any network: its first convolution is rebuilt for them.

    Returns:
        The network, in training mode.
    """
    facts = facts_of(name)
    rebuilt = None if "in_channels" in facts.options else options.pop("in_channels", None)
    for option in options:
        if option not in facts.options:
            allowed = ", ".join(facts.options) or "none"
            raise TypeError(f"{name!r} has no option `{option}`; its options: {allowed}.")
    classes = facts.classes if num_classes is None else num_classes
    check_whole("num_classes", classes)
    network = facts.builder(num_classes=classes, **options)
    if rebuilt is not None:
        set_in_channels(network, rebuilt)
    return network


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for a name that is not known, with the nearest known ones."""
    shown = list(known)
    hint = nearest(name, shown, most=3)
    if not hint:
        hint = f" Known: {', '.join(shown[:20])}{', ...' if len(shown) > 20 else ''}."
    return ValueError(f"There is no {kind} {name!r}.{hint}")

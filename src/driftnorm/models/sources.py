"""Where networks come from: built in, timm, torchvision, or a factory of the user's own."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from driftnorm._internal.own_code import OwnCodeError, OwnResultError, import_own
from driftnorm.models import _vision, deployed, efficientnet_lite
from driftnorm.models.architectures import build, facts_of, unknown_name
from driftnorm.models.channels import set_in_channels
from driftnorm.models.normalized import Preprocessing


def resolve(
    spec: str, num_classes: int | None = None, **options: Any
) -> tuple[nn.Module, Preprocessing | None]:
    """Builds the bare network of a spec, with the input that it takes where that is known.

    Args:
        spec: A built-in name ("resnet20"), "efficientnet-lite0", "timm:NAME", "torchvision:NAME" or
            "package.module:factory"; any of them with variants ("resnet50+mtl", see `deployed`).
        num_classes: Number of outputs; the network's usual number when None.
        **options: Options of the network and its variants. timm and torchvision networks take
            `pretrained`: True, or for torchvision the name of the weights ("IMAGENET1K_V1").

    Returns:
        The network without normalisation, and its preprocessing or None.
    """
    base, *variants = spec.split("+")
    own = deployed.options_of(variants)
    rest = {name: value for name, value in options.items() if name not in own}
    network, preprocessing = _resolve_base(base, num_classes, rest)
    return deployed.apply_variants(network, variants, options), preprocessing


def _resolve_base(
    spec: str, num_classes: int | None, options: dict[str, Any]
) -> tuple[nn.Module, Preprocessing | None]:
    family, colon, name = spec.partition(":")
    if not colon and spec != efficientnet_lite.NAME:
        facts = facts_of(spec)
        return build(spec, num_classes, **options), facts.preprocessing_for(num_classes)
    if num_classes is not None:
        options = {**options, "num_classes": num_classes}
    if spec == efficientnet_lite.NAME:
        return _efficientnet_lite(**options), efficientnet_lite.PREPROCESSING
    if family == "timm":
        return _from_timm(name, options)
    if family == "torchvision":
        return _from_torchvision(name, options)
    return _from_factory(family, name, options), None


def is_factory(spec: str) -> bool:
    """Whether building this spec would import a module that the spec names."""
    family, colon, _ = spec.partition(":")
    return bool(colon) and family not in ("timm", "torchvision")


def _efficientnet_lite(num_classes: int = 1000, in_channels: int = 3) -> nn.Module:
    network = efficientnet_lite.lite0(num_classes)
    set_in_channels(network, in_channels)
    return network


def _from_timm(name: str, options: Mapping[str, Any]) -> tuple[nn.Module, Preprocessing]:
    timm = _vision.import_timm()
    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models())
    network: nn.Module = timm.create_model(name, **options)
    wanted = importlib.import_module("timm.data").resolve_model_data_config(network)
    return network, Preprocessing(
        mean=wanted["mean"],
        std=wanted["std"],
        size=wanted["input_size"][-1],
        interpolation=wanted["interpolation"],
        crop_ratio=wanted["crop_pct"],
    )


def _from_torchvision(name: str, options: Mapping[str, Any]) -> tuple[nn.Module, Preprocessing]:
    zoo = _vision.import_torchvision().models
    classifiers = zoo.list_models(module=zoo)
    if name not in classifiers:
        raise unknown_name("torchvision model", name, classifiers)
    rest = dict(options)
    pretrained = rest.pop("pretrained", False)
    published = zoo.get_model_weights(name)
    if isinstance(pretrained, str) and pretrained not in published.__members__:
        raise unknown_name(
            f"set of weights of torchvision's {name}", pretrained, published.__members__
        )
    chosen = published[pretrained] if isinstance(pretrained, str) else published.DEFAULT
    network: nn.Module = zoo.get_model(name, weights=chosen if pretrained else None, **rest)
    wanted = chosen.transforms()
    return network, Preprocessing(
        mean=wanted.mean,
        std=wanted.std,
        size=wanted.crop_size[0],
        interpolation=wanted.interpolation.value,
        crop_ratio=wanted.crop_size[0] / wanted.resize_size[0],
    )


def takes_classes(spec: str) -> bool:
    """Whether the network can be asked for with a number of classes; all but some factories can."""
    if not is_factory(spec):
        return True
    module_name, _, attribute = spec.split("+")[0].partition(":")
    factory = _factory(module_name, attribute)
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # compiled code has none
        return True
    return "num_classes" in parameters or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()
    )


def _factory(module_name: str, attribute: str) -> Callable[..., object]:
    """The function that a spec names."""
    spec = f"{module_name}:{attribute}"
    others = "a built-in name, 'timm:NAME', 'torchvision:NAME', or "
    factory: Any = import_own(module_name, "spec", repr(spec), others)
    for part in attribute.split("."):
        factory = getattr(factory, part, None)
    if not callable(factory):
        problem = f": {module_name!r} has no function {attribute!r}."
        raise OwnCodeError("spec", repr(spec), problem)
    return factory  # type: ignore[no-any-return]


def _from_factory(module_name: str, attribute: str, options: Mapping[str, Any]) -> nn.Module:
    spec, factory = f"{module_name}:{attribute}", _factory(module_name, attribute)
    try:
        network = factory(**options)
    except Exception as error:  # whatever a function of the user's raises
        given = f"with {', '.join(options)}" if options else "without arguments"
        raise ValueError(
            f"{module_name}:{attribute} must build a network when called {given}, but it raised "
            f"{type(error).__name__}: {error}."
        ) from error
    if not isinstance(network, nn.Module):
        problem = f" must return a torch.nn.Module, got {type(network).__name__}."
        raise OwnResultError("spec", repr(spec), problem)
    return network

"""The networks that are trained on domains, with ImageNet weights from several sources."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice
from driftnorm.models import Normalized, load, resolve
from driftnorm.models import efficientnet_lite as lite
from driftnorm.models.channels import set_in_channels
from driftnorm.models.weight_layouts import PathLike

# Smallest side of the images that leaves at least one position after the last stage.
BACKBONES = {
    "resnet18": 32,
    "resnet50": 32,
    "resnet50-v1": 32,
    lite.NAME: 32,
    "mnist-gn": 8,
    "mnist-bn": 8,
}
# DomainBed's weights: torchvision's first ones.
PUBLISHED = {
    "timm": {"resnet18": "timm:resnet18.tv_in1k", "resnet50": "timm:resnet50.tv_in1k"},
    "torchvision": {"resnet18": "torchvision:resnet18", "resnet50": "torchvision:resnet50"},
}
RGB = 3


def backbone(
    name: str,
    weights: PathLike | None,
    num_classes: int,
    in_channels: int = RGB,
    size: int = 224,
) -> nn.Module:
    """A network that takes images in [0, 1] and ends in a fresh linear classifier.

    Args:
        name: A key of `BACKBONES`. "resnet50-v1" has its strides where the weights of Caffe and
            Keras want them; a weight file does not tell which it needs.
        weights: A weight file; "timm" or "torchvision" for the weights these packages publish (of
            the ResNets); "package" for those that come with EfficientNet-Lite0's; None for random
            ones. The classifier is never taken.
        num_classes: Number of outputs.
        in_channels: Channels of the images. If they are not those of the weights, channel c gets
            the filters, mean and standard deviation of channel c mod 3.
        size: Side of the images in pixels.

    Returns:
        The model, in evaluation mode.
    """
    check_choice("backbone", name, BACKBONES)
    if size < BACKBONES[name]:
        raise ValueError(f"`size` must be at least {BACKBONES[name]} for {name}, got {size}.")
    if name.startswith("mnist"):
        return load(name, weights, num_classes, new_head=True, in_channels=in_channels)
    state = None if weights is None else _found(name, weights)
    model = load(name, state, num_classes, new_head=weights is not None)
    if in_channels == RGB:
        return model
    assert isinstance(model, Normalized)
    set_in_channels(model.network, in_channels)
    mean, std = (
        [values.flatten().tolist()[c % RGB] for c in range(in_channels)]
        for values in (model.mean, model.std)
    )
    return Normalized(model.network, mean, std).eval()


def _found(name: str, weights: PathLike) -> PathLike | Mapping[str, Tensor]:
    """The weight file, or the weights of a package."""
    if weights == "package":
        if name != lite.NAME:
            raise ValueError(
                f'`weights="package"` is for {lite.NAME}, got the backbone {name!r}; name a file.'
            )
        return lite.packaged_weights()
    if not isinstance(weights, str) or weights not in PUBLISHED:
        return weights
    published = PUBLISHED[weights]
    if name not in published:
        raise ValueError(
            f"{weights} has no weights for the backbone {name!r}, only for {', '.join(published)}; "
            "name a file."
        )
    pretrained = True if weights == "timm" else "IMAGENET1K_V1"
    network, _ = resolve(published[name], pretrained=pretrained)
    return network.state_dict()

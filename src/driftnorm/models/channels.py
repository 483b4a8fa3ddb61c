"""How many channels a network takes, and how to make it take more or fewer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole


def first_convolution(network: nn.Module) -> nn.Conv2d:
    """The convolution that takes the images: the first one in the order of definition."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            return module
    raise ValueError(
        f"`network` must begin with a 2-d convolution, but {type(network).__name__} has none."
    )


def set_in_channels(network: nn.Module, channels: int) -> None:
    """Rebuild the first convolution, in place, for another number of channels.

    Channel c gets the filter that channel c mod C had, C being the number before: a fourth channel
    of a network for RGB starts as the red one.
    """
    check_whole("channels", channels)
    convolution = first_convolution(network)
    if convolution.groups != 1:
        raise ValueError(
            f"the first convolution of {type(network).__name__} has {convolution.groups} groups; "
            "only one without groups can take another number of channels."
        )
    before = convolution.in_channels
    if channels != before:
        taken = convolution.weight.detach()[:, [c % before for c in range(channels)]]
        convolution.weight = nn.Parameter(taken.clone())
        convolution.in_channels = channels


def example_images(network: nn.Module, size: int) -> Tensor:
    """Two random images in [0, 1] of the kind that the network takes, the same for every call."""
    convolution = first_convolution(network)
    generator = torch.Generator().manual_seed(0)
    shape = (2, convolution.in_channels, size, size)
    images = torch.rand(shape, generator=generator, device="cpu")
    return images.to(convolution.weight)

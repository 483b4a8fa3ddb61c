"""Networks that training algorithms leave behind and that are not quite the plain model.

Each is a plain model with one change, and has a name to build it from: "resnet50+mtl",
"mnist-bn+arm", "resnet18+fused", "resnet18+fused+arm". `variant_of` reads that name off a network.

At test time they are ordinary networks of a batch, with two facts to know. The answer to an image
depends on the batch it comes in, since MTL and ARM describe the domain by the batch. And ARM's
context network has batch-norm layers of its own, which adapt with the others unless a method is
told otherwise (``only=``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm.models.architectures import unknown_name
from driftnorm.models.channels import first_convolution, set_in_channels
from driftnorm.models.fusion import FusedBatchNorm, fused
from driftnorm.models.weight_layouts import head_of

Embedding = Literal["mean", "noise"]


class MtlHead(nn.Linear):
    """MTL's classifier on features and an embedding of their domain, [f ; e].

    A linear map of the 2d numbers [f ; e] is W f + V e + b: a linear classifier of the features
    whose bias depends on the domain. Kept in these parts, it is an ordinary classifier to methods
    that look at one: T3A's centroids, for example, are centroids of f (those of [f ; e] would mean
    nothing, since e is the same for every class of a batch), and drop V e as they drop b.

    Args:
        in_features: d.
        out_features: Number of classes.
        embedding: What e is when none is given: the mean feature of the batch, or standard normal
            noise, drawn for each image as DomainBed's code does.
    """

    def __init__(self, in_features: int, out_features: int, embedding: Embedding = "mean") -> None:
        super().__init__(in_features, out_features)
        check_choice("embedding", embedding, get_args(Embedding))
        self.embedding = embedding
        self.embedding_weight = nn.Parameter(torch.empty_like(self.weight))
        bound = 1 / math.sqrt(2 * in_features)  # as a layer of 2d inputs starts
        for parameter in (self.weight, self.embedding_weight, self.bias):
            nn.init.uniform_(parameter, -bound, bound)

    def forward(self, features: Tensor, embedding: Tensor | None = None) -> Tensor:
        """Logits of features (N, d) with one embedding (d,), or one for each of them (N, d)."""
        if embedding is None:
            noise = self.embedding == "noise"
            embedding = torch.randn_like(features) if noise else features.mean(0)
        shifts = F.linear(embedding, self.embedding_weight)
        return F.linear(features, self.weight, self.bias) + shifts

    def extra_repr(self) -> str:
        """Shows the kind of embedding too."""
        return f"{super().extra_repr()}, embedding={self.embedding!r}"


def with_mtl_head(network: nn.Module, embedding: Embedding = "mean") -> nn.Module:
    """Replaces the classifier of a network, in place, by a new `MtlHead`."""
    head = head_of(network)
    if head is None:
        raise ValueError(f"{type(network).__name__} has no linear classifier to replace.")
    name, linear = head
    new = MtlHead(linear.in_features, linear.out_features, embedding)
    network.set_submodule(name, new.to(linear.weight))
    return network


class ArmNetwork(nn.Module):
    """A network that sees, beside each image, a context of the images around it.

    A small convolutional network makes maps of every image; their mean over a group of images is
    appended to each image of the group as further channels. If the batch is divisible by the group
    size, groups are consecutive images, otherwise the whole batch is one group.

    Args:
        network: Changed in place to take the further channels.
        group_size: Images in a group: what training had in one domain's minibatch.
        context_channels: How many channels are appended.
    """

    def __init__(self, network: nn.Module, group_size: int = 8, context_channels: int = 1) -> None:
        super().__init__()
        check_whole("group_size", group_size)
        check_whole("context_channels", context_channels)
        stem = first_convolution(network)
        channels = stem.in_channels
        set_in_channels(network, channels + context_channels)
        self.group_size, self.context_channels = group_size, context_channels
        self.context = _context_network(channels, context_channels).to(stem.weight)
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """The network's answer to the images with their context."""
        number = len(images)
        groups = number // self.group_size if number % self.group_size == 0 else 1
        maps = self.context(images).unflatten(0, (max(groups, 1), -1 if number else 0))
        shared = maps.mean(1, keepdim=True).expand_as(maps).flatten(0, 1)
        answer: Tensor = self.network(torch.cat([images, shared], 1))
        return answer

    def extra_repr(self) -> str:
        """Shows the settings."""
        return f"group_size={self.group_size}, context_channels={self.context_channels}"


def _context_network(channels: int, context_channels: int, width: int = 64) -> nn.Sequential:
    """Three 5x5 convolutions that keep the size."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 5, padding=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, context_channels, 5, padding=2),
    )


# Name -> what makes the variant of a network, and which options are its own.
VARIANTS: dict[str, tuple[Callable[..., nn.Module], tuple[str, ...]]] = {
    "fused": (fused, ()),
    "arm": (ArmNetwork, ("group_size", "context_channels")),
    "mtl": (with_mtl_head, ("embedding",)),
}


def apply_variants(
    network: nn.Module, variants: list[str], options: Mapping[str, Any]
) -> nn.Module:
    """The network with these changes, one after the other; options of others are passed over."""
    for name in variants:
        make, own = VARIANTS[name]
        network = make(network, **{n: v for n, v in options.items() if n in own})
    return network


def options_of(variants: list[str]) -> set[str]:
    """Names of the variants' options; an unknown variant gets the nearest suggested."""
    for name in variants:
        if name not in VARIANTS:
            raise unknown_name("variant of a network", name, VARIANTS)
    return {option for name in variants for option in VARIANTS[name][1]}


def variant_of(network: nn.Module) -> tuple[str, dict[str, Any]]:
    """What to append to the architecture's name, and to its options, to build this network.

    >>> variant_of(ArmNetwork(nn.Conv2d(3, 4, 3), group_size=16))
    ('+arm', {'group_size': 16, 'context_channels': 1})
    """
    kinds = {"fused": FusedBatchNorm, "arm": ArmNetwork, "mtl": MtlHead}
    suffix, options = "", {}
    for name, kind in kinds.items():
        found = next((m for m in network.modules() if isinstance(m, kind)), None)
        if found is not None:
            suffix += f"+{name}"
            options.update({option: getattr(found, option) for option in VARIANTS[name][1]})
    return suffix, options

"""The part of a network behind one of its stages, as a network of its own.

Networks are used as they are, whatever their ``forward`` does: a copy runs whole, but everything
before the stage's end does nothing, and the stage's end returns what was put there.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftnorm.models.channels import example_images, first_convolution
from driftnorm.training.domains.network import DomainNetwork

SIZE = 32  # pixels of the images that only drive a forward pass
NORMS = (_BatchNorm, nn.GroupNorm, nn.modules.instancenorm._InstanceNorm)


class _Source(nn.Module):
    """Returns what was put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: Tensor | None = None

    def forward(self, ignored: Tensor) -> Tensor:
        assert self.maps is not None
        return self.maps


class Tail(nn.Module):
    """A copy of what a network does behind a stage, with a fresh classifier.

    Args:
        network: Copied.
        after: Name of the module in the featurizer whose output is the tail's input.
        before: What `stateful_until` gave for it.
    """

    def __init__(self, network: DomainNetwork, after: str, before: list[str]) -> None:
        super().__init__()
        self.channels = first_convolution(network).in_channels
        self.network = copy.deepcopy(network)
        for name in before:
            self.network.featurizer.set_submodule(name, nn.Identity())
        self.network.featurizer.set_submodule(after, _Source())
        self.after = after
        self.network.classifier.reset_parameters()

    def forward(self, maps: Tensor) -> Tensor:
        """The logits that follow from these maps."""
        source = self.network.featurizer.get_submodule(self.after)
        assert isinstance(source, _Source)
        source.maps = maps
        try:
            logits: Tensor = self.network(maps.new_zeros(len(maps), self.channels, SIZE, SIZE))
        finally:
            source.maps = None
        return logits


def stateful_until(featurizer: nn.Module, after: str) -> list[str]:
    """Names of the modules with parameters or buffers of their own that run up to this one's end.

    Args:
        featurizer: Runs once, in evaluation mode.
        after: Name of a module in it.
    """
    end = featurizer.get_submodule(after)
    ran: dict[str, None] = {}
    ended: list[bool] = []

    def note(name: str) -> Callable[..., None]:
        return lambda *_: None if ended else ran.setdefault(name)

    def stop(*_: Any) -> None:
        ended.append(True)

    leaves = {n: m for n, m in featurizer.named_modules() if not [*m.children()]}
    own = [n for n, m in leaves.items() if [*m.parameters(), *m.buffers()]]
    handles = [leaves[name].register_forward_hook(note(name)) for name in own]
    handles.append(end.register_forward_hook(stop))
    modes = {module: module.training for module in featurizer.modules()}
    try:
        with torch.no_grad():
            featurizer.eval()(example_images(featurizer, SIZE))
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
    return [*ran]


def affine_names(featurizer: nn.Module, among: list[str]) -> list[str]:
    """Names of the affine parameters of the normalisation layers among these modules."""
    return [
        f"{name}.{part}"
        for name in among
        if isinstance(module := featurizer.get_submodule(name), NORMS)
        for part, _ in module.named_parameters()
    ]


@contextmanager
def replaced_output(
    module: nn.Module, replace: Callable[[Tensor], Tensor]
) -> Iterator[list[Tensor]]:
    """While open, the module's output is replaced; gives what it was, call by call."""
    originals: list[Tensor] = []

    def hook(_module: nn.Module, _inputs: Any, output: Tensor) -> Tensor:
        originals.append(output)
        return replace(output)

    handle = module.register_forward_hook(hook)
    try:
        yield originals
    finally:
        handle.remove()

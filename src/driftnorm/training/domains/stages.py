"""The stages of a network: where methods look into it, or change what flows through it.

A stage ends where the feature map that the literature calls "after stage i" comes out. Numbered
children count as stages (`layer1`, `layer2`, ... of ResNets; `block1`, ... of wide ResNets; timm's
`stages.0` and `blocks.0`, ...), and so do the normalised layers of DomainBed's MNIST network.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from driftnorm.models.mnist_cnn import MnistNet

NUMBERED = re.compile(r"(layer|block)\d+")
SEQUENCES = ("stages", "blocks")


def stage_names(model: nn.Module) -> tuple[str, ...]:
    """Names of the modules whose outputs end the stages, in forward order.

    Args:
        model: A network, with or without its classifier; it may be wrapped (`Normalized`).

    Returns:
        Two names or more, fit for ``model.get_submodule``.

    Raises:
        ValueError: The network has no stages that can be told by their names.
    """
    for path, module in model.named_modules():  # the outermost first
        own = _stages_within(module)
        if len(own) > 1:
            return tuple(f"{path}.{name}" if path else name for name in own)
    raise ValueError(
        "`model` must have stages: children named layer1, layer2, ... or block1, block2, ..., or a "
        f"Sequential named {' or '.join(SEQUENCES)}; found none in {type(model).__name__}. Choose "
        "a ResNet or a network of driftnorm.models, or a method that needs no stages."
    )


@contextmanager
def outputs_of(module: nn.Module) -> Iterator[list[Tensor]]:
    """Collects what a module returns, call by call, while the context is open."""
    seen: list[Tensor] = []
    # The hook goes when the context closes: a hook that stayed would be copied into whatever
    # network is deployed.
    handle = module.register_forward_hook(lambda _module, _inputs, output: seen.append(output))
    try:
        yield seen
    finally:
        handle.remove()


def _stages_within(module: nn.Module) -> list[str]:
    if isinstance(module, MnistNet):
        return ["bn0", "bn1", "bn2", "bn3"]
    children = dict(module.named_children())
    for name in SEQUENCES:
        if isinstance(sequence := children.get(name), nn.Sequential):
            return [f"{name}.{number}" for number in range(len(sequence))]
    return [name for name in children if NUMBERED.fullmatch(name)]

"""How much memory a network takes for a batch, from one small forward pass."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

# Input and output of a layer, those that a shortcut holds, and what kernels put aside. Measured on
# six networks: three to eleven, and 19 for a DenseNet that adapts with several thetas, which is
# more than is assumed here. Overestimating lowers the default batch size; underestimating can run
# out of memory.
_COPIES = 12


class Footprint(NamedTuple):
    """Bytes that a network takes.

    Attributes:
        weights: Parameters and buffers.
        largest: Largest output of a layer, per image.
        all_outputs: Outputs of all layers, per image: what a backward pass needs.
    """

    weights: int
    largest: int
    all_outputs: int

    def of_batch(self, images: int, *, gradient: bool, networks: int = 2) -> int:
        """An estimate for batches of this many images.

        Args:
            images: Per batch.
            gradient: Whether a backward pass is needed.
            networks: How many copies of the network are held, such as the source and an adapter.
        """
        per_image = self.all_outputs if gradient else _COPIES * self.largest
        return networks * self.weights + images * per_image


@torch.no_grad()
def footprint(network: nn.Module, size: int) -> Footprint:
    """Measure a network in evaluation mode that takes images (N, 3, size, size)."""
    outputs: list[int] = []

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            outputs.append(output.numel() * output.element_size())

    leaves = [module for module in network.modules() if not [*module.children()]]
    hooks = [leaf.register_forward_hook(note) for leaf in leaves]
    device = next((p.device for p in network.parameters()), torch.device("cpu"))
    images = 2  # a layer without statistics cannot measure the variance of one
    try:
        network(torch.full((images, 3, size, size), 0.5, device=device))
    finally:
        for hook in hooks:
            hook.remove()
    weights = sum(t.numel() * t.element_size() for t in network.state_dict().values())
    return Footprint(weights, max(outputs, default=0) // images, sum(outputs) // images)

"""Learn from one forward pass what cannot be read off the module tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm._internal.names import nearest
from driftnorm.adapter._layers import AdaptiveBatchNorm


@dataclass(frozen=True)
class Layout:
    """How a network runs: its batch-norm layers in forward order, and its classifier's name."""

    order: tuple[str, ...]
    classifier: str | None = None


@torch.no_grad()
def probe(
    network: nn.Module,
    layers: Mapping[str, AdaptiveBatchNorm],
    run: Callable[[], Tensor],
    classifier: str | None,
    needs_classifier: bool,
) -> Layout:
    """Run the network once and record its layers.

    Args:
        network: The converted network.
        layers: Its adaptive layers.
        run: Forwards something through the network in source mode and returns the logits.
        classifier: The classifier's name if the user gave one.
        needs_classifier: Whether it is an error not to find one.
    """
    order: dict[str, None] = {}
    outputs: dict[str, Tensor] = {}
    names = {id(layer): name for name, layer in reversed([*layers.items()])}
    handles = []
    for name, module in network.named_modules():
        if id(module) in names:
            handles.append(module.register_forward_hook(_note(order, names[id(module)])))
        elif isinstance(module, nn.Linear) or name == classifier:
            handles.append(module.register_forward_hook(_keep(outputs, name)))
    try:
        logits = run()
    finally:
        for handle in handles:
            handle.remove()
    unused = [name for name in names.values() if name not in order]
    found = _classifier(outputs, logits, classifier) if needs_classifier else None
    return Layout((*order, *unused), found)


def check_classifier_name(network: nn.Module, name: str) -> None:
    """Raise if the network has no module of that name."""
    modules = dict(network.named_modules())
    if name not in modules:
        linear = ", ".join(n for n, m in modules.items() if isinstance(m, nn.Linear))
        raise ValueError(
            f"`classifier` must be the dotted name of a module of {type(network).__name__}, got "
            f"{name!r}; its linear layers are: {linear or 'none'}.{nearest(name, modules)}"
        )


def _note(order: dict[str, None], name: str) -> Callable[..., None]:
    return lambda *_: order.setdefault(name)


def _keep(outputs: dict[str, Tensor], name: str) -> Callable[..., None]:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        outputs.pop(name, None)  # keep the order of the last call
        outputs[name] = output

    return hook


def _classifier(outputs: Mapping[str, Tensor], logits: Tensor, named: str | None) -> str:
    makes_logits = [name for name, out in reversed([*outputs.items()]) if _same(out, logits)]
    if named is not None:
        if named not in makes_logits:
            raise ValueError(
                f"`classifier={named!r}` does not make the logits: the network changes its output "
                f"afterwards. Layers that make the logits: {', '.join(makes_logits) or 'none'}."
            )
        return named
    if not makes_logits and logits.dim() > 2:
        raise ValueError(
            "this method needs a linear classifier of one feature vector per image, but the "
            f"network gives logits of shape {tuple(logits.shape)}, as for dense prediction: choose "
            "a method that adapts batch norm, such as 'gprebn' or 'bn'. One that trains the "
            "classifier needs its name: `classifier=...`."
        )
    if not makes_logits:
        raise ValueError(
            "found no linear layer whose output is the network's output, and this method must know "
            "which layer is the classifier. If another layer makes the logits, name it with "
            f"`classifier=...`. Linear layers that ran: {', '.join(outputs) or 'none'}."
        )
    return makes_logits[0]


def _same(output: Any, logits: Tensor) -> bool:
    """Whether two tensors share the same memory, possibly through a view."""
    return (
        isinstance(output, Tensor)
        and output.data_ptr() == logits.data_ptr()
        and output.numel() == logits.numel()
    )

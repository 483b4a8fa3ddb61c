"""Fold batch norm into the convolution before it: the same values, nothing left to adapt.

With running mean m and variance v, BN(W * x + b) = gamma (W * x + b - m) / sqrt(v + eps) + beta is
a convolution again: W' = s W and b' = s (b - m) + beta with s = gamma / sqrt(v + eps), channel by
channel. Which convolution stands directly before which layer is seen in a forward pass.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import fuse_conv_bn_weights

from driftnorm.models.channels import example_images

PLAIN = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
EXAMPLE_SIZE = 64
TOLERANCE = 1e-4  # of the largest value; rounding stays far below, a wrong pair far above


class FusedBatchNorm(nn.Identity):
    """Stands where a batch-norm layer was."""


@torch.no_grad()
def fused(model: nn.Module, example: Tensor | None = None) -> nn.Module:
    """An independent copy of the model without batch norm, in the same training mode.

    Args:
        model: Every batch-norm layer must directly follow a convolution.
        example: A batch for the forward pass; random images of 64 pixels if None.

    Returns:
        The copy, whose values in evaluation mode are those of the model.

    Raises:
        ValueError: A layer cannot be folded; the message says which and why.
    """
    example = example_images(model, EXAMPLE_SIZE) if example is None else example
    copied = copy.deepcopy(model).eval()
    before, pairs = _run_and_pair(copied, example)
    _check(copied, pairs)
    for norm_name, convolution in pairs.items():
        _fold(convolution, copied.get_submodule(norm_name))
        copied.set_submodule(norm_name, FusedBatchNorm())
    if not before.is_meta:
        difference = (copied(example) - before).abs().max() / before.abs().max().clamp(min=1e-12)
        if not difference <= TOLERANCE:
            raise ValueError(
                f"folding batch norm into the convolutions changes what {type(model).__name__} "
                f"computes (by {float(difference):.2g} of its largest value): it uses the output "
                "of a convolution in another place as well. Keep its batch norm."
            )
    return copied.train(model.training)


def _run_and_pair(model: nn.Module, example: Tensor) -> tuple[Tensor, dict[str, nn.Module]]:
    """What the model returns, and the convolution right before each batch-norm layer, by name."""
    produced: dict[int, tuple[nn.Module, Tensor, int]] = {}  # keeps tensors: their ids stay theirs
    pairs: dict[str, nn.Module] = {}
    runs: dict[nn.Module, int] = {}

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> None:
        runs[module] = runs.get(module, 0) + 1
        produced[id(output)] = (module, output, output._version)

    def pair(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        runs[module] = runs.get(module, 0) + 1
        made_by = produced.get(id(inputs[0]))
        # An activation in place hands on the same tensor, but in another version.
        if made_by is not None and made_by[2] == inputs[0]._version:
            pairs[names[module]] = made_by[0]

    found = model.named_modules()
    names: dict[nn.Module, str] = {m: n for n, m in found if isinstance(m, _BatchNorm)}
    handles = [norm.register_forward_pre_hook(pair) for norm in names]
    for module in model.modules():
        if isinstance(module, CONVOLUTIONS):
            handles.append(module.register_forward_hook(keep))
    try:
        answer: Tensor = model(example)
    finally:
        for handle in handles:
            handle.remove()
    once = {n: c for n, c in pairs.items() if runs[c] == 1 and runs[model.get_submodule(n)] == 1}
    return answer, once


def _check(model: nn.Module, pairs: dict[str, nn.Module]) -> None:
    norms = {n: m for n, m in model.named_modules() if isinstance(m, _BatchNorm)}
    if not norms:
        raise ValueError(f"{type(model).__name__} has no batch-norm layer to fold.")
    alone = [name for name in norms if name not in pairs]
    odd = [n for n, m in norms.items() if type(m) not in PLAIN or m.running_var is None]
    if alone or odd:
        why = f"`{(alone or odd)[0]}` " + (
            "does not directly follow a convolution that runs once"
            if alone
            else "does more than normalise, or keeps no statistics"
        )
        raise ValueError(
            f"batch norm cannot be folded into the convolutions of {type(model).__name__}: {why}. "
            'Keep it: batch_norm="frozen" or "trained".'
        )


def _fold(convolution: Any, norm: Any) -> None:
    moments = (norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias)
    convolution.weight, convolution.bias = fuse_conv_bn_weights(
        convolution.weight, convolution.bias, *moments
    )

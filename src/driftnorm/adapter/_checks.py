"""Checks of the input: errors for wrong input, warnings for likely mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.functional import Moments

_ENOUGH_OUTPUTS = 16


def refuse_export() -> None:
    """A live adapter keeps state, which an exported graph would silently drop."""
    exporting = torch.compiler.is_exporting() or torch.onnx.is_in_onnx_export()
    if exporting or torch._C._get_tracing_state() is not None:
        raise RuntimeError(
            "a live adapter cannot be exported: its graph would freeze the current statistics "
            "and never adapt. Export `adapter.bake()`, a plain network, or use "
            "`driftnorm.export_onnx(adapter, ...)`."
        )


def check_input(x: object, network: nn.Module) -> Tensor:
    """Raise on anything but a floating-point batch on the network's device."""
    if not isinstance(x, Tensor):
        raise TypeError(f"`x` must be a tensor with a batch axis, got {type(x).__name__}.")
    if x.dim() < 2:
        raise ValueError(
            f"`x` must have a batch axis and a channel axis, got shape {tuple(x.shape)}; "
            f"for a single image use `x.unsqueeze(0)`."
        )
    if not x.is_floating_point() and not reads_integers(network):
        raise TypeError(
            f"`x` must be floating point, got {x.dtype}; convert images with "
            f"`x.float() / 255` and normalise them as the network was trained."
        )
    home = next((p.device for p in network.parameters()), x.device)
    if x.device != home:
        raise ValueError(
            f"`x` is on {x.device} but the network is on {home}; "
            f"move one of them: `x.to({str(home)!r})` or `adapter.to({str(x.device)!r})`."
        )
    return x


def check_labelled(batch: object, argument: str) -> tuple[Tensor, Tensor]:
    """A pair of inputs and labels, as data loaders give them; raises on anything else."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        x, labels = batch
        if isinstance(x, Tensor) and isinstance(labels, Tensor):
            return x, labels
    got, how = type(batch).__name__, "((x, y) for x, y in loader)"
    if isinstance(batch, Mapping):
        keys = [*map(repr, batch)]
        got = f"a {got} with the keys {', '.join(keys)}"
        first, last = (keys[0], keys[-1]) if keys else ("'image'", "'label'")
        how = f"((b[{first}], b[{last}]) for b in loader)"
    raise TypeError(
        f"`{argument}` must give batches as pairs of tensors (inputs, labels), got {got}; pass a "
        f"generator of pairs, such as `{how}`."
    )


def check_unlabelled(batch: object) -> None:
    """Raise on a pair of images and labels, as data loaders give them."""
    if isinstance(batch, tuple | list) and len(batch) == 2:
        labels = batch[1]
        if isinstance(labels, Tensor) and labels.dim() == 1 and not labels.is_floating_point():
            raise TypeError(
                "`images` must give batches of images without labels, got pairs; pass a generator "
                "such as `(x for x, _ in loader)`."
            )


def reads_integers(network: nn.Module) -> bool:
    """Whether the network embeds integers, such as tokens."""
    return any(isinstance(m, nn.Embedding | nn.EmbeddingBag) for m in network.modules())


def own_tensor(value: Any) -> Any:
    """A tensor that autograd may use: detached, and copied out of inference mode."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()


def normalizes_input(network: nn.Module) -> bool:
    """Whether the network seems to hold its own input normalisation."""
    names = {name.rpartition(".")[2] for name, _ in network.named_buffers()}
    return not names.isdisjoint({"mean", "std", "mu", "sigma", "pixel_mean", "pixel_std"})


def looks_unnormalized(x: Tensor, first: Moments | None, source: Moments | None) -> str | None:
    """Why a batch of images looks as if it was not normalised, or ``None``."""
    if x.dim() != 4 or x.shape[1] not in (1, 3) or x.numel() == 0 or bool((x < 0).any()):
        return None
    highest = float(x.max())
    if highest > 20:
        return f"its values go up to {highest:.0f}, as if they were bytes"
    if highest > 1 or first is None or source is None:
        return None
    # A missed division by sigma scales the variance by sigma^2, about 0.05 for photographs; real
    # shifts seldom go below 0.4.
    ratio = float(((first.var + 1e-5) / (source.var + 1e-5)).median())
    if ratio < 0.15:
        return (
            f"its values lie in [0, 1], and the first batch-norm layer sees a variance that is "
            f"{ratio:.2g} of that in training"
        )
    return None


def looks_multi_label(logits: Tensor) -> bool:
    """Whether outputs look like sigmoids, one for each label, which need not add up to 1."""
    # A few logits may lie there by chance.
    if (
        logits.shape[1] < 2
        or logits.numel() < _ENOUGH_OUTPUTS
        or not bool(((logits > 0) & (logits < 1)).all())
    ):
        return False
    return bool(((logits.sum(dim=1) - 1).abs() > 0.05).any())

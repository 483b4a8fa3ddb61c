"""Batch normalisation with free statistics and a chosen gradient path: pure tensor maths.

Notation of the paper (Yang et al., *Test-time Batch Normalization*), per channel: ``mu_c`` and
``v_c`` are the mean and the biased variance of the current batch, ``s_c = sqrt(v_c + eps)``;
``mu``, ``v`` and ``s = sqrt(v + eps)`` are the statistics that one chooses to normalise with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from driftnorm._internal.counts import counted

__all__ = [
    "GradientPath",
    "Moments",
    "batch_moments",
    "gprebn",
    "instance_moments",
    "is_finite",
    "normalize",
]

# Devices whose batch-norm kernels are called directly; every other device takes plain tensor ops.
NATIVE_DEVICES = frozenset({"cpu", "cuda"})
_WIDE_ENOUGH = (torch.float32, torch.float64)
_SMALL = 4096  # numbers; tensors up to this size are concatenated before they are reduced


GradientPath: TypeAlias = Literal["preserved", "detached"]


class Moments(NamedTuple):
    """Mean and biased variance per channel, and what they were computed from.

    Attributes:
        mean: One value per channel.
        var: One value per channel, biased (divided by ``values``).
        values: How many numbers of a channel were averaged (batch x positions); 0 if unknown.
        samples: How many samples the batch had; 0 if unknown.
    """

    mean: Tensor
    var: Tensor
    values: int = 0
    samples: int = 0


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    """Statistics are never kept in less than float32, whatever the activations are."""
    if dtype in _WIDE_ENOUGH:  # hot path: skips promote_types
        return dtype
    return torch.promote_types(dtype, torch.float32)


def batch_moments(x: Tensor) -> Moments:
    """Mean and biased variance of each channel of ``x`` (shape ``(N, C, ...)``), in one pass.

    Detached by design: the gradient across the batch is the business of :func:`gprebn`.

    >>> x = torch.tensor([[1.0], [3.0]])
    >>> batch_moments(x)
    Moments(mean=tensor([2.]), var=tensor([1.]), values=2, samples=2)
    """
    x = x.detach() if x.requires_grad else x
    values = x.numel() // max(x.shape[1], 1)
    if x.device.type not in NATIVE_DEVICES or torch.compiler.is_compiling():
        wide = x.to(statistics_dtype(x.dtype))
        var, mean = torch.var_mean(wide, dim=[0, *range(2, x.dim())], correction=0)
    elif (lanes := _lanes(x)) > 1:
        mean, var = _moments_in_lanes(x, lanes)
    else:
        mean, var = _native_moments(x)
    return Moments(mean, var, values, x.shape[0])


def instance_moments(x: Tensor) -> Moments:
    """Mean and biased variance of each channel of each sample of ``x``, shape ``(N, C)``.

    >>> instance_moments(torch.tensor([[[1.0, 3.0]], [[2.0, 2.0]]])).var
    tensor([[1.],
            [0.]])
    """
    flat = x.detach().flatten(2) if x.dim() > 2 else x.detach().unsqueeze(2)
    wide = flat.to(statistics_dtype(x.dtype))
    var, mean = torch.var_mean(wide, dim=2, correction=0)
    return Moments(mean, var, wide.shape[2], x.shape[0])


def is_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether all numbers are finite, with one synchronisation and no full-size temporary."""
    sums, small = [], []
    for tensor in tensors:
        if tensor.numel() > _SMALL:
            sums.append(tensor.detach().sum(dtype=statistics_dtype(tensor.dtype)))
        else:
            plain = tensor.detach() if tensor.requires_grad else tensor
            small.append(plain if plain.dim() == 1 else plain.flatten())
    if small:  # one reduction is cheaper than one per tensor
        together = small[0] if len(small) == 1 else torch.cat(small)
        sums.append(together.sum(dtype=statistics_dtype(together.dtype)))
    if len(sums) == 1:
        return math.isfinite(sums[0].item())
    return not sums or bool(torch.isfinite(torch.stack(sums)).all())


def _native_moments(x: Tensor) -> tuple[Tensor, Tensor]:
    dtype = statistics_dtype(x.dtype)
    # The kernel takes its result type from the (otherwise unused) running buffers.
    wide = x.new_zeros(x.shape[1], dtype=dtype) if dtype != x.dtype else None
    mean, var = torch.batch_norm_update_stats(x, wide, wide, 0.0)
    return mean, var


def _lanes(x: Tensor) -> int:
    """Into how many sets the positions of ``x`` are dealt, to be measured side by side.

    In the channels-last layout the CPU kernel goes from position to position, which for few
    channels costs more than the sums do: 3 times as much at 16 channels.
    """
    channels = x.shape[1]
    if x.device.type != "cpu" or x.dim() != 4 or not 0 < channels < 32 or x.numel() < 2**17:
        return 1
    if not x.is_contiguous(memory_format=torch.channels_last):
        return 1
    power_of_two = 1 << (128 // channels).bit_length() - 1
    return math.gcd(power_of_two, x.shape[2] * x.shape[3])


def _moments_in_lanes(x: Tensor, lanes: int) -> tuple[Tensor, Tensor]:
    """Moments of a channels-last ``x``: each lane's, put together (all lanes are equally large)."""
    samples, channels = x.shape[:2]
    dealt = x.permute(0, 2, 3, 1).reshape(samples, -1, 1, lanes * channels).permute(0, 3, 1, 2)
    means, variances = (moment.view(lanes, channels) for moment in _native_moments(dealt))
    mean = means.mean(dim=0)
    off = means - mean
    return mean, torch.addcmul(variances, off, off).mean(dim=0)


def normalize(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Tensor:
    """Eval-mode batch norm with the given statistics; no gradient crosses the batch (eq. 5)."""
    dtype = statistics_dtype(x.dtype)
    return F.batch_norm(
        x,
        _in(dtype, mean.detach() if mean.requires_grad else mean),
        _in(dtype, var.detach() if var.requires_grad else var),
        None if weight is None else _in(dtype, weight),
        None if bias is None else _in(dtype, bias),
        training=False,
        eps=eps,
    )


def _in(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    """Of that type; every layer and batch comes here, and calls nothing if it is already."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def gprebn(
    x: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    *,
    moments: Moments | None = None,
) -> Tensor:
    """Gradient-preserving batch norm (eq. 6): any statistics forward, training-mode gradient back.

    The value is that of eval-mode batch norm with ``(mean, var)``, bit for bit. The gradient with
    respect to ``x`` is the training-mode one of the current batch with
    ``gamma' = gamma * s_c / s`` (eq. 7 and 8); those of ``weight`` and ``bias`` are the ordinary
    ones for ``(mean, var)``. ``mean`` and ``var`` are constants: no gradient reaches them. A graph
    made by ``torch.export`` keeps the value only; it is for inference.

    Args:
        x: Activations, shape ``(N, C)`` or ``(N, C, ...)``.
        mean: The mean to normalise with, shape ``(C,)``.
        var: The variance to normalise with, shape ``(C,)``.
        weight: gamma, or ``None`` for ones.
        bias: beta, or ``None`` for zeros.
        eps: Added to both variances.
        moments: The batch's own moments, if they are known already; computed otherwise.

    Returns:
        The normalised activations, in the dtype and the memory layout of ``x``.

    Example:
        >>> x = torch.randn(8, 3, 4, 4, requires_grad=True)
        >>> y = gprebn(x, torch.zeros(3), torch.ones(3))
        >>> y.square().sum().backward()
        >>> bool(x.grad.sum(dim=(0, 2, 3)).abs().max() < 1e-3)  # the batch mean gets no gradient
        True
    """
    _check_shapes(x, mean=mean, var=var, weight=weight, bias=bias)
    if moments is not None:
        _check_shapes(x, **{"moments.mean": moments.mean, "moments.var": moments.var})
    inputs = (x, weight, bias)
    if not torch.is_grad_enabled() or not any(t is not None and t.requires_grad for t in inputs):
        return normalize(x, mean, var, weight, bias, eps)
    batch = batch_moments(x) if moments is None else moments
    dtype = statistics_dtype(x.dtype)
    out: Tensor = _GradientPreserving.apply(  # type: ignore[no-untyped-call]
        x, weight, bias, mean.detach(), var.detach(), batch.mean.to(dtype), batch.var.to(dtype), eps
    )
    return out


def _check_shapes(x: Tensor, **vectors: Tensor | None) -> None:
    if x.dim() < 2:
        raise ValueError(f"`x` must have shape (N, C, ...), got {tuple(x.shape)}.")
    for name, value in vectors.items():
        if value is not None and value.shape != (x.shape[1],):
            raise ValueError(
                f"`{name}` must have one value for each of the {counted(x.shape[1], 'channel')} of "
                f"`x`, got shape {tuple(value.shape)}."
            )


class _GradientPreserving(torch.autograd.Function):
    """Eval-mode kernel forward, training-mode kernel backward; saves ``x`` and four C-vectors."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        mean: Tensor,
        var: Tensor,
        batch_mean: Tensor,
        batch_var: Tensor,
        eps: float,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, mean, var, batch_mean, batch_var)
        ctx.eps = eps
        ctx.bias_dtype = None if bias is None else bias.dtype
        return normalize(x, mean, var, weight, bias, eps)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True
            raise RuntimeError(
                "gprebn cannot be differentiated twice; do without `create_graph=True`."
            )
        x, weight, mean, var, batch_mean, batch_var = ctx.saved_tensors
        inv_batch = torch.rsqrt(batch_var + ctx.eps)  # 1 / s_c
        inv = torch.rsqrt(var + ctx.eps).to(inv_batch.dtype)  # 1 / s
        ratio = inv / inv_batch  # s_c / s
        # gamma', eq. 8
        folded = ratio if weight is None else (ratio * weight).to(ratio.dtype)
        affine = weight is not None or ctx.bias_dtype is not None
        grad_x, grad_folded, grad_shift = _training_backward(
            grad, x, folded, batch_mean, inv_batch, ctx.eps, (ctx.needs_input_grad[0], affine)
        )
        grad_weight = grad_bias = None
        if ctx.needs_input_grad[1]:
            # Chain rule through gamma' and beta' = beta + gamma (mu_c - mu) / s.
            offset = (batch_mean - mean.to(batch_mean.dtype)) * inv
            grad_weight = (grad_folded * ratio + grad_shift * offset).to(weight.dtype)
        if ctx.needs_input_grad[2]:
            grad_bias = grad_shift.to(ctx.bias_dtype)
        return grad_x, grad_weight, grad_bias, None, None, None, None, None


def _training_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    mean: Tensor,
    inv_std: Tensor,
    eps: float,
    wanted: tuple[bool, bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of training-mode batch norm (eq. 4) for the input, the scale and the shift."""
    if x.device.type in NATIVE_DEVICES:
        mask = [wanted[0], wanted[1], wanted[1]]
        result: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
            grad, x, weight, None, None, mean, inv_std, True, eps, mask
        )
        return result
    dims = [0, *range(2, x.dim())]
    shape = [1, -1] + [1] * (x.dim() - 2)
    centred = (x.to(mean.dtype) - mean.view(shape)) * inv_std.view(shape)
    wide = grad.to(mean.dtype)
    grad_shift = wide.sum(dims)
    grad_weight = (wide * centred).sum(dims)
    values = x.numel() // x.shape[1]
    across = (grad_shift.view(shape) + centred * grad_weight.view(shape)) / values
    grad_x = (wide - across) * (weight * inv_std).view(shape)
    return grad_x.to(x.dtype), grad_weight, grad_shift

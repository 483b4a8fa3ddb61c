"""Replace the batch-norm layers of any network by adaptive ones, and back.

This is the only module that knows foreign batch-norm classes.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.functional import Moments
from driftnorm.parts.layers import Selector, leaves_out

_NORM = re.compile("norm(?!ali[sz])", re.IGNORECASE)
_HOOKS = (
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks",
    "_forward_hooks_always_called",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)
# Layers without trained parameters whose buffers play that role, known by name so that neither
# torchvision nor timm nor detectron2 needs to be importable.
_FROZEN = {"FrozenBatchNorm2d", "FrozenBatchNormAct2d"}


@dataclass
class Surgery:
    """What was replaced.

    Attributes:
        layers: The adaptive layers; a layer with several names appears under the first.
        originals: The layers that they replace, under the same names.
        places: Every dotted name of a layer, and its name in ``layers``.
    """

    layers: dict[str, AdaptiveBatchNorm]
    originals: dict[str, nn.Module]
    places: dict[str, str]

    def put(self, network: nn.Module, modules: Mapping[str, nn.Module]) -> nn.Module:
        """Set ``modules``, one for each layer, at every place of ``network``."""
        for place, name in self.places.items():
            _set(network, place, modules[name])
        return network

    def revert(self, network: nn.Module) -> nn.Module:
        """Put the original layers back."""
        following = {n: _following(o, self.layers[n]) for n, o in self.originals.items()}
        return self.put(network, following)

    def reverted_copy(self, network: nn.Module) -> nn.Module:
        """An independent copy of ``network`` with the original layers."""
        originals = {
            n: _following(copy.deepcopy(o), self.layers[n]) for n, o in self.originals.items()
        }
        return self.put(copy.deepcopy(network), originals)

    def bake(self, network: nn.Module, settled: Mapping[str, Moments | None]) -> nn.Module:
        """A copy of the adapted ``network`` with ordinary batch norm and these statistics.

        The layers are of the classes that the network came with, so its state dict loads into the
        same architecture anywhere.
        """
        plain = {
            name: _plain(layer, self.originals[name], settled[name])
            for name, layer in self.layers.items()
        }
        _tie(plain, self.layers)
        return self.put(copy.deepcopy(network), plain).eval().requires_grad_(False)


def find_batch_norms(network: nn.Module, only: Selector | None = None) -> dict[str, nn.Module]:
    """Every batch-norm layer of ``network`` by dotted name, shared ones under each of their names.

    Layers of an unknown kind are ignored if ``only`` leaves them out.

    Raises:
        TypeError: For a subclass of batch norm with a ``forward`` of its own that is not known.
    """
    found = {}
    for name, module in network.named_modules(remove_duplicate=False):
        if isinstance(module, AdaptiveBatchNorm):
            raise TypeError(
                "this network is adapted already; `bake()` or `revert()` its adapter first."
            )
        if isinstance(module, _BatchNorm) or type(module).__name__ in _FROZEN:
            if _is_foreign(module) and leaves_out(only, name):
                continue
            _check_known(name, module)
            found[name] = module
    if "" in found:
        raise TypeError(
            f"the network is itself a {type(network).__name__}; put it in an nn.Sequential."
        )
    return found


def convert(network: nn.Module, only: Selector | None = None) -> Surgery:
    """Replace the batch-norm layers of ``network``, in place, by adaptive ones.

    The source statistics normalise until others are chosen, so the converted network computes what
    it did before.
    """
    found = find_batch_norms(network, only)
    first = {id(module): name for name, module in reversed([*found.items()])}
    places = {place: first[id(module)] for place, module in found.items()}
    originals = {name: found[name] for name in dict.fromkeys(places.values())}
    surgery = Surgery({n: _adaptive(o) for n, o in originals.items()}, originals, places)
    _tie(surgery.layers, originals)
    surgery.put(network, surgery.layers)
    return surgery


def _tie(modules: Mapping[str, nn.Module], like: Mapping[str, nn.Module]) -> None:
    """Where two modules of ``like`` share a parameter, let their successors share one too."""
    successors: dict[int, Any] = {}
    for name, module in modules.items():
        for part in ("weight", "bias"):
            own = getattr(module, part)
            if own is not None:
                shared = successors.setdefault(id(getattr(like[name], part)), own)
                setattr(module, part, shared)


def describe_norms(network: nn.Module) -> str:
    """The normalisation layers of ``network`` in words, e.g. ``LayerNorm x25``."""
    # "Normalized" and the like wrap a network; what normalises within it is named "...Norm...".
    names = (type(m).__name__ for m in network.modules() if _NORM.search(type(m).__name__))
    counted = Counter(names)
    return ", ".join(f"{name} x{count}" for name, count in counted.most_common()) or "none"


def set_linear(linear: nn.Module, weight: torch.Tensor) -> None:
    """Replace the weights of a linear classifier, and remove its bias."""
    assert isinstance(linear, nn.Linear)
    linear.weight.data = weight.detach().to(linear.weight.dtype, copy=True)
    for name, parameter in linear.named_parameters():
        if name != "weight":
            parameter.data = torch.zeros_like(parameter)


# Foreign modules are typed Any from here on: this is the border where attributes are probed.
def _check_known(name: str, module: Any) -> None:
    if any(nn.parameter.is_lazy(t) for t in (module.running_mean, module.weight)):
        raise TypeError(
            f"layer `{name}` is a {type(module).__name__} that has not seen its first batch; "
            f"run one batch through the network before adapting it."
        )
    if _is_foreign(module):
        raise TypeError(
            f"layer `{name}` is a {type(module).__module__}.{type(module).__qualname__}, a batch "
            f"norm with a forward of its own that driftnorm cannot see into. Replace it by the "
            f"torch layer it extends, followed by a module that does the rest, or leave it as it "
            f"is: `only=lambda name: name != {name!r}`."
        )


def _is_foreign(module: nn.Module) -> bool:
    """Whether it has its own, unknown ``forward``."""
    own_forward = type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward)
    return own_forward and type(module).__name__ not in _FROZEN and not _is_timm_fused(module)


def _is_timm_fused(module: nn.Module) -> bool:
    """Whether it is one of timm's batch norms, which also drop and activate."""
    from_timm = type(module).__module__.split(".")[0] == "timm"
    return from_timm and {"drop", "act"} <= set(module._modules)


def _adaptive(original: Any) -> AdaptiveBatchNorm:
    mean, var, weight, bias = (
        original.running_mean,
        original.running_var,
        original.weight,
        original.bias,
    )
    source = Moments(mean, var) if mean is not None and var is not None else None
    known = next((t for t in (mean, weight) if t is not None), None)
    channels = original.num_features if known is None else known.shape[0]
    tail = nn.Sequential(original.drop, original.act) if _is_timm_fused(original) else None
    layer = AdaptiveBatchNorm(weight, bias, source, channels, original.eps, tail)
    for hooks in _HOOKS:
        getattr(layer, hooks).update(getattr(original, hooks))
    return layer.eval()


def _following(module: Any, layer: AdaptiveBatchNorm) -> nn.Module:
    """The module, moved to the network's current device and precision."""
    kept = module.running_mean if module.weight is None else module.weight
    cast = kept is not None and kept.dtype != layer.precision
    dtype = layer.precision if cast else None
    home = next((t.device for t in (*layer.parameters(), *layer.buffers())), None)
    moved: nn.Module = module.to(device=home, dtype=dtype)
    return moved


@torch.no_grad()
def _plain(layer: AdaptiveBatchNorm, original: Any, settled: Moments | None) -> nn.Module:
    plain: Any = _following(copy.deepcopy(original), layer)
    values: list[tuple[str, torch.Tensor | None]] = [
        ("weight", layer.weight),
        ("bias", layer.bias),
    ]
    # Without source statistics and before any batch, the layer keeps using each batch's own.
    if settled is not None:
        values += [("running_mean", settled.mean), ("running_var", settled.var)]
    for name, value in values:
        holder = getattr(plain, name)
        if value is None:
            continue
        if holder is None:  # a layer without running statistics gets some
            plain.register_buffer(name, value.detach().clone())
        else:
            holder.data = value.detach().to(holder.dtype, copy=True)
    if settled is not None and isinstance(plain, _BatchNorm):
        plain.track_running_stats = True
    done: nn.Module = plain
    return done


def _set(network: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    network.get_submodule(parent)._modules[child] = module

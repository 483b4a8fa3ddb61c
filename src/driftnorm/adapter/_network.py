"""A network with adaptive batch-norm layers, and the one way to run it: a pass with given values.

The network's own parameters are the source's and stay so. A pass is given the values it runs with;
while it runs, they replace the parameters in the modules that hold them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from driftnorm.adapter import _surgery as surgery
from driftnorm.adapter._checks import own_tensor
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._pass import Pass, Stage
from driftnorm.adapter._probe import Layout, probe
from driftnorm.parts.contract import Forward, Mode, Values
from driftnorm.parts.layers import Selector


class _Batch(Enum):
    """Stands in the arguments where the batch goes."""

    HERE = 0


class Call(NamedTuple):
    """What the network is called with: the batch, and whatever else its ``forward`` takes.

    Attributes:
        x: The batch.
        args: The arguments, with `_Batch.HERE` in the place of the batch.
        kwargs: Likewise.
        part_of: Size of the batch of which these are the first samples; 0 if they are all of it.
    """

    x: Tensor
    args: tuple[Any, ...] = (_Batch.HERE,)
    kwargs: Mapping[str, Any] = {}
    part_of: int = 0

    @classmethod
    def of(
        cls,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        name: str | None = None,
        integers: bool = False,
    ) -> Call:
        """A call with these arguments, which autograd may use.

        Args:
            args: As the network takes them.
            kwargs: Likewise.
            name: Name of the argument or dictionary entry that is the batch. By default, the first
                floating-point tensor with two axes or more: labels are integers.
            integers: Whether the batch may be of integers; then it is the first tensor.
        """
        if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            return cls(own_tensor(args[0]))
        leaves, form = tree_flatten((args, dict(kwargs)))
        found = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]
        images = [i for i in found if leaves[i].is_floating_point() and leaves[i].dim() > 1]
        place = next(iter(found if integers or not images else images), None)
        if name is not None:
            held = [k for k in (kwargs, *args) if isinstance(k, Mapping) and name in k]
            named = [i for i in found if held and leaves[i] is held[0][name]]
            if not named:
                raise TypeError(f"`batch={name!r}`: the call has no tensor of that name.")
            place = named[0]
        if place is None:
            kinds = ", ".join(type(leaf).__name__ for leaf in leaves) or "nothing"
            raise TypeError(f"an adapter must be called with a batch, a tensor; got {kinds}.")
        owned = [*map(own_tensor, leaves)]
        x, owned[place] = owned[place], _Batch.HERE
        return cls(x, *tree_unflatten(owned, form))

    @property
    def is_plain(self) -> bool:
        """Whether the batch is all that the network takes."""
        return self.args == (_Batch.HERE,) and not self.kwargs

    def first(self, count: int) -> Call:
        """The first samples; all of them if other arguments may belong to the whole batch."""
        if not self.is_plain:
            return self
        return Call(self.x[:count], part_of=len(self.x))

    def put_to(self, network: nn.Module) -> Any:
        """Call the network on a copy: it may change its input, and a batch may run twice."""
        x = self.x.clone()
        if self.is_plain:
            return network(x)
        args, kwargs = tree_map(
            lambda leaf: x if leaf is _Batch.HERE else leaf, (self.args, self.kwargs)
        )
        return network(*args, **kwargs)

    def laid_out(self, channels_last: bool) -> Call:
        """The same batch in one layout or the other: kernels differ in the last bits."""
        last = channels_last and self.x.dim() == 4
        layout = torch.channels_last if last else torch.contiguous_format
        return self._replace(x=self.x.contiguous(memory_format=layout))


class ConvertedNetwork(nn.Module):
    """Owns the copy of the network (or, in place, the network itself).

    Args:
        network: The trained network.
        logits: Extracts the logits from what the network returns: a function, or a name.
        channels_last: Run in channels-last layout; ``None`` decides on the first batch.
        inplace: Convert ``network`` itself.
        only: The layers that take part; others need not be of a known kind.
    """

    def __init__(
        self,
        network: nn.Module,
        logits: Callable[[Any], Tensor] | str | None,
        channels_last: bool | None,
        inplace: bool,
        only: Selector | None = None,
    ) -> None:
        super().__init__()
        if not (logits is None or isinstance(logits, str) or callable(logits)):
            raise TypeError(
                f"`logits` must be a function, such as `lambda output: output[0]`, or a name, got "
                f"{logits!r}."
            )
        network = getattr(network, "_orig_mod", network)  # what torch.compile wraps
        self.inplace = inplace
        if inplace and any(p.is_inference() for p in network.parameters()):
            raise ValueError(
                "`inplace=True` cannot train parameters that were made under "
                "`torch.inference_mode()`; load the network outside of it, or adapt a copy."
            )
        self._training = {m: m.training for m in network.modules()} if inplace else {}
        self._gradients = {p: p.requires_grad for p in network.parameters()} if inplace else {}
        surgery.find_batch_norms(network, only)  # raises before anything is copied or changed
        self.network = network if inplace else _copied(network)
        self._surgery = surgery.convert(self.network, only)
        self.network.requires_grad_(False)
        self.network.eval()
        self._select_logits = logits
        if inplace and channels_last is None:
            # The caller's own parameters would change layout: only when asked.
            channels_last = _is_channels_last(network)
        self._channels_last = channels_last
        self._laid_out = False
        self.probing = False
        self.stage = Stage()
        for name, layer in self.layers.items():
            layer.name, layer.stage = name, self.stage
        self._places: dict[str, list[tuple[dict[str, Any], str]]] = {}
        self._flat: list[Any] = []
        self._features: tuple[Tensor, Tensor] | None = None
        self._feature_hook: torch.utils.hooks.RemovableHandle | None = None

    @property
    def layers(self) -> dict[str, AdaptiveBatchNorm]:
        """The adaptive layers by dotted name; a shared one under each of its names."""
        return self._surgery.layers

    @property
    def kind(self) -> str:
        """Class name of the network."""
        return type(self.network).__name__

    def train(self, mode: bool = True) -> ConvertedNetwork:
        """Stays in evaluation mode: dropout and stochastic depth would spoil the predictions."""
        super().train(mode)
        self.network.eval()
        return self

    # ------------------------------------------------------------------ asking

    def run(
        self,
        call: Call,
        now: Pass,
        values: Values | None = None,
        *,
        grad: bool = False,
        hidden: bool = False,
    ) -> Forward:
        """One pass.

        Args:
            call: What the network is called with.
            now: What its layers are asked for.
            values: Parameters in place of the source's.
            grad: Whether to build a graph.
            hidden: Whether the caller did not ask for it: an audit or a probe.
        """
        before, was_probing = self.stage.now, self.probing
        self.stage.now, self.probing, self._features = now, was_probing or hidden, None
        try:
            with torch.set_grad_enabled(grad), self._holding(values or {}):
                output = self._call(call)
        finally:
            self.stage.now, self.probing = before, was_probing
        features, linear = self._features or (None, None)
        self._features = None
        return Forward(output, self.logits(output), features, linear, now.outcome(), now.used)

    def ask(self, call: Call, mode: Mode, layers: Mapping[str, Any], values: Values) -> Forward:
        """A pass that changes nothing, without gradient."""
        return self.run(call, Pass(mode, layers), values)

    @contextmanager
    def _holding(self, values: Values) -> Iterator[None]:
        """Put values in the place of parameters, in every module that holds them.

        Never by ``.data``: that would change what autograd has saved for a pass that is pending.
        """
        if not values:
            yield
            return
        held = [
            (places, places[key], key, value)
            for name, value in values.items()
            for places, key in self._places[name]
        ]
        for places, parameter, key, value in held:
            places[key] = laid_out_as(value, parameter)
        self._refresh_flat_weights()
        torch.clear_autocast_cache()  # it may hold the weights of another pass
        try:
            yield
        finally:
            for places, parameter, key, _ in held:
                places[key] = parameter
            self._refresh_flat_weights()
            torch.clear_autocast_cache()

    def trains(self, names: Iterable[str]) -> None:
        """Which parameters a pass may be given values for."""
        parameters = dict(self.network.named_parameters())
        wanted = {id(parameters[name]): name for name in names}
        self._places = {name: [] for name in wanted.values()}
        for module in self.network.modules():
            for key, parameter in module._parameters.items():
                if parameter is not None and id(parameter) in wanted:
                    self._places[wanted[id(parameter)]].append((module._parameters, key))
        self._flat = [m for m in self.network.modules() if isinstance(m, nn.RNNBase)]

    def source_values(self) -> dict[str, Tensor]:
        """What the network came with, of the parameters that a pass may be given values for."""
        return {name: held[key].detach() for name, ((held, key), *_) in self._places.items()}

    def _refresh_flat_weights(self) -> None:
        """Recurrent layers keep a list of their own parameters beside them."""
        for module in self._flat:
            module._flat_weights = [
                module._parameters.get(name) for name in module._flat_weights_names
            ]

    def logits(self, output: Any) -> Tensor:
        """The logits in an output of the network."""
        logits = self._selected(output)
        if isinstance(logits, Tensor) and logits.dim() >= 2:
            return logits
        got = (
            f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        )
        raise TypeError(
            f"expected logits of shape (N, K) or (N, K, ...) from {self.kind}, got {got}; "
            "pass `logits=` a function that extracts them from its output, such as "
            "`lambda output: output[0]`, or their name in it."
        )

    def _selected(self, output: Any) -> Any:
        wanted = self._select_logits
        if wanted is None:
            return output if isinstance(output, Tensor) else getattr(output, "logits", output)
        if not isinstance(wanted, str):
            return wanted(output)
        if isinstance(output, Mapping) and wanted in output:
            return output[wanted]
        if not hasattr(output, wanted):
            holds = [*output] if isinstance(output, Mapping) else [*getattr(output, "__dict__", ())]
            raise TypeError(
                f"`logits={wanted!r}`: what {self.kind} returns, a {type(output).__name__}, has no "
                f"such key or attribute; it has: {', '.join(map(str, holds)) or 'none'}."
            )
        return getattr(output, wanted)

    def _call(self, call: Call) -> Any:
        try:
            return call.put_to(self.network)
        except (RuntimeError, ValueError) as error:
            shape = (call.part_of or len(call.x), *call.x.shape[1:])
            raise RuntimeError(
                f"{self.kind} failed on a batch of shape {shape} and dtype {call.x.dtype}: {error}"
            ) from error
        except (TypeError, AttributeError) as error:
            given = call.args[0] if call.args else None
            if not isinstance(given, Mapping | list | tuple):
                raise
            how = "batch['image']" if isinstance(given, Mapping) else "batch[0]"
            raise TypeError(
                f"{self.kind} failed on a {type(given).__name__}, as data loaders give them: call "
                f"the adapter with what the network takes, such as `adapter({how})`. Its "
                f"error: {error}"
            ) from error

    # ------------------------------------------------------------------ learning how it runs

    def lay_out(self, call: Call) -> Call:
        """Settle the memory layout on the first batch; returns the batch in it."""
        if not self._laid_out:
            if self._channels_last is None:
                self._channels_last = self._prefers_channels_last(call.first(2))
            else:
                last = self._channels_last
                _set_layout(self.network, torch.channels_last if last else torch.contiguous_format)
            self._laid_out = True
        return call.laid_out(bool(self._channels_last))

    def _prefers_channels_last(self, call: Call) -> bool:
        """Switch to the layout that is fastest, if it changes nothing but speed."""
        convolves = any(isinstance(m, nn.Conv2d) for m in self.network.modules())
        if not convolves or call.x.dim() != 4 or call.x.device.type not in ("cpu", "cuda"):
            return False
        plain = self._as_source(call)
        _set_layout(self.network, torch.channels_last)
        try:
            moved = self._as_source(call.laid_out(True))
            same = torch.allclose(moved, plain, rtol=1e-2, atol=1e-3, equal_nan=True)
        except RuntimeError:  # for example a `.view` that needs the contiguous layout
            same = False
        if not same:
            _set_layout(self.network, torch.contiguous_format)
        return same

    def _as_source(self, call: Call) -> Tensor:
        return self.run(call, Pass("source", {}), hidden=True).logits

    def discover(self, call: Call, classifier: str | None, needs_classifier: bool) -> Layout:
        """Forward order of the layers and the classifier's name, from one pass."""
        return probe(
            self.network,
            self.layers,
            lambda: self._as_source(call.first(2)),
            classifier,
            needs_classifier,
        )

    def watch(self, classifier: str | None) -> None:
        """Note what goes into and comes out of the classifier in each pass; ``None`` stops."""
        if self._feature_hook is not None:
            self._feature_hook.remove()
            self._feature_hook = None
        if classifier is not None:
            linear = self.network.get_submodule(classifier)
            self._feature_hook = linear.register_forward_hook(self._take_features)

    def _take_features(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self._features = (inputs[0], output)

    # ------------------------------------------------------------------ leaving

    def bake(
        self,
        classifier: str | None,
        weight: Tensor | None,
        values: Values,
        layers: Mapping[str, Any],
    ) -> nn.Module:
        """A plain copy with these values, settled statistics and, if given, other class rows."""
        settled = {n: layer.settled(Pass("settled", layers)) for n, layer in self.layers.items()}
        with self._unwatched(classifier), self._holding(_parameters(values)):
            baked = self._surgery.bake(self.network, settled)
        if classifier is not None and weight is not None:
            surgery.set_linear(baked.get_submodule(classifier), weight)
        return _set_layout(baked, torch.contiguous_format)

    def source_copy(self, classifier: str | None) -> nn.Module:
        """An independent copy with the original layers."""
        with self._unwatched(classifier):
            plain = self._surgery.reverted_copy(self.network)
        return _set_layout(plain, torch.contiguous_format)

    @contextmanager
    def _unwatched(self, classifier: str | None) -> Iterator[None]:
        """Without the hook, which would drag this object into a copy of the network."""
        watched = self._feature_hook is not None
        self.watch(None)
        try:
            yield
        finally:
            self.watch(classifier if watched else None)

    def revert(self) -> nn.Module:
        """Undo a conversion in place: original layers, modes and gradient flags."""
        self.watch(None)
        self._surgery.revert(self.network)
        for module, training in self._training.items():
            module.training = training
        for parameter, wanted in self._gradients.items():
            parameter.requires_grad_(wanted)
        return self.network


def _parameters(values: Values) -> Values:
    """As a network holds them, so that a copy is an ordinary one."""
    return {n: nn.Parameter(v.detach(), requires_grad=False) for n, v in values.items()}


def _copied(network: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(network)
    except (TypeError, RuntimeError) as error:
        raise TypeError(
            f"{type(network).__name__} cannot be copied ({error}); adapt it with `inplace=True`, "
            f"and `revert()` it afterwards."
        ) from error


def laid_out_as(value: Tensor, parameter: Tensor) -> Tensor:
    """In the memory layout of ``parameter``: a state from a file has its own.

    Kernels differ in the last bits, so a resumed stream would diverge from an uninterrupted one.
    """
    if value.stride() == parameter.stride():
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _is_channels_last(network: nn.Module) -> bool:
    """Whether the weights of the first convolution with an unambiguous layout are so."""
    kernels = (m.weight for m in network.modules() if isinstance(m, nn.Conv2d))
    told = (w for w in kernels if min(w.shape[1:]) > 1 and w.dim() == 4)
    return any(w.is_contiguous(memory_format=torch.channels_last) for w in islice(told, 1))


def _set_layout(network: nn.Module, layout: torch.memory_format) -> nn.Module:
    return network.to(memory_format=layout)  # type: ignore[call-overload, no-any-return]

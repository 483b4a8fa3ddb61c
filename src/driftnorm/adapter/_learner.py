"""What is trained: its parameters, its optimiser, and the way back to where it was."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.functional import statistics_dtype

__all__ = ["Learner", "is_finite"]


def is_finite(tensors: list[Tensor]) -> bool:
    """Whether all numbers are finite, with one synchronisation and no full-size temporary."""
    sums = [t.detach().sum(dtype=statistics_dtype(t.dtype)) for t in tensors if t.numel()]
    if len(sums) == 1:
        return math.isfinite(sums[0].item())
    return not sums or bool(torch.isfinite(torch.stack(sums)).all())


class Learner:
    """The trainable parameters, their values at the start, and the optimiser."""

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        self.parameters = dict(parameters)
        self._check_precision()
        self.optimizer = optimizer
        self.start = {name: p.detach().clone() for name, p in parameters.items()}

    def optimizer_state(self) -> list[dict[str, Any]]:
        """A copy of the optimiser's state, parameter by parameter."""
        state = self.optimizer.state
        return [
            {k: v.clone() if isinstance(v, Tensor) else v for k, v in state[p].items()}
            if p in state
            else {}
            for p in self.parameters.values()
        ]

    def set_optimizer_state(self, states: list[dict[str, Any]]) -> None:
        """Put a copy made by :meth:`optimizer_state` back."""
        fresh: defaultdict[Any, Any] = defaultdict(dict)
        for p, state in zip(self.parameters.values(), states, strict=True):
            if state:
                fresh[p] = state
        self.optimizer.state = fresh

    @torch.no_grad()
    def set_parameters(self, values: Mapping[str, Tensor]) -> None:
        """Overwrite the parameters in place."""
        for name, p in self.parameters.items():
            p.copy_(values[name])
        torch.clear_autocast_cache()

    @contextmanager
    def at_start(self) -> Iterator[None]:
        """The source parameters for a while, without copying any."""
        current = {name: p.data for name, p in self.parameters.items()}
        self._point_at(self.start)
        try:
            yield
        finally:
            self._point_at(current)

    def _point_at(self, values: Mapping[str, Tensor]) -> None:
        for name, p in self.parameters.items():
            p.data = values[name]
        torch.clear_autocast_cache()

    def restart(self) -> None:
        """Source values, untouched optimiser."""
        self.set_parameters(self.start)
        self.optimizer.state = defaultdict(dict)

    def remember(self) -> Callable[[], None]:
        """What is returned puts parameters and optimiser back to where they are now."""
        parameters = {name: p.detach().clone() for name, p in self.parameters.items()}
        optimizer = self.optimizer_state()

        def put_back() -> None:
            self.set_parameters(parameters)
            self.set_optimizer_state(optimizer)
            self.optimizer.zero_grad(set_to_none=True)

        return put_back

    def require_grad(self) -> None:
        """Undo what a caller may have switched off since."""
        self._check_precision()
        for parameter in self.parameters.values():
            parameter.requires_grad_(True)

    def _check_precision(self) -> None:
        for name, parameter in self.parameters.items():
            if statistics_dtype(parameter.dtype) != parameter.dtype:
                raise TypeError(
                    f"`{name}` would be trained in {parameter.dtype}, in which small steps are "
                    "lost. Adapt the network in float32, under `torch.autocast` if it shall be "
                    "fast; methods that train batch norm alone can do with less."
                )

    def descend(self, loss: Tensor) -> bool:
        """One step down; false if the loss, a gradient or a parameter after it is not finite."""
        _check_loss(loss)
        parameters = list(self.parameters.values())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        if not is_finite([loss, *(g for g in gradients if g is not None)]):
            return False
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        torch.clear_autocast_cache()  # it may hold the weights as they were
        return is_finite([*parameters])

    def follow(self) -> None:
        """Take the start values and the optimiser's moments to where the parameters are now."""
        self.start = {name: self.start[name].to(p) for name, p in self.parameters.items()}
        for p in self.parameters.values():
            for key, value in self.optimizer.state.get(p, {}).items():
                # Step counters are scalars that stay where the optimiser put them.
                if isinstance(value, Tensor) and value.dim():
                    self.optimizer.state[p][key] = value.to(p)

    @torch.no_grad()
    def distance(self) -> float:
        """How far the parameters have moved, as a share of their length at the start."""
        moved = [(p - self.start[n]).float().norm() for n, p in self.parameters.items()]
        length = [value.float().norm() for value in self.start.values()]
        return float(torch.stack(moved).norm() / torch.stack(length).norm().clamp(min=1e-12))


def _check_loss(loss: object) -> None:
    """An objective of somebody's own may give anything."""
    if isinstance(loss, Tensor) and loss.numel() == 1 and loss.requires_grad:
        return
    got = type(loss).__name__
    if isinstance(loss, Tensor):
        got = f"a tensor of shape {tuple(loss.shape)}"
        got += "" if loss.requires_grad else " without a gradient"
    raise TypeError(
        f"`objective` must make one number, a tensor that depends on the logits, or None for no "
        f"step; got {got}."
    )

"""All that a stream changes in an adapter: undone, restarted, saved and moved as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from driftnorm.adapter import _saving as persistence
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._learner import Learner
from driftnorm.adapter._probe import Layout
from driftnorm.adapter.guard import EMPTY
from driftnorm.heads import HeadState

__all__ = ["StreamState"]


class StreamState:
    """Statistics (in the layers), parameters and optimiser, head, the guard's memory, counters.

    Attributes:
        layers: The adaptive layers, which hold their own statistics.
        learner: What is trained, if anything is.
        head: What answers in the classifier's place; replaced as a whole, never changed in place.
        guard: The guard's memory; likewise.
        batches: Adapted to since the start or the last reset.
        bad_batches: Refused.
        alarms: How many times the guard found adaptation harmful.
        frozen: Whether to answer without adapting.
    """

    def __init__(self, layers: Mapping[str, AdaptiveBatchNorm]) -> None:
        self.layers = layers
        self.learner: Learner | None = None
        self.head: HeadState | None = None
        self._head_start: HeadState | None = None
        self.guard = EMPTY
        self.batches = self.bad_batches = self.alarms = 0
        self.frozen = False

    def prepare(self, learner: Learner | None, head: HeadState | None) -> None:
        """Settle what is trained and what answers, once the network is known well enough."""
        self.learner = learner
        self.head = self._head_start = head

    def restart(self) -> None:
        """Forget the stream; what was counted about it stays."""
        for layer in self.layers.values():
            layer.forget()
        if self.learner is not None:
            self.learner.restart()
        self.head = self._head_start
        self.guard = EMPTY
        self.batches = 0

    def reset(self) -> None:
        """As it was built."""
        self.restart()
        self.bad_batches = self.alarms = 0
        self.frozen = False

    def remember(self) -> Callable[[], None]:
        """The state before a batch: what is returned puts it back.

        Statistics, head and guard are replaced, never changed in place, so references suffice;
        parameters and optimiser state are copied.
        """
        tracked = {name: layer.tracked for name, layer in self.layers.items()}
        trained = None if self.learner is None else self.learner.remember()
        head, guard, batches = self.head, self.guard, self.batches

        def put_back() -> None:
            for name, layer in self.layers.items():
                layer.begin()
                layer.tracked = tracked[name]
            if trained is not None:
                trained()
            self.head, self.guard, self.batches = head, guard, batches

        return put_back

    def pack(self, about: Mapping[str, Any], layout: Layout | None) -> dict[str, Tensor]:
        """All of it but the layers' part, for a state dict."""
        counters = (self.batches, self.bad_batches, self.alarms, self.frozen)
        return persistence.pack(about, layout, counters, self.guard, self.head, self.learner)

    def unpack(self, own: Mapping[str, Tensor], home: torch.device) -> None:
        """The inverse, on whichever device; read as a whole before anything is changed."""
        own = persistence.on_device(own, home)
        head = persistence.read_head(own, self._head_start)
        optimizer = persistence.read_optimizer(own, self.learner)
        self.guard = persistence.read_guard(own)
        self.head = head
        if self.learner is not None:
            self.learner.set_optimizer_state(optimizer)
        self.batches, self.bad_batches, self.alarms, frozen = own["counters"].tolist()
        self.frozen = bool(frozen)

    def move(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Take what is not a parameter or a buffer along with the network."""
        if self.learner is not None:
            self.learner.follow()
        for name in ("head", "_head_start"):
            state = getattr(self, name)
            if state is not None:
                setattr(self, name, {key: _moved(value, fn) for key, value in state.items()})
        self.guard = self.guard._replace(
            marginal=_moved(self.guard.marginal, fn),
            source_marginal=_moved(self.guard.source_marginal, fn),
        )


def _moved(value: Tensor, fn: Callable[[Tensor], Tensor]) -> Tensor:
    """Follow a change of device, but keep counts, labels and float32 as they are."""
    return value.to(fn(torch.empty(0, device=value.device)).device)

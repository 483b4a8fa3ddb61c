"""One pass through the adaptive layers: what they read, and what they propose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from driftnorm.functional import Moments
from driftnorm.parts.contract import SHARED, THETA, Measured, Mode, Statistics
from driftnorm.recipe import readable

if TYPE_CHECKING:
    from driftnorm.adapter._layers import AdaptiveBatchNorm


class Pass:
    """One forward pass as the layers of a network see it.

    Args:
        mode: See :class:`~driftnorm.parts.contract.Step`.
        layers: The layers' memories to start from.
        statistics: In place of the layers' own, if given.
        replay: What an earlier pass used, for ``"again"``.
    """

    __slots__ = (
        *("_fact", "_latest", "_replay", "_seen"),
        *("layers", "mode", "proposed", "statistics", "used"),
    )

    def __init__(
        self,
        mode: Mode,
        layers: Mapping[str, Any],
        statistics: Statistics | None = None,
        replay: Mapping[str, Any] | None = None,
    ) -> None:
        self.mode = mode
        self.layers = layers
        self.statistics = statistics
        self.proposed: dict[str, Any] = {}
        self.used: dict[str, list[Moments]] = {}
        self._seen: dict[Statistics, Any] = {}
        self._latest: Statistics | None = None
        self._fact: Any = None
        self._replay = {name: iter(used) for name, used in (replay or {}).items()}

    def memory(self, name: str) -> Mapping[str, Any]:
        """A layer's memory; a layer that runs twice in a pass continues from its proposal."""
        known: Mapping[str, Any] | None = self.proposed.get(name)
        return self.layers.get(name, {}) if known is None else known

    def shared(self, statistics: Statistics) -> Mapping[str, Any]:
        """The memory of a choice of statistics for all its layers together."""
        held = self.layers.get(SHARED, {})
        found: Mapping[str, Any] = held.get(readable(statistics), {})
        return {**found, THETA: held[THETA]} if THETA in held else found

    def propose(self, layer: AdaptiveBatchNorm, at: Measured, chosen: Statistics) -> Moments:
        """The moments that normalise a layer's input; notes what they make of its memory."""
        name = layer.name
        memory = self.memory(name)
        if chosen is not self._latest:  # most networks have one choice: it is hashed once per pass
            if chosen not in self._seen:
                self._observe(chosen, memory, at)
            self._latest, self._fact = chosen, self._seen[chosen]
        proposal: object = chosen.propose(memory, at, layer.source, self._fact)
        match proposal:
            case (Moments() as used, Mapping() as after):
                pass
            case _:  # without this check, the network would seem to be at fault
                raise TypeError(
                    f"`{type(chosen).__name__}.propose` must return a tuple of `Moments` and a "
                    f"dictionary (the layer's memory), got {_kind(proposal)}."
                )
        if after is not memory:
            self.proposed[name] = after
        self.used.setdefault(name, []).append(used)
        return used

    def _observe(self, chosen: Statistics, memory: Mapping[str, Any], at: Measured) -> None:
        """What a choice of statistics learns for all its layers, from the first of them."""
        before = self.shared(chosen)
        self._seen[chosen], after = chosen.observe(before, memory, at)
        if after is not before:
            told = {**self.proposed.get(SHARED, self.layers.get(SHARED, {}))}
            self.proposed[SHARED] = {**told, readable(chosen): after}

    def again(self, name: str) -> Moments | None:
        """What normalised this call of the layer in the pass that is repeated."""
        used = self._replay.get(name)
        return None if used is None else next(used, None)

    def outcome(self) -> Mapping[str, Any]:
        """The layers' memories after the pass."""
        return {**self.layers, **self.proposed} if self.proposed else self.layers


def _kind(value: object) -> str:
    """The type of a value, with those inside a plain tuple."""
    if type(value) is not tuple:
        return f"`{type(value).__name__}`"
    return f"a tuple of {', '.join(map(_kind, value))}"


class Stage:
    """Where the layers of one network find the current pass; ``None`` between passes."""

    def __init__(self) -> None:
        self.now: Pass | None = None

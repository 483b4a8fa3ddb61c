"""Data for networks that are given, not trained for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import nn

from driftnorm.bench.cell import NetworkId
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.stream_data import StreamData


@dataclass(frozen=True)
class GivenNetworks(StreamData):
    """Images for given networks. Subclasses are frozen dataclasses.

    Attributes:
        data: A path or a word.
        models: The networks.
    """

    data: str
    models: tuple[MeasuredNetwork, ...]

    @cached_property
    def _networks(self) -> dict[NetworkId, MeasuredNetwork]:
        opened = [replace(model, shown=self.image_shape[1:]) for model in self.models]
        for each in opened:
            each.check_classes(self.data_id.label, self.classes)
        return {each.id: each for each in opened}

    @property
    def networks(self) -> Sequence[NetworkId]:
        """The given ones."""
        return [*self._networks]

    def network(self, known: NetworkId, seed: int) -> nn.Module:
        """The same for every seed."""
        return self._networks[known].network(known)

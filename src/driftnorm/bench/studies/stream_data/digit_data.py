"""The embedded digits, with a network that is trained on half of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.arguments import check_choice, check_whole
from driftnorm._internal.types import Integers
from driftnorm.bench.cell import CLEAN, DataId, NetworkId
from driftnorm.bench.runner import Task
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS, SEVERITIES
from driftnorm.bench.studies.digits import (
    load_network,
    network_file,
    normalized_digits,
    shifted,
    trainings,
)
from driftnorm.bench.studies.stream_data.stream_data import (
    CLEAN_DOMAIN,
    SOURCE_IMAGES,
    Pictures,
    StreamData,
)
from driftnorm.images.embedded_digits import split_digits
from driftnorm.streams import Domain


@dataclass(frozen=True)
class DigitData(StreamData):
    """The half of the digits that a seed's network was not trained on, shifted.

    Attributes:
        folder: Where the trained networks are stored.
        corruptions: Shifts in the order of the course; ``clean`` means the digits as they are.
        severity: Of all shifts, 1 to 3; a gradual stream rises to it.
    """

    folder: Path
    corruptions: tuple[str, ...] = tuple(DIGIT_SHIFTS)
    severity: int = SEVERITIES[-1]

    def __post_init__(self) -> None:
        check_whole("severity", self.severity, SEVERITIES[0], SEVERITIES[-1])
        if not self.corruptions:
            raise ValueError("`corruptions` must name at least one; `clean` is one.")
        for name in self.corruptions:
            check_choice("corruptions", name, (CLEAN, *DIGIT_SHIFTS))

    @property
    def data_id(self) -> DataId:
        """As the demo calls them."""
        return DataId("digits")

    @property
    def classes(self) -> Sequence[str]:
        """0 to 9."""
        return [str(digit) for digit in range(10)]

    @property
    def domains(self) -> list[Domain]:
        """Shifts at the one severity."""
        return [
            CLEAN_DOMAIN if name == CLEAN else Domain(name, self.severity)
            for name in self.corruptions
        ]

    def has_clean(self) -> bool:
        """Always."""
        return True

    def labels(self, domain: Domain, seed: int) -> Integers:
        """Those of the seed's split."""
        return np.asarray(split_digits(seed)[1].labels.numpy())

    def images(self, domain: Domain, seed: int, chosen: Integers) -> Pictures:
        """Numbers in [0, 1], as the demo shifts them."""
        images = shifted(split_digits(seed)[1], [self.shift(domain)], seed)
        return np.asarray(images[torch.from_numpy(chosen)].permute(0, 2, 3, 1).numpy())

    def inputs(self, images: NDArray[Any]) -> Tensor:
        """Normalised."""
        return normalized_digits(torch.from_numpy(images).permute(0, 3, 1, 2))

    @property
    def has_source(self) -> bool:
        """They were split off."""
        return True

    def source_images(self, seed: int) -> Pictures:
        """Some that the network was trained on."""
        images = split_digits(seed)[0].images[:SOURCE_IMAGES]
        return np.asarray(images.permute(0, 2, 3, 1).numpy())

    @property
    def networks(self) -> Sequence[NetworkId]:
        """One by name; each seed trains its own."""
        return [NetworkId("digit-cnn")]

    def network(self, known: NetworkId, seed: int) -> nn.Module:
        """That of the seed's split."""
        return load_network(network_file(self.folder, seed))

    def preparations(self, seeds: Sequence[int]) -> list[Task]:
        """Trainings."""
        return trainings(self.folder, seeds)

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Small and grey."""
        return 1, 8, 8

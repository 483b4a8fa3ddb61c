"""Folders of domains: each domain has its own images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Integers
from driftnorm.bench.cell import CLEAN, DataId
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.given_networks import GivenNetworks
from driftnorm.bench.studies.stream_data.stream_data import Pictures
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.named import open_arrays
from driftnorm.images.image_set import ImageSet, spread_positions
from driftnorm.streams import Domain


@dataclass(frozen=True)
class DomainData(GivenNetworks):
    """Images of several domains with the same classes.

    Of a domain on which one of the networks was trained, only the images that were held out.

    Attributes:
        data: As `open_arrays` takes it.
        models: The networks, which must take images of one size.
        names: The domains in the order of the course; all in the data's order if empty.
        limit: At most this many images of each domain, at even distances.
        cache: Folder of decoded images.
    """

    names: tuple[str, ...] = ()
    limit: int | None = None
    cache: str | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            check_whole("limit", self.limit)

    @cached_property
    def _arrays(self) -> DomainArrays:
        sides = {model.opened.preprocessing.size for model in self.models}
        if len(sides) > 1:
            raise ValueError(
                f"`models` must take images of one size, got {' and '.join(map(str, sides))}: "
                "measure them one after the other."
            )
        return open_arrays(self.data, sides.pop(), self.cache)

    def _domain(self, domain: Domain) -> ImageSet:
        return self._arrays.domains[self._arrays.index(domain.name)]

    def _positions(self, domain: Domain) -> Integers:
        own = self._unseen(domain)
        limit = None if self.limit is None else min(self.limit, len(own))
        return own[spread_positions(domain.name, len(own), limit)]

    def _unseen(self, domain: Domain) -> Integers:
        """The images of a domain that no network was trained on."""
        place = self._arrays.index(domain.name)
        unseen = np.arange(len(self._arrays.domains[place]))
        for model in self._trained_here:
            if domain.name in model.opened.facts["trained_on"]:
                trial = model.opened.facts["training"]["trial_seed"]
                unseen = np.intersect1d(unseen, self._arrays.splits(trial)[place].out)
        return unseen

    @cached_property
    def _trained_here(self) -> list[MeasuredNetwork]:
        """The networks that were trained on domains of these data."""
        here = self._arrays.content
        known = [model for model in self.models if "trained_on" in model.opened.facts]
        return [model for model in known if model.opened.facts["content"] == here]

    @property
    def data_id(self) -> DataId:
        """With what was left out, if these are not all images."""
        held_out = "held out of training" if self._trained_here else ""
        some = "" if self.limit is None else f"{self.limit} of each domain"
        return DataId(self._arrays.name, subset=", ".join(filter(None, (held_out, some))))

    @property
    def classes(self) -> Sequence[str]:
        """Name of each class."""
        return self._arrays.classes

    @property
    def domains(self) -> list[Domain]:
        """Domains, without a severity."""
        arrays = self._arrays
        names = self.names or tuple(domain.name for domain in arrays.domains)
        return [Domain(arrays.domains[arrays.index(name)].name) for name in names]

    def has_clean(self) -> bool:
        """Only if a domain has that name."""
        return CLEAN in [domain.name for domain in self._arrays.domains]

    def labels(self, domain: Domain, seed: int) -> Integers:
        """Of the domain's own images."""
        return self._domain(domain).labels[self._positions(domain)]

    def images(self, domain: Domain, seed: int, chosen: Integers) -> Pictures:
        """As they are stored."""
        return np.asarray(self._domain(domain).images[self._positions(domain)[chosen]])

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """The size that the networks take."""
        return self._arrays.image_shape

    @property
    def note(self) -> str:
        """How the data differ from the published set."""
        return self._arrays.note

"""The user's images in an order shuffled with a seed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from driftnorm._internal.arguments import check_whole
from driftnorm.images.contents import Raw
from driftnorm.images.folders import changed_file
from driftnorm.images.stream import Inputs, Survey


class Shuffled(Inputs):
    """Inputs in another order, which depends only on the seed and the number of images.

    File names are held in memory; the images of an array are not.

    Args:
        inputs: The images in their own order; each must be readable by its position.
        seed: Seed of the order.
    """

    order: Sequence[int]

    def __init__(self, inputs: Inputs, seed: int = 0) -> None:
        super().__init__(inputs.path)
        check_whole("--shuffle", seed, 0)
        self._inputs, self._images, self.seed = inputs, inputs.by_position(), seed
        self.order = np.random.default_rng(seed).permutation(len(self._images)).tolist()

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The undecoded images, starting at a position of the new order."""
        return (self._images[place] for place in islice(self.order, starting_at, None))

    def survey(self) -> Survey:
        """That of the images themselves."""
        return Survey(len(self.order), self._inputs.survey().left_out)

    def own_labels(self) -> Mapping[str, str]:
        """Those of the images themselves: labels are looked up by name."""
        return self._inputs.own_labels()

    def changed_since(self, moment: float, count: int) -> str | None:
        """Which of the first ``count`` images, in the new order, was changed after this time."""
        files = self._inputs.changed_since(moment, 0)
        return files or changed_file(self.raw(), moment, count)

    def fingerprint(self) -> str:
        """Changes if the order is of other images: their names, or their number."""
        digest = hashlib.sha256(f"{self.seed} {len(self.order)}".encode())
        if isinstance(self._images, list):
            for name, _ in self._images:
                digest.update(f"\n{name}".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()[:12]

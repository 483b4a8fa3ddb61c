"""Batches of the user's images: just those that adapting would see, spread over the whole data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

import torch

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.counts import counted
from driftnorm.diagnosis.trial import Batch
from driftnorm.images import Inputs, Item, Labels, Survey, as_batch, in_batches
from driftnorm.images.contents import Raw
from driftnorm.models import Preprocessing


class SampledBatches:
    """Whole batches of consecutive images, taken at even distances from all that there are.

    Consecutive, because that is how they would be adapted to: a stream that is ordered by class
    shows it. From all over, because the first images may be of one class or of one day.

    Args:
        inputs: The images.
        preprocessing: How they become the network's input.
        labels: Their true classes, if known.
        batch_size: Images per batch; an unreadable one leaves its place empty.
        limit: At most this many images, rounded down to whole batches; None takes all.

    Attributes:
        total: How many batches; None where only reading them all would tell.
        unreadable: Names of images that could not be read, with the reasons, so far.
        folders: The folder of each image in the batches so far; none for images without names.
    """

    def __init__(
        self,
        inputs: Inputs,
        preprocessing: Preprocessing,
        labels: Labels | None = None,
        *,
        batch_size: int = 64,
        limit: int | None = 1280,
    ) -> None:
        check_whole("batch_size", batch_size)
        if limit is not None and limit < batch_size:
            raise ValueError(
                f"`limit` must allow for one batch of {counted(batch_size, 'image')}, got {limit}: "
                "give more, or a smaller `batch_size`."
            )
        self._wanted, self._labels, self._batch_size = preprocessing, labels, batch_size
        self._inputs = inputs
        self._numbers: list[int] | None = None
        images = inputs.survey().images
        self.total = None if images is None else -(-images // batch_size)
        if limit is not None:
            most = limit // batch_size
            # Where the number of images is unknown, take the first ones.
            there = most if self.total is None else self.total
            self.total = min(most, there)
            self._numbers = [i * there // self.total for i in range(self.total)]
            self._inputs = _Chosen(inputs, batch_size, self._numbers)
        self.unreadable: list[tuple[str, str]] = []
        self.folders: list[str] = []

    def __iter__(self) -> Iterator[Batch]:
        """Images (N, 3, H, W) in [0, 1], and their classes (-1 where unknown) or None."""
        self.unreadable = []
        self.folders.clear()
        stream = self._inputs.stream(self._wanted, ahead=self._batch_size)
        with closing(stream) as items:
            batches: Iterator[tuple[int, list[Item]]]
            if self._numbers is None:
                batches = enumerate(in_batches(items, self._batch_size))
            else:  # a rest would not be what follows the batch before it
                parts = iter(lambda: [*islice(items, self._batch_size)], [])
                batches = zip(self._numbers, parts, strict=False)
            for number, taken in batches:
                batch = self._gathered(number, taken)
                if batch is not None:
                    yield batch

    def _gathered(self, number: int, items: Sequence[Item]) -> Batch | None:
        images, classes = [], []
        for place, (name, pixels, error, _) in enumerate(items):
            if pixels is None:
                self.unreadable.append((name, error))
                continue
            images.append(pixels)
            folder, slash, _ = name.rpartition("/")
            self.folders += [folder] * bool(slash)
            if self._labels is not None:
                label = self._labels.of(name, number * self._batch_size + place)
                classes.append(-1 if label is None else label)
        if not images:
            return None
        truth = None if self._labels is None else torch.tensor(classes, dtype=torch.int64)
        return as_batch(images), truth


class _Chosen(Inputs):
    """Some batches of other inputs."""

    def __init__(self, inputs: Inputs, batch_size: int, numbers: Sequence[int]) -> None:
        super().__init__(inputs.path)
        self._inputs, self._batch_size, self._numbers = inputs, batch_size, numbers

    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        return islice(self._raw(), starting_at, None)

    def survey(self) -> Survey:
        return Survey(self._batch_size * len(self._numbers))

    def _raw(self) -> Iterator[Raw]:
        wanted, last = set(self._numbers), self._numbers[-1]
        for position, item in enumerate(self._inputs.raw()):
            number = position // self._batch_size
            if number > last:
                return
            if number in wanted:
                yield item

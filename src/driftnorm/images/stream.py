"""One ordered stream of decoded images from any source, decoded ahead in a few threads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from driftnorm._internal.processes import available_cores
from driftnorm.errors import DataError
from driftnorm.images.contents import Content, Pixels, Raw, Unreadable
from driftnorm.images.decoder import decoded, described
from driftnorm.models.normalized import Preprocessing

MOST_THREADS = 8
TOGETHER = 8  # images per task: submitting a task costs as much as decoding a small image


class Item(NamedTuple):
    """One image: its pixels, or why there are none, and whether more are lost with it."""

    name: str
    pixels: Pixels | None
    error: str = ""
    and_more: bool = False


class Survey(NamedTuple):
    """What there is.

    Attributes:
        images: How many; None if only reading everything would tell.
        left_out: Files that do not have the extension of a picture.
    """

    images: int | None
    left_out: int = 0


class Inputs(ABC):
    """Images in a fixed order, re-readable, in memory that does not grow with their number.

    Attributes:
        path: Where they are.
        order: The position of each image in the data, if the order is not that of the data.
    """

    order: Sequence[int] | None = None

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def raw(self, starting_at: int = 0) -> Iterator[Raw]:
        """The undecoded images, starting at a position."""

    @abstractmethod
    def survey(self) -> Survey:
        """Count them, without opening them."""

    def by_position(self) -> Sequence[Raw]:
        """The undecoded images by position; only their locations are held in memory.

        Raises:
            DataError: They can only be read in their own order.
        """
        raise DataError(
            f"{self.path} can only be read from its beginning to its end, so it cannot be "
            "shuffled: unpack it, or save an array without compression."
        )

    def own_labels(self) -> Mapping[str, str]:
        """Classes that come with the data, by the image's name: names or numbers."""
        return {}

    def name_at(self, position: int) -> str | None:
        """The name of the image at a position; None beyond the end."""
        found = next(iter(self.raw(position)), None)
        return None if found is None else found.name

    def changed_since(self, moment: float, count: int) -> str | None:
        """Which of the first ``count`` images was changed after this time (seconds), if any."""
        return str(self.path) if last_change(self.path) > moment else None

    def stream(
        self, wanted: Preprocessing, *, starting_at: int = 0, ahead: int = 64
    ) -> Generator[Item, None, None]:
        """The decoded images, in order; those that cannot be decoded carry an error.

        Args:
            wanted: Size and resampling.
            starting_at: Position of the first one.
            ahead: This many are decoded ahead, plus one task.
        """
        waiting: deque[Future[list[Item]]] = deque()
        threads = max(2, min(MOST_THREADS, available_cores()))
        pool = ThreadPoolExecutor(threads, thread_name_prefix="driftnorm-decode")
        raw, together = self.raw(starting_at), max(1, min(TOGETHER, ahead))
        try:
            while few := [*islice(raw, together)]:
                waiting.append(pool.submit(_items, few, wanted))
                if len(waiting) * together > ahead:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def in_batches(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Batches of ``size``; a remainder of less than half of it joins the last batch.

    Averages over batches weigh each batch equally, so a tiny last batch would count too much.

    >>> [len(batch) for batch in in_batches(iter([Item("", None)] * 9), 4)]
    [4, 5]
    """
    batch = [*islice(items, size)]
    while batch:
        following = [*islice(items, size)]
        if 2 * len(following) < size:
            batch, following = batch + following, []
        yield batch
        batch = following


def last_change(file: Path) -> float:
    """When a file was last changed or moved into place; 0 if it does not exist."""
    try:
        about = file.stat()
    except OSError:
        return 0.0
    # The modification time is whatever its owner sets, even the future. The status-change time
    # follows every change, but on Windows it is the creation time.
    return about.st_mtime if os.name == "nt" else about.st_ctime


def _items(few: list[Raw], wanted: Preprocessing) -> list[Item]:
    return [_item(name, content, wanted) for name, content in few]


def _item(name: str, content: Content, wanted: Preprocessing) -> Item:
    try:
        return Item(name, decoded(content, wanted))
    except Exception as error:  # a damaged picture can make its decoder fail in any way
        lost = isinstance(content, Unreadable) and content.and_more
        return Item(name, None, described(error), lost)

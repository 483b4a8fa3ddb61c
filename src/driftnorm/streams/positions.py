"""The positions of a stream: which image of which domain comes when, as arrays and as a file."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from driftnorm._internal.files import write_atomically
from driftnorm._internal.types import Integers
from driftnorm.errors import DataError
from driftnorm.streams.kind import Domain
from driftnorm.streams.timeline import Timeline, shares_in_windows, window_starts

ARRAYS = ("image", "label", "domain", "segment", "visit")


@dataclass(frozen=True, eq=False)
class Positions:
    """What a stream shows, one entry per position in each array.

    Attributes:
        stream: The stream as text, with every parameter.
        domains: Those that it was made from, each once.
        image: Index of the image among those of its domain.
        label: Its class.
        domain: Index of its domain in `domains`.
        segment: Which part of the course it is in.
        visit: How many earlier segments showed its domain.
    """

    stream: str
    domains: tuple[Domain, ...]
    image: Integers
    label: Integers
    domain: Integers
    segment: Integers
    visit: Integers

    def __len__(self) -> int:
        return len(self.image)

    def segments(self) -> list[tuple[int, tuple[int, ...]]]:
        """Where each part of the course begins, and the indices of its domains."""
        starts = np.flatnonzero(np.diff(self.segment, prepend=-1)).tolist()
        ends = [*starts[1:], len(self)]
        pairs = zip(starts, ends, strict=True)
        return [(start, tuple(np.unique(self.domain[start:end]).tolist())) for start, end in pairs]

    def timeline(self, window: int = 1000, *, by_segment: bool = False) -> Timeline:
        """What comes when, as data for a plot.

        Args:
            window: Positions per window; see `window_starts`.
            by_segment: Whether windows begin anew with each part of the course, so that none holds
                images of two.
        """
        begins = [start for start, _ in self.segments()] if by_segment else [0]
        ends = [*begins[1:], len(self)]
        starts = np.concatenate(
            [
                begin + window_starts(end - begin, window)
                for begin, end in zip(begins, ends, strict=True)
            ]
        )
        domains = shares_in_windows(self.domain, len(self.domains), starts)
        classes = shares_in_windows(self.label, int(self.label.max()) + 1, starts)
        severities = np.array([domain.severity for domain in self.domains], dtype=np.float64)
        return Timeline(starts, domains, classes, domains @ severities)

    def save(self, path: str | Path) -> None:
        """Write an npz file, which any code can read with `numpy.load`.

        It holds the arrays by their names, ``stream``, ``domains`` (names) and ``severities``.
        """
        path, content = Path(path), io.BytesIO()
        np.savez_compressed(
            content,
            stream=np.array(self.stream),
            domains=np.array([domain.name for domain in self.domains]),
            severities=np.array([domain.severity for domain in self.domains], dtype=np.int64),
            **{name: getattr(self, name) for name in ARRAYS},
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content.getvalue())


def load_positions(path: str | Path) -> Positions:
    """Read what `Positions.save` wrote."""
    try:
        with np.load(path, allow_pickle=False) as found:
            names, severities = found["domains"].tolist(), found["severities"].tolist()
            return Positions(
                str(found["stream"]),
                tuple(Domain(*pair) for pair in zip(names, severities, strict=True)),
                **{name: found[name].astype(np.int64, casting="safe") for name in ARRAYS},
            )
    except (KeyError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} does not hold the positions of a stream ({error}): it must be a file that "
            "`Positions.save` wrote."
        ) from error

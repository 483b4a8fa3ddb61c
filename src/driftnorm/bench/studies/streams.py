"""Method x stream x network x seed: streams that change, every cell one row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from driftnorm._internal.arguments import check_whole
from driftnorm._internal.types import Integers
from driftnorm.adapter import Adapter
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter.guard import Policy
from driftnorm.bench.cell import Cell, Protocol, StreamId
from driftnorm.bench.metrics import Bools, Floats
from driftnorm.bench.runner import Opened, Study, Task
from driftnorm.bench.samples import Look
from driftnorm.bench.stream_scores import Events
from driftnorm.bench.studies.corruption_checks import check_several
from driftnorm.bench.studies.measured_method import check_fit, method_id, spec_of
from driftnorm.bench.studies.stream_data.stream_data import CLEAN_DOMAIN, Pictures, StreamData
from driftnorm.bench.windows import WINDOW, stream_score
from driftnorm.methods.spec import MethodSpec
from driftnorm.parts.statistics import counted_jumps
from driftnorm.streams import Domain, Positions, Steady, Stream, mean_run, order_index

_FITTED = 64  # images per batch that a method sees before the stream


@dataclass(frozen=True)
class StreamStudy(Study):
    """What is measured on which streams.

    An adapter is never reset within a stream. A steady stream has one domain: several domains make
    several streams, and the adapter starts again for each.

    Attributes:
        data: Images in domains, and the networks.
        streams: Their own seeds are not used.
        methods: Each with its options.
        batch_size: Images per batch.
        seeds: Of the streams, and of noise that is drawn.
        window: Images per window of the rows' metrics.
        guard: Off by default: the papers' methods have none.
        device: Where the networks run.
        name: Of the study, for the rows.
    """

    data: StreamData
    streams: tuple[Stream, ...]
    methods: tuple[MethodSpec, ...]
    batch_size: int = 64
    seeds: tuple[int, ...] = (0,)
    window: int = WINDOW
    guard: Policy = "off"
    device: str = "cpu"
    name: str = "streams"

    def __post_init__(self) -> None:
        for name in ("streams", "methods"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` must hold at least one.")
        check_several("seeds", self.seeds, 0)
        check_whole("batch_size", self.batch_size)
        check_whole("window", self.window)

    def cells(self) -> list[Cell]:
        """Every measurement, those of one stream next to each other.

        Raises:
            ValueError: A stream cannot be made of the data, or a network is not for them.
        """
        if not self.data.has_source:
            check_fit(self.methods, ", or give corrupted data and `--source-data`")
        known = [(network, stream) for network in self.data.networks for stream in self._stream_ids]
        methods = [method_id(method) for method in self.methods]
        predict = {method: spec_of(method).recipe.predict for method in methods}
        return [
            Cell(
                self.name,
                network,
                stream,
                method,
                Protocol(
                    self.batch_size,
                    reset="per shift" if stream.order.startswith(Steady.name) else "never",
                    predict=predict[method],
                    guard=self.guard,
                ),
            )
            for network, stream in known
            for method in methods
        ]

    @cached_property
    def _stream_ids(self) -> list[StreamId]:
        found = []
        for seed in self.seeds:
            for stream in (replace(each, seed=seed) for each in self.streams):
                for domains in self.data.domains_of(stream.course):
                    shifts = tuple(map(self.data.shift, domains))
                    found.append(
                        StreamId(
                            self.data.data_id,
                            () if domains == [CLEAN_DOMAIN] else shifts,
                            count=len(self._made(stream, domains)),
                            order=stream.kind,
                            seed=seed,
                            settings=stream.settings,
                        )
                    )
        return found

    def _made(self, stream: Stream, domains: Iterable[Domain]) -> Positions:
        listed = [*domains]
        return stream.positions({d: self.data.labels(d, stream.seed) for d in listed}, listed)

    def positions(self, stream: StreamId) -> Positions:
        """What a cell's stream shows."""
        domains = [Domain(shift.name, shift.severity) for shift in stream.shifts]
        known = Stream.of(stream.order, stream.settings, stream.seed)
        return self._made(known, domains or [CLEAN_DOMAIN])

    def preparations(self, missing: Sequence[Cell]) -> Sequence[Task]:
        """What the data need."""
        return self.data.preparations(sorted({cell.stream.seed for cell in missing}))

    def open(self, cell: Cell, scratch: Path) -> Opened:
        """The network, and the images that the stream shows in a file of `scratch`."""
        data, seed = self.data, cell.stream.seed
        positions = self.positions(cell.stream)
        images, place = self._shown(positions, seed, scratch)
        size, source = cell.protocol.batch_size, data.source_images(seed)

        def batches() -> Iterator[tuple[Tensor, Tensor]]:
            for begin in range(0, len(positions), size):
                part = slice(begin, begin + size)
                labels = torch.from_numpy(positions.label[part])
                yield data.inputs(images[place[part]]).to(self.device), labels

        def look(at: int) -> Look:
            domain = positions.domains[positions.domain[at]].name
            pixels = np.clip(images[place[at]], 0, None if images.dtype == np.uint8 else 1)
            return Look(f"{domain} {positions.image[at]}", int(positions.label[at]), pixels)

        return Opened(
            data.network(cell.network, seed).to(self.device),
            batches,
            data.classes,
            look,
            {"note": data.note} if data.note else {},
            further=partial(_further, positions, self.window),
            fit=None if source is None else partial(self._fitted, source),
        )

    def _fitted(self, source: Pictures) -> Iterator[Tensor]:
        for begin in range(0, len(source), _FITTED):
            part = np.array(source[begin : begin + _FITTED])
            yield self.data.inputs(part).to(self.device)

    def _shown(
        self, positions: Positions, seed: int, scratch: Path
    ) -> tuple[NDArray[Any], Integers]:
        """Each pair of image and domain once, and which of them comes when."""
        place = np.empty(len(positions), dtype=np.int64)
        wanted, total = [], 0
        for index in range(len(positions.domains)):
            here = positions.domain == index
            chosen, own = np.unique(positions.image[here], return_inverse=True)
            place[here] = total + own
            wanted.append(chosen)
            total += len(chosen)
        shown: NDArray[Any] | None = None
        begin = 0
        for domain, chosen in zip(positions.domains, wanted, strict=True):
            images = self.data.images(domain, seed, chosen)
            if shown is None:  # a file, since all domains together may be larger than memory
                shape = (total, *images.shape[1:])
                file = scratch / "images.npy"
                shown = np.lib.format.open_memmap(file, "w+", images.dtype, shape)
            shown[begin : begin + len(chosen)] = images
            begin += len(chosen)
        assert shown is not None  # a stream has a domain
        return shown, place

    def sample(self, cell: Cell) -> tuple[nn.Module, Tensor]:
        """The network and noise of the images' size."""
        noise = torch.rand(cell.protocol.batch_size, *self.data.image_shape)
        network = self.data.network(cell.network, cell.stream.seed)
        return network.to(self.device), noise.to(self.device)


def _further(
    positions: Positions,
    window: int,
    adapter: Adapter,
    correct: Bools,
    confidence: Floats,
    events: Events,
) -> Mapping[str, object]:
    """Metrics over time, what came when, what happened, and what it cost."""
    score = stream_score(
        correct,
        confidence,
        positions.label,
        positions.domain,
        positions.visit,
        events=events,
        window=window,
    ).record()
    del score["error"], score["ece"]  # which every row has
    assert isinstance(adapter, RecipeAdapter)
    cost = adapter.recipe.cost
    return {
        **score,
        "domains": [[*domain] for domain in positions.domains],
        "segments": [[start, [*domains]] for start, domains in positions.segments()],
        "order_index": round(order_index(positions.label), 4),
        "mean_run": round(mean_run(positions.label), 4),
        "passes": [cost.forwards, cost.backwards],
        "jumps": counted_jumps(adapter.state.get("layers", {})),
        **({"alarms_at": [*events["alarms"]]} if events["alarms"] else {}),
    }

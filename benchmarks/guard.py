"""What the guard saves and costs, on streams of every kind: digits and CIFAR-10-C.

    python benchmarks/guard.py --data digits
    python benchmarks/guard.py --data cifar --cifar FOLDER --weights FILE
    python benchmarks/guard_segmentation.py
    python benchmarks/guard_page.py

The default thresholds were chosen on other corruptions of CIFAR-10 and CIFAR-100. Resumable; rows
go to docs/rows/guard-DATA.jsonl, with what the page needs of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from driftnorm.adapter.guard import Policy
from driftnorm.bench.rows import Row, RowStore, load_rows, save_rows
from driftnorm.bench.runner import run, summary
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.corrupted_data import CorruptedData
from driftnorm.bench.studies.stream_data.digit_data import DigitData
from driftnorm.bench.studies.stream_data.stream_data import StreamData
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.methods.spec import parse_method
from driftnorm.streams import parse_stream

METHODS = {
    "digits": ("bn-prior", "tent", "tent:lr=0.3", "gprebn:lr=0.001"),
    "cifar": ("bn-prior", "tent", "gprebn:lr=0.001"),
}
STREAMS = {
    "digits": (
        *("steady:part=450", "steady:part=450+sorted", "continual:part=300", "mixed:part=300"),
        *("continual:part=300+dirichlet-slots", "recurring:part=100,rounds=3"),
    ),
    "cifar": (
        *("steady:part=300", "steady:part=300+sorted", "continual:part=200", "mixed:part=150"),
        *("continual:part=200+dirichlet-slots", "recurring:part=50,rounds=3", "gradual:part=25"),
    ),
}
SEEDS = {"digits": (0, 1, 2), "cifar": (0,)}
BATCH_SIZES = (64, 8, 4, 1)
POLICIES: tuple[Policy, ...] = ("warn", "reset", "freeze")
"""``warn`` answers as if there were no guard."""
CIFAR_IMAGES = 800
KEPT = ("error", "count", "alarms", "alarms_at", "asked", "resets")
"""The metrics of a row that are committed: without predictions, which nobody compares."""


def shown(name: str, given: argparse.Namespace) -> StreamData:
    """Clean images first, then the shifts."""
    if name == "digits":
        return DigitData(given.folder / "digit-networks", ("clean", "noise", "contrast"), 1)
    names = ("clean", "gaussian_noise", "contrast", "impulse_noise", "pixelate")
    network = MeasuredNetwork("resnet20", str(given.weights))
    return CorruptedData(str(given.cifar), (network,), names, 5, limit=CIFAR_IMAGES)


def studies(name: str, given: argparse.Namespace) -> Iterator[StreamStudy]:
    """Every batch size under every policy; the source once."""
    streams = tuple(map(parse_stream, STREAMS[name]))
    methods = tuple(map(parse_method, METHODS[name]))
    data = shown(name, given)
    for size in BATCH_SIZES:
        study = StreamStudy(data, streams, methods, size, SEEDS[name], window=100, name="guard")
        yield replace(study, methods=(parse_method("source"),))
        for policy in POLICIES:
            yield replace(study, guard=policy)


def slim(row: Row) -> Row:
    """With the metrics that are committed."""
    return replace(row, metrics={name: row.metrics[name] for name in KEPT if name in row.metrics})


def measure(name: str, given: argparse.Namespace) -> None:
    """What is missing; earlier rows are kept."""
    file, store = Path(f"docs/rows/guard-{name}.jsonl"), RowStore(given.folder / name)
    for row in load_rows(file) if file.exists() else ():
        store.write(row)
    begun = time.perf_counter()
    for study in studies(name, given):
        for result in run(study, store):
            print(f"{time.perf_counter() - begun:6.0f} s  {summary(result)}", flush=True)
        save_rows(map(slim, store.rows()), file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", choices=[*STREAMS], default=["digits"])
    parser.add_argument("--cifar", type=Path, help="folder of CIFAR-10's official files")
    parser.add_argument("--weights", type=Path, help="weights of a CIFAR-10 ResNet-20")
    parser.add_argument("--folder", type=Path, default=Path("runs/guard"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.data:
        measure(name, given)


if __name__ == "__main__":
    main()

"""One default for streams of which nothing is known: `steady` against the others, held out.

    python benchmarks/one_default.py run --cifar FOLDER --cifar100 FILE --weights FOLDER
    python benchmarks/one_default.py run ... --stage cifar10-resnet20-batch8

THE SPLIT. It stood in this file before anything held out was run.

Development, on which the constants of `steady` and of the window statistics were chosen: test
images 0 to 1999 of CIFAR-10 and CIFAR-100, ResNet-20, `DEVELOPMENT` below.

Held out: test images 4000 to 9999 of both sets, `HELD_OUT` below at severity 5, ResNet-20 and
ResNet-56. No constant may be chosen on these rows; a change of a default after a look at them needs
another split.

Of the held-out grid, which `FULL` lists, `STAGES` says what is run by default, in this order. Every
stage is resumable; rows are kept in docs/rows/one-default-STAGE.jsonl.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from driftnorm.bench.rows import Row, RowStore, load_rows, save_rows
from driftnorm.bench.runner import run, summary
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.corrupted import CorruptedData
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.methods.spec import parse_method
from driftnorm.streams import parse_stream

DEVELOPMENT = ("speckle_noise", "spatter", "saturate", "gaussian_blur", "contrast")
HELD_OUT = (
    *("gaussian_noise", "impulse_noise", "glass_blur", "motion_blur", "snow"),
    *("fog", "elastic_transform", "jpeg_compression", "pixelate", "brightness"),
)
FIRST_IMAGE, SEVERITY = 4000, 5
METHODS = (
    *("source", "bn", "bn-prior", "bn-window", "tent", "gprebn", "eata", "sar", "cotta", "rdumb"),
    "steady",
)
SINGLE = ("source", "bn-prior", "bn-window", "steady")
"""Those that mean something at one image per batch."""
FULL = {
    "networks": ("resnet20", "resnet56"),
    "data": ("cifar10", "cifar100"),
    "streams": (
        *("continual", "probes", "gradual", "mixed", "recurring:rounds=5"),
        *("continual+sorted", "continual+dirichlet-slots"),
    ),
    "clean": ("steady", "steady+sorted"),
    "batch sizes": (1, 8, 64),
    "seeds": (0, 1, 2),
}


class Stage(NamedTuple):
    """A part of the held-out grid.

    Attributes:
        data: Which images.
        network: Which network.
        batch_size: Images per batch.
        streams: On the corruptions.
        clean: On the clean images.
        corruptions: Some of `HELD_OUT`.
        methods: Which.
        seeds: Of the streams.
        window: Images per window.
    """

    data: str
    network: str
    batch_size: int
    streams: tuple[str, ...]
    clean: tuple[str, ...]
    corruptions: tuple[str, ...]
    methods: tuple[str, ...] = METHODS
    seeds: tuple[int, ...] = (0,)
    window: int = 150


SOME = ("gaussian_noise", "motion_blur", "fog", "jpeg_compression", "impulse_noise", "brightness")
_SHORT = (
    *("continual:part=150", "probes:part=75", "mixed:part=150"),
    *("continual:part=150+sorted", "continual:part=150+dirichlet-slots"),
)
_CLEAN = ("steady:part=600", "steady:part=600+sorted")
_GRADUAL = "gradual:part=25"
_RECURRING = "recurring:part=50,rounds=5"
# cotta takes eleven forward passes and a backward one per batch: at 8 images it would take longer
# than all others together.
_QUICK = tuple(name for name in METHODS if name != "cotta")

STAGES = {
    "cifar10-resnet20-batch64": Stage(
        *("cifar10", "resnet20", 64, (*_SHORT, _GRADUAL, _RECURRING), _CLEAN, SOME)
    ),
    "cifar10-resnet20-batch8": Stage(
        *("cifar10", "resnet20", 8, (*_SHORT, _GRADUAL, _RECURRING), _CLEAN, SOME, _QUICK)
    ),
    "cifar100-resnet20-batch64": Stage(
        "cifar100", "resnet20", 64, (*_SHORT, _GRADUAL, _RECURRING), _CLEAN, SOME
    ),
    "cifar100-resnet20-batch8": Stage("cifar100", "resnet20", 8, _SHORT, _CLEAN, SOME, _QUICK),
    "cifar10-resnet20-batch1": Stage(
        "cifar10", "resnet20", 1, ("continual:part=75",), _CLEAN[1:], SOME, SINGLE
    ),
    "cifar10-resnet56-batch64": Stage("cifar10", "resnet56", 64, _SHORT, _CLEAN, SOME, _QUICK),
}


def studies(stage: Stage, cifar: Path, cifar100: Path, weights: Path) -> list[StreamStudy]:
    """A study on the corruptions, and one on the clean images."""
    data = cifar if stage.data == "cifar10" else cifar100
    network = MeasuredNetwork(
        stage.network, str(weights / f"{stage.data}-{stage.network}.safetensors")
    )
    made = []
    for corruptions, streams in ((stage.corruptions, stage.streams), (("clean",), stage.clean)):
        held_out = CorruptedData(
            str(data),
            (network,),
            corruptions,
            SEVERITY,
            FIRST_IMAGE,
            # Methods that must see the source first see training images; of CIFAR-100 the first
            # test images, which are not held out.
            source=str(data),
        )
        made.append(
            StreamStudy(
                held_out,
                tuple(map(parse_stream, streams)),
                tuple(map(parse_method, stage.methods)),
                stage.batch_size,
                stage.seeds,
                stage.window,
                name="one-default",
            )
        )
    return made


def rows_file(stage: str) -> Path:
    """Where the rows of a stage are committed."""
    return Path(f"docs/rows/one-default-{stage}.jsonl")


def measure(name: str, cifar: Path, cifar100: Path, weights: Path, folder: Path) -> None:
    """What a stage lacks; each row is there as soon as it is measured."""
    store, begun = RowStore(folder / name), time.perf_counter()
    if rows_file(name).exists():
        for row in load_rows(rows_file(name)):
            store.write(row)
    for study in studies(STAGES[name], cifar, cifar100, weights):
        for result in run(study, store):
            print(f"{time.perf_counter() - begun:6.0f} s  {name}  {summary(result)}", flush=True)
            save_rows(store.rows(), rows_file(name))


def all_rows() -> list[Row]:
    """Every row that is committed."""
    return [
        row for name in STAGES if rows_file(name).exists() for row in load_rows(rows_file(name))
    ]


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("run")
    own.add_argument("--cifar", type=Path, required=True)
    own.add_argument("--cifar100", type=Path, required=True)
    own.add_argument("--weights", type=Path, required=True)
    own.add_argument("--stage", nargs="+", choices=[*STAGES], default=[*STAGES])
    own.add_argument("--folder", type=Path, default=Path("runs/one-default"))
    given = parser.parse_args(words)
    torch.set_num_threads(1)
    for name in given.stage:
        measure(name, given.cifar, given.cifar100, given.weights, given.folder)


if __name__ == "__main__":
    main()

"""What `driftnorm adapt` costs beside plain inference; its memory; its start.

python benchmarks/adapt_throughput.py [--images 4000] [--rounds 5] [--model resnet20]

Throughput: the run of `adapt --method bn` (adapting, comparing with the source, CSV, saved states)
against a bare loop over the same loader and the same network, in turns, so that both meet the same
disturbances. Memory and start: real processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

import driftnorm
from driftnorm.inputs import Inputs, open_inputs
from driftnorm.models import MODELS, Normalized, Preprocessing, build, head_of, save_checkpoint
from driftnorm.runs.adapting import Plan, adapt_stream, as_batch
from driftnorm.tables import Column, Table

BATCH = 64
COLUMNS = (
    Column("loader", align="left"),
    Column("plain images/s", decimals=0),
    Column("adapt images/s", decimals=0),
    Column("ratio, wall", decimals=3),
    Column("ratio, CPU", decimals=3),
)
PARTS = ("throughput", "start", "memory")
DRIFTNORM = (sys.executable, "-c", "from driftnorm.cli import main; main()", "adapt")


def images(count: int, side: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@torch.no_grad()
def settle(network: nn.Module, pixels: np.ndarray) -> None:
    """Give it statistics and a bias that fit the images.

    A network that always says the same would make the guard ask the source about every batch.
    """
    x = as_batch([*pixels], network)
    network.train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
    network(x)
    network.eval()
    head = head_of(network)
    assert head is not None
    head[1].bias.sub_(network(x).mean(dim=0))


def write_folder(folder: Path, pixels: np.ndarray) -> Path:
    folder.mkdir()
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(folder / f"{number:06}.jpg", quality=90)
    return folder


def plain(network: nn.Module, inputs: Inputs, wanted: Preprocessing) -> None:
    stream = inputs.stream(wanted, ahead=BATCH)
    with torch.no_grad():
        while batch := [*islice(stream, BATCH)]:
            pixels = [item.pixels for item in batch if item.pixels is not None]
            network(as_batch(pixels, network)).argmax(dim=1).tolist()


def adapting(network: nn.Module, inputs: Inputs, wanted: Preprocessing, out: Path) -> None:
    plan = Plan(out, wanted, tuple(map(str, range(1000))), {"method": "bn"}, BATCH, fresh=True)
    adapt_stream(driftnorm.adapt(network, "bn", seed=0), network, inputs, plan)


def seconds_of(work: object, *arguments: object) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    assert callable(work)
    work(*arguments)
    return time.perf_counter() - wall, time.process_time() - cpu


def throughput(
    network: nn.Module, wanted: Preprocessing, data: Path, count: int, rounds: int
) -> tuple[str | float | None, ...]:
    inputs, out = open_inputs(data), data.parent / "speed.csv"
    plain(network, inputs, wanted)  # once unmeasured
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(seconds_of(plain, network, inputs, wanted))
        ours.append(seconds_of(adapting, network, inputs, wanted, out))
    best = [min(wall for wall, _ in times) for times in (bare, ours)]
    ratios = [a[0] / b[0] for a, b in zip(bare, ours, strict=True)]
    spent = [a[1] / b[1] for a, b in zip(bare, ours, strict=True)]
    return (
        inputs.kind,
        count / best[0],
        count / best[1],
        float(np.median(ratios)),
        float(np.median(spent)),
    )


def peak_memory(command: list[str]) -> float:
    """MB of a real process at its peak."""
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise RuntimeError(f"the process ended with status {status}: {' '.join(command)}")
    return usage.ru_maxrss / 1024


def seconds_to_first_prediction(command: list[str], out: Path) -> float:
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    while process.poll() is None and not (out.exists() and out.read_bytes().count(b"\n") > 1):
        time.sleep(0.01)
    taken = time.perf_counter() - begun
    if process.wait() != 0:
        raise RuntimeError("the process failed.")
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    torch.manual_seed(0)
    wanted = MODELS[given.model].preprocessing
    network = Normalized(build(given.model), wanted.mean, wanted.std).eval()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        pixels = images(max(given.images, given.many), wanted.size)
        settle(network, pixels[:256])
        if "throughput" in given.parts:
            np.savez(home / "some.npz", images=pixels[: given.images])
            folder = write_folder(home / "folder", pixels[: given.images])
            rows = [
                throughput(network, wanted, data, given.images, given.rounds)
                for data in (home / "some.npz", folder)
            ]
            print(Table(f"{given.model}, batch {BATCH}, bn", COLUMNS, tuple(rows)).to_markdown())
        file = home / "model.safetensors"
        classes = [str(number) for number in range(MODELS[given.model].classes)]
        save_checkpoint(
            file, network, architecture=given.model, classes=classes, preprocessing=wanted
        )
        start = [*DRIFTNORM, str(file), str(home / "few.npz"), "--quiet", "--out"]
        np.savez(home / "few.npz", images=pixels[:1000])
        if "start" in given.parts:
            taken = seconds_to_first_prediction([*start, str(home / "0.csv")], home / "0.csv")
            print(f"start to first prediction (gprebn): {taken:.1f} s", flush=True)
        if "memory" in given.parts:
            few = peak_memory([*start, str(home / "1.csv"), "--method", "bn"])
            np.savez(home / "few.npz", images=pixels[: given.many])
            many = peak_memory([*start, str(home / "2.csv"), "--method", "bn"])
            print(f"peak memory: 1,000 images {few:.0f} MB, {given.many:,} images {many:.0f} MB")


if __name__ == "__main__":
    main()

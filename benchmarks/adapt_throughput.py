"""What `driftnorm adapt` costs beside plain inference; its memory; its start.

    python benchmarks/adapt_throughput.py [--model resnet20] [--images 20000] [--batch 64] \
        [--rounds 3] [--loaders array folder] [--picture 150] [--parts throughput start memory]

Throughput: the run of `adapt --method bn` (adapting, comparing with the source, guard, CSV, saved
states) against a bare loop over the same loader and the same network, in turns of eight batches, so
that both meet the same disturbances. Memory and start: real processes. A run adds a row to the
rows; the page shows the latest of each network and batch size.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn

import driftnorm
from driftnorm.inputs import Inputs, open_inputs
from driftnorm.models import MODELS, Normalized, Preprocessing, build, head_of, save_checkpoint
from driftnorm.runs import adapting
from driftnorm.runs.adapting import Plan, Snapshot, adapt_stream, as_batch
from driftnorm.tables import Column, Table

COLUMNS = (
    Column("loader", align="left"),
    Column("plain images/s", decimals=0),
    Column("adapt images/s", decimals=0),
    Column("adapt / plain, wall", decimals=3),
    Column("adapt / plain, CPU", decimals=3),
    Column("torch / plain, wall", decimals=3),
)
TURN = 8  # batches
PARTS, LOADERS = ("throughput", "start", "memory"), ("array", "folder")
RATIO, START, GROWTH = 0.9, 10.0, 50.0  # what was promised: at least, at most s, at most MB
HEAD = """# What `driftnorm adapt` costs beside plain inference

Written by `python benchmarks/adapt_throughput.py` from `rows/{rows}`. *Plain* is a bare loop of the
same network over the same loader that keeps the classes; *adapt* is the whole of `driftnorm adapt
--method bn`: adapting, asking the source now and then (guard and comparison), CSV, saved states.
*torch* is the bare loop again with the network's batch norm in training mode, which is the least
that statistics of the batch cost with torch's own kernels: no adapter, no guard, no files. The
three take turns of eight batches; ratios are of the times of whole passes, the median over passes.

Statistics cost what reading every activation once more costs. In a network of wide layers that is
little. In ResNet-20, whose layers have 16 to 64 channels and do little work a number, torch's own
statistics take most of what the promise of 0.9 allows. The rest is some calls a layer and batch,
the questions to the source (about 300 images in the first 20,000, then at most one in a hundred)
and the files.
"""
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


def write_folder(folder: Path, pixels: np.ndarray, side: int) -> Path:
    folder.mkdir()
    for number, image in enumerate(pixels):
        picture = Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)
        picture.save(folder / f"{number:06}.jpg", quality=90)
    return folder


def plainly(
    network: nn.Module, inputs: Inputs, wanted: Preprocessing, batch_size: int
) -> Iterator[None]:
    """A bare loop, batch by batch."""
    stream = inputs.stream(wanted, ahead=batch_size)
    while batch := [*islice(stream, batch_size)]:
        pixels = [item.pixels for item in batch if item.pixels is not None]
        with torch.no_grad():
            network(as_batch(pixels, network)).argmax(dim=1).tolist()
        yield


class Stopwatch:
    """Wall and CPU seconds of those who take turns."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {}
        self._mark = _now()

    def credit(self, name: str) -> None:
        """What has passed since the last time was this one's turn."""
        now = _now()
        before = self.spent.get(name, [0.0, 0.0])
        self.spent[name] = [b + n - m for b, n, m in zip(before, now, self._mark, strict=True)]
        self._mark = now


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def one_pass(
    network: nn.Module, inputs: Inputs, wanted: Preprocessing, batch_size: int, out: Path
) -> dict[str, list[float]]:
    """Seconds that `adapt` and the bare loops take for all images, in turns."""
    how = (inputs, wanted, batch_size)
    rivals = {"plain": plainly(network, *how), "torch": plainly(training_mode(network), *how)}
    batches = 0

    def take_turns(snapshot: Snapshot) -> None:
        nonlocal batches
        batches += 1
        if batches % TURN == 0:
            watch.credit("adapt")
            for name, rival in rivals.items():
                deque(islice(rival, TURN), maxlen=0)
                watch.credit(name)

    deque(islice(plainly(network, *how), TURN), maxlen=0)  # unmeasured, to get warm
    classes = tuple(map(str, range(1000)))
    plan = Plan(out, wanted, classes, {"method": "bn"}, batch_size, fresh=True)
    watch = Stopwatch()
    adapter = driftnorm.adapt(network, "bn", seed=0)
    adapt_stream(adapter, network, inputs, plan, on_batch=take_turns)
    watch.credit("adapt")
    for name, rival in rivals.items():
        deque(rival, maxlen=0)
        watch.credit(name)
    return watch.spent


def training_mode(network: nn.Module) -> nn.Module:
    return copy.deepcopy(network).train()


def throughput(
    network: nn.Module, wanted: Preprocessing, data: Path, given: argparse.Namespace
) -> dict[str, Any]:
    inputs, out = open_inputs(data), data.parent / "speed.csv"
    passes = [one_pass(network, inputs, wanted, given.batch, out) for _ in range(given.rounds)]
    found = {name: [spent[name] for spent in passes] for name in ("plain", "adapt", "torch")}
    return {"loader": inputs.kind, "images": given.images, **found}


def line_of(measured: dict[str, Any]) -> tuple[str | float | None, ...]:
    bare, ours = np.array(measured["plain"]), np.array(measured["adapt"])
    fastest = [measured["images"] / times[:, 0].min() for times in (bare, ours)]
    wall, cpu = np.median(bare / ours, axis=0)
    least, _ = np.median(bare / np.array(measured["torch"]), axis=0)
    return (measured["loader"], *map(float, (*fastest, wall, cpu, least)))


def peak_memory(command: list[str]) -> float:
    """MB of a real process at its peak (Linux).

    Not from its resource usage, which a child begins with its parent's.
    """
    process = subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})
    peak = 0.0
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
        peak = max([peak, *(float(kilobytes) / 1024 for kilobytes in found)])
        time.sleep(0.05)
    if process.returncode != 0:
        raise RuntimeError(f"status {process.returncode}: {' '.join(command)}")
    return peak


def seconds_to_first_prediction(command: list[str], out: Path) -> float:
    begun = time.perf_counter()
    process = subprocess.Popen(command)
    while process.poll() is None and not (out.exists() and out.read_bytes().count(b"\n") > 1):
        time.sleep(0.01)
    taken = time.perf_counter() - begun
    if process.wait() != 0:
        raise RuntimeError("the process failed.")
    return taken


def measure(given: argparse.Namespace, home: Path) -> dict[str, Any]:
    wanted = MODELS[given.model].preprocessing
    wanted = replace(wanted, size=given.size or wanted.size)
    network = Normalized(build(given.model), wanted.mean, wanted.std).eval()
    pixels = images(max(given.images, 1000), wanted.size)
    settle(network, pixels[:256])
    found: dict[str, Any] = {
        "network": given.model,
        "side": wanted.size,
        "batch": given.batch,
        "about": f"{platform.machine()}, {torch.get_num_threads()} threads, torch "
        f"{torch.__version__}, driftnorm {driftnorm.__version__}, random images and weights",
        "command": f"python {shlex.join(sys.argv)}",
    }
    if "throughput" in given.parts:
        found["throughput"] = []
        for loader in given.loaders:
            data = home / "some.npz"
            if loader == "array":
                np.savez(data, images=pixels[: given.images])
            else:
                side = given.picture or wanted.size
                data = write_folder(home / "folder", pixels[: given.images], side)
            found["throughput"].append(throughput(network, wanted, data, given))
    file = home / "model.safetensors"
    classes = [str(number) for number in range(MODELS[given.model].classes)]
    save_checkpoint(file, network, architecture=given.model, classes=classes, preprocessing=wanted)
    start = [*DRIFTNORM, str(file), str(home / "few.npz"), "--quiet", "--out"]
    np.savez(home / "few.npz", images=pixels[:1000])
    if "start" in given.parts:
        found["start"] = seconds_to_first_prediction([*start, str(home / "0.csv")], home / "0.csv")
    if "memory" in given.parts:
        few = peak_memory([*start, str(home / "1.csv"), "--method", "bn"])
        # The same thousand images over and over: what is in them does not matter.
        np.save(home / "many.npy", np.tile(pixels[:1000], (given.many // 1000, 1, 1, 1)))
        start[start.index(str(home / "few.npz"))] = str(home / "many.npy")
        many = peak_memory([*start, str(home / "2.csv"), "--method", "bn"])
        found["memory"] = {"few": [1000, few], "many": [given.many // 1000 * 1000, many]}
    return found


def section(measured: dict[str, Any]) -> str:
    kept = {True: "kept", False: "NOT kept"}
    title = f"{measured['network']}, {measured['side']} px, batch {measured['batch']}"
    lines = [f"## {title}\n"]
    if "throughput" in measured:
        rows = tuple(map(line_of, measured["throughput"]))
        count = len(measured["throughput"][0]["plain"])
        shown = f"{measured['throughput'][0]['images']:,} images, {count} pass(es)."
        lines.append(Table("Throughput", COLUMNS, rows, shown).to_markdown())
        worst = min(float(row[3] or 0) for row in rows)
        lines.append(f"- ratio: **{worst:.2f}** (>= {RATIO}: {kept[worst >= RATIO]})")
    if "start" in measured:
        seconds = measured["start"]
        lines.append(
            f"- from the start of the process to the first prediction (gprebn): "
            f"**{seconds:.1f} s** (<= {START:.0f} s: {kept[seconds <= START]})"
        )
    if "memory" in measured:
        (few, small), (many, large) = measured["memory"]["few"], measured["memory"]["many"]
        lines.append(
            f"- peak memory of the process: {small:.0f} MB with {few:,} images, {large:.0f} MB "
            f"with {many:,} (flat within {GROWTH:.0f} MB: {kept[large - small <= GROWTH]})"
        )
    return "\n".join([*lines, f"\n{measured['about']}. `{measured['command']}`\n"])


def page(rows: Path) -> str:
    """The page about every network and batch size that the rows hold, from its latest run."""
    found = [*map(json.loads, rows.read_text().splitlines())]
    latest = {(m["network"], m["side"], m["batch"]): m for m in found}
    return "\n".join([HEAD.format(rows=rows.name), *map(section, latest.values())])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, help="side of the images, if not the network's own")
    parser.add_argument("--picture", type=int, help="side of the folder's pictures, if another")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--loaders", nargs="+", choices=LOADERS, default=LOADERS)
    parser.add_argument("--rows", type=Path, default=Path("docs/rows/adapt-throughput.jsonl"))
    parser.add_argument("--out", type=Path, default=Path("docs/adapt-throughput.md"))
    given = parser.parse_args()
    torch.manual_seed(0)
    # States are saved by a clock that goes on while the two others have their turns.
    adapting.SAVE_SECONDS *= 3
    adapting.SAVE_SHARE /= 3
    with tempfile.TemporaryDirectory() as place:
        measured = measure(given, Path(place))
    with given.rows.open("a") as file:
        file.write(json.dumps(measured) + "\n")
    given.out.write_text(page(given.rows))
    print(section(measured))


if __name__ == "__main__":
    main()

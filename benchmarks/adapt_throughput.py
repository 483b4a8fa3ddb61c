"""What `driftnorm adapt` costs, compared with plain inference; its memory; its start.

    python benchmarks/adapt_throughput.py [--model resnet20] [--images 20000] [--batch 64] \
        [--rounds 3] [--loaders array folder] [--picture 150] \
        [--parts processes throughput start memory]

Processes: `driftnorm adapt --method bn` against `plain_inference.py`. Throughput: the same within
one process, in turns of eight batches, so that both meet the same disturbances. Memory and start:
real processes too. A run adds a row to the rows; the page shows the latest of each network and
batch size.
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
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from plain_inference import plainly
from torch import nn

import driftnorm
from driftnorm._internal.counts import counted
from driftnorm._internal.process_memory import keep_freed_memory
from driftnorm.images import Inputs, as_batch, open_inputs
from driftnorm.models import MODELS, Normalized, Preprocessing, build, head_of, save_checkpoint
from driftnorm.predictions import adapted_stream as adapting
from driftnorm.predictions.adapted_stream import Plan, Snapshot, adapt_stream
from driftnorm.views.table import Column, Table

ROWS, PAGE = Path("docs/rows/adapt-throughput.jsonl"), Path("docs/adapt-throughput.md")

PROCESS_COLUMNS = (
    Column("loader", align="left"),
    Column("plain images/s", decimals=0),
    Column("channels-last images/s", decimals=0),
    Column("adapt images/s", decimals=0),
    Column("adapt / plain", decimals=3),
    Column("adapt / channels-last", decimals=3),
)
COLUMNS = (
    Column("loader", align="left"),
    Column("plain images/s", decimals=0),
    Column("adapt images/s", decimals=0),
    Column("adapt / plain, wall", decimals=3),
    Column("adapt / plain, CPU", decimals=3),
    Column("torch / plain, wall", decimals=3),
)
TURN = 8  # batches
PARTS, LOADERS = ("processes", "throughput", "start", "memory"), ("array", "folder")
RATIO, START, GROWTH = 0.9, 10.0, 50.0  # what was promised: at least, at most s, at most MB
HEAD = """# What `driftnorm adapt` costs, compared with plain inference

Written by `python benchmarks/adapt_throughput.py` from `rows/{rows}`.

**As processes**: `driftnorm adapt --method bn` next to the loop that you would write with torch,
over the same loader (`benchmarks/plain_inference.py`). Each runs in its own process, one after
the other, in several rounds; times are from the first image to the last, and ratios are medians
of the ratios within a round. *Plain* passes images as torch's own loaders do (NCHW);
*channels-last* passes them in the layout that torch's kernels prefer, which the adapter chooses
itself. `driftnorm adapt`
also tells the C library to keep freed memory; for your own process, set
`MALLOC_TRIM_THRESHOLD_=2147483647 MALLOC_MMAP_THRESHOLD_=1073741824` in its environment.

**In turns**: the same work within one process that keeps its freed memory, eight batches at a
time: what adapting costs, all else being equal. *adapt* includes everything: adapting, running
the unadapted network now and then (guard and comparison), the CSV file, saved states. *Plain* is
the bare loop, channels-last. *torch* is that loop with the network's batch norm in training mode,
the least that batch statistics can cost with torch's own kernels: no adapter, no guard, no files.

Batch statistics cost one more read of every activation. In a network with wide layers that is
little. In ResNet-20, whose layers have 16 to 64 channels and do little work per value, torch's
own statistics alone cost up to a tenth. The rest is a few calls per layer and batch, the files,
and running the unadapted network: on about 100 images at the start, 200 of the first 20,000, then
one in 200. So short streams pay more for it.
"""
PLAIN = Path(__file__).parent / "plain_inference.py"
DRIFTNORM = (sys.executable, "-c", "from driftnorm.cli import main; main()", "adapt")


def images(count: int, side: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return random.integers(0, 256, (count, side, side, 3), dtype=np.uint8)


@torch.no_grad()
def settle(network: nn.Module, pixels: np.ndarray) -> None:
    """Give it statistics and a bias that fit the images.

    A network that always says the same would make the guard ask the source about every batch.
    """
    x = as_batch([*pixels])
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

    deque(islice(plainly(network, *how), TURN), maxlen=0)  # unmeasured, to get warm
    classes = tuple(map(str, range(1000)))
    plan = Plan(out, wanted, classes, {"method": "bn"}, batch_size, fresh=True)
    watch = Stopwatch()
    adapter = driftnorm.adapt(network, "bn", seed=0)
    for event in adapt_stream(adapter, network, inputs, plan):
        batches += isinstance(event, Snapshot)
        if isinstance(event, Snapshot) and batches % TURN == 0:
            watch.credit("adapt")
            for name, rival in rivals.items():
                deque(islice(rival, TURN), maxlen=0)
                watch.credit(name)
    watch.credit("adapt")
    for name, rival in rivals.items():
        deque(rival, maxlen=0)
        watch.credit(name)
    return watch.spent


def training_mode(network: nn.Module) -> nn.Module:
    return copy.deepcopy(network).train()


def processes(model: Path, data: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of each process that goes over all images, round by round."""
    out = data.parent / "process.csv"
    found: dict[str, list[float]] = {"plain": [], "last": [], "adapt": []}
    adapt = [*DRIFTNORM, str(model), str(data), "--method", "bn", "--quiet", "--fresh"]
    adapt += ["--batch-size", str(given.batch), "--out", str(out)]
    bare = [sys.executable, str(PLAIN), str(model), str(data), "--batch", str(given.batch)]
    for _ in range(given.rounds):
        for name, layout in (("plain", "default"), ("last", "channels-last")):
            said = subprocess.run([*bare, "--layout", layout], capture_output=True, check=True)
            found[name].append(float(said.stdout))
        subprocess.run(adapt, check=True)
        record = json.loads((out.with_suffix(".run") / "run.json").read_text())
        found["adapt"].append(record["seconds"])
    return {"loader": "folder" if data.is_dir() else "array", "images": given.images, **found}


def process_line(measured: dict[str, Any]) -> tuple[str | float | None, ...]:
    times = {name: np.array(measured[name]) for name in ("plain", "last", "adapt")}
    fastest = [measured["images"] / each.min() for each in times.values()]
    ratios = [np.median(times[name] / times["adapt"]) for name in ("plain", "last")]
    return (measured["loader"], *map(float, (*fastest, *ratios)))


def throughput(
    network: nn.Module, wanted: Preprocessing, data: Path, given: argparse.Namespace
) -> dict[str, Any]:
    inputs, out = open_inputs(data), data.parent / "speed.csv"
    passes = [one_pass(network, inputs, wanted, given.batch, out) for _ in range(given.rounds)]
    found = {name: [spent[name] for spent in passes] for name in ("plain", "adapt", "torch")}
    return {"loader": "folder" if data.is_dir() else "array", "images": given.images, **found}


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
    file = home / "model.safetensors"
    classes = [str(number) for number in range(MODELS[given.model].classes)]
    save_checkpoint(file, network, architecture=given.model, classes=classes, preprocessing=wanted)
    timed = [part for part in ("processes", "throughput") if part in given.parts]
    found |= {part: [] for part in timed}
    for loader in given.loaders if timed else ():
        data = home / "some.npz"
        if loader == "array":
            np.savez(data, images=pixels[: given.images])
        else:
            side = given.picture or wanted.size
            data = write_folder(home / "folder", pixels[: given.images], side)
        if "processes" in timed:
            found["processes"].append(processes(file, data, given))
        if "throughput" in timed:
            found["throughput"].append(throughput(network, wanted, data, given))
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
    if "processes" in measured:
        rows = tuple(map(process_line, measured["processes"]))
        lines.append(Table("As processes", PROCESS_COLUMNS, rows, _shown(measured)).to_markdown())
        worst = min(float(row[4] or 0) for row in rows)
        lines.append(f"- adapt / plain: **{worst:.2f}** (>= {RATIO}: {kept[worst >= RATIO]})\n")
    if "throughput" in measured:
        rows = tuple(map(line_of, measured["throughput"]))
        lines.append(Table("In turns", COLUMNS, rows, _shown(measured)).to_markdown())
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


def _shown(measured: dict[str, Any]) -> str:
    (first, *_) = measured.get("processes") or measured["throughput"]
    return f"{counted(first['images'], 'image')}, {counted(len(first['plain']), 'round')}."


def page(rows: Path = ROWS) -> str:
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
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    torch.manual_seed(0)
    keep_freed_memory()  # as `driftnorm adapt` does
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

"""What the grid costs beside the networks' own work, in ratios within one interleaved run.

    python benchmarks/grid_overhead.py [--images 2000] [--rounds 7] [--corruptions fog ...]

Candidates are the grid with five methods on one stream, the grid with each method alone, and for
each method two bare loops over ready tensors: its adapter's, and the one that stock PyTorch modules
would run. All are on ResNet-20, with one thread, as a worker of the grid has. Every candidate lives
in a process of its own and runs its stream in turn, in an order drawn anew for each round; ratios
are medians of the ratios within a round. The images are CIFAR-10's if DRIFTNORM_CIFAR10 names the
folder of its binary batches, else fractal textures. A run adds a row a corruption to the rows; the
page shows the latest. How long corrupting a whole CIFAR-10-C takes, `corruption_speed.py` says.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from corruption_speed import frost_choice, load_images
from speed import inference, native_step
from torch import Tensor

import driftnorm
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.bench.rows import Row, RowStore
from driftnorm.bench.runner import run as run_study
from driftnorm.bench.studies.corruptions import CorruptionStudy, batches
from driftnorm.bench.studies.presets import PRESETS
from driftnorm.images.cifar_classes import CIFAR10_CLASSES
from driftnorm.images.image_set import ImageSet
from driftnorm.methods.spec import parse_method
from driftnorm.models import load
from driftnorm.shifts import CORRUPTIONS

ROWS, PAGE = Path("docs/rows/grid-overhead.jsonl"), Path("docs/grid-overhead.md")

METHODS = ("source", "bn", "t3a", "tent", "gprebn")
ALL = "grid, five methods"
SEVERITY = 5
OVERHEAD, SUM = 0.10, 1.1  # what was promised at most
HEAD = """# What the benchmark grid costs on top of the networks' own work

Written by `python benchmarks/grid_overhead.py` from `rows/{rows}`. One stream of corrupted images
goes through ResNet-20 with {methods}; every candidate has its own single-threaded process and
runs the stream in turn. *Adapter* is a loop that calls the method's adapter on prepared tensors:
the cost of the method itself. *Stock modules* is the loop over the same tensors that PyTorch's
own modules would run: a forward pass, one with batch statistics (bn), or entropy, a backward pass
and an Adam step (tent, gprebn). On top of that, the grid corrupts the images, converts them to
tensors, builds the adapters, scores the answers and writes the rows.
"""


class Measurement(TypedDict):
    """One interleaved run on one corruption."""

    corruption: str
    images: int
    batch: int
    about: str
    command: str
    seconds: dict[str, list[float]]


def candidates() -> list[str]:
    kinds = ("grid", "adapter", "stock")
    return [ALL, *(f"{kind} {method}" for method in METHODS for kind in kinds)]


def study(data: Path, corruption: str, methods: tuple[str, ...]) -> CorruptionStudy:
    preset = PRESETS["tent-cifar"]
    return CorruptionStudy(
        data=str(data),
        model="resnet20",
        weights=None,  # the time does not depend on them: the grid has no guard
        methods=tuple(map(parse_method, methods)),
        corruptions=(corruption,),
        severities=(SEVERITY,),
        batch_size=preset.batch_size,
        optimising=preset.optimising,
        frost=frost_choice() if corruption == "frost" else None,
    )


def ready_tensors(work: CorruptionStudy) -> list[Tensor]:
    images = work.images(work.cells()[0])
    assert isinstance(images, ImageSet)
    stream = batches(images, work.batch_size)
    return [x.contiguous(memory_format=torch.channels_last) for x, _ in stream]


def grid(work: CorruptionStudy) -> Callable[[], object]:
    """Everything that a worker does with a stream, into a fresh folder."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            for result in run_study(work, RowStore(folder)):
                assert isinstance(result, Row), result

    return run


def adapter_loop(work: CorruptionStudy) -> Callable[[], object]:
    tensors, network = ready_tensors(work), load("resnet20")
    recipe = work.methods[0].with_defaults(work.optimising).recipe

    def run() -> None:
        adapter = RecipeAdapter(network, recipe, guard="off")
        for x in tensors:
            adapter(x)

    return run


def stock_loop(method: str, work: CorruptionStudy) -> Callable[[], object]:
    tensors, network = ready_tensors(work), load("resnet20")
    if method == "bn":
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.train()
                module.track_running_stats = False
                module.running_mean = module.running_var = None
    make = native_step if method in ("tent", "gprebn") else inference
    step = make(network, tensors[0], True)  # all batches have one size

    def run() -> None:
        for _ in tensors:
            step()

    return run


def candidate(name: str, data: Path, corruption: str) -> Callable[[], object]:
    if name == ALL:
        return grid(study(data, corruption, METHODS))
    kind, method = name.split()
    work = study(data, corruption, (method,))
    if kind == "stock":
        return stock_loop(method, work)
    return grid(work) if kind == "grid" else adapter_loop(work)


def child(name: str, data: Path, corruption: str) -> None:
    """Warm up with the whole stream, then time it once more per line read."""
    torch.set_num_threads(1)
    run = candidate(name, data, corruption)
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        begun = time.perf_counter()
        run()
        print(time.perf_counter() - begun, flush=True)


class Contender:
    """A candidate in a process of its own, which runs its stream whenever it is asked to."""

    def __init__(self, name: str, data: Path, corruption: str) -> None:
        command = [sys.executable, __file__, "--child", name, str(data), corruption]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise RuntimeError("a candidate ended; its error stands above.")
        return answer

    def seconds(self) -> float:
        """How long the stream takes once more."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def measure(data: Path, corruption: str, images: int, kind: str, rounds: int) -> Measurement:
    """Every candidate runs the stream in turn, in an order drawn anew for each round."""
    names = candidates()
    contenders = {name: Contender(name, data, corruption) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    draw = random.Random(0)
    for index in range(rounds):
        for name in draw.sample(names, len(names)):
            times[name].append(round(contenders[name].seconds(), 4))
        print(f"{corruption}: round {index + 1} of {rounds}", file=sys.stderr)
    for contender in contenders.values():
        contender.close()
    return {
        "corruption": corruption,
        "images": images,
        "batch": PRESETS["tent-cifar"].batch_size,
        "about": f"{kind}, severity {SEVERITY}, {platform.machine()}, torch {torch.__version__}, "
        f"driftnorm {driftnorm.__version__}, 1 thread",
        "command": f"python {shlex.join(sys.argv)}",
        "seconds": times,
    }


def share_beside(times: dict[str, np.ndarray], wall: str, own: list[str]) -> float:
    """Median over the rounds of the part of a candidate's time that others do not account for."""
    return float(np.median(1 - sum(times[name] for name in own) / times[wall]))


def section(measured: Measurement) -> str:
    times = {name: np.array(values) for name, values in measured["seconds"].items()}
    lines = [
        f"## {measured['corruption']}\n",
        "| method | grid, s | adapter, s | stock modules, s | beyond adapter | beyond stock |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for label, wall, methods in (
        *((method, f"grid {method}", [method]) for method in METHODS),
        ("all five", ALL, list(METHODS)),
    ):
        loops = [[f"{kind} {method}" for method in methods] for kind in ("adapter", "stock")]
        sums = [float(np.median(sum(times[name] for name in loop))) for loop in loops]
        shares = [f"{100 * share_beside(times, wall, loop):.1f} %" for loop in loops]
        seconds = [f"{value:.2f}" for value in (float(np.median(times[wall])), *sums)]
        lines.append(f"| {' | '.join((label, *seconds, *shares))} |")
    note = (
        f"\n{measured['images']} images, batch {measured['batch']}, {measured['about']}, "
        f"{len(times[ALL])} interleaved rounds; medians. `{measured['command']}`\n"
    )
    return "\n".join([*lines, note, *promises(times)]) + "\n"


def promises(times: dict[str, np.ndarray]) -> list[str]:
    def kept(value: float, limit: float) -> str:
        return "kept" if value <= limit else "NOT kept"

    loops = {kind: [f"{kind} {method}" for method in METHODS] for kind in ("grid", "adapter")}
    beside = share_beside(times, ALL, loops["adapter"])
    ratios = {
        kind: float(np.median(times[ALL] / sum(times[name] for name in loop)))
        for kind, loop in loops.items()
    }
    return [
        f"- all but the adapted networks' forward and backward, five methods in one grid: "
        f"**{100 * beside:.1f} %** of the wall time (<= {OVERHEAD:.0%}: {kept(beside, OVERHEAD)})",
        f"- five methods over one corruption, in the sum of their adapters' times: "
        f"**{ratios['adapter']:.2f}** (<= {SUM}: {kept(ratios['adapter'], SUM)}); in the sum of "
        f"their times alone in the grid: {ratios['grid']:.2f}",
    ]


def page(rows: Path = ROWS) -> str:
    """The page about every corruption that the rows hold, from its latest run."""
    lines = rows.read_text().splitlines()
    latest: dict[str, Measurement] = {m["corruption"]: m for m in map(json.loads, lines)}
    parts = [HEAD.format(rows=rows.name, methods=", ".join(METHODS))]
    return "\n".join([*parts, *(section(latest[name]) for name in CORRUPTIONS if name in latest)])


def main() -> None:
    usual = ["gaussian_noise", "glass_blur", "fog", "jpeg_compression"]  # one per group
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corruptions", nargs="+", default=usual, choices=CORRUPTIONS)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        name, data, corruption = arguments.child
        child(name, Path(data), corruption)
        return
    if arguments.images % PRESETS["tent-cifar"].batch_size:
        parser.error(f"`--images` must be whole batches of 200, got {arguments.images}.")
    for path in (arguments.rows, arguments.out):
        path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "images.npz"
        pixels, kind = load_images(arguments.images)
        labels = np.arange(len(pixels)) % len(CIFAR10_CLASSES)  # scoring costs the same for any
        np.savez(data, images=pixels, labels=labels, classes=CIFAR10_CLASSES)
        for corruption in arguments.corruptions:
            measured = measure(data, corruption, len(pixels), kind, arguments.rounds)
            with arguments.rows.open("a") as file:
                file.write(json.dumps(measured) + "\n")
    arguments.out.write_text(page(arguments.rows))
    print(arguments.out.read_text())


if __name__ == "__main__":
    main()

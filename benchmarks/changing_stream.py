"""A stream whose shift changes ten times, never reset: which methods survive it.

    python benchmarks/changing_stream.py run --cifar FOLDER --weights FILE [--batch-sizes 8 64]
    python benchmarks/changing_stream.py page

CIFAR-10 with ResNet-20. Every part holds as many images of the test set, in an order of its own;
nothing was tuned on this stream. Rows are kept as they come in docs/rows/changing-stream.jsonl, and
a run goes on where it was stopped; `page` writes docs/changing-stream.md from them.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import driftnorm
from driftnorm import models
from driftnorm.images.cifar import load_cifar10
from driftnorm.images.corruption import corrupted
from driftnorm.views.table import Column, Table

ROWS, PAGE = Path("docs/rows/changing-stream.jsonl"), Path("docs/changing-stream.md")
PARTS = (
    *("clean", "gaussian_noise", "fog", "contrast", "jpeg_compression", "clean"),
    *("pixelate", "impulse_noise", "brightness", "contrast"),
)
SEVERITY, IMAGES = 5, 1600
METHODS: dict[str, dict[str, Any]] = {
    "source": {},
    "bn": {},
    "bn-prior": {},
    "bn-window": {},
    "steady": {},
    "tent": {},
    "gprebn": {},
    "gprebn, momentum 0.05, a tenth of the rate": {
        "method": "gprebn",
        "momentum": 0.05,
        "lr": 1e-4,
    },
    "gprebn, cap 0.004, anchor 0.01, leash 0.1": {
        "method": "gprebn",
        "cap": 0.004,
        "anchor": 0.01,
        "leash": 0.1,
    },
    "eta": {},
    "eata": {},
    "sar": {},
    "rdumb": {},
    "eata@bn-window": {"method": "eata@bn-window"},
}


def parts(folder: Path) -> Iterator[tuple[Tensor, Tensor]]:
    """Images in [0, 1] and labels of each part, in an order of its own."""
    clean = load_cifar10(folder, "test")
    for place, shift in enumerate(PARTS):
        order = np.random.default_rng([0, place]).permutation(len(clean))[:IMAGES]
        chosen = clean.take(order)
        if shift != "clean":
            chosen = corrupted(chosen, shift, SEVERITY)
        images = torch.from_numpy(chosen.images).permute(0, 3, 1, 2).float() / 255
        yield images, torch.from_numpy(chosen.labels)


def run(folder: Path, weights: Path, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Every method that has no rows yet."""
    stream = [*parts(folder)]
    training = load_cifar10(folder, "train").take(slice(0, 512))
    source = torch.from_numpy(training.images).permute(0, 3, 1, 2).float() / 255
    done = {(row["name"], row["batch_size"]) for row in rows()}
    for size in sizes:
        for name in names:
            if (name, size) in done:
                continue
            options = {**METHODS[name]}
            network = models.load("resnet20", weights)
            adapter = driftnorm.adapt(network, options.pop("method", name), guard="off", **options)
            adapter.fit(torch.split(source, 64))
            begun, right = time.perf_counter(), []
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
                for images, labels in stream:
                    answers = torch.cat([adapter(x).argmax(1) for x in torch.split(images, size)])
                    right.append((answers == labels).tolist())
            row = {
                "name": name,
                "method": adapter.method,
                "settings": adapter.recipe.settings(),
                "batch_size": size,
                "images": IMAGES,
                "severity": SEVERITY,
                "network": "resnet20",
                "parts": PARTS,
                "accuracy": [sum(part) / len(part) for part in right],
                "forwards": adapter.recipe.cost.forwards,
                "backwards": adapter.recipe.cost.backwards,
                "seconds": round(time.perf_counter() - begun, 1),
                "version": driftnorm.__version__,
            }
            with ROWS.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(size, name, f"{100 * np.mean(row['accuracy']):.1f}", flush=True)


def rows() -> list[dict[str, Any]]:
    """What was measured."""
    return [json.loads(line) for line in ROWS.read_text().splitlines()] if ROWS.exists() else []


def table(found: Sequence[dict[str, Any]], size: int) -> Table:
    """Accuracy in every part, best mean first."""
    source = next(row["accuracy"] for row in found if row["name"] == "source")
    lines = []
    for row in sorted(found, key=lambda row: -np.mean(row["accuracy"])):
        worst = 100 * min(a - b for a, b in zip(row["accuracy"], source, strict=True))
        each = [100 * value for value in row["accuracy"]]
        passes = f"{row['forwards']:g} + {row['backwards']:g}"
        lines.append((row["name"], float(np.mean(each)), worst, passes, *each))
    columns = (
        Column("method"),
        Column("mean", decimals=1),
        Column("worst part minus source", decimals=1),
        Column("passes"),
        *(Column(f"{place}. {part}", decimals=1) for place, part in enumerate(PARTS, 1)),
    )
    note = (
        f"Accuracy in %. CIFAR-10, ResNet-20, {len(PARTS)} parts of {IMAGES:,} images each, "
        f"severity {SEVERITY}, shuffled labels, batch {size}, never reset, guard off; one order, "
        "one seed. Passes: forward + backward for each batch."
    )
    if any("eata" in row["method"] for row in found):
        note += " eata saw 512 training images first."
    return Table(f"Ten shifts in a row, {size} images per batch", columns, tuple(lines), note)


HEAD = """# A stream that changes

Written by `python benchmarks/changing_stream.py page` from `rows/changing-stream.jsonl`. Ten
shifts follow one another without notice; no method knows when they occur, and none is reset.
Nothing was tuned on this stream, but it is not held out for `bn-window` and `steady`: their
constants were chosen with the same network on streams of the first 2,000 test images, among them
images under contrast, Gaussian and impulse noise, which occur here too.
[One default](one-default.md) has their held-out results.
"""


def page() -> str:
    """From the rows."""
    found = rows()
    sizes = sorted({row["batch_size"] for row in found})
    made = [table([row for row in found if row["batch_size"] == size], size) for size in sizes]
    return "\n".join([HEAD, *(one.to_markdown() for one in made)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page")
    own = commands.add_parser("run")
    own.add_argument("--cifar", type=Path, required=True)
    own.add_argument("--weights", type=Path, required=True)
    own.add_argument("--batch-sizes", type=int, nargs="+", default=[8])
    own.add_argument("--methods", nargs="+", default=[*METHODS])
    given = parser.parse_args()
    if given.command == "page":
        PAGE.write_text(page())
    else:
        run(given.cifar, given.weights, given.batch_sizes, given.methods)


if __name__ == "__main__":
    main()

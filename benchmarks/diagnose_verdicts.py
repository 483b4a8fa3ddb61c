"""How often `driftnorm diagnose` is right: its verdicts, beside what adapting does afterwards.

    python benchmarks/diagnose_verdicts.py run --cifar10 DIR --cifar100 FILE --weights DIR \
        [--frost DIR] [--workers 2]
    python benchmarks/diagnose_verdicts.py page

`run` shows `diagnose` the first part of a stream, without labels, and measures source and methods
on the rest, stream by stream; killed, it goes on where it was. `page` writes the page from
docs/rows/diagnose-verdicts.jsonl, into which it puts what was run.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm._internal.files import write_atomically
from driftnorm._internal.launch import LAUNCHERS
from driftnorm.bench.metrics import paired_interval, unpack_bits
from driftnorm.bench.rows import environment
from driftnorm.bench.stream_scores import evaluate
from driftnorm.bench.studies.corrupted_streams import open_streams
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS, SEVERITIES
from driftnorm.bench.studies.digits import normalized_digits, train_digits
from driftnorm.diagnosis import diagnose
from driftnorm.images.embedded_digits import split_digits
from driftnorm.images.image_set import ImageSet
from driftnorm.methods.spec import parse_method
from driftnorm.models.opened_model import open_model
from driftnorm.shifts import CORRUPTIONS
from driftnorm.views.table import Column, Table

RUNS = Path("runs/evidence/diagnose")
ROWS, PAGE = Path("docs/rows/diagnose-verdicts.jsonl"), Path("docs/diagnose-verdicts.md")
BATCH, DIAGNOSED, JUDGED = 64, 1280, 1024
DIGITS_DIAGNOSED = 448
ADAPTED = "gprebn"
NETWORKS = {
    "cifar-10, resnet20": ("cifar10", "resnet20"),
    "cifar-100, resnet20": ("cifar100", "resnet20"),
    "cifar-10, resnet56": ("cifar10", "resnet56"),
    "cifar-100, resnet56": ("cifar100", "resnet56"),
}
SET_WITH = "cifar-10, resnet20"
DIGITS = "digits, digit-cnn"
SORTED = "sorted by class"
STRENGTHS = (1, 5)


class Stream(NamedTuple):
    """Where labelled images come from, and the network that meets them."""

    network: str
    shift: str
    severity: int
    order: str
    seed: int
    places: tuple[tuple[str, str | None], ...] = ()

    @property
    def file(self) -> Path:
        """Of the stream's row."""
        words = (self.network, self.shift, str(self.severity), self.order, str(self.seed))
        return RUNS / ("-".join(words).replace(", ", "-").replace(" ", "-") + ".json")


def streams(places: tuple[tuple[str, str | None], ...]) -> Iterator[Stream]:
    """Clean and shifted images in random order, and some sorted by class."""
    for network in NETWORKS:
        kinds = [("clean", 0), *((c, s) for s in STRENGTHS for c in CORRUPTIONS)]
        for shift, severity in kinds:
            yield Stream(network, shift, severity, "shuffled", 0, places)
        for shift, severity in (("clean", 0), ("gaussian_noise", 5)):
            yield Stream(network, shift, severity, SORTED, 0, places)
    for seed in range(3):
        for shift, severity in [("clean", 0), *((c, s) for c in DIGIT_SHIFTS for s in SEVERITIES)]:
            yield Stream(DIGITS, shift, severity, "shuffled", seed)


@lru_cache(maxsize=1)
def trained_digits(seed: int) -> nn.Module:
    """The demo's network."""
    return train_digits(split_digits(seed)[0], seed)


def opened(stream: Stream) -> tuple[nn.Module, Tensor, Tensor]:
    """Network, images as it takes them, labels."""
    if stream.network == DIGITS:
        test = split_digits(stream.seed)[1]
        images = test.images
        if stream.shift in DIGIT_SHIFTS:
            draws = torch.Generator().manual_seed(stream.seed)
            images = DIGIT_SHIFTS[stream.shift](images, stream.severity, draws)
        return trained_digits(stream.seed), normalized_digits(images), test.labels
    places = dict(stream.places)
    data, architecture = NETWORKS[stream.network]
    source = open_streams(str(places[data]), DIAGNOSED + JUDGED, places["frost"])
    found = source.images(stream.shift, stream.severity, 0)
    assert isinstance(found, ImageSet)
    pixels = torch.from_numpy(np.array(found.images)).permute(0, 3, 1, 2).float().div(255)
    weights = f"{places['weights']}/{data}-{architecture}.safetensors"
    return open_model(architecture, weights=weights).network, pixels, torch.from_numpy(found.labels)


def judge(stream: Stream) -> dict[str, Any]:
    """The verdict on the first part, and what came of it on the rest."""
    torch.set_num_threads(1)
    network, images, labels = opened(stream)
    begun, seen = time.perf_counter(), DIGITS_DIAGNOSED if stream.network == DIGITS else DIAGNOSED
    first, rest = torch.split(torch.arange(len(labels)), [seen, len(labels) - seen])
    if stream.order == SORTED:
        first, rest = (part[labels[part].argsort(stable=True)] for part in (first, rest))
    found = diagnose(network, torch.split(images[first], BATCH))
    advised = next((a.choice for a in found.advice if a.topic == "method"), "source")
    right = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", driftnorm.DriftnormWarning)
        for method in dict.fromkeys(("source", ADAPTED, advised)):
            spec = parse_method(method)
            adapter = driftnorm.adapt(network, spec.recipe)
            parts = (torch.split(whole[rest], BATCH) for whole in (images, labels))
            metrics = evaluate(adapter, zip(*parts, strict=True))
            right[method] = unpack_bits(str(metrics["correct"]), len(rest)).astype(np.float64)
    gain = paired_interval([right[ADAPTED] - right["source"]])
    row = {
        "network": stream.network,
        "shift": stream.shift,
        "severity": stream.severity,
        "order": stream.order,
        "seed": stream.seed,
        "diagnosed": len(first),
        "judged": len(rest),
        "outcome": found.outcome,
        "verdict": found.verdict(),
        "advised": advised,
        "accuracy": {method: float(own.mean()) for method, own in right.items()},
        "gain": list(gain),
        "seconds": round(time.perf_counter() - begun, 2),
        "environment": environment(),
    }
    RUNS.mkdir(parents=True, exist_ok=True)
    write_atomically(stream.file, json.dumps(row, sort_keys=True) + "\n")
    return row


def run(arguments: argparse.Namespace) -> None:
    """Judge the streams that were not yet."""
    named = {name: getattr(arguments, name) for name in ("cifar10", "cifar100", "weights", "frost")}
    places = tuple((name, None if place is None else str(place)) for name, place in named.items())
    every = [*streams(places)]
    left = [stream for stream in every if not stream.file.exists()]
    print(f"{len(left)} of {len(every)} streams to judge", flush=True)
    for stream, row in LAUNCHERS["processes"](judge, left, arguments.workers):
        gain = 100 * row["gain"][0]
        print(f"{stream.network}, {stream.shift} {stream.severity}, {stream.order}: "
              f"{row['outcome']}, {gain:+.1f}", flush=True)  # fmt: skip


def effect(row: dict[str, Any]) -> str:
    """What adapting did, by the interval of the paired difference."""
    _, low, high = row["gain"]
    return "helped" if low > 0 else "hurt" if high < 0 else "neither"


OUTCOMES = {
    "help": "will help",
    "unclear": "unclear without labels",
    "little": "makes little difference",
    "no need": "no need",
    "no help": "drifted, but not likely to help",
    "harm": "do not adapt",
    "mend": "no verdict yet",
}


def verdict_table(title: str, rows: Sequence[dict[str, Any]]) -> Table:
    """One line a verdict: how often adapting then helped or hurt."""
    lines: list[tuple[str | float | None, ...]] = []
    for outcome, words in OUTCOMES.items():
        own = [row for row in rows if row["outcome"] == outcome]
        if own:
            effects = [effect(row) for row in own]
            gains = [100 * row["gain"][0] for row in own]
            counts = (float(effects.count(kind)) for kind in ("helped", "neither", "hurt"))
            spread = f"{min(gains):+.1f} to {max(gains):+.1f}"
            lines.append((words, float(len(own)), *counts, f"{np.mean(gains):+.1f}", spread))
    columns = (
        Column("verdict", align="left"),
        *(Column(name, decimals=0) for name in ("streams", "it helped", "neither", "it hurt")),
        Column("mean change"),
        Column("from, to"),
    )
    return Table(title, columns, tuple(lines))


def followed(row: dict[str, Any], outcomes: Sequence[str]) -> float:
    """The accuracy of who adapts, as advised, where the verdict is one of these."""
    accuracy: dict[str, float] = row["accuracy"]
    return accuracy[row["advised"]] if row["outcome"] in outcomes else accuracy["source"]


def policy_table(rows: Sequence[dict[str, Any]]) -> Table:
    """Mean accuracy of never adapting, always adapting, and following the verdict."""
    lines: list[tuple[str | float | None, ...]] = []
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network]
        source, adapted = ([r["accuracy"][m] for r in own] for m in ("source", ADAPTED))
        policies = [[followed(r, those) for r in own] for those in (("help",), ("help", "unclear"))]
        each = (source, adapted, *policies, np.maximum(source, adapted))
        lines.append((network, float(len(own)), *(100 * float(np.mean(a)) for a in each)))
    columns = (
        Column("data, network"),
        Column("streams", decimals=0),
        Column("never adapt"),
        Column(f"always {ADAPTED}"),
        Column("where it will help"),
        Column("there, and where unclear"),
        Column("the better of both"),
    )
    note = (
        "Accuracy in %, mean over the streams. *Where it will help*: the advised method where that "
        "is the verdict, otherwise the source; likewise *where unclear*. *The better of both*, "
        "stream by stream, can only be chosen with labels."
    )
    return Table("What following the verdict is worth", columns, tuple(lines), note)


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """What the rows of all networks say, in a few sentences."""

    def counted(outcomes: Sequence[str]) -> tuple[int, ...]:
        effects = [effect(row) for row in rows if row["outcome"] in outcomes]
        return len(effects), effects.count("helped"), effects.count("hurt")

    helps, unclear = counted(["help"]), counted(["unclear"])
    against = counted(["no need", "no help", "harm"])
    return (
        f"Where the verdict is that adapting will help ({helps[0]} streams), it helped on "
        f"{helps[1]} and hurt on {helps[2]}. Where it advises against ({against[0]}), adapting "
        f"helped on {against[1]} and hurt on {against[2]}. Where it is unclear ({unclear[0]}), "
        f"adapting helped on {unclear[1]}: there the verdict was more cautious than these streams "
        "required, and a few labels (`--labels`) settle the question."
    )


def commit_rows() -> None:
    """What was measured here, into the docs."""
    found = [json.loads(path.read_text()) for path in sorted(RUNS.glob("*.json"))]
    if found:
        ROWS.write_text("".join(json.dumps(row, sort_keys=True) + "\n" for row in found))


def page() -> str:
    """From the committed rows."""
    rows = [json.loads(line) for line in ROWS.read_text().splitlines()]
    names = [*NETWORKS, DIGITS]
    rows.sort(key=lambda row: names.index(row["network"]))
    other = [row for row in rows if row["network"] not in (SET_WITH, DIGITS)]
    parts = {
        "Networks and data that the thresholds were not set with": other,
        "The network that they were set with": [r for r in rows if r["network"] == SET_WITH],
        "The digits": [row for row in rows if row["network"] == DIGITS],
    }
    tables = [verdict_table(title, own) for title, own in parts.items() if own]
    where = rows[0]["environment"]
    levels = " and ".join(map(str, STRENGTHS))
    head = f"""# How often `diagnose` is right

Measured by `python benchmarks/diagnose_verdicts.py run --cifar10 DIR --cifar100 FILE --weights DIR
--frost DIR`, written by `... page` from `rows/diagnose-verdicts.jsonl`.

`driftnorm diagnose` saw the first part of each stream without labels ({DIAGNOSED:,} images;
{DIGITS_DIAGNOSED} of the digits). Then the unadapted network and `{ADAPTED}` at its defaults were
run on the rest ({JUDGED:,} images; of the digits, the remaining ones of 899; batch {BATCH}, 1 step,
no reset, scored before the update; seed 0, for the digits seeds 0 to 2). *It helped*, *it hurt*:
the 95 % interval of the paired difference (bootstrap over images) lies on one side of zero. Changes
are of accuracy, in points.

Streams: clean, and each of the 15 corruptions at severities {levels} (generated from the official
test sets), shuffled; clean and gaussian noise sorted by class; for the digits, clean and each
shift at each severity. The thresholds were set with a ResNet-20 on corruptions of CIFAR-10, and
checked on the digits. {where["machine"]}, torch {where["torch"]}, driftnorm {where["driftnorm"]}.
"""
    shown = "\n".join(table.to_markdown() for table in (*tables, policy_table(rows)))
    return f"{head}\n{summary(rows)}\n\n{shown}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("run")
    for name in ("cifar10", "cifar100", "weights"):
        own.add_argument(f"--{name}", type=Path, required=True)
    own.add_argument("--frost", type=Path)
    own.add_argument("--workers", type=int, default=2)
    commands.add_parser("page")
    arguments = parser.parse_args()
    if arguments.command == "page":
        commit_rows()
        PAGE.write_text(page())
    else:
        run(arguments)


if __name__ == "__main__":
    main()

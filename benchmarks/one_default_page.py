"""docs/one-default.md, from the rows that benchmarks/one_default.py has measured."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from one_default import (
    BOUNDED,
    COUNTED,
    FAST_METHODS,
    PARTS,
    PASSES,
    QUICK,
    STAGES,
    WINDOW,
    rows_file,
)

from driftnorm.bench.metrics import paired_interval
from driftnorm.bench.rows import Row, load_rows
from driftnorm.methods.spec import parse_method
from driftnorm.views.compare import paired_change
from driftnorm.views.domain_rows import interval_text
from driftnorm.views.stream_tables import harm_against_source, met, sources_of, stream_name
from driftnorm.views.table import Column, Table

PAGE = Path("docs/one-default.md")
FEW = Path("docs/rows/few-classes.jsonl")
SPEED = Path("docs/rows/speed.jsonl")
OWN = "steady"

LONG_SORTED = (("continual+sorted", 10_000), ("clean+sorted", 2000))

Kind: TypeAlias = tuple[str, str, int, str, int]
"""Data, network, batch size, stream, images."""


def rows_of(*stages: str) -> list[Row]:
    """What was measured of some stages."""
    known = [rows_file(stage) for stage in stages]
    return [row for path in known if path.exists() for row in load_rows(path)]


def kind_of(row: Row) -> Kind:
    """What rows of several seeds share."""
    bare = re.sub(r":\S+", "", stream_name(row))
    stream = re.sub(r"^steady(.*) clean$", r"clean\1", bare)  # the stream, not the method
    cell = row.cell
    training = cell.network.training
    unseen = f", {training.left_out[0]} unseen" if training and training.left_out else ""
    network = f"{cell.network.name}{unseen}"
    return cell.stream.data.name, network, cell.protocol.batch_size, stream, cell.stream.count


def by_kind(rows: Sequence[Row]) -> dict[Kind, dict[str, list[Row]]]:
    """Rows of every method on every kind of stream."""
    found: dict[Kind, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(kind_of(row), {}).setdefault(row.method, []).append(row)
    return dict(sorted(found.items()))


def accuracy(rows: Sequence[Row]) -> float:
    """In %, mean over the seeds."""
    return 100 - 100 * float(np.mean([row.metrics["error"] for row in rows]))


def pairs_of(first: Sequence[Row], second: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Rows of two methods on the same streams."""
    others = {met(row): row for row in second}
    return [(row, others[met(row)]) for row in first if met(row) in others]


def goals(rows: Sequence[Row]) -> Table:
    """Where `steady` is, stream by stream, beside the source and the best other method."""
    lines: list[tuple[str | float | None, ...]] = []
    below = behind = clearly = 0
    for (data, network, size, stream, count), found in by_kind(rows).items():
        own = found[OWN]
        others = {m: pairs_of(own, theirs) for m, theirs in found.items() if m != OWN}
        gaps = {m: paired_change(pairs) for m, pairs in others.items()}
        best = min(gaps, key=lambda method: gaps[method].value)
        over, gap = gaps["source"], gaps[best]
        missed = [f"{-over.value:.1f} below the source"] if over.value < -1 else []
        missed += [f"{-gap.value:.1f} behind `{best}`"] if gap.value < -0.5 else []
        below, behind = below + (over.value < -1), behind + (gap.value < -0.5)
        clearly += gap.value < -0.5 and gap.high < 0
        lines.append(
            (
                f"{data}, {network}, batch {size}: {stream}, {count:,} images",
                accuracy(found["source"]),
                accuracy(own),
                interval_text(over),
                f"`{best}` {interval_text(gap)}",
                "; ".join(missed) or "met",
            )
        )
    columns = (
        Column("stream"),
        *map(Column, ("source", OWN, "minus the source's, 95 %", "minus the best other's, 95 %")),
        Column("goals", align="left"),
    )
    note = (
        f"Accuracy in %; differences in points, paired image by image over the orders that both "
        f"have; bootstrap over images. More than 1 point below the source: {below} of "
        f"{len(lines)} streams. More than 0.5 behind the best other, which is chosen with labels "
        f"for each stream: {behind} of {len(lines)}; with an interval below 0: {clearly}."
    )
    return Table("The goals, stream by stream", columns, tuple(lines), note)


def methods(rows: Sequence[Row]) -> Table:
    """Every method over the kinds of stream on which all of them were run."""
    wanted = [str(parse_method(name)) for name in QUICK]
    kinds = {k: f for k, f in by_kind(rows).items() if set(wanted) <= f.keys()}
    sources = sources_of(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for method in wanted:
        own = [found[method] for found in kinds.values()]
        harms = [[harm_against_source(r, sources[met(r)]) for r in each] for each in own]
        gains = [accuracy(f[method]) - accuracy(f["source"]) for f in kinds.values()]
        forwards, backwards = own[0][0].metrics["passes"]
        lines.append(
            (
                f"`{method}`",
                float(np.mean([accuracy(each) for each in own])),
                min(gains),
                sum(gain < -1 for gain in gains),
                min(harm.worst for each in harms for harm in each),
                100 * float(np.mean([np.mean([h.rate for h in each]) for each in harms])),
                f"{forwards:g} + {backwards:g}",
            )
        )
    columns = (
        Column("method"),
        Column("mean accuracy", best="highest"),
        Column("worst stream", best="highest"),
        Column("streams more than 1 below the source", decimals=0, best="lowest"),
        Column("worst window", best="highest"),
        Column("windows below the source, %", decimals=0, best="lowest"),
        Column("passes"),
    )
    note = (
        f"Over the {len(kinds)} streams of the table above on which all of these were run; worst "
        f"stream and worst window ({WINDOW} images) in points relative to the source. Passes: "
        "forward + backward per batch, at most."
    )
    return Table("Methods over all streams", columns, tuple(lines), note)


def against_cotta(rows: Sequence[Row]) -> str:
    """The most expensive method, on the streams on which it was run."""
    ran = [row for row in rows if row.method == "cotta"]
    own = [first for first, _ in pairs_of([r for r in rows if r.method == OWN], ran)]
    sources = sources_of(rows)
    told = []
    for method, mine in (("cotta", ran), (OWN, own)):
        worst = min(harm_against_source(row, sources[met(row)]).worst for row in mine)
        told.append(f"`{method}` {accuracy(mine):.1f} % and {worst:+.1f} points")
    return (
        f"`cotta`, which needs eleven forward passes and one backward pass per batch, was run on "
        f"only {len(ran)} streams of CIFAR-10, in one order; mean accuracy and worst window on "
        f"these: {told[0]}, {told[1]}.\n"
    )


def rates(rows: Sequence[Row]) -> Table:
    """What a learning rate ten times too high costs."""
    fast = by_kind(rows_of("cifar10-resnet20-batch64-rate"))
    normal = by_kind(rows)
    lines: list[tuple[str | float | None, ...]] = []
    for name in FAST_METHODS[1:]:
        method, high = str(parse_method(_slow(name))), str(parse_method(name))
        changes = []
        for kind, found in fast.items():
            first = [row for row in normal[kind][method] if row.seed == 0]
            changes.append(accuracy(found[high]) - accuracy(first))
        lines.append((f"`{method}`", *changes))
    columns = (Column("method"), *(Column(kind[3]) for kind in fast))
    note = (
        "Accuracy at ten times the method's learning rate minus accuracy at its default rate, in "
        "points; CIFAR-10, ResNet-20, batch 64. `steady` has no learning rate."
    )
    return Table("A learning rate ten times too high", columns, tuple(lines), note)


def _slow(name: str) -> str:
    """The same method at its own rate."""
    return re.sub(r":lr=0.01|,lr=0.01", "", name)


def parts() -> Table:
    """What each part of `steady` contributes, on the images on which its constants were chosen."""
    found = by_kind(rows_of("development-batch64", "development-batch8"))
    lines: list[tuple[str | float | None, ...]] = []
    for name in PARTS:
        method = str(parse_method(name))
        means = [
            float(np.mean([accuracy(f[method]) for kind, f in found.items() if kind[2] == size]))
            for size in (64, 8)
        ]
        gains = [accuracy(f[method]) - accuracy(f["source"]) for f in found.values()]
        shown = (("mixed", 1500), ("recurring", 1250), ("continual+sorted", 1500), *LONG_SORTED)
        kinds = [(k, f) for k, f in found.items() if k[2] == 64 and k[3:] in shown]
        chosen = {kind[3:]: accuracy(f[method]) for kind, f in kinds}
        lines.append((f"`{method}`", *means, min(gains), *(chosen[each] for each in shown)))
    columns = (
        Column("method"),
        *map(Column, ("mean, batch 64", "mean, batch 8", "worst stream against the source")),
        *map(Column, ("mixed, 64", "recurring, 64", "sorted, 64")),
        *map(Column, ("10,000 sorted, 64", "2,000 clean, sorted, 64")),
    )
    note = (
        "Measured on the development images, on which the constants were chosen, so these are not "
        "held-out results. `short=0`: without the short window; `temperature=0`: only the best "
        "theta predicts; `margin=0.05`: thetas that are a little behind are run less often; "
        "`spread_memory=256`: the spread is forgotten as fast as the certainty. "
        f"Accuracy in %, {len(found)} streams."
    )
    return Table("What each part contributes", columns, tuple(lines), note)


def passes() -> str:
    """What `steady` costs."""
    rows = [json.loads(line) for line in PASSES.read_text().splitlines()]
    told = {
        method: ", ".join(
            f"{r['passes']:.1f} ({r['stream']}, batch {r['batch']})"
            for r in rows
            if r["method"] == method
        )
        for method in COUNTED
    }
    each = "; ".join(f"`{method}` {numbers}" for method, numbers in told.items())
    runs = [*map(json.loads, SPEED.read_text().splitlines())]
    times = [r["milliseconds"] for r in runs if OWN in r["milliseconds"]][-1]
    ratio = float(np.median(np.array(times[OWN]) / np.array(times["gprebn"])))
    return (
        f"Forward passes per batch, counted on development images, at most 5: {each}. "
        "A step of `gprebn` is one forward and one backward pass. In time, `steady` takes "
        f"{ratio:.1f} times as long as `gprebn` (ResNet-20, batch 200, [speed](speed.md)), so the "
        "cost goal is missed; `margin` trades accuracy for cost (table above). "
        "`bn-window` is the variant that costs as much as `bn`: one pass.\n"
    )


WHERE_IT_LOSES = """## Where it loses

* **A poor source on images sorted by class**: until a second and a third class have come, nothing
  tells right predictions that all name one class from those of a network that has collapsed. What
  `order` adds helps later, and not everywhere enough.
* **A good source and better target statistics**: caution keeps `steady` near the source, as on
  `photo`.
* **A source that names one class for everything**: it may answer the first batches of a stream.
* **Cost** (see below): up to five forward passes per batch.
"""


def few_classes() -> Table:
    """What `benchmarks/few_classes.py` measured, paired with the source image by image."""
    rows = [json.loads(line) for line in FEW.read_text().splitlines()]
    bits = {row["method"]: np.array(row["correct"], dtype=float) for row in rows}
    lines: list[tuple[str | float | None, ...]] = []
    for method, own in bits.items():
        gain = paired_interval([100 * (own - bits["source"])])
        shown = None if method == "source" else interval_text(gain)
        lines.append((f"`{method}`", 100 * float(own.mean()), shown))
    first = rows[0]
    columns = (Column("method"), Column("accuracy"), Column("minus the source's, 95 %"))
    note = (
        f"{first['data']}, {first['images']} images at {first['side']} px, {first['network']}, "
        f"batch {first['batch_size']}, shuffled; a prediction counts as correct if it is any of "
        "ImageNet's classes of that kind."
    )
    return Table("Few of a thousand classes, clean photographs", columns, tuple(lines), note)


HEAD = """# One default

Written by `python benchmarks/one_default_page.py` from `rows/one-default-*.jsonl`.

`steady` was developed on CIFAR-10 test images 0 to 1999 with nine corruptions, on the embedded
digits, and with two networks on PACS. The results below are for other images (2000 to 3999; clean
ones 8000 to 9999) under four other corruptions (motion blur, snow, elastic transform, JPEG;
severity 5), on two data sets and two networks, and for ResNet-50s that were trained here on three
domains of PACS: they meet held-out images of those and of a fourth domain that they never saw. The
split was committed in `benchmarks/one_default.py` before the first of its rows was measured.

`steady` was changed once after a look at held-out rows: those of ResNet-20 on CIFAR-10 in batches
of 64 and 8, where it was 2.4 points below the source on 500 clean images sorted by class. The
change was chosen on development images. The clean images were then exchanged for others and all
rows of `steady` measured again, but the corrupted images of these two stages had been seen. This is
its third version; `benchmarks/one_default.py` says what was wrong with the first two, whose rows
are in the history.

The goals: never more than 1 point below the source; within 0.5 points of the best other method;
ahead of every other method in the mean over streams and in the worst window; no setting to change
for batch sizes from 1 to 500, nor for a learning rate ten times too high; and no more expensive
than `gprebn`.

Not every method was run everywhere, so "the best other" is the best of those that were: ten on most
streams of CIFAR; seven for ResNet-56 and CIFAR-100 at batch 8 and on the long streams of CIFAR-100;
only the source, `bn-prior` and `bn-window` at batch 1 and on PACS, where `tent` and `gprebn` are
missing because the networks are large.

Most streams are short (800 images; 300 at batch 1; 4,000 at batch 500; 500 if clean); the long ones
show 2,000 images under each shift. For CIFAR-10 with ResNet-20 at batch 64, the main streams
were run in three orders, all others in one: a point or two may be noise, and the intervals show how
much. `eata` was first given 512 source images: training images for CIFAR-10, test images outside
the held-out ones for CIFAR-100.
"""


def page() -> str:
    """From the committed rows."""
    measured = [name for name in STAGES if not name.startswith("development")]
    rows = rows_of(*(name for name in measured if not name.endswith("rate")))
    text = [
        HEAD,
        goals(rows).to_markdown(),
        methods(rows).to_markdown(),
        against_cotta(rows),
        WHERE_IT_LOSES,
        few_classes().to_markdown(),
        rates(rows).to_markdown(),
        f"`{parse_method(BOUNDED)}` is `tent` with a bounded step on the statistics of "
        "`bn-window`.\n",
        parts().to_markdown(),
        passes(),
    ]
    return "\n".join(text)


if __name__ == "__main__":
    PAGE.write_text(page())

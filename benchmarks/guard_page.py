"""docs/guard.md, from the rows that guard.py and guard_segmentation.py have measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from guard import POLICIES, SEEDS
from guard_segmentation import read

from driftnorm._internal.partition import partition
from driftnorm.adapter.guard import Guard
from driftnorm.bench.rows import Row, load_rows
from driftnorm.views.stream_tables import met, stream_name
from driftnorm.views.table import Column, Table

PAGE = Path("docs/guard.md")
ROWS = Path("docs/rows")
HARM = 2.0
"""Points below the source that count as harm."""
NAMES = {"digits": "digits", "cifar": "CIFAR-10-C", "segmentation": "segmentation"}


class Case(NamedTuple):
    """A method on a stream, under every policy.

    Attributes:
        data: Digits, CIFAR-10-C or segmentation.
        stream: Its kind.
        domain: What it shows, if that is a single domain.
        batch: Images per batch.
        seed: Of the stream.
        method: Which.
        source: The score of the unadapted network, in %.
        off: The method's without a guard.
        reset: With the guard that starts again.
        freeze: With the guard that stops adapting for a while.
        delay: Images until the first alarm, None without one.
        asked: The share of the images that were shown to the source as well.
    """

    data: str
    stream: str
    domain: str
    batch: int
    seed: int
    method: str
    source: float
    off: float
    reset: float
    freeze: float
    delay: int | None
    asked: float

    def harmed(self, policy: str) -> bool:
        """Whether the method ends clearly below the source."""
        return bool(getattr(self, policy) < self.source - HARM)


def of_streams(name: str) -> list[Case]:
    """Cases of the digits or of CIFAR."""
    file = ROWS / f"guard-{name}.jsonl"
    rows = load_rows(file) if file.exists() else []
    sources = {met(row): row for row in rows if row.method == "source"}
    by_case = partition(
        [row for row in rows if row.method != "source"], lambda row: (met(row), row.method)
    )
    return [
        _case(name, sources[place], {row.cell.protocol.guard: row for row in own})
        for (place, _), own in by_case.items()
        if len(own) == len(POLICIES) and place in sources
    ]


def _case(name: str, source: Row, under: dict[str, Row]) -> Case:
    warned = under["warn"]
    size = warned.cell.protocol.batch_size
    alarms = warned.metrics.get("alarms_at", ())
    return Case(
        NAMES[name],
        warned.cell.stream.ordered,
        stream_name(warned).partition(" ")[2],
        size,
        warned.seed,
        warned.method,
        source=accuracy(source),
        off=accuracy(warned),
        reset=accuracy(under["reset"]),
        freeze=accuracy(under["freeze"]),
        # The batch that raised it has been predicted by then.
        delay=alarms[0] + size if alarms else None,
        asked=warned.metrics.get("asked", 0) / warned.metrics["count"],
    )


def accuracy(row: Row) -> float:
    """In %."""
    return 100 - 100 * float(row.metrics["error"])


def of_segmentation() -> list[Case]:
    """Cases of the small pictures."""
    return [
        Case(
            "segmentation",
            row["order"],
            row["stream"],
            row["batch"],
            row["seed"],
            row["method"],
            source=row["source"],
            off=row["warn"],
            reset=row["reset"],
            freeze=row["freeze"],
            delay=row["delay"],
            asked=row["asked"],
        )
        for row in read()
    ]


GUARDS = ("off", "reset", "freeze")
LEGEND = f"""A case is a stream, a method, a batch size and a seed. *Hits*: cases with an alarm
among those where the method without a guard ends more than {HARM:g} points below the source; *false
alarms*: among the others. *First alarm*: median over the hits, in images; that and the share of
images that the source predicted as well are with `guard="warn"`. Then the mean scores, in %
(accuracy; of segmentation, mean intersection over union), and the number of cases that end more
than {HARM:g} points below the source.
"""
GUARD = Guard()
HOW = f"""The source also predicts the first {GUARD.enough} images, whatever the batch size; later
one in {1 / GUARD.share:.0f} or, while the source seems better, as large a share as the two disagree
on.
Three things raise an alarm:

* predictions spread over less than {GUARD.collapse:.0%} of the classes that the source's cover
  (measured by entropy);
* predictions that are clearly less informative than the source's;
* trained parameters that have moved by more than {GUARD.distance:.0%} of their norm.

Neither of the first two is raised before {GUARD.enough} images have been compared, nor while the
two disagree on at most {GUARD.harmless:.0%} of these images, since their accuracies on them then
differ by at most {100 * GUARD.harmless:.0f} points; the latter is not for dense predictions, where
a class that few positions have could be lost within that bound.

`reset` starts again from the source; `freeze` lets the source answer for {GUARD.hold} images and
then tries again: it adapts, but the source answers until {GUARD.enough} images have been compared.
If that soon fails, it waits twice as long. Every action is one warning, and `adapter.alarms` keeps
the numbers.

## What it does not do

* **It does not notice all harm.** A gradient step makes predictions more certain, right or wrong:
  harm that neither narrows the predictions nor moves the parameters far raises no alarm, and a loss
  of fewer than {100 * GUARD.harmless:.0f} points is let pass on purpose. The only exact bound is
  `adapter.last.disagreement`: on the images that both predicted, the accuracies differ by no more
  than that share.
* **It needs evidence**: {GUARD.enough} images, unless the parameters move far. On a stream sorted
  by class, the harm to these is done, and after `reset` to the next ones, again and again. In small
  batches `freeze` limits the harm there better; it does not rule it out.
* **It raises false alarms**: where labels come in stretches of a few classes, at a rate far too
  high that has done no harm yet, and for `tent` in small batches where the stream changes. Under
  `freeze` one can cost the whole gain, since the source then answers for {GUARD.hold} images or
  more.
* **`steady` does not need it**: it compares itself with the source all the time, and has no guard.
"""

Group: TypeAlias = tuple[str | int, ...]


def outcome(
    cases: Sequence[Case], key: Callable[[Case], Group], names: Sequence[str], title: str
) -> Table:
    """Hits, false alarms, delay, scores and cost of every group of cases."""
    lines: list[tuple[str | float | None, ...]] = []
    for words, own in partition(cases, key).items():
        harmed = [case for case in own if case.harmed("off")]
        fine = [case for case in own if not case.harmed("off")]
        delays = [case.delay for case in harmed if case.delay is not None]
        lines.append(
            (
                *map(str, words),
                f"{len(delays)} of {len(harmed)}",
                f"{sum(case.delay is not None for case in fine)} of {len(fine)}",
                f"{np.median(delays):.0f}" if delays else None,
                *(float(np.mean([getattr(case, p) for case in own])) for p in ("source", *GUARDS)),
                *(float(sum(case.harmed(p) for case in own)) for p in GUARDS),
                100 * float(np.mean([case.asked for case in own])),
            )
        )
    columns = (
        *(Column(name, align="left") for name in names),
        *map(Column, ("hits", "false alarms", "first alarm, images")),
        *map(Column, ("source", "guard off", "reset", "freeze")),
        *(Column(f"harmed, {p}", decimals=0) for p in GUARDS),
        Column("shown to the source, %", decimals=0),
    )
    return Table(title, columns, tuple(lines))


WORST = 8


def single(cases: Sequence[Case], title: str) -> Table:
    """Cases one by one."""
    lines = tuple(
        (
            case.data,
            f"{case.stream} {case.domain}".strip(),
            str(case.batch),
            str(case.seed),
            case.method,
            *(getattr(case, policy) for policy in ("source", *GUARDS)),
            None if case.delay is None else str(case.delay),
        )
        for case in cases
    )
    columns = (
        *(Column(name, align="left") for name in ("data", "stream", "batch", "seed", "method")),
        *map(Column, ("source", "guard off", "reset", "freeze")),
        Column("first alarm, images"),
    )
    return Table(title, columns, lines)


def protocol() -> str:
    """What was measured, and what was not."""
    seeds = {NAMES[name]: len(known) for name, known in SEEDS.items()}
    return (
        "## Protocol\n\n"
        f"Digits: the embedded ones and their small network, {seeds['digits']} seeds, each with "
        "its own network; clean, noise 1 and contrast 1. CIFAR-10-C: ResNet-20, the first 800 test "
        "images, clean and severity 5 of Gaussian noise, contrast, impulse noise and pixelate; one "
        "order. Segmentation: pictures of two digits, "
        "a small network that labels every pixel, two seeds, each with its own network; noise 2, "
        "contrast 1 and 3. Methods: `bn-prior`, `tent` at 0.001 and (not on CIFAR) at 0.3, "
        "`gprebn` at 0.001; one step, predicted before it, never reset within a stream, default "
        "thresholds. Commands: `python benchmarks/guard.py --data digits cifar --cifar FOLDER "
        "--weights FILE`, `python benchmarks/guard_segmentation.py`.\n\n"
        "Not measured: photographs, other networks, more than one order of CIFAR.\n"
    )


def page() -> str:
    """From the committed rows."""
    cases = every_case()
    parts = [
        "# What the guard saves and costs\n",
        "Written by `python benchmarks/guard_page.py` from `rows/guard-*.jsonl`. The default "
        "thresholds were chosen on other corruptions of CIFAR-10 and CIFAR-100. The rule about "
        "agreement was added after inspecting these digits at batches of 4, 8 and 64 and the "
        "segmentation; CIFAR-10-C was not measured at batches of 1, 4 and 64 before it.\n",
        HOW,
        "## Over all streams\n",
        LEGEND,
        outcome(
            cases,
            lambda case: (case.data, case.batch),
            ("data", "batch"),
            "Hits, false alarms, delay and cost",
        ).to_markdown(),
        "## By stream\n",
        "At every batch size. Streams of digits and CIFAR are written as in [streams](streams.md); "
        "segmentation has a shift from the first image on, or from the middle of the stream.\n",
    ]
    for name in NAMES.values():
        own = [case for case in cases if case.data == name]
        made = outcome(own, lambda case: (case.stream, case.batch), ("stream", "batch"), name)
        parts.append(made.to_markdown())
    below = sorted(cases, key=lambda case: case.freeze - case.source)
    lost = sorted(cases, key=lambda case: case.freeze - max(case.off, case.source))
    parts += [
        "## Where it does worst\n",
        single(below[:WORST], "freeze, furthest below the source").to_markdown(),
        single(lost[:WORST], "freeze, furthest below the better of off and source").to_markdown(),
        protocol(),
    ]
    return "\n".join(parts)


def every_case() -> list[Case]:
    """In the order of the page."""
    cases = [case for name in SEEDS for case in of_streams(name)] + of_segmentation()
    place = [*NAMES.values()].index
    streams = [*dict.fromkeys(case.stream for case in cases)]
    return sorted(cases, key=lambda c: (place(c.data), streams.index(c.stream), c.batch, c.seed))


if __name__ == "__main__":
    PAGE.write_text(page())

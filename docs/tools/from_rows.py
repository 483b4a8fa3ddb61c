"""Blocks of the documentation that are made from committed measurements."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.partition import partition
from driftnorm.bench.protocol import protocol_text
from driftnorm.bench.rows import Row, load_rows
from driftnorm.bench.studies.digits import DigitStudy
from driftnorm.errors import MixedRowsError
from driftnorm.methods import METHODS
from driftnorm.views.claim_tables import NOT_MEASURED
from driftnorm.views.compare import in_order, paired_change, stream_of
from driftnorm.views.demo_rows import demo_table
from driftnorm.views.domain_rows import interval_text
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.robustness import VIEWS
from driftnorm.views.stream_tables import STREAM_METHODS, harm_against_source, stream_table
from driftnorm.views.table import Column, Table

DOCS = Path(__file__).resolve().parent.parent
ROWS = DOCS / "rows"
HEADLINE = ("source", "bn", "tent", "gprebn", "gprebn+rt3a")
COST_NETWORK = "wrn-40-2"


@cache
def demo_rows() -> list[Row]:
    """The demo's committed rows, in the demo's order."""
    order = {cell.key: place for place, cell in enumerate(DigitStudy().cells())}
    return sorted(load_rows(ROWS / "demo.jsonl"), key=lambda row: order[row.cell.key])


def demo() -> str:
    """The demo's table, for the methods that one meets first."""
    return demo_table([row for row in demo_rows() if row.method in HEADLINE]).to_markdown()


# --------------------------------------------------------------------------- choosing


def gains() -> str:
    """Every method on the demo: what it changes, where it does worst, what it costs."""
    rows = demo_rows()
    costs = _costs()
    lines: list[tuple[str | float | None, ...]] = []
    for method in dict.fromkeys(row.method for row in rows):
        if method == "source":
            continue
        own = [row for row in rows if row.method == method]
        backward = any(METHODS[part].recipe.needs_backward for part in method.split("+"))
        lines.append(
            (
                f"`{method}`",
                "yes" if backward else "no",
                _change([row for row in own if row.shift == "clean"]),
                _change([row for row in own if row.shift != "clean"]),
                _worst(own),
                f"{sum(row.metrics['alarms'] > 0 for row in own)} of {len(own)}",
                costs["ratios"].get(method),
            )
        )
    columns = (
        Column("method"),
        Column("backward", align="left"),
        Column("clean images"),
        Column("shifted images"),
        Column("worst stream", align="left"),
        Column("streams with an alarm"),
        Column("x inference", decimals=2),
    )
    note = (
        "Change of accuracy against the source in points, paired image by image, with a 95 % "
        f"bootstrap interval. Protocol: {protocol_text(row.cell for row in rows)}; "
        "every method at its defaults, nothing tuned. Cost: time per batch, relative to inference, "
        f"{costs['about']}."
    )
    return Table(
        "What each method changed on the digits", columns, tuple(lines), note
    ).to_markdown()


def _paired(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Each row with the source's on the same stream."""
    sources = {stream_of(r): r for r in demo_rows() if r.method == "source"}
    return [(row, sources[stream_of(row)]) for row in rows]


def _change(rows: Sequence[Row]) -> str:
    return interval_text(paired_change(_paired(rows)))


def _worst(rows: Sequence[Row]) -> str:
    """The kind of stream on which the method does worst against the source, over seeds."""
    changes: dict[str, list[float]] = {}
    for row, source in _paired(rows):
        name = f"{row.shift} {row.severity or ''}".strip()
        change = 100 * (source.metrics["error"] - row.metrics["error"])
        changes.setdefault(name, []).append(change)
    name, worst = min(changes.items(), key=lambda item: np.mean(item[1]))
    return f"{name}: {np.mean(worst):+.1f}"


def _costs() -> dict[str, Any]:
    """Each candidate's median ratio to inference within a round, on one network."""
    for line in (ROWS / "speed.jsonl").read_text().splitlines():
        measured = json.loads(line)
        if measured["network"] == COST_NETWORK:
            times = measured["milliseconds"]
            ratios = {
                name: median(a / b for a, b in zip(own, times["inference"], strict=True))
                for name, own in times.items()
            }
            about = f"{COST_NETWORK}, {measured['about']}, `{measured['command']}`"
            return {"ratios": ratios, "about": about}
    raise ValueError(f"rows/speed.jsonl has no measurement of {COST_NETWORK}.")


def clean_cost() -> str:
    """What adapting costs on images that have not drifted, network by network."""
    every = load_rows(ROWS / "robustness-cifar10-augmentation.jsonl")
    rows = {(row.cell.network, row.method): row for row in every if not row.cell.stream.shifts}
    lines: list[tuple[str | float | None, ...]] = []
    for network in sorted({network for network, _ in rows}, key=lambda network: network.label):
        source, adapted = (rows[network, method] for method in ("source", "gprebn"))
        interval = interval_text(paired_change([(source, adapted)]))
        errors = (100 * row.metrics["error"] for row in (source, adapted))
        trained = network.training.trainer.label if network.training else network.name
        lines.append((trained, *errors, interval))
    columns = (
        Column("trained with"),
        Column("source", decimals=1),
        Column("gprebn", decimals=1),
        Column("gprebn minus source, 95 %"),
    )
    note = (
        "Error in %. ResNet-20; resnet20 is the downloaded network, the others were trained "
        f"further with an augmentation. {protocol_text(row.cell for row in rows.values())}: the "
        "clean images. Paired bootstrap over images."
    )
    return Table("Clean images of CIFAR-10", columns, tuple(lines), note).to_markdown()


def small_batches() -> str:
    """Error against batch size on the digits, with batches down to one image."""
    rows = load_rows(ROWS / "small-batches.jsonl")
    return _by_batch_size(rows, "Error in % against batch size", "small_batches.py")


def small_batches_cifar10() -> str:
    """The same on corrupted photographs: the mean, and contrast alone."""
    rows = load_rows(ROWS / "small-batches-cifar10.jsonl")
    contrast = [row for row in rows if row.shift == "contrast"]
    command = "small_batches.py --cifar FOLDER --weights FILE"
    tables = (
        _by_batch_size(rows, "Error in % against batch size, mean of the corruptions", command),
        _by_batch_size(contrast, "Contrast alone", command),
    )
    return "\n".join(tables)


def _by_batch_size(rows: Sequence[Row], title: str, command: str) -> str:
    sizes = sorted({row.cell.protocol.batch_size for row in rows})
    errors: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        own = errors.setdefault(row.method, {})
        own.setdefault(row.cell.protocol.batch_size, []).append(100 * row.metrics["error"])
    lines: list[tuple[str | float | None, ...]] = []
    for method, own in sorted(errors.items(), key=lambda item: (item[0] != "source", item[0])):
        # The source answers each image alone: its error is that of every batch size.
        alone = [error for each in own.values() for error in each] if method == "source" else []
        means = (float(np.mean(own.get(size, alone))) for size in sizes)
        lines.append((f"`{method}`", *means))
    columns = (Column("method"), *(Column(f"batch {size}", best="lowest") for size in sizes))
    common = protocol_text(row.cell for row in rows)
    shifts = ", ".join(sorted({row.shift for row in rows}))
    note = f"{shifts}; {common}. Every method at its defaults. `python docs/tools/{command}`"
    return Table(title, columns, tuple(lines), note).to_markdown()


def guard() -> str:
    """What the guard does for the digits, sorted by class, by method."""
    rows = [
        row
        for row in load_rows(ROWS / "guard-digits.jsonl")
        if row.cell.stream.order == "steady+sorted"
        and row.cell.protocol.batch_size == 8
        and row.severity
    ]
    source = {
        shift: _accuracy([row for row in rows if (row.method, row.shift) == ("source", shift)])
        for shift in sorted({row.shift for row in rows})
    }
    lines = []
    for (shift, method), own in partition(rows, lambda row: (row.shift, row.method)).items():
        if method == "source":
            continue
        under = {
            policy: [row for row in own if row.cell.protocol.guard == policy]
            for policy in ("warn", "reset", "freeze")
        }
        alarmed = sum(row.metrics["alarms"] > 0 for row in under["warn"])
        scores = map(_accuracy, under.values())
        alarms = f"{alarmed} of {len(under['warn'])}"
        lines.append((shift, f"`{method}`", source[shift], *scores, alarms))
    lines.sort()
    columns = (
        Column("shift"),
        Column("method", align="left"),
        *map(Column, ("source", "no guard, or warn", "reset", "freeze")),
        Column("streams with an alarm"),
    )
    cells = [row.cell for row in rows if row.method != "source"]
    note = f"Accuracy in %, mean over the seeds. {protocol_text(cells)}."
    return Table("Digits, sorted by class", columns, tuple(lines), note).to_markdown()


def _accuracy(rows: Sequence[Row]) -> float:
    return 100 - 100 * float(np.mean([row.metrics["error"] for row in rows]))


# --------------------------------------------------------------------------- robustness

_NOT_MEASURED = (
    "Not measured yet: there are no rows in `docs/rows/robustness-*.jsonl`. "
    "`python benchmarks/evidence_robustness.py run` measures them."
)


def robustness_rows() -> list[Row]:
    """All that were measured on whole test sets; slices are for the comparison of networks."""
    found = [row for path in sorted(ROWS.glob("robustness-*.jsonl")) for row in load_rows(path)]
    most = max((row.cell.stream.count for row in found), default=0)
    return [row for row in found if row.cell.stream.count == most]


def claims() -> str:
    """The paper's claims about robustness, a table for each network and data set."""
    made = [f"{label}:\n\n{table.to_markdown()}" for label, table in _robustness_claims()]
    return "\n\n".join(made) or _NOT_MEASURED


def domain_claims() -> str:
    """The paper's claims about unseen domains, a table a data set, network and batch size."""
    made = [f"{label}:\n\n{table.to_markdown()}" for label, table in _domain_claims()]
    return "\n\n".join(made) or (
        "Not measured yet: there are no rows in `docs/rows/domains-*.jsonl`. "
        "`python benchmarks/evidence_domains.py` measures them."
    )


def claims_overview() -> str:
    """All verdicts at a glance: a line for each claim, a column for each network and data set."""
    both = (("in error", _robustness_claims()), ("in accuracy", _domain_claims()))
    return "\n\n".join(_at_a_glance(*each).to_markdown() for each in both)


def _robustness_claims() -> list[tuple[str, Table]]:
    """Whole test sets; and slices of them, in all their orders, for the claims they are about."""
    rows = [row for path in sorted(ROWS.glob("robustness-*.jsonl")) for row in load_rows(path)]
    own = [r for r in rows if r.cell.protocol.batch_size == 200 and r.cell.stream.count != 1000]

    def kind(row: Row) -> tuple[int, str, str]:
        return row.cell.stream.count, row.cell.stream.data.label, row.network

    made, view = [], VIEWS["claims"]
    groups = partition(sorted(own, key=kind), kind)
    # Whole test sets first.
    for (count, data, network), found in sorted(groups.items(), key=lambda g: -g[0][0]):
        whole = count == 10_000
        if not whole:  # other severities are of one corruption alone
            found = [r for r in found if r.severity == 5 and r.method in VIEWS["summary"].methods]
        orders = len({row.seed for row in found})
        label = f"{data}, {network.partition('@')[0]}"
        if not whole:
            label += f", {counted(count, 'image')}" + f" in {orders} orders" * (orders > 1)
        table = view.make(in_order(found, view.methods))
        if not whole:
            kept = tuple(row for row in table.rows if row[1] != NOT_MEASURED)
            table = replace(table, rows=kept)
        made.append((label, table))
    return made


def _domain_claims() -> list[tuple[str, Table]]:
    paths = sorted(set(ROWS.glob("domains-*.jsonl")) - {ROWS / "domains-trained.jsonl"})
    rows = [row for path in paths for row in load_rows(path)]
    view = DOMAIN_VIEWS["domains-claims"]
    return [
        (f"{data}, {network}, batch {size}", view.make(in_order([*own], view.methods)))
        for (data, network, size), own in groupby(sorted(rows, key=_kind), key=_kind)
    ]


_AUGMENTED = "trained with augmentation"


def budget() -> str:
    """How long the measurements behind the claims took."""
    adapting: dict[str, list[Row]] = {}
    for pattern in ("robustness-*", "domains-*", "suspects-*", "stale-*"):
        for path in sorted(set(ROWS.glob(f"{pattern}.jsonl")) - {ROWS / "domains-trained.jsonl"}):
            for row in load_rows(path):
                cell = row.cell
                network = cell.network.kind if cell.network.training else cell.network.name
                network = _AUGMENTED if "/" in network else network  # files, trained here
                adapting.setdefault(f"{cell.stream.data.label}, {network}", []).append(row)
    training: dict[str, float] = {}
    for line in (ROWS / "domains-trained.jsonl").read_text().splitlines():
        run = json.loads(line)
        made = run["identity"]
        name = f"{made['data']}, {made['backbone']} at {made['image_shape'][1]} px, "
        name += f"{made['batch_norm']} BN"
        training[name] = training.get(name, 0.0) + run["seconds"] / 3600
    augmented = [*map(json.loads, (ROWS / "trained-robustness.jsonl").read_text().splitlines())]
    (name,) = (name for name in adapting if name.endswith(_AUGMENTED))
    training[name] = sum(run["seconds"] for run in augmented) / 3600
    lines = tuple(
        (
            name,
            float(len(adapting.get(name, ()))),
            sum(row.metrics["seconds"] for row in adapting.get(name, ())) / 3600,
            training.get(name),
        )
        for name in sorted({*adapting, *training})
    )
    columns = (
        Column("data, network"),
        Column("streams", decimals=0),
        Column("hours of adapting", decimals=1),
        Column("hours of training", decimals=1),
    )
    note = (
        "Wall time of one thread, mostly beside other work on the same two cores; without the time "
        "to read and corrupt images."
    )
    return Table("What the measurements took", columns, lines, note).to_markdown()


def _at_a_glance(measure: str, found: Sequence[tuple[str, Table]]) -> Table:
    lines: dict[str, list[str]] = {}
    for place, (_, table) in enumerate(found):
        for claim, judged, change, *_ in table.rows:
            line = lines.setdefault(str(claim), ["-"] * len(found))
            if judged != "not measured" and line[place] == "-":  # plain training comes first
                line[place] = f"{judged} ({str(change).partition(' [')[0]})"
    columns = (Column("claim"), *(Column(label, align="left") for label, _ in found))
    note = f"In brackets the difference {measure}, in points; intervals are below."
    rows = tuple((claim, *line) for claim, line in lines.items())
    return Table("The claims at a glance", columns, rows, note)


def _kind(row: Row) -> tuple[str, str, int]:
    return row.cell.stream.data.label, row.cell.network.kind, row.cell.protocol.batch_size


def robustness() -> str:
    """What the robustness rows say, as far as there are any."""
    rows = robustness_rows()
    tables = [*_summaries(rows), *_batch_sizes(rows)]
    if not tables:
        return _NOT_MEASURED
    page = DOCS / "robustness.md"
    more = ["[All tables of the robustness runs](robustness.md)."] if page.exists() else []
    return "\n\n".join([*tables, *more])


def _summaries(rows: Sequence[Row]) -> list[str]:
    """Mean error of the main methods, a table for each network and data set."""
    view = VIEWS["summary"]
    main = [r for r in rows if r.method in view.methods and r.cell.protocol.batch_size == 200]
    return _tables("summary", main, lambda row: (row.cell.stream.data.label, row.network))


def _batch_sizes(rows: Sequence[Row]) -> list[str]:
    """Error against batch size, on the streams that every batch size met."""
    view = VIEWS["batch-size"]
    own = [row for row in rows if row.method in view.methods]
    met: dict[int, set[object]] = {}
    for row in own:
        streams = met.setdefault(row.cell.protocol.batch_size, set())
        streams.add((row.network, row.shift, row.severity))
    if len(met) < 2:
        return []
    shared = set.intersection(*met.values())
    same = [r for r in own if (r.network, r.shift, r.severity) in shared]
    return _tables("batch-size", same, lambda row: (row.cell.stream.data.label, row.network))


def _tables(name: str, rows: Sequence[Row], kind: Callable[[Row], tuple[str, str]]) -> list[str]:
    made = []
    for (data, model), own in groupby(sorted(rows, key=kind), key=kind):
        try:
            table = VIEWS[name].make(in_order([*own], VIEWS[name].methods))
        except MixedRowsError:
            continue  # a run that is not finished
        made.append(f"{data}, {model}:\n\n{table.to_markdown()}")
    return made


# --------------------------------------------------------------------------- concepts


@cache
def concepts() -> dict[str, Any]:
    """What `make_pictures.py` measured."""
    found: dict[str, Any] = json.loads((ROWS / "concepts.jsonl").read_text())
    return found


def concept_statistics() -> str:
    """Distance of each layer's input from training, on clean and on shifted images."""
    found = concepts()
    lines = tuple(
        (f"BN {number}", *(found["distance"][kind][layer] for kind in found["distance"]))
        for number, layer in enumerate(found["layers"], start=1)
    )
    columns = (Column("layer"), *(Column(kind, decimals=2) for kind in found["distance"]))
    title = "Distance of a layer's input from its training statistics, in deviations"
    return Table(title, columns, lines, found["notes"]["distance"]).to_markdown()


def concept_gradient() -> str:
    """How much of the gradient pushes a whole channel, on either path."""
    found = concepts()
    lines = tuple(
        (f"BN {number}", *(100 * found["pushing"][path][layer] for path in found["pushing"]))
        for number, layer in enumerate(found["layers"], start=1)
    )
    columns = (Column("layer"), *(Column(path) for path in found["pushing"]))
    title = "Share of the gradient that shifts or scales a whole channel, in %"
    return Table(title, columns, lines, found["notes"]["pushing"]).to_markdown()


def concept_rates() -> str:
    """Error with either gradient path against the learning rate."""
    found = concepts()["rates"]
    lines = tuple(
        (path, *(100 * error for error in errors)) for path, errors in found["error"].items()
    )
    columns = (
        Column("gradient"),
        *(Column(f"rate {rate:g}", best="lowest", decimals=1) for rate in found["rates"]),
    )
    return Table("Error in %", columns, lines, found["note"]).to_markdown()


def engine_overhead() -> str:
    """What a batch costs beside the engine before the open contract."""
    rows = [*map(json.loads, (ROWS / "engine-overhead.jsonl").read_text().splitlines())]
    lines = tuple(
        (
            f"`{row['method']}`, batch {row['batch']}",
            f"{row['time']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            row["fastest"],
            row["milliseconds"],
            f"{row['operations']:,} and {row['other_operations']:,}",
            f"{row['megabytes']:.1f} and {row['other_megabytes']:.1f}",
        )
        for row in rows
    )
    columns = (
        Column("method"),
        Column("time, this / before"),
        Column("fastest round, this / before", decimals=2),
        Column("ms, this"),
        Column("tensor operations"),
        Column("tensors, MB"),
    )
    note = (
        f"ResNet-20, 32 px, one thread, guard off; {counted(rows[0]['rounds'], 'round')} in turn, "
        "by six pairs of processes on an otherwise idle machine; processor time, median and "
        "quartiles of the ratios. Pairs differ by several percent, up or down, by how their memory "
        "happens to lie. "
        "Operations and memory are exact: per batch, this version and the one before. `python "
        "benchmarks/against.py SRC` with the sources before the contract (the parent of commit "
        "58c4775)."
    )
    return Table(
        "The engine before and after the open contract", columns, lines, note
    ).to_markdown()


_ABLATION = (
    ("window", "averaged variances instead", "bn:running=True"),
    ("", "raw second moments, all batches alike", "bn:average=total,running=True"),
    ("", "**window of samples**", "bn-window"),
    ("", "without the source half", "bn-window:theta=1"),
    ("", "full theta from the first image", "bn-window:prior=0"),
    ("jump", "without the detector", "bn-window:jump=1000000000.0"),
    ("bounded step", "the usual rate", "tent"),
    ("", "ten times the rate", "tent:lr=0.01"),
    ("", "and a cap", "tent:cap=0.004,lr=0.01"),
    ("", "and a leash", "tent:leash=0.1,lr=0.01"),
    ("", "and an anchor", "tent:anchor=0.01,lr=0.01"),
    ("", "**and cap and leash**", "tent:cap=0.004,leash=0.1,lr=0.01"),
    ("theta", "1", "bn"),
    ("", "**auto**", "bn:theta=auto"),
    ("", "1", "gprebn"),
    ("", "0.5", "gprebn:theta=0.5"),
    ("", "**auto**", "gprebn:theta=auto"),
    ("gate", "no answer", "bn-window"),
    ("", "always", "bn-window+lame"),
    ("", "**where labels are in order**", "bn-window+lame:gated=True"),
    ("", "always", "bn-window+prior"),
    ("", "**where labels are in order**", "bn-window+prior:gated=True"),
)
"""What is varied, how, and the method that does it."""


def stream_parts() -> str:
    """What each part of the recipe does on a stream that changes, shuffled and sorted."""
    rows = [r for r in _part_rows() if r.cell.protocol.batch_size == 8]
    orders = ("continual", "continual+sorted")
    sources = {row.cell.stream.order: row for row in rows if row.method == "source"}
    held = {(row.method, row.cell.stream.order): row for row in rows}
    lines = [("", "unadapted", "`source`", *(_right(sources[order]) for order in orders), None)]
    for part, how, method in _ABLATION:
        own = [held[method, order] for order in orders]
        worst = min(harm_against_source(row, sources[row.cell.stream.order]).worst for row in own)
        lines.append((part, how, f"`{method}`", *map(_right, own), worst))
    columns = (
        Column("part"),
        Column("how", align="left"),
        Column("method", align="left"),
        Column("shuffled", decimals=1),
        Column("sorted by class", decimals=1),
        Column("worst window", decimals=1),
    )
    note = (
        "Accuracy in %; clean, speckle noise, spatter, saturate, Gaussian blur and contrast follow "
        f"each other. Worst window: of {rows[0].metrics['window']} images on either stream, "
        "against the source's, in points. ResNet-20, "
        f"{protocol_text([row.cell for row in rows])}. Development images and corruptions, on "
        "which constants were chosen: not a result; a point or two is noise."
    )
    return Table("What each part does", columns, tuple(lines), note).to_markdown()


def stream_parts_single() -> str:
    """One image at a time, with a window and without."""
    rows = [r for r in _part_rows() if r.cell.protocol.batch_size == 1]
    return stream_table(in_order(rows, STREAM_METHODS)).to_markdown()


@cache
def _part_rows() -> list[Row]:
    return load_rows(ROWS / "stream-parts.jsonl")


def _right(row: Row) -> float:
    return 100 - 100 * float(row.metrics["error"])


ROW_BLOCKS: Mapping[str, Callable[[], str]] = {
    "demo": demo,
    "gains": gains,
    "clean-cost": clean_cost,
    "small-batches": small_batches,
    "small-batches-cifar10": small_batches_cifar10,
    "guard": guard,
    "robustness": robustness,
    "claims-overview": claims_overview,
    "claims": claims,
    "claims-domains": domain_claims,
    "claims-budget": budget,
    "engine-overhead": engine_overhead,
    "stream-parts": stream_parts,
    "stream-parts-single": stream_parts_single,
    "concept-statistics": concept_statistics,
    "concept-gradient": concept_gradient,
    "concept-rates": concept_rates,
}

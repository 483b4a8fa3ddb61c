"""The domain-generalization evidence: real runs, and the page that is written from their rows.

    python benchmarks/evidence_domains.py train-pacs --data PACS --weights FILE [--targets sketch]
    python benchmarks/evidence_domains.py train-pacs --data PACS --weights FILE --features fixed
    python benchmarks/evidence_domains.py train-pacs --data PACS --weights FILE --batch-norm frozen
    python benchmarks/evidence_domains.py train-pacs --data PACS --weights FILE --trials 1 2
    python benchmarks/evidence_domains.py bench-pacs --data PACS --batch-sizes 32 64 [--trials 0]
    python benchmarks/evidence_domains.py bench-pacs --data PACS --limit 100 --suspects
    python benchmarks/evidence_domains.py bench-batches --data PACS
    python benchmarks/evidence_domains.py train-digits --data MNIST [--algorithms erm ...]
    python benchmarks/evidence_domains.py bench-digits --data MNIST
    python benchmarks/evidence_domains.py bench-digits --data MNIST --stale --batch-sizes 32 128
    python benchmarks/evidence_domains.py page

Everything is resumable and can be killed at any time; runs are kept in RUNS. `page` puts the rows
into docs/rows/domains-*.jsonl and writes docs/domains.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from driftnorm._internal.launch import LAUNCHERS
from driftnorm.bench.rows import Row, RowStore, load_rows, save_rows
from driftnorm.bench.runner import run, summary
from driftnorm.bench.studies.domains import DomainStudy, read_trained
from driftnorm.bench.studies.measured_network import MeasuredNetwork
from driftnorm.bench.studies.stream_data.domain_data import DomainData
from driftnorm.bench.studies.streams import StreamStudy
from driftnorm.bench.vocabulary import ABLATIONS, MAIN, VALIDATION
from driftnorm.errors import MixedRowsError
from driftnorm.images.domains.named import open_arrays
from driftnorm.methods.spec import parse_method
from driftnorm.streams import parse_stream
from driftnorm.training import Hooks
from driftnorm.training.domains.algorithms import ALGORITHMS
from driftnorm.training.domains.domain_training import DomainTraining
from driftnorm.training.domains.hparams import default_hparams
from driftnorm.views.compare import in_order, paired_change
from driftnorm.views.domain_rows import at_selected, change_text, interval_text, on_targets
from driftnorm.views.domain_tables import DOMAIN_VIEWS
from driftnorm.views.table import Column, Table
from driftnorm.views.trainings import RUN_VIEWS, FinishedRun, finished_run, selected_networks

RUNS = Path("runs/evidence/domains")
ROWS, PAGE = Path("docs/rows"), Path("docs/domains.md")
TRAINED = ROWS / "domains-trained.jsonl"
SUSPECT_ROWS = ROWS / "suspects-pacs.jsonl"
LONG_ROWS = ROWS / "suspects-pacs-1000.jsonl"
"""Of networks that were trained for 1,000 steps instead of 250."""
BATCH_ROWS = ROWS / "suspects-batches.jsonl"
STALE_ROWS = ROWS / "stale-rotatedmnist.jsonl"
PACS = ("art_painting", "cartoon", "photo", "sketch")
ANGLES = ("0", "15", "30", "45", "60", "75")
# Where target statistics do harm: in all layers, and in all but the last quarter of them.
PARTLY = ("source", "bn", "bn:only=first(0.75)")
AT_ONE = "gprebn:theta=1"
BATCH_METHODS = ("source", "bn", "bn:running=True")
SUSPECTS = ("source", "bn", "tent", AT_ONE, "gprebn")
STALE = (
    *("source", "bn", "bn:running=True", "tent:lr=0.001", "gprebn:lr=0.001", "tent:lr=0.01"),
    *("gprebn:lr=0.01", "gprebn:lr=0.01,momentum=0.1", "gprebn:lr=0.01,momentum=0.5"),
    *("tent:lr=0.01@bn-window", "gprebn:cap=0.004,leash=0.1,lr=0.01"),
    "gprebn:cap=0.004,leash=0.1,lr=0.01,momentum=0.1",
)
"""What is to blame where GpreBN collapses over a long stream: the rate, the average, or both."""
REMARKS = {  # what a reader of a table of trainings must know
    ("RotatedMNIST", "mnist-gn"): "Settings: MMD and IRM were also trained with 32 images per "
    "domain and step, the others with 8 only, so MMD's lead is due to batch size. With 8, MMD ends "
    "at chance: one in 8 of the distances in its penalty is that of an image to itself, 0, and the "
    "penalty is smallest when all features are equal. 400 steps are too few for the algorithms "
    "that learn more slowly (mixup, MixStyle, RSC, ARM, IRM); this shows that all twelve can be "
    "trained, not which is best.",
}
RATES = {  # how the learning rate was chosen
    "efficientnet-lite0": "The learning rate is the better of 5e-5 and 2e-4 by validation after 60 "
    "steps (target sketch); with fixed features it is 10 times that, without a search.",
    "resnet50-v1": "The rate is DomainBed's default; no other was tried.",
}


def train(plan: DomainTraining, data: str, side: int, folder: Path) -> None:
    """One run, with a line for every evaluation."""

    def say(record: Any) -> None:
        numbers = {name: round(value, 4) for name, value in record.items()}
        print(folder.name, json.dumps(numbers), flush=True)

    begun = time.perf_counter()
    outcome = plan.run(open_arrays(data, side), folder, hooks=Hooks(on_record=say))
    print(f"{folder.name}: {outcome.stop}, {time.perf_counter() - begun:.0f} s", flush=True)


def train_pacs(arguments: argparse.Namespace) -> None:
    for trial in arguments.trials:
        for target in arguments.targets or PACS:
            plan = DomainTraining(
                "erm",
                (target,),
                backbone=arguments.backbone,
                weights=str(arguments.weights),
                steps=arguments.steps,
                batch_size=arguments.batch_size,
                lr=arguments.lr,
                swad=arguments.swad,
                evaluate_every=arguments.evaluate_every,
                evaluate_images=arguments.evaluate_images,
                precision=arguments.precision,
                features=arguments.features,
                batch_norm=arguments.batch_norm,
                trial_seed=trial,
                seed=trial,
            )
            kind = "swad-" if arguments.swad else "fixed-" if plan.features == "fixed" else ""
            how = f"{plan.batch_norm}-s{plan.steps}-p{arguments.side}"
            name = f"pacs-{plan.backbone}-{kind}erm-{target}-{how}-t{trial}"
            train(plan, str(arguments.data), arguments.side, RUNS / name)


def train_digits(arguments: argparse.Namespace) -> None:
    for backbone in arguments.backbones:
        for algorithm in arguments.algorithms or [*ALGORITHMS, "swad"]:
            for target in arguments.targets or ANGLES:
                name = "erm" if algorithm == "swad" else algorithm
                hparams = default_hparams(name, digits=True)
                common = {
                    k: hparams.pop(k) for k in ("lr", "weight_decay", "dropout", "batch_size")
                }
                plan = DomainTraining(
                    name,
                    (target,),
                    backbone=backbone,
                    batch_norm="trained",
                    steps=arguments.steps,
                    batch_size=arguments.batch_size or int(common["batch_size"]),
                    lr=float(common["lr"]),
                    options=tuple(sorted(hparams.items())),
                    swad=algorithm == "swad",
                    evaluate_every=arguments.evaluate_every,
                    evaluate_images=arguments.evaluate_images,
                    every_split=True,
                )
                place = RUNS / f"digits-{backbone}-{algorithm}-{target}-b{plan.batch_size}"
                train(plan, f"rotated-mnist:{arguments.data}", 28, place)


def bench(arguments: argparse.Namespace, prefix: str, data: str) -> None:
    folders = [folder for folder in sorted(RUNS.glob(f"{prefix}*")) if _wanted(folder, arguments)]
    files = [str(file) for folder in folders for file in selected_networks(folder)]
    kept, usual = "rows", tuple(dict.fromkeys((*MAIN, *ABLATIONS)))
    for special, methods in (("suspects", SUSPECTS), ("stale", STALE)):
        if getattr(arguments, special, False):
            kept, usual = special, methods
    for size in arguments.batch_sizes:
        study = DomainStudy(
            data,
            tuple(files),
            tuple(arguments.methods or usual),
            grid="single" if kept == "stale" else arguments.grid,
            batch_size=size,
            validation_limit=arguments.limit,
            targets="selected",
        )
        store = RowStore(RUNS / kept)
        done, missing = sum(map(store.has, study.cells())), len(study.outlook(store).cells)
        print(f"batch {size}: {done} done, at most {missing} to do", flush=True)
        for result in run(study, store, LAUNCHERS["processes"], arguments.workers):
            print(summary(result), flush=True)


def _wanted(folder: Path, arguments: argparse.Namespace) -> bool:
    """Whether a run is of the targets and trials that were asked for; all, unless some were."""
    trials = getattr(arguments, "trials", None)
    of_trial = trials is None or any(folder.name.endswith(f"-t{trial}") for trial in trials)
    targets = arguments.targets
    return of_trial and (not targets or any(f"-{name}-" in folder.name for name in targets))


def trained_rows() -> list[dict[str, Any]]:
    """What finished training runs reached: those of earlier machines, and those of this one."""
    earlier = TRAINED.read_text().splitlines() if TRAINED.exists() else []
    here = [
        {"run": path.parent.name, **json.loads(path.read_text())}
        for path in RUNS.glob("*/history.json")
    ]
    every = [*map(json.loads, earlier), *here]
    once = {(run["identity"]["backbone"], run["run"]): run for run in every}
    return [run for _, run in sorted(once.items())]


HEAD = """# Domain generalization: what we measured

Written by `python benchmarks/evidence_domains.py page` from `rows/domains-*.jsonl`. Settings
of test-time methods are selected on the training domains' held-out splits, after adaptation, never
on the target.
"""


def trained_tables(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Every algorithm beside DomainBed's, a table for each data set and network."""
    found = [finished_run(Path(run["run"]) / "history.json", run) for run in runs]
    kinds = sorted({(run.identity["data"], run.identity["backbone"]) for run in found})
    for kind in kinds:
        own = [r for r in found if (r.identity["data"], r.identity["backbone"]) == kind]
        if any(f"{target} in" not in own[0].history[0] for target in own[0].tested):
            # For the test-time methods, which score the target themselves.
            yield f"## {kind[0]}, {kind[1]}: the networks\n"
            yield networks_table(own, runs).to_markdown()
            continue
        yield f"## {kind[0]}, {kind[1]}: training algorithms\n"
        yield RUN_VIEWS["selected-training"].make(own).to_markdown()
        if kind in REMARKS:
            yield f"{REMARKS[kind]}\n"


def networks_table(found: Sequence[FinishedRun], runs: Sequence[dict[str, Any]]) -> Table:
    """How networks were trained that are only there to be adapted."""
    seconds = {run["run"]: run["seconds"] for run in runs}
    lines = tuple(
        (
            f"{run.trainer.label} -> {' '.join(sorted(run.tested))}",
            run.identity["batch_norm"],
            run.identity["image_shape"][1],
            f"{run.identity['lr']:g}",
            run.identity["steps"],
            run.identity["batch_size"],
            seconds[run.folder.name] / 60,
            100 * run.best_validation,
        )
        for run in found
    )
    columns = (
        Column("network"),
        Column("batch norm"),
        Column("px", decimals=0),
        Column("rate"),
        Column("steps", decimals=0),
        Column("images per domain and step", decimals=0),
        Column("minutes", decimals=1),
        Column("validation, %", decimals=1),
    )
    common = found[0].identity
    seen = common["evaluate_images"]
    note = (
        f"{common['backbone']} from {common['weights']}, {common['precision']}, one thread each. "
        f"Validation: mean accuracy on at most {seen} held-out images of each training domain, the "
        f"best of all evaluations. Minutes of wall time, mostly beside other work. "
        f"{RATES[common['backbone']]}"
    )
    return Table("Networks for the test-time methods", columns, lines, note)


def bench_batches(arguments: argparse.Namespace) -> None:
    """Batch statistics on domains that a network knows: batches of one domain, and of several."""
    for folder in sorted(RUNS.glob("pacs-efficientnet-lite0-erm-*-trained-s250-p112-t0")):
        (file,) = selected_networks(folder)
        unseen = read_trained(str(file)).test_domains
        seen = tuple(name for name in PACS if name not in unseen)
        study = StreamStudy(
            DomainData(str(arguments.data), (MeasuredNetwork(str(file)),), seen),
            tuple(map(parse_stream, ("continual:part=300", "mixed:part=300"))),
            tuple(map(parse_method, BATCH_METHODS)),
            batch_size=50,
            window=300,
        )
        for result in run(study, RowStore(RUNS / "batches")):
            print(summary(result), flush=True)


def batches(rows: Sequence[Row]) -> Table:
    """What batch statistics cost on known domains, by what a batch is made of."""
    lines = []
    for network in sorted({row.network for row in rows}):
        for order, name in (("continual", "one domain"), ("mixed", "three domains")):
            own = [r for r in rows if r.network == network and r.cell.stream.order == order]
            if not own:
                continue
            by_method = {row.method: row for row in own}
            source = by_method["source"]
            training = source.cell.network.training
            assert training is not None
            changes = [paired_change([(by_method[m], source)]) for m in BATCH_METHODS[1:]]
            lines.append(
                (
                    f"{source.cell.network.name}, all but {training.left_out[0]}",
                    name,
                    100 - 100 * source.metrics["error"],
                    *map(interval_text, changes),
                )
            )
    columns = (
        Column("network, trained on"),
        Column("a batch is of", align="left"),
        Column("source, %", decimals=1),
        *map(Column, BATCH_METHODS[1:]),
    )
    note = (
        "Held-out images of the three domains that a network was trained on, 300 of each, shuffled "
        "within a domain or over all of them; batch 50; 112 px, batch norm trained for 250 steps "
        "on batches of all three. Accuracy of the source, and points gained over it, with 95 % "
        "intervals paired over images."
    )
    return Table("Batches of one domain, batches of several", columns, tuple(lines), note)


def at_best(rows: Sequence[Row]) -> list[Row]:
    """At the setting that was selected; as far as targets were measured."""
    return at_selected(rows) if on_targets(rows) else []


def suspects(found: Sequence[tuple[int, Sequence[Row]]]) -> Table:
    """Whether target statistics help, by what the training did; one line for each training."""
    lines = []
    for steps, rows in found:
        for kind in sorted({(row.cell.network.kind, row.network) for row in rows}):
            own = [row for row in rows if (row.cell.network.kind, row.network) == kind]
            by_method = {name: [row for row in own if row.method == name] for name in SUSPECTS}
            source = on_targets(by_method["source"])
            if not source or not on_targets(by_method["bn"]):
                continue
            chosen = [by_method["bn"], *map(at_best, (by_method[name] for name in SUSPECTS[2:]))]
            thetas = {dict(row.cell.method.settings)["theta"] for row in chosen[-1]}
            lines.append(
                (
                    f"{kind[0]}, target {source[0].shift}",
                    steps,
                    100 - 100 * source[0].metrics["error"],
                    *(change_text(each, source) if on_targets(each) else None for each in chosen),
                    ", ".join(f"{theta:g}" for theta in sorted(thetas)) or None,
                )
            )
    columns = (
        Column("network"),
        Column("steps", decimals=0),
        Column("source, %", decimals=1),
        *map(Column, ("bn", "tent", "gprebn, theta 1", "gprebn, selected", "theta selected")),
    )
    note = (
        "Accuracy of the source on the target, and points gained over it, with 95 % intervals "
        "paired over images: they say nothing about other training runs. Batch 32; settings are "
        "selected on at most 60 to 150 held-out images of each training domain."
    )
    return Table("Are target statistics bad, or were the networks?", columns, tuple(lines), note)


def sections(rows: Sequence[Row], runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield from trained_tables(runs)
    light = [row for row in rows if _is_suspect(row)]
    usual = [*load_rows(SUSPECT_ROWS), *light]
    long = load_rows(LONG_ROWS) if LONG_ROWS.exists() else []
    for made in (suspects([(250, usual), (1000, long)]), batches(load_rows(BATCH_ROWS))):
        yield f"## PACS: {made.title}\n\n{made.to_markdown()}"
    for kind in sorted({kind_of(row) for row in rows}):
        data, network, size = kind
        own = [row for row in rows if kind_of(row) == kind]
        for name, view in DOMAIN_VIEWS.items():
            if name == "domains-claims":  # on a page of its own
                continue
            mine = [row for row in own if row.method in view.methods]
            try:
                made = view.make(in_order(mine, view.methods))
            except MixedRowsError as error:
                print(f"left out: {name} of {kind}: {error}", file=sys.stderr)
                continue
            yield f"## {data}, {network}, batch {size}: {made.title}\n\n{made.to_markdown()}"
        if data == "RotatedMNIST":
            yield long_streams(own)
            made = stale(load_rows(STALE_ROWS))
            yield f"## {data}, {network}: {made.title}\n\n{made.to_markdown()}"
        if any(row.method == "bn:only=first(0.75)" for row in own):
            made = partly(own)
            yield f"## {data}, {network}, batch {size}: {made.title}\n\n{made.to_markdown()}"


def _is_suspect(row: Row) -> bool:
    """Whether it is of a network for which both kinds of batch norm were trained."""
    training = row.cell.network.training
    return (
        training is not None
        and row.cell.network.name == "efficientnet-lite0"
        and row.cell.protocol.batch_size == 32
        and training.trainer.features == "trained"
        and training.left_out[0] in ("photo", "art_painting")
    )


def long_streams(rows: Sequence[Row]) -> str:
    """What selection on short streams missed, with its numbers from the rows."""
    met = [row for row in on_targets(rows) if row.method == "gprebn"]
    at_one = [r for r in met if dict(r.cell.method.settings)["theta"] == 1.0]
    scores = {
        rho: " and ".join(
            f"{100 - 100 * row.metrics['error']:.1f}"
            for row in sorted(at_one, key=lambda row: row.shift)
            if dict(row.cell.method.settings)["rho"] == rho
        )
        for rho in (1, 10)
    }
    long, short = (
        -(-max(r.cell.stream.count for r in own) // rows[0].cell.protocol.batch_size)
        for own in (met, [r for r in rows if r.cell.stream.split == VALIDATION])
    )
    return (
        f"The selection failed here: with target statistics, GpreBN reaches {scores[1]} % on the "
        f"targets at rho 1, but {scores[10]} % at rho 10. At that learning rate, 0.01, it "
        f"collapses over {long} batches, because its cumulative statistics fall behind the "
        f"parameters (next table). The {short} batches of a validation split are too few to show "
        "this, so selection could choose that rate. Longer validation streams, or the guard, "
        "which benchmarks turn off, might have shown it.\n"
    )


def stale(rows: Sequence[Row]) -> Table:
    """A long stream by rate, average, window and bound; one column for each target and batch."""
    met = on_targets(rows)
    kinds = sorted({(row.shift, row.cell.protocol.batch_size) for row in met})
    lines = []
    for name in STALE:
        method = str(parse_method(name))
        own = {(r.shift, r.cell.protocol.batch_size): r for r in met if r.method == method}
        scores = [100 - 100 * own[kind].metrics["error"] if kind in own else None for kind in kinds]
        lines.append((f"`{method}`", *scores))
    columns = (
        Column("method"),
        *(Column(f"{angle}°, batch {size}", best="highest", decimals=1) for angle, size in kinds),
    )
    counts = " or ".join(f"{n:,}" for n in sorted({row.cell.stream.count for row in met}))
    note = (
        f"Accuracy in % on the target's 80 % split, {counts} images per stream, shuffled, 1 step, "
        "seed 0, one training. The learning rate alone is not to blame, since `tent` gains from "
        "the same rate; nor is the average alone, which does no harm without a step or at a rate "
        "of 0.001. The cause is that an average over all batches includes statistics that were "
        "measured with parameters long since changed; with `momentum`, it forgets them."
    )
    return Table("Why GpreBN falls behind on a long stream", columns, tuple(lines), note)


def partly(rows: Sequence[Row]) -> Table:
    """Target statistics in part of the layers."""
    mine = in_order([row for row in rows if row.method in PARTLY], PARTLY)
    table = DOMAIN_VIEWS["domains"].make(mine)
    measured = tuple(row for row in table.rows if not str(row[0]).endswith("paper only"))
    note = (
        f"{table.note} The cut at three quarters was chosen after a look at 512 images of photo, "
        "quarter by quarter; for the other three targets it is a prediction."
    )
    return replace(table, title="Target statistics in part of the layers", rows=measured, note=note)


def kind_of(row: Row) -> tuple[str, str, int]:
    """What tables are made apart by: data, network, batch size."""
    return row.cell.stream.data.label, row.cell.network.kind, row.cell.protocol.batch_size


def commit_rows() -> None:
    """What was measured here, into the docs."""
    if RUNS.is_dir():
        TRAINED.write_text("".join(json.dumps(run) + "\n" for run in trained_rows()))
        found = load_rows(RUNS / "rows") if (RUNS / "rows").is_dir() else []
        for slug in sorted({slug_of(row) for row in found}):
            add_rows([row for row in found if slug_of(row) == slug], ROWS / f"domains-{slug}.jsonl")
        for folder, file in (
            ("suspects", SUSPECT_ROWS),
            ("stale", STALE_ROWS),
            ("batches", BATCH_ROWS),
            ("long", LONG_ROWS),
        ):
            if (RUNS / folder).is_dir():
                add_rows(load_rows(RUNS / folder), file)


def page() -> str:
    """From the committed rows."""
    runs = [json.loads(line) for line in TRAINED.read_text().splitlines()]
    files = [path for path in sorted(ROWS.glob("domains-*.jsonl")) if path != TRAINED]
    rows = [row for path in files for row in load_rows(path)]
    return "\n".join([HEAD, *sections(rows, runs)])


def add_rows(rows: Sequence[Row], file: Path) -> None:
    """Beside those of earlier machines; a row of the same cell is replaced."""
    every = [*(load_rows(file) if file.exists() else []), *rows]
    save_rows([*{row.cell.key: row for row in every}.values()], file)


def slug_of(row: Row) -> str:
    """Which file a row is kept in."""
    return f"{row.cell.stream.data.name}-{row.cell.network.name}".lower()


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = top.add_subparsers(dest="command", required=True)
    commands.add_parser("page")
    for name in ("train-pacs", "train-digits", "bench-pacs", "bench-digits", "bench-batches"):
        own = commands.add_parser(name)
        own.add_argument("--data", type=Path, required=True)
        own.add_argument("--targets", nargs="+")
        own.add_argument("--threads", type=int, default=2)
        if name.startswith("train"):
            own.add_argument("--steps", type=int, default=250 if name == "train-pacs" else 300)
            own.add_argument("--evaluate-every", type=int, default=50)
            own.add_argument("--evaluate-images", type=int)
            own.add_argument("--batch-size", type=int, default=16)
        else:
            own.add_argument("--methods", nargs="+")
            own.add_argument("--grid", default="short", choices=("full", "short", "single"))
            own.add_argument("--batch-sizes", type=int, nargs="+", default=[32])
            own.add_argument("--limit", type=int)
            own.add_argument("--workers", type=int, default=2)
        if name == "train-pacs":
            own.add_argument("--weights", required=True)
            own.add_argument("--backbone", default="resnet50-v1")
            own.add_argument("--side", type=int, default=112)
            own.add_argument("--lr", type=float, default=5e-5)
            own.add_argument("--trials", type=int, nargs="+", default=[0])
            own.add_argument("--swad", action="store_true")
            own.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
            own.add_argument("--features", default="trained", choices=("trained", "fixed"))
            own.add_argument("--batch-norm", default="trained", choices=("trained", "frozen"))
        if name == "train-digits":
            own.add_argument("--algorithms", nargs="+")
            own.add_argument("--backbones", nargs="+", default=["mnist-gn"])
        if name == "bench-digits":
            own.add_argument("--stale", action="store_true")
        if name == "bench-pacs":
            own.add_argument("--backbone", default="resnet50-v1")
            own.add_argument("--kind", default="erm", choices=("erm", "swad-erm", "fixed-erm"))
            own.add_argument("--suspects", action="store_true")
            own.add_argument("--trials", type=int, nargs="+")
    return top


def main() -> None:
    arguments = parser().parse_args()
    if arguments.command == "page":
        commit_rows()
        PAGE.write_text(page())
        return
    torch.set_num_threads(arguments.threads)
    if arguments.command == "train-pacs":
        train_pacs(arguments)
    elif arguments.command == "bench-batches":
        bench_batches(arguments)
    elif arguments.command == "train-digits":
        train_digits(arguments)
    elif arguments.command == "bench-pacs":
        prefix = f"pacs-{arguments.backbone}-{arguments.kind}-"
        bench(arguments, prefix, str(arguments.data))
    else:
        bench(arguments, "digits-mnist-bn-", f"rotated-mnist:{arguments.data}")


if __name__ == "__main__":
    main()

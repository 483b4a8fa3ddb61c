"""Tables over several networks: the augmentation baselines, ImageNet-C, fine-tuned networks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from driftnorm._internal.counts import agreeing
from driftnorm._internal.partition import partition
from driftnorm.bench.rows import Row
from driftnorm.bench.vocabulary import FINE_TUNED, TENT_ON_SOURCE
from driftnorm.errors import MixedRowsError
from driftnorm.shifts.registry import GROUPS
from driftnorm.views.compare import (
    change_cell,
    change_of_error,
    change_text,
    check_protocol,
    check_same,
    check_streams,
    clean_error,
    data_set,
    lacking_of_all,
    mean_error,
    methods_of,
    note_of,
    stream_of,
)
from driftnorm.views.paper import (
    ALEXNET_ERRORS,
    AUGMENTED,
    IMAGENET,
    MEAN,
    beside_paper,
    difference,
    severity_5_note,
)
from driftnorm.views.paper import FINE_TUNED as PRINTED
from driftnorm.views.table import Column, Table


def augmentation_table(rows: Sequence[Row]) -> Table:
    """Every network with every method that adapted it."""
    check_protocol(rows)
    printed = AUGMENTED.get(data_set(rows), {})
    adapted = MEAN.get(data_set(rows), {})
    beside = beside_paper(rows, tuple(AUGMENTED))
    lines: list[tuple[str | float | None, ...]] = []
    for own in partition(rows, lambda row: row.cell.network).values():
        check_same(own)
        recipe, name = _recipe(own), _network_name(own)
        methods = methods_of(own)
        for method in methods:
            change = change_cell(own, method, "source") if "source" in methods else "-"
            paper = printed.get(recipe or "") if method == "source" else None
            if recipe == "augmix" and method != "source":
                paper = adapted.get(method)
            error = mean_error(own, method)
            both = (paper, difference(error, paper)) if beside.shown else ()
            lines.append((name, method, clean_error(own, method), error, change, *both))
    columns = (
        Column("network"),
        Column("method", align="left"),
        Column("clean", best="lowest", decimals=2),
        Column("error", best="lowest", decimals=2),
        Column("error minus its source's, 95 %"),
        *((Column("paper's error"), Column("ours minus it")) if beside.shown else ()),
    )
    whose = f" Paper: WRN-40-2.{beside.note}" if beside.shown else ""
    note = f"{note_of(rows)} Intervals: paired bootstrap over images.{whose}"
    return Table("Augmentation baselines", columns, tuple(lines), note).without_empty("clean")


def imagenet_table(rows: Sequence[Row]) -> Table:
    """Corruption errors in % of AlexNet's: means of the four groups, and of all fifteen."""
    check_protocol(rows)
    if data_set(rows) != "imagenet":
        raise MixedRowsError(
            "CE and mCE are relative to AlexNet's errors on ImageNet-C, but these rows are of "
            f"{rows[0].cell.stream.data.label}; `driftnorm table summary` is for any data."
        )
    lines: list[tuple[str | float | None, ...]] = []
    for own in partition(rows, lambda row: row.cell.network).values():
        check_same(own)
        for method in methods_of(own):
            errors = corruption_errors(own, method)
            groups = [float(np.mean([errors[name] for name in names])) for names in GROUPS.values()]
            name = own[0].cell.network.name
            lines.append((f"{name}, {method}", *groups, float(np.mean([*errors.values()]))))
    # As text, so that the best of ours is in bold.
    lines += [(f"paper: {name}", *map(str, values)) for name, values in IMAGENET.items()]
    columns = (
        Column("network, method"),
        *(Column(group, best="lowest") for group in GROUPS),
        Column("mCE", best="lowest"),
    )
    note = f"CE: 100 x mean error over severities / AlexNet's. {note_of(rows)}"
    return Table("ImageNet-C", columns, tuple(lines), note)


def corruption_errors(rows: Sequence[Row], method: str) -> dict[str, float]:
    """CE of each corruption: the mean error over five severities, in % of AlexNet's."""
    lacking = lacking_of_all(rows)
    if lacking:
        raise MixedRowsError(
            f"CE and mCE are over 15 corruptions at severities 1 to 5; these rows lack "
            f"{len(lacking)} of the 75 streams, such as {lacking[0]}."
        )
    return {c: mean_error(rows, method, c) / alexnet for c, alexnet in ALEXNET_ERRORS.items()}


def fine_tuned_table(rows: Sequence[Row]) -> Table:
    """Source and target statistics on a pre-trained network, and on fine-tuned ones."""
    methods = {"source": ("source", TENT_ON_SOURCE), "target": ("bn", "tent")}
    wanted = [method for pair in methods.values() for method in pair]
    rows = [row for row in rows if row.method in wanted]
    check_protocol(rows)
    settings = {
        "fine-tuned": [row for row in rows if row.cell.study == FINE_TUNED],
        "pre-trained": [row for row in rows if row.cell.study != FINE_TUNED],
    }
    _check_pair(settings["fine-tuned"], settings["pre-trained"], wanted)
    beside = beside_paper(settings["pre-trained"])
    lines: list[tuple[str | float | None, ...]] = []
    for setting, own in settings.items():
        for statistics, (plain, trained) in methods.items():
            change = change_text(change_of_error(own, trained, plain))
            errors = (mean_error(own, plain), mean_error(own, trained), change)
            paper = PRINTED[setting, statistics] if beside.shown else ()
            lines.append((setting, statistics, *errors, *paper))
    columns = (
        Column("network"),
        Column("statistics", align="left"),
        Column("error", decimals=2),
        Column("+ Tent", decimals=2),
        Column("change, 95 %"),
        *((Column("paper"), Column("paper, + Tent")) if beside.shown else ()),
    )
    trained = (
        f"Fine-tuned on all corruptions but the one tested on, with frozen BN statistics: "
        f"{tuning_of(settings['fine-tuned'][0])}."
    )
    printed = [value for pair in PRINTED.values() for value in pair]
    severest = severity_5_note(printed) if beside.shown else ""
    note = f"{trained} {note_of(settings['pre-trained'])}{beside.note}{severest}"
    return Table("Pre-trained and fine-tuned", columns, tuple(lines), note)


def tuning_of(row: Row) -> str:
    """How a row's network was fine-tuned."""
    training = row.cell.network.training
    if training is None or not training.settings:
        return "settings unknown"
    known = dict(training.settings)
    rate = np.format_float_positional(known["learning_rate"], trim="-")
    return f"{known['images']} images {known['epochs']:g} epochs lr {rate} seed {known['seed']}"


def _check_pair(tuned: Sequence[Row], pretrained: Sequence[Row], wanted: Sequence[str]) -> None:
    for name, own in (("fine-tuned", tuned), ("pre-trained", pretrained)):
        lacking = sorted(set(wanted) - set(methods_of(own)))
        if lacking:
            raise MixedRowsError(
                f"rows of {name} networks lack the {agreeing(len(lacking), 'method', 'methods')} "
                f"{', '.join(lacking)}."
            )
        check_streams(own)
    check_same(pretrained)
    met, other = ({stream_of(row) for row in own} for own in (tuned, pretrained))
    if met != other:
        raise MixedRowsError(
            f"fine-tuned and pre-trained networks must run on the same streams; "
            f"only one of them ran on {sorted(met ^ other)[0]}."
        )
    settings = sorted({tuning_of(row) for row in tuned})
    if len(settings) > 1:
        raise MixedRowsError(f"networks were fine-tuned differently: {' | '.join(settings)}.")


def _recipe(rows: Sequence[Row]) -> str | None:
    """What a network was trained with, as its file says."""
    training = rows[0].cell.network.training
    return None if training is None else training.trainer.algorithm


def _network_name(rows: Sequence[Row]) -> str:
    """The recipe, or the network's own name where that is not known."""
    return _recipe(rows) or rows[0].cell.network.name.partition(".")[0]

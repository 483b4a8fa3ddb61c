"""``driftnorm diagnose``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm.cli._batch_size import settle_batch_size
from driftnorm.cli._flags import MANY, SWITCH, AsJson
from driftnorm.cli._input_flags import (
    DEFAULTS,
    Data,
    Labels,
    Network,
    Opening,
    Shuffle,
    open_images,
    seed_of,
)
from driftnorm.cli._output import print_table, say
from driftnorm.cli._progress import Bar
from driftnorm.diagnosis import Diagnosis
from driftnorm.diagnosis import diagnose as diagnose_network
from driftnorm.diagnosis.findings import ORDERS, find_cost_of_order
from driftnorm.diagnosis.sample import SampledBatches
from driftnorm.diagnosis.trial import METHODS, Batch
from driftnorm.errors import DataError
from driftnorm.images import Inputs, Shuffled, open_labels
from driftnorm.methods.spec import parse_method

# In a docstring, "methods" would be parsed as a heading.
Tried = Parameter(help="What to try; default: bn, bn:running=True and gprebn.")
MOST_LAYERS, MOST_QUOTED = 12, 5


def diagnose(
    network: Network,
    data: Data,
    *,
    labels: Labels = None,
    methods: Annotated[list[str] | None, MANY, Tried] = None,
    batch_size: int | None = None,
    shuffle: Shuffle = None,
    limit: int = 1280,
    opening: Opening = DEFAULTS,
    quiet: Annotated[bool, SWITCH] = False,
    as_json: AsJson = False,
) -> None:
    """Will adaptation help this network on these images? A verdict, and its reasons.

    Parameters
    ----------
    batch_size
        Images per batch, as you would adapt; default: 64, or less if memory is short.
    limit
        At most this many images, in whole batches spread over the data.
    quiet
        Print only the verdict.
    """
    aside = Console(stderr=True, quiet=quiet)
    opened = opening.open(network, aside)
    inputs, tried = open_images(data, seed_of(shuffle)), methods or METHODS
    images = settle_batch_size(
        batch_size,
        opened,
        aside,
        device=opening.device,
        gradient=any(parse_method(each).recipe.needs_backward for each in tried),
        networks=1 + len(tried),
    )

    def look(at: Inputs, bar: Bar) -> tuple[Diagnosis, SampledBatches]:
        truth = None if labels is None else open_labels(labels, opened.classes, at)
        batches = SampledBatches(at, opened.preprocessing, truth, batch_size=images, limit=limit)
        found = diagnose_network(
            opened.network,
            _shown(batches, bar, opening.device),
            methods=tried,
            most_batches=limit // images,
            folders=batches.folders,
        )
        return found, batches

    with Bar(aside) as bar:
        found, batches = look(inputs, bar)
        if any(finding.kind in ORDERS for finding in found.findings):
            with suppress(DataError):  # of data that cannot be shuffled
                shuffled, _ = look(Shuffled(inputs), bar)
                cost = find_cost_of_order(found.run, shuffled.run)
                found = replace(found, findings=(*found.findings, cost))
    for name, reason in batches.unreadable[:MOST_QUOTED]:
        say(aside, f"unreadable: {name!r}: {reason}")
    if len(batches.unreadable) > MOST_QUOTED:
        say(
            aside, f"and {counted(len(batches.unreadable) - MOST_QUOTED, 'more unreadable image')}."
        )
    if as_json:
        print(found.to_json())
    elif quiet:
        print(found.verdict())
    else:
        _print(found)


def _shown(batches: SampledBatches, bar: Bar, device: str) -> Iterator[Batch]:
    for done, (images, truth) in enumerate(batches):
        bar("batches", done, batches.total)
        yield images.to(device), truth


def _print(found: Diagnosis) -> None:
    """The verdict, what to do, what to know, and the numbers."""
    console = Console()
    say(console, found.verdict())
    for advice in found.advice:
        say(console, f"  {advice.topic}: {advice.choice} ({advice.reason})")
    for finding in found.findings:
        say(console, f"{'ERROR' if finding.severe else 'note'}: {finding.text}")
    for table in found.tables(most_layers=MOST_LAYERS):
        print_table(console, table)

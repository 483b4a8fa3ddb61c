"""``driftnorm adapt``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from driftnorm._internal.counts import counted
from driftnorm._internal.interrupts import stop_requests
from driftnorm.adapter._engine import RecipeAdapter
from driftnorm.adapter.guard import Policy
from driftnorm.cli._batch_size import settle_batch_size
from driftnorm.cli._config import keep_config
from driftnorm.cli._flags import OUT, RARE, SWITCH, AsJson, Quiet
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
from driftnorm.cli._output import say
from driftnorm.cli._places import check_places, make_folders
from driftnorm.cli._progress import Bar
from driftnorm.cli._source_images import SourceImages, show_source
from driftnorm.images import Inputs, Shuffled, open_labels
from driftnorm.methods.spec import parse_method
from driftnorm.models.adapted import check_rebuilt, save_adapted
from driftnorm.predictions.adapted_stream import (
    Began,
    Event,
    Note,
    Outcome,
    Plan,
    Snapshot,
    adapt_stream,
    batch_size_of,
)
from driftnorm.predictions.saved_run import load_adapter, save_adapter

Rare = Parameter(group=RARE)
BAKED = ".safetensors"


def adapt(
    network: Network,
    data: Data,
    *,
    out: Annotated[Path, OUT] = Path("predictions.csv"),
    method: str = "steady",
    batch_size: int | None = None,
    shuffle: Shuffle = None,
    labels: Labels = None,
    guard: Policy = "warn",
    fresh: Annotated[bool, SWITCH] = False,
    opening: Opening = DEFAULTS,
    source_images: SourceImages = None,
    load_state: Annotated[Path | None, Rare] = None,
    save_state: Annotated[Path | None, Rare] = None,
    bake: Annotated[Path | None, Rare] = None,
    every: Annotated[int | None, Rare] = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Predict on your own images while adapting to them; an interrupted run resumes.

    Parameters
    ----------
    out
        The CSV file to write; the run's record goes into the folder next to it that ends in .run.
    method
        With options as in gprebn:theta=0.5; `driftnorm methods` lists them.
    batch_size
        Images per batch; default: 64, or less if memory is short.
    guard
        What to do when adaptation does harm.
    load_state
        Start from the state that an earlier run saved.
    save_state
        Save the adapter's state here at the end.
    bake
        Save the adapted network here at the end, as a checkpoint that does not adapt (.safetensors;
        `driftnorm export` writes other formats).
    every
        Batches between saved states; default: one every two seconds.
    fresh
        Start over, and overwrite existing files.
    """
    arguments, seed = dict(locals()), seed_of(shuffle)
    arguments["shuffle"] = None if seed is None else [seed]
    _check_bake(bake)
    written = {"--out": out, "--save-state": save_state, "--bake": bake}
    read = {"NETWORK": network, "DATA": data, "--labels": labels, **opening.files}
    check_places(written, {**read, "--source-images": source_images})
    spec = parse_method(method)
    console = Console(stderr=True, quiet=quiet)
    opened = opening.open(network, console)
    if bake is not None:
        check_rebuilt(opened)
    inputs = open_images(data, seed)
    truth = None if labels is None else open_labels(labels, opened.classes, inputs)
    # With a seed, even a network that draws random numbers predicts the same after a restart.
    adapter = RecipeAdapter(opened.network, spec.recipe, method=spec.name, guard=guard, seed=0)
    show_source(adapter, source_images, opened, opening.device, known=load_state is not None)
    if load_state is not None:
        load_adapter(load_state, adapter)
    if batch_size is None and not fresh:
        batch_size = batch_size_of(out)
    images = settle_batch_size(
        batch_size,
        opened,
        console,
        device=opening.device,
        gradient=spec.recipe.needs_backward,
    )
    arguments["batch_size"] = images
    given = {
        "weights": opening.weights,
        "classes": opening.classes,
        "labels": labels,
        "load_state": load_state,
        **({} if source_images is None else {"source_images": source_images}),
    }
    settings = {
        "model": network,
        "data": str(data.resolve()),
        "method": str(spec),
        "guard": guard,
        "batch_size": images,
        "device": opening.device,
        "network": opened.digest[:12],
        "preprocessing": opened.preprocessing.to_mapping(),
        **({"order": inputs.fingerprint()} if isinstance(inputs, Shuffled) else {}),
        **{name: None if value is None else str(value) for name, value in given.items()},
    }
    plan = Plan(out, opened.preprocessing, opened.classes, settings, images, every, fresh)
    _keep_others(plan, {"--save-state": save_state, "--bake": bake}, load_state)
    make_folders(written, console)
    events = adapt_stream(adapter, opened.network, inputs, plan, labels=truth)
    began_at, record = _followed(
        events, inputs, console, fresh, lambda: keep_config(plan.folder, "adapt", arguments)
    )
    if record["predicted"] and save_state is not None:
        save_adapter(save_state, adapter)
    if record["predicted"] and bake is not None:
        save_adapted(bake, adapter, opened)
    if as_json:
        print(json.dumps(record))
    elif not quiet:
        print("\n".join(_summary(record, began_at, plan, save_state, bake)))
    failure = _failure(record, data)
    if failure:
        print(f"driftnorm: {failure}.", file=sys.stderr)
        raise SystemExit(1)


def _followed(
    events: Generator[Event, None, None],
    inputs: Inputs,
    console: Console,
    fresh: bool,
    on_begin: Callable[[], object],
) -> tuple[int, dict[str, Any]]:
    """Show what happens until the run is finished; exits with 130 if it is interrupted.

    Returns:
        How many images were done already, and the run's record.
    """
    began_at = done = 0
    total = inputs.survey().images
    with Bar(console) as bar, stop_requests() as should_stop, closing(events):
        for event in events:
            match event:
                case Began(began_at):
                    on_begin()
                case Note(text):
                    say(console, f"note: {text}")
                case Snapshot(done):
                    bar(_progress(event), done, total)
                    if should_stop():
                        break
                case Outcome(record):
                    return began_at, record
    again = " without `--fresh`" * fresh
    say(
        console,
        f"stopped after {counted(done, 'image')}; what is done is kept, and the same "
        f"command{again} "
        "resumes there.",
    )
    raise SystemExit(130)


def _progress(now: Snapshot) -> str:
    skipped = f", {now.unreadable:,} unreadable" if now.unreadable else ""
    return f"{now.speed:,.0f} images/s, entropy {now.entropy:.2f}, guard {now.guard}{skipped}"


def _check_bake(bake: Path | None) -> None:
    if bake is not None and bake.suffix != BAKED:
        raise ValueError(
            f"`--bake` must be a file that ends in {BAKED}, got {bake}; for other formats use "
            "`--save-state`, and then `driftnorm export`."
        )


def _keep_others(plan: Plan, written: dict[str, Path | None], load_state: Path | None) -> None:
    """A new run overwrites nothing, except the state that it starts from."""
    if plan.fresh or plan.state_file.exists():
        return
    for flag, file in written.items():
        if file is not None and file.exists() and file != load_state:
            raise ValueError(
                f"`{flag}` {file} already exists and is not from the run of {plan.out}: choose "
                "another file, or overwrite it with `--fresh`."
            )


def _failure(record: dict[str, Any], data: Path) -> str:
    """Why the command fails although the run is finished; empty if it does not."""
    if not record["predicted"]:
        name, reason = record["skipped_first"][0]
        return (
            f"none of the {counted(record['images'], 'image')} could be predicted, so nothing was "
            f"adapted; the first, {name!r}: {reason}"
        )
    return f"only part of {data} was read: {record['cut_off']}" if record["cut_off"] else ""


def _summary(
    record: dict[str, Any],
    began_at: int,
    plan: Plan,
    save_state: Path | None,
    bake: Path | None,
) -> list[str]:
    """The result of the run, line by line."""
    lines = [record["verdict"]]
    if began_at:
        lines.append(f"{counted(began_at, 'image')} had been done already.")
    for name, reason in record["skipped_first"][:5]:
        lines.append(f"  unreadable: {name!r}: {reason}")
    if record["skipped"] > 5:
        lines.append(f"  and {record['skipped'] - 5:,} more, each with its reason in the CSV file.")
    if record["left_out"]:
        lines.append(
            "  Ignored, since the names are not those of pictures: "
            f"{counted(record['left_out'], 'other file')}."
        )
    if record["alarms"]:
        lines.append(f"The guard raised {counted(record['alarms'], 'alarm')}; see `--guard`.")
    if record.get("accuracy") is not None:
        lines.append(
            f"Accuracy {100 * record['accuracy']:.2f} % on "
            f"{counted(record['labelled'], 'labelled image')}."
        )
    elif "accuracy" in record:
        lines.append("Accuracy is not available: no image with a label could be predicted.")
    lines.append(f"Predictions are in {plan.out}, the run's record in {plan.record_file}.")
    if record["predicted"]:
        lines += [f"The adapter's state is in {save_state}."] * (save_state is not None)
        lines += [f"The adapted network is in {bake}."] * (bake is not None)
    return lines

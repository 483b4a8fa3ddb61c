"""Convert rows of the first format, whose cells were partly text, into those of typed cells.

    python docs/tools/convert_rows.py rows.jsonl other.jsonl    # files, in place
    python docs/tools/convert_rows.py runs/domains/rows         # folders of row files, in place
    python docs/tools/convert_rows.py runs/rows --out new/rows  # leaves the old ones as they are

Rows that are of the new format already stay as they are, so that a folder can be converted again
after an older driftnorm has added to it. Numbers are not touched.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from driftnorm._internal.counts import counted
from driftnorm.bench.cell import (
    CLEAN,
    Cell,
    DataId,
    MethodId,
    NetworkId,
    Protocol,
    Shift,
    StreamId,
    Trainer,
    Training,
)
from driftnorm.bench.rows import Failure, Row, RowStore, save_rows
from driftnorm.bench.samples import FOLDER as EXHIBITS
from driftnorm.bench.vocabulary import TARGET, VALIDATION

_DOMAIN_NETWORK = re.compile(
    r"(?P<swad>swad )?(?P<algorithm>.+?)(?P<fixed>, fixed features)? -> (?P<targets>.+), "
    r"trial (?P<trial>\d+)(, (?P<name>.+?)( at (?P<side>\d+) px, (?P<batch_norm>\w+) BN)?)?"
    r"@(?P<digest>\w+)"
)
_FINE_TUNED = re.compile(
    r".*-without-(?P<left_out>\w+)-(?P<images>\d+)-images-(?P<epochs>[^-]+)-epochs-lr-(?P<rate>[^-]+)"
    r"-seed-(?P<seed>\d+)-\w+\.safetensors"
)
_CORRUPTED = re.compile(
    r"(?P<name>.+)-c( \((?P<generated>generated)(, seed (?P<seed>\d+))?\))?( \((?P<subset>.+)\))?"
)
_VARIANT = re.compile(r"(?P<name>[^(]+) \((?P<variant>.+)\)")
_GUARDED = ("demo", "small-batches")  # at the adapter's defaults; benchmarks leave the guard off


def new_row(record: Mapping[str, Any]) -> Row:
    """A row of the first format as one of this."""
    old, metrics = record["cell"], dict(record["metrics"])
    recipe = metrics.pop("recipe", guessed_recipe(old["model"]))
    return Row(new_cell(old, recipe), metrics, record["environment"])


def new_cell(old: Mapping[str, Any], recipe: str | None = None) -> Cell:
    """A cell of the first format as one of this; ``recipe`` stood among the row's metrics."""
    protocol = old["protocol"]
    settings = dict(old["options"])
    usual = "warn" if old["study"] in _GUARDED else "off"
    method = MethodId.read(old["method"])
    return Cell(
        old["study"],
        new_network(old["model"], recipe),
        _stream(old),
        MethodId(
            method.name,
            method.options,
            tuple((name, value) for name, value in settings.items() if name != "guard"),
        ),
        Protocol(
            protocol["batch_size"],
            protocol["reset"],
            protocol["predict"],
            settings.get("guard", usual),
        ),
    )


def new_network(model: str, recipe: str | None = None) -> NetworkId:
    """The network that a label of the first format names."""
    found = _DOMAIN_NETWORK.fullmatch(model)
    if found is not None:
        features = "fixed" if found["fixed"] else "trained"
        training = Training(
            Trainer(found["algorithm"], bool(found["swad"]), features),
            tuple(found["targets"].split()),
            int(found["trial"]),
            found["batch_norm"] or "",
            int(found["side"]) if found["side"] else None,
        )
        return NetworkId(found["name"] or "", found["digest"], training)
    name, _, digest = model.partition("@")
    tuned = _FINE_TUNED.fullmatch(name)
    if tuned is not None:
        settings = (
            ("epochs", float(tuned["epochs"])),
            ("images", int(tuned["images"])),
            ("learning_rate", float(tuned["rate"])),
            ("seed", int(tuned["seed"])),
        )
        own = Training(Trainer("fine-tuning"), (tuned["left_out"],), settings=settings)
        return NetworkId(name, digest, own)
    return NetworkId(name, digest, Training(Trainer(recipe)) if recipe else None)


def guessed_recipe(model: str) -> str | None:
    """What a network was trained with, where its row does not say.

    The folder of `driftnorm train robust` begins with it.
    """
    folder, slash, _ = model.partition("/")
    return folder.split("-")[0] if slash else None


def _stream(old: Mapping[str, Any]) -> StreamId:
    protocol, shift, split = old["protocol"], old["shift"], ""
    if shift.endswith((f"/{TARGET}", f"/{VALIDATION}")):
        shift, _, split = shift.rpartition("/")
        shifts: tuple[Shift, ...] = (Shift(shift),)
    elif shift == CLEAN:
        shifts = ()
    else:
        own = _VARIANT.fullmatch(shift)
        name, variant = (own["name"], own["variant"]) if own else (shift, "")
        shifts = (Shift(name, old["severity"], variant),)
    data, count, order = _data(protocol["data"]), protocol["count"], protocol["order"]
    return StreamId(data, shifts, count, split, order, old["seed"])


def _data(label: str) -> DataId:
    found = _CORRUPTED.fullmatch(label)
    if found is None:
        return DataId(label)
    made = "generated" if found["generated"] else "released"
    return DataId(found["name"], made, int(found["seed"] or 0), found["subset"] or "")


def convert_file(path: Path, out: Path) -> int:
    """Convert JSON lines; returns how many rows were of the first format."""
    records = [json.loads(line) for line in path.read_text().splitlines() if line]
    old = sum("format" not in record for record in records)
    rows = [
        Row.from_json(json.dumps(record)) if "format" in record else new_row(record)
        for record in records
    ]
    save_rows(rows, out)
    return old


def convert_folder(folder: Path, out: Path) -> int:
    """Convert a folder of row files, with its failures; returns how many were of the first format.

    Every new file is written before its old one is removed: a conversion that was stopped is
    finished by converting again.
    """
    store, old = RowStore(out), 0
    for path in [*sorted(folder.glob("*.json")), *sorted((folder / "failed").glob("*.json"))]:
        record = json.loads(path.read_text())
        if not isinstance(record, dict) or "cell" not in record:
            continue  # not a row: such as the record of a run
        if "format" in record:
            if out != folder and path.parent == folder:
                store.write(Row.from_json(path.read_text()))
            continue
        old += 1
        if path.parent == folder:
            store.write(new_row(record))
        else:
            store.fail(Failure(new_cell(record["cell"]), record["error"]))
        if out == folder:
            path.unlink()
    if out != folder and (folder / EXHIBITS).is_dir():
        shutil.copytree(folder / EXHIBITS, out / EXHIBITS, dirs_exist_ok=True)
    return old


def main() -> None:
    """Convert what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", type=Path, help="files of rows, or folders of them")
    parser.add_argument("--out", type=Path, help="where to write; default: in place")
    given = parser.parse_args()
    if given.out is not None and len(given.paths) > 1:
        parser.error("`--out` is for one file or folder; convert several of them in place.")
    for path in given.paths:
        if not path.exists():
            parser.error(f"there is nothing at {path}.")
        convert = convert_folder if path.is_dir() else convert_file
        old = convert(path, given.out or path)
        print(f"{path}: {counted(old, 'row')} converted", file=sys.stderr)


if __name__ == "__main__":
    main()

"""``driftnorm.json``: how a folder of generated data was made, so that runs never mix in it."""

from __future__ import annotations

import hashlib
import json
import platform
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np
import PIL

from driftnorm._internal.files import write_atomically
from driftnorm._version import __version__
from driftnorm.errors import DataError
from driftnorm.images.image_set import ImageSet
from driftnorm.images.pictures import CROPPED_SIDE, JPEG_QUALITY, RESIZED_SIDE, PictureSet
from driftnorm.shifts import Scale, default_scale

FILE_NAME = "driftnorm.json"
WORK_FOLDER = ".driftnorm-work"


@dataclass(frozen=True)
class Provenance:
    """What the pixels of a generated folder depend on.

    Attributes:
        layout: ``cifar-c`` for arrays, ``imagenet-c`` for folders of JPEGs.
        source: The clean data's name.
        count: How many clean images were used.
        fingerprint: Hash of the clean data: of pixels and labels, or of paths and sizes of files.
        classes: Names of the classes.
        seed: Seed of the corruptions.
        scale: Which table of constants was used.
        frost: ``overlays``, ``procedural``, or None as long as the folder has no frost.
        preparation: What was done to the clean images first.
    """

    layout: str
    source: str
    count: int
    fingerprint: str
    classes: tuple[str, ...]
    seed: int
    scale: Scale
    frost: str | None
    preparation: str


def describe(data: ImageSet | PictureSet, root: Path, seed: int, frost: str | None) -> Provenance:
    """The provenance of what is about to be generated from clean data."""
    if isinstance(data, ImageSet):
        layout, preparation = "cifar-c", "none"
        height, width = data.images.shape[1:3]
    else:
        layout, height, width = "imagenet-c", CROPPED_SIDE, CROPPED_SIDE
        preparation = (
            f"short side resized to {RESIZED_SIDE} px, central {CROPPED_SIDE} px cropped, "
            f"saved as JPEG of quality {JPEG_QUALITY}"
        )
    return Provenance(
        layout=layout,
        source=data.name,
        count=len(data),
        fingerprint=_fingerprint(data, root),
        classes=data.classes,
        seed=seed,
        scale=default_scale(height, width),
        frost=frost,
        preparation=preparation,
    )


def read_provenance(folder: Path) -> Provenance | None:
    """How a folder was made, or None if it does not say."""
    file = folder / FILE_NAME
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text())
        known = {field.name: record[field.name] for field in fields(Provenance)}
        return Provenance(**{**known, "classes": tuple(known["classes"])})
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{file} was not written by driftnorm: {error!r}.") from error


def claim_folder(folder: Path, wanted: Provenance, path: str) -> None:
    """Write ``driftnorm.json``, or refuse a folder that holds something else.

    Args:
        folder: Where data will be generated; it exists.
        wanted: What will be generated.
        path: Where the clean data are, recorded for people who read the file.
    """
    file, versions = folder / FILE_NAME, []
    present = read_provenance(folder)
    if present is None:
        strangers = sorted(item.name for item in folder.iterdir() if item.name[0] != ".")
        if strangers:
            raise DataError(
                f"{folder} already holds {', '.join(strangers[:3])}"
                f"{' and more' * (len(strangers) > 3)}, and no {FILE_NAME} that says how it was "
                "made. Choose a new folder, so that nothing is mixed up or overwritten."
            )
    else:
        frost = wanted.frost or present.frost
        wanted = replace(wanted, frost=frost)
        _refuse_difference(folder, present, wanted)
        versions = json.loads(file.read_text())["made_with"]
    if _versions() not in versions:
        versions.append(_versions())
    record = {**asdict(wanted), "path": path, "made_with": versions}
    write_atomically(file, json.dumps(record, indent=1) + "\n")


def _refuse_difference(folder: Path, present: Provenance, wanted: Provenance) -> None:
    for name, new in asdict(wanted).items():
        old = getattr(present, name)
        if old != new and not (name == "frost" and old is None):
            shown = "others" if name == "classes" else f"{old!r}, not {new!r}"
            raise DataError(
                f"{folder} was made with another `{name}`: {shown} (its {FILE_NAME} says so). "
                "Choose a new folder, or repeat the settings it was made with."
            )


def _fingerprint(data: ImageSet | PictureSet, root: Path) -> str:
    digest = hashlib.sha256(data.labels.astype("<i8").tobytes())
    digest.update(data.indices.astype("<i8").tobytes())
    if isinstance(data, ImageSet):
        digest.update(np.ascontiguousarray(data.images).data)
    else:
        for path in data.paths:
            entry = f"{path.relative_to(root).as_posix()} {path.stat().st_size}\n"
            digest.update(entry.encode())
    return digest.hexdigest()


def _versions() -> dict[str, str]:
    return {
        "driftnorm": __version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "python": platform.python_version(),
    }

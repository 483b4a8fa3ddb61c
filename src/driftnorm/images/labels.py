"""True classes, if the user has them: for the report, never for the adapter."""

from __future__ import annotations

import csv
import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path

import numpy as np

from driftnorm._internal.counts import counted
from driftnorm._internal.csv_cells import text_of_cell
from driftnorm._internal.files import check_regular
from driftnorm.errors import DataError
from driftnorm.images.imagenet_c import IMAGENET_CLASSES, WNID
from driftnorm.images.npy import open_npy
from driftnorm.images.stream import Inputs
from driftnorm.models._vision import import_timm

__all__ = ["FOLDERS", "OWN", "PARENTS", "Labels", "open_labels"]

FOLDERS, PARENTS, OWN = "folders", "parents", "own"
UNKNOWN = -1
SEVERITIES = 5  # blocks of the same labels in the layout of CIFAR-10-C


class Labels:
    """The class of each image.

    Args:
        by_name: Class numbers by the image's name.
        by_position: Class numbers in the order of the images; -1 where unknown.
        key: Which part of an image's name ``by_name`` uses, such as its folder.
    """

    def __init__(
        self,
        *,
        by_name: Mapping[str, int] | None = None,
        by_position: Sequence[int] | None = None,
        key: Callable[[str], str] = str,
    ) -> None:
        self._by_name = by_name or {}
        self._by_position = by_position or ()
        self._key = key

    def reordered(self, order: Sequence[int] | None) -> Labels:
        """The same labels for images in another order; None for their own order."""
        if order is None or not self._by_position:
            return self
        return Labels(by_position=[self._by_position[place] for place in order])

    def of(self, name: str, position: int) -> int | None:
        """The class number of an image; None if unknown."""
        if position < len(self._by_position):
            number = self._by_position[position]
            return None if number == UNKNOWN else number
        return self._by_name.get(self._key(name))


def open_labels(given: str, classes: Sequence[str], inputs: Inputs) -> Labels:
    """Labels as the user gives them; at least one must match an image.

    Args:
        given: ``folders`` (an image's top-level folder is its class), ``parents`` (the folder that
            contains it is), ``own`` (labels that come with the data), a CSV file with the columns
            ``name`` and ``label``, or an ``.npy`` file with one class number per image, -1 where
            unknown.
        classes: Names of the classes; a label may be one of them, or a number. For the 1,000
            classes of ImageNet it may also be a WordNet identifier, if timm is installed.
        inputs: The images.

    Returns:
        The labels.
    """
    numbers = _class_numbers(classes)
    if given in _FOLDER_OF:
        return _from_folders(given, numbers, classes, inputs)
    if given == OWN:
        return Labels(by_name=_from_inputs(inputs, numbers))
    file = Path(given)
    check_regular(file, "--labels")
    if not file.is_file():
        wrong = "is a folder" if file.is_dir() else "does not exist"
        raise FileNotFoundError(
            f"`--labels` {given} {wrong}: give a CSV file with the columns name and label, "
            f"an .npy file, the word {OWN} for labels that come with the data, or the word "
            f"{FOLDERS} or {PARENTS}."
        )
    if file.suffix.lower() == ".npy":
        return _from_array(file, len(classes), inputs)
    named = _from_csv(file, numbers)
    why = f"{file} has names such as {_some([*named])}"
    return _checked(_without_prefix(named, inputs), inputs, why)


def _class_numbers(classes: Sequence[str]) -> dict[str, int]:
    """Class numbers by everything that a label may be."""
    twice = {name for name, times in Counter(classes).items() if times > 1}
    numbers = {wnid: number for number, wnid in enumerate(_wordnet_ids(len(classes)))}
    numbers |= {str(number): number for number in range(len(classes))}
    return numbers | {name: number for number, name in enumerate(classes) if name not in twice}


def _wordnet_ids(classes: int) -> Sequence[str]:
    """ImageNet's, in their usual order, if there are as many classes and timm is installed."""
    if classes != IMAGENET_CLASSES:
        return ()
    try:
        import_timm()
    except ImportError:
        return ()
    names: Sequence[str] = import_module("timm.data").ImageNetInfo("imagenet-1k").label_names()
    return names


def _first_folder(name: str) -> str:
    folder, slash, _ = _plain(name).partition("/")
    return folder if slash else ""


def _parent_folder(name: str) -> str:
    return name.rpartition("/")[0].rpartition("/")[2]


_FOLDER_OF = {FOLDERS: _first_folder, PARENTS: _parent_folder}


def _from_folders(
    given: str, numbers: Mapping[str, int], classes: Sequence[str], inputs: Inputs
) -> Labels:
    labels = Labels(by_name=numbers, key=_FOLDER_OF[given])
    if _matches(labels, inputs):
        return labels
    other = PARENTS if given == FOLDERS else FOLDERS
    which = "first folder" if given == FOLDERS else "parent folder"
    why = f"no {which} is a class such as {_some(classes)}"
    if _matches(Labels(by_name=numbers, key=_FOLDER_OF[other]), inputs):
        why += f" (`--labels {other}` would fit)"
    elif _looks_like_wordnet(inputs, given) and len(classes) == IMAGENET_CLASSES:
        why += " (install timm, which knows the classes of such folders, or give `--classes`)"
    elif [*classes] == [str(number) for number in range(len(classes))]:
        why += " (the network does not name its classes: give `--classes`)"
    raise _unmatched(inputs, why)


def _looks_like_wordnet(inputs: Inputs, given: str) -> bool:
    first = next(iter(inputs.raw()), None)
    return first is not None and bool(WNID.fullmatch(_FOLDER_OF[given](first.name)))


def _of_one_severity(numbered: list[int], images: int | None) -> list[int]:
    """Reduce the labels of all five severities to those of one."""
    if images is None or len(numbered) != SEVERITIES * images:
        return numbered
    runs = [numbered[start : start + images] for start in range(0, len(numbered), images)]
    return runs[0] if all(run == runs[0] for run in runs) else numbered


def _plain(name: str) -> str:
    """A name without redundant parts, such as ``./`` at the beginning."""
    return posixpath.normpath(name)


def _without_prefix(named: Mapping[str, int], inputs: Inputs) -> Labels:
    """Labels whose names have more, or fewer, leading folders than those of the images.

    Only if no name matches exactly, and if the shortened name is still unambiguous.
    """
    plain = {_plain(name): number for name, number in named.items()}
    labels = Labels(by_name=plain, key=_plain)
    if not plain or _matches(labels, inputs):
        return labels
    names = [_plain(raw.name) for raw in inputs.raw()]
    for depth in range(1, max(name.count("/") for name in (*plain, *names)) + 1):
        rest = partial(_after, depth=depth)
        shorter = {rest(name): number for name, number in plain.items()}
        if len(shorter) == len(plain) and not shorter.keys().isdisjoint(names):
            return Labels(by_name=shorter, key=_plain)
        ends = Counter(map(rest, names))
        if not plain.keys().isdisjoint(ends) and max(ends.values()) == 1:
            return Labels(by_name=plain, key=lambda name, rest=rest: rest(_plain(name)))  # type: ignore[misc]
    return labels


def _after(name: str, depth: int) -> str:
    """A path without its first folders; empty if it has no more."""
    parts = name.split("/")
    return "/".join(parts[depth:])


def _matches(labels: Labels, inputs: Inputs) -> bool:
    return any(labels.of(name, place) is not None for place, (name, _) in enumerate(inputs.raw()))


def _checked(labels: Labels, inputs: Inputs, why: str) -> Labels:
    """Refuse labels that match no image; only names are compared, no image is decoded."""
    if _matches(labels, inputs):
        return labels
    raise _unmatched(inputs, why)


def _unmatched(inputs: Inputs, why: str) -> DataError:
    total = sum(1 for _ in inputs.raw())
    first = [each.name for each in islice(inputs.raw(), 3)]
    return DataError(
        f"`--labels`: 0 of {counted(total, 'label')} matched: {why}; the images are {_some(first)}."
    )


def _from_inputs(inputs: Inputs, numbers: Mapping[str, int]) -> dict[str, int]:
    own = inputs.own_labels()
    if not own:
        raise DataError(
            f"`--labels` {OWN}: {inputs.path} has no labels; expected an array `labels` in an "
            ".npz, or a .cls file next to each picture of a .tar."
        )
    where = f"{inputs.path}, image"
    return {name: _number(label, numbers, f"{where} {name}") for name, label in own.items()}


def _from_array(file: Path, classes: int, inputs: Inputs) -> Labels:
    array = open_npy(file)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{file} must hold one class number per image, got {array.dtype} of shape "
            f"{array.shape}."
        )
    outside = [number for number in set(array.tolist()) if not UNKNOWN <= number < classes]
    if outside:
        raise DataError(
            f"{file} must hold numbers from 0 to {classes - 1}, or {UNKNOWN} where the class is "
            f"unknown; got {outside[0]}."
        )
    images = inputs.survey().images
    numbered = _of_one_severity(array.tolist(), images)
    if images is not None and len(numbered) != images:
        raise DataError(
            f"`--labels` {file} must hold one class number for each of the "
            f"{counted(images, 'image')}, in their order ({UNKNOWN} where unknown); it holds "
            f"{len(numbered):,}."
        )
    labels = Labels(by_position=numbered).reordered(inputs.order)
    return _checked(labels, inputs, f"{file} holds no class numbers")


def _from_csv(file: Path, numbers: Mapping[str, int]) -> dict[str, int]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return _from_rows(csv.DictReader(stream), file, numbers)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 ({error}); save it as UTF-8.") from error


def _from_rows(
    reader: csv.DictReader[str], file: Path, numbers: Mapping[str, int]
) -> dict[str, int]:
    if not {"name", "label"} <= set(reader.fieldnames or ()):
        raise DataError(
            f"{file} must have the columns name and label, got {reader.fieldnames or 'none'}."
        )
    found: dict[str, int] = {}
    for row in reader:
        name, label, where = row["name"], row["label"], f"{file}, line {reader.line_num}"
        if not label:  # unknown, as if the line were missing
            continue
        number = _number(label, numbers, where)
        if found.setdefault(name, number) != number:
            raise DataError(f"{where}: {name!r} has a different label in an earlier line.")
    # Names may come from `adapt`, which protects them from being run by a spreadsheet.
    return {text_of_cell(name): number for name, number in found.items()} | found


def _number(label: str, numbers: Mapping[str, int], where: str) -> int:
    if label not in numbers:
        raise DataError(
            f"{where}: the label {label!r} is neither the unambiguous name of a class nor a "
            f"number from 0 to {max(numbers.values())}; give the names with `--classes`."
        )
    return numbers[label]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + ", ..." * (len(names) > 3) or "none"

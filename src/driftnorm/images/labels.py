"""True classes, where the user has them: for the report, never for the adapter."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from driftnorm.errors import DataError
from driftnorm.images.npy import open_npy
from driftnorm.images.stream import Inputs

__all__ = ["FOLDERS", "OWN", "Labels", "open_labels"]

FOLDERS, OWN = "folders", "own"
UNKNOWN = -1


class Labels:
    """Answers which class an image is of.

    Args:
        by_name: Class numbers by the image's name.
        by_position: Class numbers in the order of the images; -1 where unknown.
        by_folder: Class numbers by the first folder in the image's name.
    """

    def __init__(
        self,
        *,
        by_name: Mapping[str, int] | None = None,
        by_position: Sequence[int] | None = None,
        by_folder: Mapping[str, int] | None = None,
    ) -> None:
        self._by_name = by_name or {}
        self._by_position = by_position or ()
        self._by_folder = by_folder

    def reordered(self, order: Sequence[int] | None) -> Labels:
        """The same labels for images in another order; None is their own."""
        if order is None or not self._by_position:
            return self
        return Labels(by_position=[self._by_position[place] for place in order])

    def of(self, name: str, position: int) -> int | None:
        """The class number of an image; None if it is not known."""
        if self._by_folder is not None:
            folder, slash, _ = name.partition("/")
            return self._by_folder.get(folder) if slash else None
        if position < len(self._by_position):
            number = self._by_position[position]
            return None if number == UNKNOWN else number
        return self._by_name.get(name)


def open_labels(given: str, classes: Sequence[str], inputs: Inputs) -> Labels:
    """Labels as the user gives them, of which at least one must be for one of the images.

    Args:
        given: ``folders`` (an image's first folder is its class), ``own`` (those that the data
            bring), a CSV file with the columns ``name`` and ``label``, or an ``.npy`` file with
            one class number an image, -1 where it is unknown.
        classes: Names of the classes; a label may be one of them, or a number.
        inputs: The images.

    Returns:
        The labels.
    """
    numbers = {str(number): number for number in range(len(classes))}
    twice = {name for name, times in Counter(classes).items() if times > 1}
    numbers |= {name: number for number, name in enumerate(classes) if name not in twice}
    if given == FOLDERS:
        labels = Labels(by_folder=numbers)
        return _checked(labels, inputs, f"no first folder is a class such as {_some(classes)}")
    if given == OWN:
        return Labels(by_name=_from_inputs(inputs, numbers))
    file = Path(given)
    if not file.is_file():
        raise FileNotFoundError(
            f"`--labels` {given} is not there: give a CSV file with the columns name and label, "
            f"an .npy file, the word {OWN} for labels that the data bring, or the word {FOLDERS}."
        )
    if file.suffix.lower() == ".npy":
        numbered = _from_array(file, len(classes))
        images = inputs.survey().images
        if images is not None and len(numbered) != images:
            raise DataError(
                f"`--labels` {file} must hold one class number for each of the {images:,} images, "
                f"in their order ({UNKNOWN} where it is unknown); it holds {len(numbered):,}."
            )
        labels = Labels(by_position=numbered).reordered(inputs.order)
        return _checked(labels, inputs, f"{file} holds no class numbers")
    named = _from_csv(file, numbers)
    return _checked(Labels(by_name=named), inputs, f"{file} has names such as {_some([*named])}")


def _checked(labels: Labels, inputs: Inputs, why: str) -> Labels:
    """Refuse labels that fit no image; names are compared, and no image is decoded."""
    total = 0
    for total, (name, _) in enumerate(inputs.raw(), start=1):
        if labels.of(name, total - 1) is not None:
            return labels
    first = [each.name for each in islice(inputs.raw(), 3)]
    raise DataError(
        f"`--labels`: 0 of {total:,} labels matched: {why}; the images are {_some(first)}."
    )


def _from_inputs(inputs: Inputs, numbers: Mapping[str, int]) -> dict[str, int]:
    own = inputs.own_labels()
    if not own:
        raise DataError(
            f"`--labels` {OWN}: {inputs.path} brings no labels; expected an array `labels` in an "
            ".npz, or a .cls file beside each picture of a .tar."
        )
    where = f"{inputs.path}, image"
    return {name: _number(label, numbers, f"{where} {name}") for name, label in own.items()}


def _from_array(file: Path, classes: int) -> list[int]:
    array = open_npy(file)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{file} must hold one class number an image, got {array.dtype} of shape {array.shape}."
        )
    outside = [number for number in set(array.tolist()) if not UNKNOWN <= number < classes]
    if outside:
        raise DataError(
            f"{file} must hold numbers from 0 to {classes - 1}, or {UNKNOWN} where the class is "
            f"unknown; got {outside[0]}."
        )
    return [int(number) for number in array]


def _from_csv(file: Path, numbers: Mapping[str, int]) -> dict[str, int]:
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            return _from_rows(csv.DictReader(stream), file, numbers)
    except UnicodeDecodeError as error:
        raise DataError(f"{file} is not UTF-8 ({error}); save it so.") from error


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
        if not label:  # not known, as if there were no such line
            continue
        number = _number(label, numbers, where)
        if found.setdefault(name, number) != number:
            raise DataError(f"{where}: {name!r} has another label in an earlier line.")
    return found


def _number(label: str, numbers: Mapping[str, int], where: str) -> int:
    if label not in numbers:
        raise DataError(
            f"{where}: the label {label!r} is neither the name of a class (of one alone) nor a "
            f"number from 0 to {max(numbers.values())}; give the names with `--classes`."
        )
    return numbers[label]


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names[:3])) + ", ..." * (len(names) > 3) or "none"

"""True classes, where the user has them: for the report, never for the adapter."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from driftnorm.data.image_set import DataError
from driftnorm.data.npy import open_npy

__all__ = ["FOLDERS", "Labels", "open_labels"]

FOLDERS = "folders"


class Labels:
    """Answers which class an image is of.

    Args:
        by_name: Class numbers by the image's name.
        by_position: Class numbers in the order of the images.
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

    def of(self, name: str, position: int) -> int | None:
        """The class number of an image; None if it is not known."""
        if self._by_folder is not None:
            folder, slash, _ = name.partition("/")
            return _number(folder, self._by_folder) if slash else None
        if position < len(self._by_position):
            return self._by_position[position]
        return self._by_name.get(name)


def open_labels(given: str, classes: Sequence[str] | None) -> Labels:
    """Labels as the user gives them.

    Args:
        given: ``folders`` (an image's first folder is its class), a CSV file with the columns
            ``name`` and ``label``, or an ``.npy`` file with one class number an image.
        classes: Names of the classes; a label may be one of them, or a number.

    Returns:
        The labels.
    """
    numbers = {name: number for number, name in enumerate(classes or ())}
    if given == FOLDERS:
        return Labels(by_folder=numbers)
    file = Path(given)
    if not file.is_file():
        raise FileNotFoundError(
            f"`--labels` {given} is not there: give a CSV file with the columns name and label, "
            f"an .npy file, or the word {FOLDERS}."
        )
    if file.suffix.lower() == ".npy":
        return Labels(by_position=_from_array(file))
    return Labels(by_name=_from_csv(file, numbers))


def _from_array(file: Path) -> list[int]:
    array = open_npy(file)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"{file} must hold one class number an image, got {array.dtype} of shape {array.shape}."
        )
    return [int(number) for number in array]


def _from_csv(file: Path, numbers: Mapping[str, int]) -> dict[str, int]:
    found = {}
    with file.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        if not {"name", "label"} <= set(reader.fieldnames or ()):
            raise DataError(
                f"{file} must have the columns name and label, got {reader.fieldnames or 'none'}."
            )
        for row in reader:
            number = _number(row["label"] or "", numbers)
            if number is None:
                raise DataError(
                    f"{file}, line {reader.line_num}: the label {row['label']!r} is neither a "
                    "number nor the name of a class; give the names with `--classes`."
                )
            found[row["name"]] = number
    return found


def _number(label: str, numbers: Mapping[str, int]) -> int | None:
    if label in numbers:
        return numbers[label]
    return int(label) if label.isascii() and label.isdigit() else None

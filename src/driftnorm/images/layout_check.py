"""Checks of data sets without published checksums: everything but the bytes."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import numpy as np

from driftnorm._internal.counts import agreeing, counted
from driftnorm._internal.progress import Report, no_report
from driftnorm.errors import DataError
from driftnorm.images.cifar import load_cifar100
from driftnorm.images.corruption import SEVERITIES
from driftnorm.images.imagenet_c import holds_imagenet_c, is_imagenet, load_imagenet_c
from driftnorm.images.provenance import WORK_FOLDER, read_provenance
from driftnorm.shifts import CORRUPTIONS, EXTRA_CORRUPTIONS

_OF_EACH_CLASS = {"train": 500, "test": 100}
_PICTURES = 50_000


def check_cifar100(folder: str | os.PathLike[str]) -> list[str]:
    """Everything that is wrong with CIFAR-100's official files, one sentence each.

    Checks sizes, labels and the number of images per class.
    """
    problems = []
    for split, expected in _OF_EACH_CLASS.items():
        try:
            images = load_cifar100(folder, split)  # type: ignore[arg-type]
        except (DataError, FileNotFoundError) as error:
            problems.append(str(error))
            continue
        counts = np.bincount(images.labels, minlength=len(images.classes))
        wrong = np.flatnonzero(counts != expected)
        if len(wrong):
            name = images.classes[wrong[0]]
            problems.append(
                f"{folder}, {split}: every class must have {counted(expected, 'image')}, but "
                f"{name!r} has {counts[wrong[0]]}; {counted(len(wrong), 'class')} "
                f"{agreeing(len(wrong), 'is', 'are')} wrong. The "
                "file is damaged."
            )
    return problems


def check_imagenet_c(folder: str | os.PathLike[str], progress: Report = no_report) -> list[str]:
    """Everything that is wrong with ImageNet-C's folders, one sentence each.

    The 15 common corruptions are required at five severities, with 1,000 classes and 50,000
    pictures each; the 4 extra ones are optional. A folder made by ``driftnorm corrupt`` may have
    other classes and fewer pictures and corruptions, since it records that. Pictures are counted,
    not opened.

    Args:
        folder: The folder.
        progress: Called with the current activity, streams done, and streams in total.
    """
    home = Path(folder)
    if not home.is_dir():
        return [f"{home} is not a folder."]
    made, problems = read_provenance(home), []
    if (home / WORK_FOLDER).exists():
        problems.append(f"{home} is incomplete: `driftnorm corrupt` is running or was killed.")
    expected = _PICTURES if made is None else made.count
    streams = [(c, s) for c in CORRUPTIONS + EXTRA_CORRUPTIONS for s in SEVERITIES]
    found, missing = 0, defaultdict[str, list[int]](list)
    for done, (corruption, severity) in enumerate(streams, start=1):
        progress(f"{corruption} {severity}", done, len(streams))
        if not holds_imagenet_c(home, corruption, severity):
            if made is None and corruption in CORRUPTIONS:
                missing[corruption].append(severity)
            continue
        found += 1
        try:
            pictures = load_imagenet_c(home, corruption, severity)
        except (DataError, FileNotFoundError) as error:
            problems.append(str(error))
            continue
        if made is None and not is_imagenet(pictures.classes):
            problems.append(
                f"{corruption}/{severity} has {counted(len(pictures.classes), 'folder')} not named "
                "like ImageNet's 1,000 classes."
            )
        elif len(pictures) != expected:
            problems.append(
                f"{corruption}/{severity} must have {counted(expected, 'picture')}, found "
                f"{len(pictures):,}."
            )
    for corruption, severities in missing.items():
        listed = ", ".join(map(str, severities))
        which = "at every severity" if len(severities) == len(SEVERITIES) else f"at {listed}"
        problems.append(f"{corruption} is missing {which}.")
    if not found:
        return [*problems[:1], f"{home} holds no corruption such as fog/5 or weather/fog/5."]
    return problems

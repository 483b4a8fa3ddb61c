"""Checks of arguments: every bound, what is no number at all, and names that are nearly right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from driftnorm._internal.arguments import check_choice, check_number, check_whole


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({}, (1e-9, 3), (0, -1), "positive, got"),
        ({}, (), (math.inf,), "positive and finite, got inf"),
        ({"most": math.inf}, (math.inf,), (0,), "positive, got 0"),
        ({"least": 0}, (0, 5.5), (-1, math.nan), "at least 0, got"),
        ({"most": 1}, (1,), (0, 1.1), r"in \(0, 1\], got"),
        ({"below": 1}, (0.5,), (0, 1), r"in \(0, 1\), got"),
        ({"least": 0, "below": 1}, (0,), (1, -0.1), r"in \[0, 1\), got"),
        ({"least": 0, "most": 1}, (0, 1, np.float32(0.5)), (2, -1), "from 0 to 1, got"),
        ({}, (), ("1", True, None), "a number, got"),
    ],
)
def test_numbers(
    bounds: dict[str, float], inside: tuple[Any, ...], outside: tuple[Any, ...], words: str
) -> None:
    for value in inside:
        check_number("x", value, **bounds)  # type: ignore[arg-type]
    for value in outside:
        with pytest.raises(ValueError, match=f"^`x` must be {words}"):
            check_number("x", value, **bounds)  # type: ignore[arg-type]


def test_whole_numbers() -> None:
    check_whole("x", np.int64(3))
    check_whole("x", 5, 0, 5)
    for value, words in ((1.0, "a whole number"), (6, "from 0 to 5"), (False, "a whole number")):
        with pytest.raises(ValueError, match=f"^`x` must be {words}, got {value}"):
            check_whole("x", value, 0, 5)


def test_words() -> None:
    check_choice("x", "tent", ("tent", "bn"))
    with pytest.raises(ValueError, match=r"^`x` must be one of tent, bn; got 'BN'\. Did you mean"):
        check_choice("x", "BN", ("tent", "bn"))
    with pytest.raises(ValueError, match=r"one of tent, bn; got 3\.$"):
        check_choice("x", 3, ("tent", "bn"))

"""The examples run as they stand, from another folder, and do what they say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

# torchmetrics imports torchvision where that is installed, as a CUDA wheel beside a CPU torch too.
REPAIRED = """
import runpy, sys, warnings
from driftnorm.models._vision import import_torchvision
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    try:
        import_torchvision()
    except ImportError:
        pass
    import torchmetrics
runpy.run_path(sys.argv[1], run_name="__main__")
"""
EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(path.name for path in EXAMPLES.glob("*.py"))


def shown(name: str, folder: Path, start: Sequence[str] = ()) -> str:
    """What an example prints; it must not warn, and must leave nothing behind."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *(start or [str(EXAMPLES / name)])],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    if done.stderr.startswith("skipped: "):
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    assert not any(folder.iterdir())
    return done.stdout


def percents(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+) %", text)]


@pytest.mark.parametrize("name", NAMES)
def test_an_example_is_short_and_downloads_nothing(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    assert len(text.splitlines()) < 60
    assert f"python examples/{name}" in text.split('"""')[1]
    assert "pretrained=True" not in text.split('"""')[2]


def test_every_example_is_tested() -> None:
    tested = (
        Path(__file__).read_text()
        + (Path(__file__).parent / "methods" / "test_own_method.py").read_text()
    )
    assert [name for name in NAMES if f'"{name}"' not in tested] == []


def test_timm_network(tmp_path: Path, timm: object) -> None:
    out = shown("timm_network.py", tmp_path)
    assert "'gprebn' on ResNet with 20 batch-norm layers" in out
    assert "3 batches seen" in out
    assert "answers (16, 10)" in out
    assert "as the frozen adapter: True" in out


def test_serving_loop(tmp_path: Path) -> None:
    out = shown("serving_loop.py", tmp_path)
    assert "restarted after 6 batches" in out
    assert "it goes on bit for bit: True" in out
    assert "frozen, it repeats itself: True" in out
    assert "after a reset: 0 batches, frozen False" in out


def check_accuracies(out: str) -> None:
    source, bn, gprebn = percents(out)
    assert bn > source + 20
    assert gprebn > source + 20


def test_evaluation_loop_with_torchmetrics(tmp_path: Path) -> None:
    if importlib.util.find_spec("torchmetrics") is None:
        pytest.skip("torchmetrics is not installed")
    start = ["-c", REPAIRED, str(EXAMPLES / "evaluation_loop.py")]
    out = shown("evaluation_loop.py", tmp_path, start)
    assert "counted by torchmetrics" in out
    check_accuracies(out)


def test_evaluation_loop_without_torchmetrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding, empty = tmp_path / "hiding" / "torchmetrics", tmp_path / "empty"
    for folder in (hiding, empty):
        folder.mkdir(parents=True)
    (hiding / "__init__.py").write_text("raise ImportError('as if it were not installed')")
    paths = [str(hiding.parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    out = shown("evaluation_loop.py", empty)
    assert "counted by a plain counter" in out
    check_accuracies(out)


def test_segmentation(tmp_path: Path) -> None:
    out = shown("segmentation.py", tmp_path)
    clean, source, adapted = percents(out)
    assert clean > 90
    assert adapted > source + 10
    assert "answers (16, 3, 24, 24), adapted" in out


def test_domain_folders(tmp_path: Path) -> None:
    out = shown("domain_folders.py", tmp_path)
    assert "trained on chalk, ink, pencil; never saw faint" in out
    source, bn, gprebn = percents(out)
    assert bn > source + 5
    assert gprebn > source + 5

"""Scratch folders and peak memory: of one piece of work each."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from driftnorm.data.scratch import remove_leftovers, scratch_folder
from driftnorm.memory import forget_peak, peak_megabytes

KILLED = """
import os, sys
from pathlib import Path
from driftnorm.data.scratch import scratch_folder
with scratch_folder(Path(sys.argv[1])) as folder:
    (folder / "pixels").write_text("many")
    print(folder, flush=True)
    os._exit(9)
"""


def test_a_scratch_folder_is_gone_afterwards(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "rows") as folder:
        (folder / "pixels").write_text("many")
        assert folder.is_relative_to(tmp_path / "rows" / ".scratch")
    with pytest.raises(RuntimeError), scratch_folder(tmp_path / "rows"):
        raise RuntimeError
    assert [*(tmp_path / "rows" / ".scratch").iterdir()] == []


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    remove_leftovers(tmp_path)  # nothing there
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    left = Path(found.stdout.strip())
    assert (left / "pixels").exists()
    with scratch_folder(tmp_path) as mine:
        remove_leftovers(tmp_path)
        assert mine.exists()
        assert {path.name for path in mine.parent.iterdir()} == {mine.name, f"{mine.name}.lock"}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux can reset it")
def test_the_peak_is_of_what_came_since() -> None:
    forget_peak()
    start = peak_megabytes()
    large = np.ones(200 << 20, dtype=np.uint8)
    assert peak_megabytes() > start + 150
    del large
    forget_peak()
    assert peak_megabytes() < start + 100

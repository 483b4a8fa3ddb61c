"""Scratch folders and peak memory, of one piece of work each; memory that is kept."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from driftnorm._internal.process_memory import forget_peak, keep_freed_memory, peak_megabytes
from driftnorm._internal.scratch import remove_leftovers, scratch_folder

KILLED = """
import os, sys
from pathlib import Path
from driftnorm._internal.scratch import scratch_folder
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


TAKEN_AND_FREED = """
import resource, sys
import numpy as np
from driftnorm._internal.process_memory import keep_freed_memory
if sys.argv[1] == "keep":
    print(keep_freed_memory())
for turn in range(120):
    if turn == 20:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [np.ones(size << 20, dtype=np.uint8) for size in (8, 40, 8)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str, **variables: str) -> list[str]:
    """What the process says, the last of it its page faults."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", TAKEN_AND_FREED, how]
    return subprocess.run(
        command, env={**clean, **variables}, capture_output=True, text=True, check=True
    ).stdout.split()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to")
def test_freed_memory_is_kept_for_the_next_batch() -> None:
    told, kept = faults("keep")
    (given_back,) = faults("as it comes")
    assert told == "True"
    assert int(kept) < int(given_back) / 20


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to")
def test_settings_of_ones_own_are_left_alone() -> None:
    told, _ = faults("keep", MALLOC_TRIM_THRESHOLD_="131072")
    assert told == "False"


def test_a_system_without_glibc_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not keep_freed_memory()

"""Memory of this process: kept between batches, and measured at its peak."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_MACHINE = Path("/proc/meminfo")
_CONTAINER = Path("/sys/fs/cgroup")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # resets the peak-RSS counter, see proc(5)
# Options of glibc's `mallopt`, by their numbers in malloc.h, and the most that they take.
_KEEP_BLOCKS_BELOW, _KEEP_AT_THE_TOP = -3, -1
_MOST_BLOCK, _MOST_TOP = 1 << 30, (1 << 31) - 1


def keep_freed_memory() -> bool:
    """Tell the C library to keep what is freed, for a process that runs networks.

    A network frees its activations and wants as much again for the next batch. By default glibc
    gives blocks of that size back, and the system hands them out anew, zeroed, page by page.
    That takes time, the more of it the narrower the network. A process that was given its own
    settings in the environment keeps them.

    Returns:
        Whether the C library does so now; only glibc can.
    """
    own = [name for name in os.environ if name.startswith("MALLOC_") or name == "GLIBC_TUNABLES"]
    set_option = None if own else _c_function("mallopt")
    if set_option is None:
        return False
    blocks = set_option(_KEEP_BLOCKS_BELOW, _MOST_BLOCK)
    top = set_option(_KEEP_AT_THE_TOP, _MOST_TOP)
    return (blocks, top) == (1, 1)


def forget_peak() -> None:
    """Reset the peak; where the system cannot, it stays that of the whole process."""
    give_back = _c_function("malloc_trim")
    if give_back is not None:
        give_back(0)  # memory kept but unused is not needed by the next piece of work
    try:
        _RESET.write_text(_RESET_PEAK)
    except OSError:
        return


def peak_megabytes() -> int:
    """The most memory that the process held since `forget_peak`, else since its start."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        import resource  # not on Windows

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return round(int(kilobytes) / 1024)


def free_bytes() -> int | None:
    """Memory that can still be taken, of the machine or of the container; None if unknown."""
    try:
        lines = _MACHINE.read_text().splitlines()
        found = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable")]
    except OSError:
        return None
    try:
        most, held = ((_CONTAINER / f"memory.{name}").read_text() for name in ("max", "current"))
        found.append(int(most) - int(held))
    except (OSError, ValueError):  # no container, or one without a limit ("max")
        pass
    return min(found, default=None)


def _c_function(name: str) -> Any:
    """A function of the C library that this process runs on; None where it has none."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None

"""Peak memory of one piece of work, not of all that a process did before it."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

__all__ = ["forget_peak", "peak_megabytes"]

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # what Linux understands as: the peak is what is held now


def forget_peak() -> None:
    """Begin anew; where the system cannot, the peak stays that of the whole process."""
    try:
        _RESET.write_text(_RESET_PEAK)
    except OSError:
        return


def peak_megabytes() -> int:
    """The most memory that the process held since `forget_peak`, else since its start."""
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return round(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))
    (kilobytes,) = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return round(int(kilobytes) / 1024)

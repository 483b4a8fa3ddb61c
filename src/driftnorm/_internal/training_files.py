"""What the files of a training are called: written by trainings, looked for by views."""

from __future__ import annotations

__all__ = ["BEST", "HISTORY", "LAST", "SWAD_FILE"]

BEST, LAST, SWAD_FILE = "best.safetensors", "last.safetensors", "swad.safetensors"
HISTORY = "history.json"

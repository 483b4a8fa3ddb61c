"""File names of a training, for those who write the files and those who read them."""

from __future__ import annotations

BEST, LAST, SWAD_FILE = "best.safetensors", "last.safetensors", "swad.safetensors"
HISTORY = "history.json"

"""Hooks of mkdocs: evidence pages are in the menu once they have been written."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Leave out the pages that a benchmark has yet to write; a missing page is an error to mkdocs."""
    docs = Path(config["docs_dir"])
    for section in config["nav"]:
        for title, pages in section.items():
            if title == "Evidence":
                pages[:] = [page for page in pages if (docs / next(iter(page.values()))).exists()]
    return config

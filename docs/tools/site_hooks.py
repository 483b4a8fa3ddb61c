"""Hooks of mkdocs: evidence pages once they are written, examples and a report beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from driftnorm.views.report.page import make_report

EXAMPLES = "examples"
REPORT = "example-report.html"


def on_config(config: Any) -> Any:
    """Leave out the pages that a benchmark has yet to write; mkdocs would call them missing."""
    docs = Path(config["docs_dir"])
    for section in config["nav"]:
        for title, pages in section.items():
            if title == "Evidence":
                pages[:] = [page for page in pages if (docs / next(iter(page.values()))).exists()]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Put the examples on the site, and the demo's report as it is made from its rows."""
    for path in sorted((Path(config["docs_dir"]).parent / EXAMPLES).glob("*.py")):
        place = f"{EXAMPLES}/{path.name}"
        files.append(File.generated(config, place, abs_src_path=str(path)))
    report = make_report([Path(config["docs_dir"]) / "rows" / "demo.jsonl"])
    files.append(File.generated(config, REPORT, content=report))
    return files


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Links that lead to the examples in the repository lead to them on the site."""
    return markdown.replace(f"](../{EXAMPLES}/", f"]({EXAMPLES}/")

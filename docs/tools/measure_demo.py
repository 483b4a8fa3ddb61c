"""Measure the demo again, and rewrite every document that shows it.

    python docs/tools/measure_demo.py

Runs `driftnorm demo` into a fresh folder; its rows, its picture and its table replace those of
docs/rows/demo.jsonl, docs/pictures/demo.png and the README, and the generated pages follow.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
MARK = "<!-- written by `driftnorm demo` from docs/rows/demo.jsonl; a test compares -->\n"
END = "\n![accuracy against severity](docs/pictures/demo.png)"


def main() -> None:
    """Measure, copy, rewrite."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        subprocess.run(
            [sys.executable, "-m", "driftnorm", "demo", "--out", str(out)], check=True, cwd=folder
        )
        shutil.copy(out / "rows.jsonl", ROOT / "docs" / "rows" / "demo.jsonl")
        shutil.copy(out / "accuracy.png", ROOT / "docs" / "pictures" / "demo.png")
        exhibits = out / "rows" / "exhibits"
        for kept in (ROOT / "docs" / "rows" / "exhibits").glob("*.json"):
            if (exhibits / kept.name).exists():
                shutil.copy(exhibits / kept.name, kept)
        table = (out / "table.md").read_text()
    readme = ROOT / "README.md"
    readme.write_text(with_table(readme.read_text(), table))
    subprocess.run([sys.executable, str(ROOT / "docs" / "tools" / "make_pages.py")], check=True)


def with_table(text: str, table: str) -> str:
    """The README with another table of the demo."""
    block = re.compile(f"{re.escape(MARK)}.*?{re.escape(END)}", re.DOTALL)
    replaced, count = block.subn(lambda _: f"{MARK}{table}{END}", text)
    if count != 1:
        raise ValueError(f"README.md must have the demo's table once, found {count}.")
    return replaced


if __name__ == "__main__":
    main()

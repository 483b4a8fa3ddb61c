"""Fill the generated blocks of the documentation's pages.

    python docs/tools/make_pages.py            # write what is out of date
    python docs/tools/make_pages.py --check    # write nothing; exit 1 if something is

A block stands between `<!-- generated: NAME -->` and `<!-- end: NAME -->`; everything else in a
page is written by people. Blocks come from the code (`from_code.py`) and from committed rows
(`from_rows.py`), so a number or a flag in the documents cannot grow old unnoticed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from from_code import CODE_BLOCKS
from from_rows import ROW_BLOCKS

DOCS = Path(__file__).resolve().parent.parent
BLOCKS: Mapping[str, Callable[[], str]] = {**CODE_BLOCKS, **ROW_BLOCKS}
_BLOCK = re.compile(
    r"(?P<begin><!-- generated: (?P<name>[\w-]+) -->\n).*?(?P<end><!-- end: (?P=name) -->)",
    re.DOTALL,
)


def filled(text: str) -> str:
    """The page with every block made anew."""

    def made(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in BLOCKS:
            raise ValueError(f"there is no generated block {name!r}; known: {', '.join(BLOCKS)}.")
        return f"{found['begin']}\n{BLOCKS[name]().strip()}\n\n{found['end']}"

    return _BLOCK.sub(made, text)


def pages() -> dict[Path, str]:
    """Every page that has blocks, as it should be."""
    found = {path: path.read_text() for path in sorted(DOCS.rglob("*.md"))}
    return {path: filled(text) for path, text in found.items() if _BLOCK.search(text)}


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if out of date")
    check = parser.parse_args().check
    old = {path: text for path, text in pages().items() if path.read_text() != text}
    for path, text in old.items():
        print(f"{'out of date' if check else 'wrote'}: {path.relative_to(DOCS.parent)}")
        if not check:
            path.write_text(text)
    if check and old:
        sys.exit("run `python docs/tools/make_pages.py`.")


if __name__ == "__main__":
    main()

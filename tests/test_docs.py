"""What the documents say is run: docstring examples and the README's Python."""

from __future__ import annotations

import doctest
import importlib
import re
import warnings
from pathlib import Path

import pytest
import torch
from methods_table import ROWS

from driftnorm.methods import METHODS
from driftnorm.methods.bn_window import SMALL_BATCH

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"
MODULES = sorted(
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")
    for path in SOURCE.rglob("*.py")
    if ">>> " in path.read_text()
)


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples(name: str) -> None:
    torch.manual_seed(0)
    module = importlib.import_module(name)
    extra = {"torch": torch}
    failed, tried = doctest.testmod(module, extraglobs=extra)
    assert failed == 0
    assert tried > 0


def snippets(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("path", ["README.md", "CONTRIBUTING.md", "docs/adapting.md"])
def test_python_in_the_documents_runs(path: str, tmp_path: Path, monkeypatch) -> None:
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    code = snippets(ROOT / path)
    assert code
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for snippet in code:
            exec(compile(snippet, path, "exec"), names)


def test_the_demo_table_in_the_readme_comes_from_the_committed_rows() -> None:
    from driftnorm.bench.rows import load_rows
    from driftnorm.bench.studies.digits import DigitStudy
    from driftnorm.views.demo_rows import demo_table

    order = {cell.key: place for place, cell in enumerate(DigitStudy().cells())}
    rows = load_rows(ROOT / "docs" / "rows" / "demo.jsonl")
    rows.sort(key=lambda row: order[row.cell.key])
    assert len(rows) == len(order)
    assert demo_table(rows).to_markdown() in (ROOT / "README.md").read_text()


def test_the_robustness_numbers_in_the_readme_come_from_the_committed_rows() -> None:
    from driftnorm.bench.rows import load_rows
    from driftnorm.views.claim_tables import claims_table
    from driftnorm.views.compare import in_order, mean_error

    files = (ROOT / "docs" / "rows").glob("robustness-cifar10-resnet20-severity*.jsonl")
    rows = in_order([row for file in files for row in load_rows(file)])
    methods = ("source", "bn", "tent", "gprebn")
    errors = [f"{mean_error(rows, method):.1f}" for method in methods]
    text = " ".join((ROOT / "README.md").read_text().split())
    assert (
        f"mean error is {errors[0]} % for the source, {errors[1]} for `bn`, {errors[2]} for `tent` "
        f"and {errors[3]} for `gprebn`"
    ) in text
    verdicts = [line[1] for line in claims_table(rows).rows]
    assert (len(verdicts), verdicts.count("confirmed")) == (12, 11)
    assert "twelve claims about robustness, eleven are confirmed" in text


def test_small_batches_get_one_advice() -> None:
    words = f"fewer than {SMALL_BATCH} images per batch"
    for page in ("README.md", "docs/choosing.md"):
        (row,) = (line for line in (ROOT / page).read_text().splitlines() if f"| {words}" in line)
        assert row.split("|")[2].strip().startswith("`steady`, or `bn-window`"), page
    assert f"{words} (use steady)" in METHODS["gprebn"].hurts


def test_every_composition_that_the_documents_name_keeps_the_promises() -> None:
    """It has a row in the table, whatever its options."""
    name = rf"(?:{'|'.join(sorted(map(re.escape, METHODS), key=len, reverse=True))})"
    one = rf"{name}(?::[\w=.,]+)?"
    named = re.compile(rf"(?<![\w@+-]){one}(?:[+@]{one})+")
    pages = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    found = {word for page in pages for word in named.findall(page.read_text())}
    assert len(found) > 5
    tested = {row.method for row in ROWS}
    assert {re.sub(r":[\w=.,]+", "", word) for word in found} <= tested


def test_the_page_of_methods_says_of_each_when_it_helps_and_hurts() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for method in METHODS.values():
        section = page.split(f"### {method.name}\n")[1].split("\n### ")[0]
        assert f"It helps: {method.helps}." in section, method.name
        assert f"It hurts: {method.hurts}." in section, method.name

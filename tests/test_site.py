"""The documentation: its pages are up to date, its code runs, its commands exist, and it builds."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from chromium import NEEDS_CHROMIUM, Browser

from driftnorm.streams import parse_stream
from driftnorm.streams.composition import COURSES, ORDERS

ROOT = Path(__file__).parent.parent
DOCS, TOOLS = ROOT / "docs", ROOT / "docs" / "tools"
PAGES = sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))
ELSEWHERE = {"adapting.md"}  # run by tests/test_docs.py
_FENCE = re.compile(
    r"(?:<!-- not run: (?P<why>[^>]+) -->\n)?```(?P<kind>\w+)\n(?P<text>.*?)```", re.S
)


def blocks(page: str, kinds: tuple[str, ...]) -> list[str]:
    """The fenced blocks of a page that are of these kinds and not marked as not to be run."""
    found = _FENCE.finditer((DOCS / page).read_text())
    return [each["text"] for each in found if each["kind"] in kinds and each["why"] is None]


def commands(page: str) -> list[str]:
    """Every line that calls driftnorm, without its comment."""
    text = "\n".join(blocks(page, ("sh", "bash", "console"))).replace("\\\n", " ")
    lines = (line.strip().removeprefix("$ ") for line in text.splitlines())
    return [line for line in lines if line.startswith("driftnorm ")]


@pytest.fixture
def registries() -> Iterator[None]:
    """Snippets add methods and corruptions of their own; other tests must not see them."""
    from driftnorm.methods import METHODS
    from driftnorm.shifts import SHIFTS

    kept = [(known, dict(known)) for known in (METHODS, SHIFTS)]
    yield
    for known, before in kept:
        known.clear()
        known.update(before)


@pytest.fixture
def whole_torchvision() -> None:
    """Packages on the pages import it; beside a CPU torch it needs our door."""
    from driftnorm.models import _vision

    if importlib.util.find_spec("torchvision") is not None:
        _vision.import_torchvision()


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(TOOLS))
    return TOOLS


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p not in ELSEWHERE and blocks(p, ("python",))]
)
@pytest.mark.usefixtures("registries", "whole_torchvision")
def test_python_on_the_pages_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    threads = torch.get_num_threads()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for snippet in blocks(page, ("python",)):
                exec(compile(snippet, page, "exec"), names)
    finally:
        torch.set_num_threads(threads)


def test_the_method_on_the_page_about_extending_keeps_the_promises(tmp_path: Path) -> None:
    """As the page says it can be checked: by the property tests, from outside."""
    code = next(block for block in blocks("extending.md", ("python",)) if "register(" in block)
    (tmp_path / "mymethods.py").write_text(code.partition("\nnet = ")[0])
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "tests/adapter/test_promises.py", "-k", "certain"),
            *("-p", "no:cacheprovider"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "DRIFTNORM_IMPORT": "mymethods", "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert done.returncode == 0, done.stdout[-2000:]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_the_command_line_knows_every_command_on_the_pages(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from driftnorm.cli import app
    from driftnorm.cli._imports import PLUGINS, take_imports

    for name in (PLUGINS, "PYTHONPATH"):  # which `--import` changes
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setattr(sys, "path", [*sys.path])
    for line in commands(page):
        words = take_imports(shlex.split(line, comments=True)[1:])
        app.parse_args(words, print_error=False, exit_on_error=False)


@pytest.mark.parametrize(
    "command", ["adapt", "diagnose", "export", "train domains", "sweep domains", "bench robustness"]
)
def test_every_flag_of_a_command_is_on_its_page(command: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "driftnorm", *command.split(), "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    listed = re.findall(r"^([A-Z][A-Z-]* )?(--[a-z][a-z-]+)", told.stdout, re.MULTILINE)
    flags = {place.strip() or flag for place, flag in listed if not flag.startswith("--no-")}
    page = (DOCS / "command-line.md").read_text()
    section = page.split(f"### driftnorm {command}\n")[1].partition("\n### ")[0]
    assert len(flags) > 8
    assert not {flag for flag in flags if f"`{flag}`" not in section}


def test_an_unknown_flag_on_a_page_would_be_noticed() -> None:
    from cyclopts import CycloptsError

    from driftnorm.cli import app

    with pytest.raises(CycloptsError):
        app.parse_args(["methods", "--nonsense"], print_error=False, exit_on_error=False)


def test_generated_blocks_are_up_to_date(tools: Path) -> None:
    make_pages = importlib.import_module("make_pages")
    made = make_pages.pages()
    assert len(made) >= 6
    for path, text in made.items():
        assert path.read_text() == text, f"{path.name}: run `python docs/tools/make_pages.py`"


def test_every_block_is_used_and_an_unknown_one_is_an_error(tools: Path) -> None:
    make_pages = importlib.import_module("make_pages")
    text = "\n".join((DOCS / page).read_text() for page in PAGES)
    for name in make_pages.BLOCKS:
        assert f"<!-- generated: {name} -->" in text, name
    with pytest.raises(ValueError, match="no generated block 'nonsense'"):
        make_pages.filled("<!-- generated: nonsense -->\n<!-- end: nonsense -->")


def test_robustness_rows_come_into_the_page_once_they_are_there(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from made_rows import made_row

    from driftnorm.bench.rows import save_rows

    from_rows = importlib.import_module("from_rows")
    monkeypatch.setattr(from_rows, "ROWS", tmp_path)
    monkeypatch.setattr(from_rows, "DOCS", tmp_path)
    assert "Not measured yet" in from_rows.robustness()
    errors = {"source": 0.4, "bn": 0.3, "t3a": 0.38, "tent": 0.28, "gprebn": 0.26}
    rows = [made_row(method, error=e, batch=200, count=400) for method, e in errors.items()]
    rows += [made_row(method, error=0.5, batch=8, count=400) for method in ("bn", "tent", "gprebn")]
    save_rows(rows, tmp_path / "robustness-cifar10.jsonl")
    made = from_rows.robustness()
    assert "Mean error over corruptions" in made
    assert "26.00" in made
    assert "batch 200" in made
    assert "batch size" in made.lower()
    assert "robustness.md" not in made  # a link to a page that is not there would break the site
    (tmp_path / "robustness.md").write_text("# Robustness")
    assert "(robustness.md)" in from_rows.robustness()
    unfinished = made_row("source", shift="snow", batch=200, count=400)
    save_rows([*rows, unfinished], tmp_path / "robustness-cifar10.jsonl")
    # Methods that met other streams are not compared.
    assert "Mean error over corruptions" not in from_rows.robustness()


def test_what_the_concepts_say_of_the_gradient_holds(tools: Path) -> None:
    concept_run = importlib.import_module("concept_run")
    run = concept_run.concept_run(epochs=5)
    preserved, detached = (
        concept_run.pushing(concept_run.gradients(run, path)) for path in concept_run.PATHS
    )
    assert max(preserved.values()) < 1e-6  # nothing shifts or scales a whole channel
    assert min(detached.values()) > 1000 * max(preserved.values())
    assert max(detached.values()) > 0.05
    clean, foggy, mended = concept_run.distances(run).values()
    first, *deeper = clean
    assert foggy[first] == mended[first]  # the first layer sees the image itself
    for layer in deeper:
        assert mended[layer] < foggy[layer]
        assert clean[layer] < foggy[layer]


def test_the_page_of_verdicts_says_what_its_rows_say() -> None:
    path = ROOT / "benchmarks" / "diagnose_verdicts.py"
    spec = importlib.util.spec_from_file_location("diagnose_verdicts", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    lines = (DOCS / "rows" / "diagnose-verdicts.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    rows.sort(key=lambda row: [*made.NETWORKS, made.DIGITS].index(row["network"]))
    page = (DOCS / "diagnose-verdicts.md").read_text()
    assert made.summary(rows) in page
    assert made.policy_table(rows).to_markdown() in page
    assert made.followed(rows[0], ("help",)) in rows[0]["accuracy"].values()
    # What the README says.
    assert not any(made.effect(row) == "hurt" for row in rows if row["outcome"] == "help")


def test_the_words_of_a_stream_are_those_that_exist() -> None:
    table = (DOCS / "streams.md").read_text().partition("| word |")[2].partition("\n\n")[0]
    words = [
        word
        for line in table.splitlines()[2:]
        for word in re.findall(r"`([^`]+)`", line.split("|")[1])
    ]
    for word in words:
        parse_stream(f"continual{word}" if word.startswith("+") else word)
    named = {part for word in words for part in re.split("[+:]", word)[:2]}
    assert {*COURSES, *ORDERS} <= named


def test_pictures_on_the_pages_are_there_and_described() -> None:
    shown = set()
    for page in PAGES:
        for text, target in re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", (DOCS / page).read_text()):
            assert text, f"{page}: {target} has no description"
            assert ((DOCS / page).parent / target).is_file(), f"{page}: {target} is missing"
            shown.add(Path(target).name)
    drawn = {path.name for path in (DOCS / "pictures").iterdir()}
    assert drawn <= shown, f"no page shows {drawn - shown}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as `make docs` builds it."""
    if any(
        importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings")
    ):
        pytest.skip("the site needs mkdocs: pip install 'driftnorm[docs]'")
    folder = tmp_path_factory.mktemp("site")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},  # news of the theme's makers
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    assert "WARNING" not in built.stderr
    return folder


def test_the_site_asks_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) >= len(PAGES)
    # What a browser would load by itself; links are followed by people.
    loading = re.compile(r"""<(?:script|img|iframe|source)[^>]+src=["']?(?:https?:)?//""")
    styles = re.compile(
        r"""<link[^>]+rel=["']?(?:stylesheet|preconnect)[^>]+href=["']?(?:https?:)?//"""
    )
    # Search from disk: an index that is a script, and no worker, which browsers refuse there.
    assert (site / "search" / "search_index.js").is_file()
    assert 'src="../iframe-worker.js"' in (site / "api" / "index.html").read_text()
    for page in pages:
        text = page.read_text()
        assert not loading.search(text), page.name
        assert not styles.search(text), page.name
    report = (site / "example-report.html").read_text()
    assert "helps on digits" in report
    assert report.count("<img") == 12  # of the streams in docs/rows/exhibits
    reference = (site / "api" / "index.html").read_text()
    assert "driftnorm.adapt" in reference
    assert ":class:" not in reference


@NEEDS_CHROMIUM
def test_no_code_on_the_pages_is_cut_at_1280_pixels(site: Path, browser: Browser) -> None:
    """Nobody scrolls to read a line of code; signatures in `api` may be longer."""
    cut = (
        "[...document.querySelectorAll('pre > code')].filter(e => e.scrollWidth > e.clientWidth)"
        ".map(e => e.textContent)"
    )
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **size)
    found = {}
    for page in (each for each in PAGES if not each.startswith("api/")):
        browser.open((site / page).with_suffix(".html").as_uri())
        found[page] = browser.run(cut)
    browser.open((site / "index.html").as_uri())
    browser.call("Emulation.setDeviceMetricsOverride", **{**size, "width": 390})
    assert len(browser.run(cut)) == 1  # it would be noticed: a phone cuts the home page's code
    browser.call("Emulation.clearDeviceMetricsOverride")
    assert {page: code for page, code in found.items() if code} == {}

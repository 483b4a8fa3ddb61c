"""Imports go one way along the picture, and light things stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "driftnorm"

# The floor plan. A part imports from the lines above it only: parts on one line do not know each
# other.
LINES = (
    ("_version", "errors"),
    ("_internal",),
    ("functional", "streams"),
    ("parts",),
    ("recipe",),
    ("methods",),
    ("adapter",),
    ("models", "shifts"),
    ("images",),
    ("training",),
    ("bench",),
    ("views",),
    ("diagnosis",),
    ("predictions",),
    ("cli",),
    ("__main__",),
)
LINE = {part: number for number, line in enumerate(LINES) for part in line}


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


MODULES = sorted(p for p in SOURCE.rglob("*.py") if p != SOURCE / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path: Path) -> None:
    own, module = part_of(path), path.relative_to(SOURCE).with_suffix("").as_posix()
    for name in imported(path):
        package, _, rest = name.partition(".")
        other = rest.partition(".")[0]
        if package != "driftnorm" or other == own:
            continue
        assert other in LINE, f"{module} imports {name} through the front door"
        assert LINE[other] < LINE[own], f"{module} imports {name} from further along"


def run(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has imported after ``code``."""
    report = f"{code}\nimport sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    printed = subprocess.check_output([sys.executable, "-c", report], text=True)
    return set(printed.splitlines()[-1].split())


def test_import_driftnorm_is_light() -> None:
    heavy = {"torchvision", "timm", "matplotlib", "rich", "cyclopts", "PIL", "scipy", "yaml"}
    assert not run("import driftnorm; driftnorm.adapt") & (heavy | {"onnx", "safetensors"})


@pytest.mark.parametrize(("part", "least"), [("views", 30), ("streams", 7)])
def test_light_parts_never_import_torch(part: str, least: int) -> None:
    paths = [p.relative_to(SOURCE.parent).with_suffix("") for p in (SOURCE / part).rglob("*.py")]
    names = [".".join(path.parts).removesuffix(".__init__") for path in paths]
    assert len(names) > least
    assert "torch" not in run("\n".join(f"import {name}" for name in names))


@pytest.mark.parametrize(
    "name", ["cell", "rows", "protocol", "metrics", "samples", "selection", "windows"]
)
def test_what_views_read_never_imports_torch(name: str) -> None:
    assert "torch" not in run(f"import driftnorm.bench.{name}")


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["table", "--help"],
        ["table", "summary", "ROWS", "--methods", "source", "gprebn"],
        ["plot", "severity", "ROWS", "--out", "OUT.png"],
        ["report", "ROWS", "--out", "OUT.html"],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_reading_commands_do_not_import_torch(words: list[str], tmp_path: Path) -> None:
    rows = SOURCE.parent.parent / "docs" / "rows" / "robustness-cifar10-augmentation.jsonl"
    given = [w.replace("ROWS", str(rows)).replace("OUT", str(tmp_path / "out")) for w in words]
    if words[:2] in (["table", "summary"], ["plot", "severity"]):
        from driftnorm.bench.rows import load_rows

        given += ["--where", f"model={min(row.network for row in load_rows(rows))}"]
    code = f"import driftnorm.cli\ntry: driftnorm.cli.app({given!r})\nexcept SystemExit: pass"
    assert "torch" not in run(code)


def test_every_public_name_can_be_had_in_any_order() -> None:
    import driftnorm

    for name in dir(driftnorm):
        assert getattr(driftnorm, name) is not None
    assert callable(driftnorm.list_methods)
    with pytest.raises(AttributeError, match="attribute tent"):
        driftnorm.tent  # type: ignore[attr-defined]  # noqa: B018


def test_pages_list_methods_in_the_order_of_the_registry() -> None:
    from driftnorm.bench.vocabulary import METHOD_ORDER
    from driftnorm.methods import METHODS

    assert [name for name in METHODS if name in METHOD_ORDER] == [*METHOD_ORDER]

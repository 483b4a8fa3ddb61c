"""Imports go one way along the picture, and light things stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "driftnorm"

# Each row may import from its own and from rows above it only.
ROWS = (
    ("_version", "suggest", "memory", "functional", "statistics", "objectives", "selection"),
    ("layers", "surgery", "heads"),
    (
        *("recipe", "adapter", "guard", "intake", "probe", "converted", "learner", "stream_state"),
        *(
            "preparation",
            "persistence",
            "outputs",
            "watch",
            "engine",
            "recipes",
            "api",
            "export",
            "callbacks",
        ),
    ),
    ("models", "shifts", "data", "training", "inputs"),
    (
        *("metrics", "distance", "protocol", "records", "exhibits", "evaluate", "launch"),
        "method_spec",
    ),
    (
        *("tables", "method_table", "demo", "robustness", "domains", "plots"),
        *("runs", "diagnosis", "report"),
    ),
    ("cli", "__main__"),
)
RANK = {part: rank for rank, row in enumerate(ROWS) for part in row}
WITHOUT_TORCH = (
    *("metrics.py", "memory.py", "protocol.py", "tables.py", "suggest.py", "cli/__init__.py"),
)


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
    own = RANK[part_of(path)]
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "driftnorm" and len(parts) > 1 and parts[1] in RANK:
            assert RANK[parts[1]] <= own, f"{path.name} imports {name} from further along"


@pytest.mark.parametrize("name", WITHOUT_TORCH)
def test_views_need_no_torch(name: str) -> None:
    assert not any(module.split(".")[0] == "torch" for module in imported(SOURCE / name))


def run(code: str) -> set[str]:
    """The top-level packages that a fresh interpreter has imported after ``code``."""
    report = f"{code}\nimport sys; print(*sorted({{m.split('.')[0] for m in sys.modules}}))"
    return set(subprocess.check_output([sys.executable, "-c", report], text=True).split())


def test_import_driftnorm_is_light() -> None:
    heavy = {"torchvision", "timm", "matplotlib", "rich", "cyclopts", "PIL", "scipy", "yaml"}
    assert not run("import driftnorm; driftnorm.adapt") & (heavy | {"onnx", "safetensors"})


def test_the_command_line_does_not_import_torch_for_help() -> None:
    code = "import driftnorm.cli\ntry: driftnorm.cli.app(['--help'])\nexcept SystemExit: pass"
    assert "torch" not in run(code)


def test_every_public_name_can_be_had_in_any_order() -> None:
    import driftnorm

    for name in driftnorm.__all__:
        assert getattr(driftnorm, name) is not None
    assert callable(driftnorm.methods)  # not shadowed by a sub-package
    with pytest.raises(AttributeError, match="no attribute 'tent'"):
        driftnorm.tent  # noqa: B018

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
    ("functional",),
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
    ("streams",),
    ("cli",),
    ("__main__",),
)
LINE = {part: number for number, line in enumerate(LINES) for part in line}
WITHOUT_TORCH = ("bench/metrics.py", "bench/protocol.py", "views/table.py", "cli/__init__.py")


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
        if package != "driftnorm" or other not in LINE or other == own:
            continue
        assert LINE[other] < LINE[own], f"{module} imports {name} from further along"


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
    assert callable(driftnorm.list_methods)
    with pytest.raises(AttributeError, match="no attribute 'tent'"):
        driftnorm.tent  # noqa: B018

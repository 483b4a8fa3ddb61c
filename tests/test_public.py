"""What users may import: the packages export it, and the reference lists exactly that."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

ROOT = Path(__file__).parent.parent
SOURCE, API = ROOT / "src" / "driftnorm", ROOT / "docs" / "api"
_FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def packages() -> list[str]:
    """Every package whose ``__init__`` exports something."""
    found = []
    for path in sorted(SOURCE.rglob("__init__.py")):
        name = ".".join(path.parent.relative_to(SOURCE.parent).parts)
        if "._" not in name and getattr(importlib.import_module(name), "__all__", []):
            found.append(name)
    return found


def resolved(path: str) -> object:
    """The object at a dotted path of attributes."""
    package, _, name = path.rpartition(".")
    if not package:
        return importlib.import_module(path)
    holder = resolved(package)
    if not hasattr(holder, name) and isinstance(holder, ModuleType):
        importlib.import_module(path)
    return getattr(holder, name)


def expanded(path: str) -> dict[str, object]:
    """The names that one public name stands for: those of its ``__all__``, where it is a module."""
    found = resolved(path)
    if not isinstance(found, ModuleType):
        return {path: found}
    return {f"{path}.{name}": getattr(found, name) for name in found.__all__}


def exported() -> dict[str, object]:
    """Every public name with its object."""
    found: dict[str, object] = {}
    for package in packages():
        for name in importlib.import_module(package).__all__:
            if name != "__version__":
                found |= expanded(f"{package}.{name}")
    return found


def listed() -> list[str]:
    """What the reference names."""
    text = "\n".join(path.read_text() for path in sorted(API.glob("*.md")))
    return re.findall(r"^::: (\S+)", text, re.MULTILINE)


def test_the_reference_lists_exactly_what_the_packages_export() -> None:
    public = exported()
    shown = {name: value for path in listed() for name, value in expanded(path).items()}
    assert not shown.keys() - public.keys(), "listed, but no package exports it"
    seen = {id(value) for value in shown.values()}
    missing = [n for n, value in public.items() if n not in shown and id(value) not in seen]
    assert not missing, "exported, but on no page of docs/api"
    assert len(listed()) == len(set(listed()))


def leaves(node: object) -> list[str]:
    """The pages below an entry of the table of contents."""
    below = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [node] if isinstance(node, str) else [page for each in below for page in leaves(each)]


def test_every_page_of_the_documentation_is_in_the_table_of_contents() -> None:
    shown = leaves(yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"])
    written = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(shown) == sorted(page for page in written if not page.startswith("tools/"))


def test_every_room_has_a_page_and_the_table_of_contents_groups_them_as_the_picture_does() -> None:
    from test_imports import LINES

    rooms = {part for line in LINES for part in line if not part.startswith("_")}
    rooms -= {"errors", "recipe"}  # on the first page
    sections = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)["nav"]
    (reference,) = [each["Reference"] for each in sections if "Reference" in each]
    groups = {title: pages for entry in reference[2:] for title, pages in entry.items()}
    picture = (ROOT / "docs" / "architecture.md").read_text().split("```")[1]
    assert [title.lower() for title in groups if title != "What people run"] == re.findall(
        r"what (?:it is given|adapts|measures|people read)", picture
    )
    shown = [room for pages in groups.values() for page in pages for room in page]
    assert sorted(shown) == sorted(rooms)
    assert {path.stem for path in API.glob("*.md")} == {"index", *rooms}


@pytest.mark.parametrize("package", packages())
def test_type_checkers_see_what_a_package_imports_on_first_use(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    stub = Path(module.__file__).with_suffix(".pyi")
    if not stub.exists():
        pytest.skip("its names are imported at once")
    # A stub passes a name on only if it is imported as itself.
    aliases = [a for n in ast.parse(stub.read_text()).body for a in getattr(n, "names", [])]
    assert all(alias.asname == alias.name for alias in aliases)
    assert sorted(alias.name for alias in aliases) == sorted(module.__all__)
    assert not any(getattr(module, name) is None for name in module.__all__)
    with pytest.raises(AttributeError, match="attribute nothing"):
        module.nothing  # noqa: B018


def documents() -> list[Path]:
    pages = [p for p in ROOT.glob("docs/**/*.md") if _FENCE.search(p.read_text())]
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages, *ROOT.glob("examples/*.py")]


@pytest.mark.parametrize("path", documents(), ids=lambda path: path.name)
def test_documents_and_examples_import_public_names_only(path: Path) -> None:
    text = path.read_text()
    code = text if path.suffix == ".py" else "\n".join(_FENCE.findall(text))
    public = {*packages(), *exported()}
    public |= {f"{package}.{name}" for package in packages() for name in resolved_all(package)}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        private = [n for n in names if n.startswith("driftnorm") and n not in public]
        assert not private


def resolved_all(package: str) -> list[str]:
    return list(importlib.import_module(package).__all__)

"""Measure the shape of the package: how large it is, how it is cut, how much of it is public.

    python docs/tools/house_numbers.py                     # this tree
    python docs/tools/house_numbers.py PACKAGE [TESTS]     # another package, to compare

The numbers are for orientation, to be read beside those of other code bases; nothing is
required of them.
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LONG_FUNCTION = 50  # lines

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One source file, parsed."""

    path: Path
    name: str
    lines: int
    tree: ast.Module

    @cached_property
    def functions(self) -> list[Function]:
        """All functions and methods, nested ones too."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def exports(self) -> list[str]:
        """The names in ``__all__``, or those that a package's stub imports."""
        stub = self.path.with_suffix(".pyi")
        if stub.exists():
            imports = ast.parse(stub.read_text()).body
            return [a.name for node in imports for a in getattr(node, "names", [])]
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                return list(ast.literal_eval(node.value))
        return []


def read_modules(package: Path) -> list[Module]:
    """Every module of a package folder."""
    found = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        parts = path.relative_to(package.parent).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        whole = [p.read_text() for p in (path, path.with_suffix(".pyi")) if p.exists()]
        lines = sum(len(each.splitlines()) for each in whole)
        found.append(Module(path, name, lines, ast.parse(text)))
    return found


def measured(package: Path, tests: Path | None = None) -> dict[str, str]:
    """What was measured, each with its value as text."""
    modules = read_modules(package)
    lengths = sorted(module.lines for module in modules)
    functions = [function for module in modules for function in module.functions]
    entries = [p for p in package.iterdir() if p.suffix in ("", ".py") and p.name != "__pycache__"]
    plain = [p for p in entries if p.is_file() and p.name != "__init__.py"]
    raises = sum(isinstance(n, ast.Raise) for module in modules for n in ast.walk(module.tree))
    base_names = Counter(m.path.stem for m in modules if m.path.stem != "__init__")
    twice = sorted(name for name, count in base_names.items() if count > 1)
    activities = sorted(m.path.stem for m in modules if m.path.stem.endswith("ing"))
    total = sum(lengths)
    result = {
        "source files / lines": f"{len(modules)} / {total:,}",
        "entries in the package folder (plain files)": f"{len(entries)} ({len(plain)})",
        "median file (p90, longest)": f"{statistics.median(lengths):.0f} "
        f"({lengths[int(0.9 * (len(lengths) - 1))]}, {lengths[-1]})",
        "functions": f"{len(functions):,}",
        f"functions over {LONG_FUNCTION} lines": _share(_is_long(f) for f in functions),
        "annotated": _share(_is_annotated(f) for f in functions),
        "public with a docstring": _share(bool(ast.get_docstring(n)) for n in _documented(modules)),
        "exported names": f"{len({name.rpartition('.')[2] for name in _exported(modules)})}",
        "module-level names without an underscore": f"{sum(1 for _ in _plain_names(modules))}",
        "raises per 1,000 lines": f"{1000 * raises / total:.1f}",
        "module names in -ing": _listed(activities),
        "base names that occur twice": _listed(twice),
        "mutual imports": _listed(mutual_imports(modules)),
    }
    if tests is not None:
        touched = files_per_method(package, tests)
        if touched:
            result["files of code that name a method (fewest, median)"] = (
                f"{min(touched.values())}, {statistics.median(touched.values()):.0f}"
            )
        lines = sum(len(path.read_text().splitlines()) for path in tests.rglob("*.py"))
        result["tests / source, in lines"] = f"{lines / total:.2f}"
    return result


def mutual_imports(modules: Iterable[Module]) -> list[str]:
    """Pairs of top-level parts of the package that import each other."""
    edges = set()
    for module in modules:
        package, _, own = module.name.partition(".")
        for name in _imported(module.tree):
            top, _, other = name.partition(".")
            pair = own.partition(".")[0], other.partition(".")[0]
            if top == package and all(pair) and pair[0] != pair[1]:
                edges.add(pair)
    return sorted(f"{a}, {b}" for a, b in edges if a < b and (b, a) in edges)


def files_per_method(package: Path, tests: Path) -> dict[str, int]:
    """How many files of source and tests name each method: what a new one had to touch, at least.

    Compositions, examples of a command and evidence name some methods more often; the one that is
    named least is nearest to what the next will need.
    """
    names = [p.stem for p in (package / "methods").glob("*.py") if not p.stem.startswith("_")]
    texts = {path: path.read_text() for root in (package, tests) for path in root.rglob("*.py")}
    found = {}
    for name in sorted(set(names) - {"spec"}):
        word = name.replace("_", "-")
        own = (f"import {name}", f"    {name},", f'"{word}"', f'"{word}:', f"'{word}'")
        found[name] = sum(any(form in text for form in own) for text in texts.values())
    return found


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _exported(modules: Iterable[Module]) -> set[str]:
    """What the packages' ``__init__`` files export, below no private package."""
    return {
        f"{module.name}.{name}"
        for module in modules
        if module.path.stem == "__init__" and "._" not in module.name
        for name in module.exports
        if not name.startswith("_")
    }


def _plain_names(modules: Iterable[Module]) -> Iterator[str]:
    """Classes, functions and constants at module level, in modules that look public too."""
    for module in modules:
        if any(part.startswith("_") and part != "__init__" for part in module.name.split(".")):
            continue
        for node in module.tree.body:
            if isinstance(node, Function | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [t.id for t in node.targets if isinstance(t, ast.Name)]
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names = [node.target.id]
            else:
                continue
            yield from (f"{module.name}.{name}" for name in names if not name.startswith("_"))


def _documented(modules: Iterable[Module]) -> Iterator[Function | ast.ClassDef]:
    """Public functions and classes, and public methods of public classes."""
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
                yield node
                if isinstance(node, ast.ClassDef):
                    own = (n for n in node.body if isinstance(n, Function))
                    yield from (n for n in own if not n.name.startswith("_"))


def _is_long(function: Function) -> bool:
    return (function.end_lineno or function.lineno) - function.lineno + 1 > LONG_FUNCTION


def _is_annotated(function: Function) -> bool:
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    arguments += [each for each in (given.vararg, given.kwarg) if each is not None]
    typed = all(a.annotation is not None or a.arg in ("self", "cls") for a in arguments)
    return typed and function.returns is not None


def _share(facts: Iterable[bool]) -> str:
    known = list(facts)
    return f"{100 * sum(known) / max(len(known), 1):.1f} %"


def _listed(names: list[str]) -> str:
    return f"{len(names)}" + (f" ({'; '.join(names)})" if names else "")


def main(words: list[str]) -> None:
    """Print the table."""
    package = Path(words[0]) if words else ROOT / "src" / "driftnorm"
    tests = Path(words[1]) if len(words) > 1 else None if words else ROOT / "tests"
    print("| measure | value |\n| --- | --- |")
    for name, value in measured(package, tests).items():
        print(f"| {name} | {value} |")


if __name__ == "__main__":
    main(sys.argv[1:])

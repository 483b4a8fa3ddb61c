"""Trace five data flows on tiny runs: what is passed, called, built, parsed and opened.

    python docs/tools/trace_flows.py

Each flow runs in a process of its own, so that what it imports is its own; benchmarks run on the
serial launcher, so that everything is seen. The numbers are for orientation: what is built,
parsed or opened much more often than there are things to build, parse or open has a cause.

How it is counted: only code of driftnorm. A call is one of a named function or a lambda;
comprehensions, the resumption of generators and whatever runs while a module is imported do not
count. The stack has only our functions on it. A module changes when two calls in a row are of
functions of different modules.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

SOURCES = Path(__file__).parent.parent.parent / "src"
WATCHED = {
    "recipes built": {"recipe.__post_init__"},
    "`parse_method`": {"spec.parse_method"},
    "splits computed": {"splits.split_domain"},
    "weights read": {"weight_layouts.load_weights"},
    "image sets opened": {"labelled.load_clean", "inputs.open_inputs", "cache.cached_arrays"},
    "streams corrupted": {"corruption.corrupted"},
}
"""What is counted, by the modules and names of the functions that do it."""


@dataclass(frozen=True)
class Trace:
    """One flow in numbers, as a row of the table."""

    flow: str
    modules: int
    lines: int
    functions: int
    calls: int
    deepest: int
    changes: int
    imported: int
    torch: bool
    matches: int
    watched: dict[str, int]


class Tracer:
    """Counts the calls of one package while it is active, in all threads.

    Attributes:
        package: Its folder.
        calls: By function.
        deepest: Most functions of the package on a stack at once.
        changes: How often a call was in another module than the call before.
        matches: Regular expressions that the package itself applied.
    """

    def __init__(self, package: Path) -> None:
        self.package = package.resolve()
        self.calls: Counter[CodeType] = Counter()
        self.deepest = self.changes = self.matches = 0
        self._ours: dict[CodeType, bool] = {}
        self._starts: dict[CodeType, int] = {}
        self._thread = threading.local()
        self._last = ""

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        """While this lasts, calls are counted."""
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    @property
    def files(self) -> set[str]:
        """Of the modules whose functions were called."""
        return {code.co_filename for code in self.calls}

    def count(self, names: set[str]) -> int:
        """How often functions were called, named with the file that they are in."""
        return sum(
            number
            for code, number in self.calls.items()
            if f"{Path(code.co_filename).stem}.{code.co_name}" in names
        )

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call":
            self._see_match(frame, argument)
        elif event in ("call", "return") and self._is_ours(frame.f_code):
            if frame.f_code.co_name == "<module>":
                self._importing += 1 if event == "call" else -1
            elif not self._importing and not _is_anonymous(frame.f_code):
                self._see_call(frame) if event == "call" else self._see_return()

    def _see_call(self, frame: FrameType) -> None:
        code = frame.f_code
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        if self._starts.setdefault(code, frame.f_lasti) != frame.f_lasti:
            return  # a generator that goes on
        self.calls[code] += 1
        self.changes += self._last not in ("", code.co_filename)
        self._last = code.co_filename

    def _see_return(self) -> None:
        self._depth = max(0, self._depth - 1)  # 0: what was called before the tracer began

    def _see_match(self, frame: FrameType, function: Any) -> None:
        if isinstance(getattr(function, "__self__", None), re.Pattern):
            by_module = frame.f_code.co_filename == re.__file__ and frame.f_back is not None
            caller = frame.f_back if by_module else frame  # `re.match(...)`, or a compiled pattern
            self.matches += caller is not None and self._is_ours(caller.f_code)

    def _is_ours(self, code: CodeType) -> bool:
        if code not in self._ours:
            # Generated code, such as the __init__ of a dataclass, has no file.
            self._ours[code] = Path(code.co_filename).is_relative_to(self.package)
        return self._ours[code]

    @property
    def _depth(self) -> int:
        return getattr(self._thread, "depth", 0)

    @_depth.setter
    def _depth(self, value: int) -> None:
        self._thread.depth = value

    @property
    def _importing(self) -> int:
        return getattr(self._thread, "importing", 0)

    @_importing.setter
    def _importing(self, value: int) -> None:
        self._thread.importing = value


def _is_anonymous(code: CodeType) -> bool:
    """Comprehensions, generator expressions and the bodies of classes in functions."""
    return code.co_name.startswith("<") and code.co_name != "<lambda>"


def traced(flow: str, run: Callable[[], object]) -> Trace:
    """Run something and count."""
    tracer = Tracer(SOURCES / "driftnorm")
    with tracer.active():
        run()
    imported = [name for name in sys.modules if name.split(".")[0] == "driftnorm"]
    return Trace(
        flow,
        len(tracer.files),
        sum(len(Path(file).read_text().splitlines()) for file in tracer.files),
        len(tracer.calls),
        sum(tracer.calls.values()),
        tracer.deepest,
        tracer.changes,
        len(imported),
        "torch" in sys.modules,
        tracer.matches,
        {title: tracer.count(names) for title, names in WATCHED.items()},
    )


# ------------------------------------------------------------------ the flows


def library(folder: Path) -> list[Trace]:
    """``driftnorm.adapt(net, "gprebn")``, and two calls."""
    import torch
    from torch import nn

    import driftnorm

    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 4)).eval()
    batch, made = torch.randn(16, 3, 12, 12), []
    return [
        traced("a: building", lambda: made.append(driftnorm.adapt(net, "gprebn"))),
        traced("a: first call", lambda: made[0](batch)),
        traced("a: second call", lambda: made[0](batch)),
    ]


def command(*words: object) -> None:
    """A command line in this process, without other processes."""
    from driftnorm._internal.launch import LAUNCHERS, serial
    from driftnorm.cli import main

    with (
        patch.object(sys, "argv", ["driftnorm", *map(str, words)]),
        patch.dict(LAUNCHERS, processes=serial),
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
    ):
        try:
            main()
        except SystemExit as end:
            if end.code:
                raise


def predictions(folder: Path) -> list[Trace]:
    """A folder of images into a CSV file."""
    words = ("resnet20", folder / "photos", "--weights", folder / "net.safetensors")
    out = folder / "p.csv"
    flags = ("--method", "gprebn", "--batch-size", 8, "--out", out)
    return [traced("b: `adapt`", lambda: command("adapt", *words, *flags))]


def robustness(folder: Path) -> list[Trace]:
    """Four methods on four streams."""
    words = ("--data", folder / "small.npz", "--model", "resnet20")
    words += ("--weights", folder / "net.safetensors", "--methods", "source", "bn", "tent")
    words += ("gprebn", "--corruptions", "contrast", "brightness", "--severities", "1", "3")
    words += ("--batch-size", "8", "--out", folder / "robustness")
    title = "c: `bench robustness`, 16 cells"
    return [traced(title, lambda: command("bench", "robustness", *words))]


def domains(folder: Path) -> list[Trace]:
    """Nine methods on three streams."""
    words = ("--data", folder / "domains", "--models", folder / "trained", "--out", folder / "rows")
    words += ("--table", "domains-ablation", "--grid", "single")
    title = "d: `bench domains`, 27 cells"
    return [traced(title, lambda: command("bench", "domains", *words))]


def report(folder: Path) -> list[Trace]:
    """The page of the rows of `domains`."""
    words = ("report", folder / "rows", "-o", folder / "report.html")
    return [traced("e: `report` of these 27", lambda: command(*words))]


def prepare(folder: Path) -> list[Trace]:
    """Small images, a network for them, and one that was trained on domains."""
    import numpy as np
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    from driftnorm.models import build

    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    names = [f"class {number}" for number in range(10)]
    np.savez(folder / "small.npz", images=images, labels=np.arange(24) % 10, classes=names)
    torch.manual_seed(0)
    save_file(build("resnet20").state_dict(), folder / "net.safetensors")
    (folder / "photos").mkdir()
    for number, pixels in enumerate(images):
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    for tint, domain in enumerate(("blue", "green", "red")):
        for label in ("across", "along"):
            place = folder / "domains" / domain / label
            place.mkdir(parents=True)
            for number in range(15):
                pixels = rng.integers(0, 60, (12, 12, 3))
                stripes = np.arange(12) // 2 % 2 * 150
                pixels[..., tint] += stripes[:, None] if label == "along" else stripes[None, :]
                Image.fromarray(pixels.astype(np.uint8)).save(place / f"{number}.png")
    words = ("--data", folder / "domains", "--test-domains", "red", "--backbone", "mnist-bn")
    words += ("--batch-norm", "trained", "--size", "12", "--steps", "6", "--batch-size", "4")
    command("train", "domains", *words, "--out", folder / "trained" / "erm")
    return []


FLOWS = {run.__name__: run for run in (prepare, library, predictions, robustness, domains, report)}


# ------------------------------------------------------------------ the table


def table(traces: list[Trace]) -> str:
    """As Markdown, one column a flow."""
    titles = ["", *(trace.flow for trace in traces)]
    facts: dict[str, list[object]] = {
        "modules": [trace.modules for trace in traces],
        "their lines": [f"{trace.lines:,}" for trace in traces],
        "functions": [trace.functions for trace in traces],
        "calls": [f"{trace.calls:,}" for trace in traces],
        "deepest stack": [trace.deepest for trace in traces],
        "changes of module": [f"{trace.changes:,}" for trace in traces],
        "modules imported": [trace.imported for trace in traces],
        "imports torch": ["yes" if trace.torch else "no" for trace in traces],
        "regular expressions matched": [trace.matches for trace in traces],
        **{title: [trace.watched[title] for trace in traces] for title in WATCHED},
    }
    lines = [titles, ["---", *("---:" for _ in traces)]]
    lines += [[title, *map(str, values)] for title, values in facts.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def in_own_process(flow: str, folder: Path) -> list[Trace]:
    """Run one flow; what it prints on its last line is its traces."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, str(Path(__file__).resolve()), "--flow", flow, "--folder", str(folder)]
    done = subprocess.run(
        words, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    return [Trace(**facts) for facts in json.loads(done.stdout.splitlines()[-1])]


def main() -> None:
    """All flows, or one for the process that asked for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--flow", choices=[*FLOWS], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.flow is not None:
        print(json.dumps([asdict(trace) for trace in FLOWS[given.flow](given.folder)]))
        return
    with tempfile.TemporaryDirectory() as name:
        print(table([trace for flow in FLOWS for trace in in_own_process(flow, Path(name))]))


if __name__ == "__main__":
    main()

"""This version against another one: time and memory per batch, in one interleaved run.

    python benchmarks/against.py ../other/src [--batches 8 200] [--methods bn tent gprebn] \
        [--rows docs/rows/engine-overhead.jsonl]

Each version has processes of its own for every method and batch size, `PAIRS` one after the other;
both of a pair run one batch in turn, so that other load on the machine affects both. Time is that
of the processor: with one thread and an idle machine it is what the clock shows. Ratios are
this / other: the median over the rounds, and the ratio of the fastest rounds, which a busy machine
disturbs least. Two numbers are exact: how many tensor operations a batch calls, and the most bytes
that tensors held at once during it. Both versions keep the memory that they free: otherwise the
kernel's page faults, which hit one process and not the next, decide by how much large batches
differ.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

PAIRS = 6
KEEP_FREED = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "4294967296"}
HERE = Path(__file__).resolve().parents[1] / "src"
# Only what every version has: `adapt` and the network by its name.
WORKER = """
import sys, time, warnings, weakref
import torch, driftnorm
from driftnorm import models
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

class Peak(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.held, self.now, self.most, self.calls = {}, 0, 0, 0
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        self.calls += 1
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                key = storage._cdata
                if key not in self.held:
                    self.held[key] = storage.nbytes()
                    self.now += storage.nbytes()
                    weakref.finalize(storage, self.freed, key)
        self.most = max(self.most, self.now)
        return made
    def freed(self, key):
        self.now -= self.held.pop(key, 0)

method, size = sys.argv[1], int(sys.argv[2])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
model = driftnorm.adapt(models.build("resnet20").eval(), method, guard="off")
x = torch.randn(size, 3, 32, 32)
model(x)
with Peak() as peak:
    model(x)
    model(x)
print(peak.most / 2**20, flush=True)
print(peak.calls / 2, flush=True)
for _ in sys.stdin:
    begun = time.process_time()
    model(x)
    print(time.process_time() - begun, flush=True)
"""


class Version:
    """A process that runs one batch when asked."""

    def __init__(self, source: Path, method: str, size: int) -> None:
        environment = {**os.environ, **KEEP_FREED, "PYTHONPATH": str(source)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, method, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.peak_megabytes, self.operations = self._answer(), self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def seconds(self) -> float:
        """Of one batch."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def end(self) -> None:
        """No more batches."""
        self._process.communicate()


def compare(other: Path, method: str, size: int, rounds: int) -> dict[str, str | float]:
    """Ratios of time, and peak memory in megabytes."""
    rows = []
    for _ in range(PAIRS):  # processes differ by how their memory happens to lie
        versions = [Version(HERE, method, size), Version(other, method, size)]
        for turn in range(rounds // PAIRS):
            order = versions if turn % 2 else versions[::-1]  # neither always goes first
            took = {version: version.seconds() for version in order}
            rows.append([took[version] for version in versions])
        for version in versions:
            version.end()
    low, middle, high = statistics.quantiles([this / that for this, that in rows], n=4)
    fastest = [min(column) for column in zip(*rows, strict=True)]
    memory = [version.peak_megabytes for version in versions]
    calls = [int(version.operations) for version in versions]
    return {
        "method": method,
        "batch": size,
        "rounds": len(rows),
        "time": round(middle, 4),
        "low": round(low, 4),
        "high": round(high, 4),
        "fastest": round(fastest[0] / fastest[1], 4),
        "milliseconds": round(1e3 * fastest[0], 2),
        "operations": calls[0],
        "other_operations": calls[1],
        "megabytes": round(memory[0], 2),
        "other_megabytes": round(memory[1], 2),
    }


def main() -> None:
    """Print a line for every method and size of batch, and keep them as rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="folder `src` of the other version")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 200])
    parser.add_argument("--methods", nargs="+", default=["bn", "tent", "gprebn"])
    parser.add_argument("--rounds", type=int, default=48)
    parser.add_argument("--rows", type=Path, help="write the rows to this file as well")
    given = parser.parse_args()
    lines = []
    for size in given.batches:
        for method in given.methods:
            lines.append(json.dumps(compare(given.other.resolve(), method, size, given.rounds)))
            print(lines[-1], flush=True)
    if given.rows is not None:
        given.rows.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()

"""This version against another one: time and peak memory a batch, in one interleaved run.

    python benchmarks/against.py ../other/src [--batches 8 200] [--methods bn tent gprebn]

Each version has a process of its own for every method and size of batch, and both run one batch in
turn, so that whatever else the machine does falls on both alike. Ratios are this / other, medians
over the rounds; peak memory is that of the whole process over its first batches (Linux): what a
version imports on its first batch another may have imported before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "src"
# Only what every version has: `adapt` and the network by its name.
WORKER = """
import sys, time, warnings
from pathlib import Path
import torch, driftnorm
from driftnorm import models

def held(what):
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith(what)) / 1024

method, size = sys.argv[1], int(sys.argv[2])
warnings.simplefilter("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
model = driftnorm.adapt(models.build("resnet20").eval(), method, guard="off")
x = torch.randn(size, 3, 32, 32)
Path("/proc/self/clear_refs").write_text("5")
for _ in range(3):
    model(x)
print(held("VmHWM"), flush=True)
for _ in sys.stdin:
    begun = time.perf_counter()
    model(x)
    print(time.perf_counter() - begun, flush=True)
"""


class Version:
    """A process that runs one batch when asked."""

    def __init__(self, source: Path, method: str, size: int) -> None:
        environment = {**os.environ, "PYTHONPATH": str(source)}
        self._process = subprocess.Popen(
            [sys.executable, "-c", WORKER, method, str(size)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.peak_megabytes = self._answer()

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


def compare(other: Path, method: str, size: int, rounds: int) -> str:
    """One line: ratios of time and of peak memory."""
    versions = [Version(HERE, method, size), Version(other, method, size)]
    ratios = []
    for turn in range(rounds):
        order = versions if turn % 2 else versions[::-1]  # neither always goes first
        took = {version: version.seconds() for version in order}
        ratios.append(took[versions[0]] / took[versions[1]])
    for version in versions:
        version.end()
    low, middle, high = statistics.quantiles(ratios, n=4)
    memory = [version.peak_megabytes for version in versions]
    return (
        f"{method:8} batch {size:4}: time {middle:.3f} (quartiles {low:.3f} to {high:.3f}), "
        f"peak memory {memory[0] / memory[1]:.3f} ({memory[0]:.0f} and {memory[1]:.0f} MB)"
    )


def main() -> None:
    """Print a line for every method and size of batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="folder `src` of the other version")
    parser.add_argument("--batches", type=int, nargs="+", default=[8, 200])
    parser.add_argument("--methods", nargs="+", default=["bn", "tent", "gprebn"])
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    for size in given.batches:
        for method in given.methods:
            print(compare(given.other.resolve(), method, size, given.rounds), flush=True)


if __name__ == "__main__":
    main()

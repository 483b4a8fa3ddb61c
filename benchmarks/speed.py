"""Cost of every method: milliseconds a batch, peak memory, ratios within one interleaved run.

    python benchmarks/speed.py [--networks wrn-40-2 ...] [--rounds 9] [--out docs/speed.md]

Every candidate lives in a process of its own and runs one batch in turn, round after round, so
that whatever else the machine does falls on all of them alike; ratios are medians of the ratios
within a round. Peak memory is that of its first three batches, above what the process held once
the network was loaded (Linux). A run adds a row a network to the rows; the page shows the latest.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import json
import platform
import random
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from torch import Tensor, nn

import driftnorm
from driftnorm import models
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._surgery import find_batch_norms
from driftnorm.methods.spec import parse_method
from driftnorm.parts.losses import softmax_entropy
from driftnorm.views.table import Column, Table

ROWS, PAGE = Path("docs/rows/speed.jsonl"), Path("docs/speed.md")

SETTINGS = {"resnet20": (200, 32), "wrn-40-2": (200, 32), "resnet50": (32, 224)}
WARM_UP = 3  # batches; also those that the guard always audits
GIVE_BACK = {"resnet50"}  # what its idle processes would hold on to does not fit into 24 GB
NATIVE, TENT, LITERAL = "native step", "Tent as published", "literal formula"
INFERENCE, PLAIN = "inference", "inference, contiguous"


THREADS = 2
FLAT = ("t3a", "rt3a")
HEAD = """# What adaptation costs

Written by `python benchmarks/speed.py` from `rows/{rows}`. Every candidate has its own process
and runs one batch in turn; ratios are medians of the ratios within a round, and peak memory is
measured above what the loaded network takes.

The networks have random weights. `pl`, `pl-c`, `eta`, `eata`, `sar` and `rdumb` learn from certain
predictions only, of which these networks make none, so their rows hold no backward pass. A step
costs `eta`, `eata` and `rdumb` what it costs `tent`, `sar` twice that, `pl` that plus the gradients
of all weights, and `pl-c` the backward pass of one linear layer.
"""


class Measurement(TypedDict):
    """One interleaved run on one network."""

    network: str
    about: str
    command: str
    milliseconds: dict[str, list[float]]
    peak_megabytes: dict[str, float]
    flatness: dict[str, float]


class LiteralGpreBN(nn.Module):
    """Eq. 6 in tensor operations, as one would write it first."""

    def __init__(self, layer: AdaptiveBatchNorm) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        """Normalise with the source statistics, gradient preserved."""
        layer, shape = self.layer, (1, -1, 1, 1)
        assert layer.source is not None
        assert layer.weight is not None
        assert layer.bias is not None
        mean_c = x.mean((0, 2, 3), keepdim=True)
        std_c = (x.var((0, 2, 3), keepdim=True, unbiased=False) + layer.eps).sqrt()
        mean, std = layer.source.mean.view(shape), (layer.source.var + layer.eps).sqrt().view(shape)
        centred = (x - mean_c) / std_c * std_c.detach() + mean_c.detach() - mean
        return centred / std * layer.weight.view(shape) + layer.bias.view(shape)


def native_step(network: nn.Module, x: Tensor, channels_last: bool) -> Callable[[], object]:
    """Stock modules in training mode without buffers, entropy, backward to the affine, Adam."""
    network = copy.deepcopy(network).requires_grad_(False)
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.train().requires_grad_(True)
        norm.track_running_stats = False
        norm.running_mean = norm.running_var = None
    return _entropy_step(network, [p for n in norms for p in n.parameters()], x, channels_last)


def literal_step(network: nn.Module, x: Tensor) -> Callable[[], object]:
    """The literal formula in every layer, in channels-last layout."""
    network = copy.deepcopy(network).requires_grad_(False)
    surgery = driftnorm.adapter._surgery.convert(network)
    surgery.put(network, {name: LiteralGpreBN(layer) for name, layer in surgery.layers.items()})
    affine = [p for layer in surgery.layers.values() for p in layer.parameters()]
    for parameter in affine:
        parameter.requires_grad_(True)
    return _entropy_step(network, affine, x, True)


def _entropy_step(
    network: nn.Module, parameters: list[nn.Parameter], x: Tensor, channels_last: bool
) -> Callable[[], object]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network.to(memory_format=layout)  # type: ignore[call-overload]
    x = x.contiguous(memory_format=layout)
    optimizer = torch.optim.Adam(parameters, lr=1e-3)

    def step() -> None:
        loss = softmax_entropy(network(x)).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def inference(network: nn.Module, x: Tensor, channels_last: bool) -> Callable[[], object]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    network = copy.deepcopy(network).to(memory_format=layout)  # type: ignore[call-overload]
    x = x.contiguous(memory_format=layout)

    def run() -> object:
        with torch.no_grad():
            return network(x)

    return run


def candidate(name: str, network: nn.Module, x: Tensor) -> Callable[[], object]:
    """A function that runs one batch."""
    special: dict[str, Callable[[], Callable[[], object]]] = {
        PLAIN: lambda: inference(network, x, False),
        INFERENCE: lambda: inference(network, x, True),
        NATIVE: lambda: native_step(network, x, True),
        TENT: lambda: native_step(network, x, False),
        LITERAL: lambda: literal_step(network, x),
    }
    if name in special:
        return special[name]()
    adapter = driftnorm.adapt(network, name)
    if parse_method(name).recipe.needs_fit:
        adapter.fit(x)
    return lambda: adapter(x)


def candidates() -> list[str]:
    return [PLAIN, INFERENCE, NATIVE, TENT, LITERAL, *driftnorm.list_methods(), "gprebn+rt3a"]


def material(network_name: str) -> tuple[nn.Module, Tensor]:
    """The network with lively statistics, and a batch it finds ordinary."""
    torch.manual_seed(0)
    batch, size = SETTINGS[network_name]
    network = models.build(network_name).eval()
    for norm in find_batch_norms(network).values():
        assert isinstance(norm, nn.BatchNorm2d)
        norm.momentum = None
        norm.train()
    x = torch.randn(batch, 3, size, size)
    with torch.no_grad():
        network(x[: max(8, batch // 4)])
        # Varied predictions, as those of a trained network, or the guard would be on the alert.
        classifier = network.eval().get_submodule("fc")
        assert isinstance(classifier, nn.Linear)
        logits = network(x)
        classifier.bias.copy_((classifier.bias - logits.mean(0)) / logits.std(0))
        classifier.weight.div_(logits.std(0).unsqueeze(1))
    return network, x


class Contender:
    """A candidate in a process of its own, which runs a batch whenever it is asked to.

    In one process the memory that one candidate freed is what the next one gets, and ratios of
    equal work differ by a tenth.
    """

    def __init__(self, network_name: str, name: str) -> None:
        command = [sys.executable, __file__, "--child", network_name, name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.peak_megabytes = self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        return float(self._process.stdout.readline())

    def milliseconds(self) -> float:
        """How long one more batch takes."""
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def child(network_name: str, name: str) -> None:
    """Warm up, say the peak memory above the loaded network, then time a batch per line read."""
    torch.set_num_threads(THREADS)
    network, x = material(network_name)
    run = candidate(name, network, x)
    before = _resident_megabytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak of loading
    for _ in range(WARM_UP):
        run()
    answer = _resident_megabytes("VmHWM") - before
    while True:
        if network_name in GIVE_BACK:
            ctypes.CDLL("libc.so.6").malloc_trim(0)
        print(answer, flush=True)
        if not sys.stdin.readline():
            return
        begun = time.perf_counter()
        run()
        answer = 1000 * (time.perf_counter() - begun)


def measure(network_name: str, rounds: int, names: list[str]) -> Measurement:
    """Every candidate runs one batch in turn, in an order drawn anew for each round."""
    contenders = {name: Contender(network_name, name) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    order, draw = [*names], random.Random(0)
    for index in range(rounds):
        draw.shuffle(order)
        for name in order:
            times[name].append(round(contenders[name].milliseconds(), 2))
        print(f"{network_name}: round {index + 1} of {rounds}", file=sys.stderr)
    for contender in contenders.values():
        contender.close()
    memory = {name: round(each.peak_megabytes, 1) for name, each in contenders.items()}
    flat = {name: round(flatness(name), 3) for name in FLAT} if network_name == "wrn-40-2" else {}
    return {
        "network": network_name,
        "about": f"{platform.machine()}, torch {torch.__version__}, driftnorm "
        f"{driftnorm.__version__}, {THREADS} threads",
        "command": f"python {shlex.join(sys.argv)}",
        "milliseconds": times,
        "peak_megabytes": memory,
        "flatness": flat,
    }


def _resident_megabytes(what: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(what)).split()[1]) / 1024


def flatness(name: str, batches: int = 500) -> float:
    """How much longer the last batches of a long stream take than the fifth to fourteenth."""
    network, _ = material("resnet20")
    adapter = driftnorm.adapt(network, name)
    times = []
    for index in range(batches):
        x = torch.randn(50, 3, 32, 32, generator=torch.Generator().manual_seed(index))
        begun = time.perf_counter()
        adapter(x)
        times.append(time.perf_counter() - begun)
    return float(np.median(times[-10:]) / np.median(times[4:14]))


def ratio(times: dict[str, list[float]], name: str, other: str) -> float:
    return float(np.median(np.array(times[name]) / np.array(times[other])))


def table(measured: Measurement) -> Table:
    times, memory = measured["milliseconds"], measured["peak_megabytes"]
    batch, size = SETTINGS[measured["network"]]
    rows = []
    for name, values in times.items():
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
        rows.append(
            (
                name,
                float(middle),
                f"{low:.0f} to {high:.0f}",
                ratio(times, name, INFERENCE),
                ratio(times, name, NATIVE),
                memory[name],
            )
        )
    columns = (
        Column("candidate"),
        Column("ms per batch", decimals=0),
        Column("quartiles"),
        Column("x inference", decimals=2),
        Column("x native step", decimals=2),
        Column("peak MB", decimals=0),
    )
    note = (
        f"batch {batch} of {size} x {size} px, {measured['about']}, {len(times[NATIVE])} "
        f"interleaved rounds; inference and the native step in channels-last layout; Tent as "
        f"published in contiguous layout with stock modules. `{measured['command']}`"
    )
    return Table(measured["network"], columns, tuple(rows), note)


def targets(measured: Measurement) -> list[str]:
    """The promises about WRN-40-2, and whether this run keeps them."""
    times, memory = measured["milliseconds"], measured["peak_megabytes"]

    def line(text: str, value: float, limit: float, lower: bool = True) -> str:
        kept = value <= limit if lower else value >= limit
        sign = "<=" if lower else ">="
        return f"- {text}: **{value:.2f}** ({sign} {limit}: {'kept' if kept else 'NOT kept'})"

    steps = ratio(times, "gprebn", NATIVE)
    memories = memory["gprebn"] / memory[NATIVE]
    return [
        line("GpreBN step, in native training-mode steps of the same layout", steps, 1.10),
        line("GpreBN peak memory, in that of the native step", memories, 1.05),
        line("Tent as published, in GpreBN steps", ratio(times, TENT, "gprebn"), 1.25, False),
        f"- the literal formula, in GpreBN steps: **{ratio(times, LITERAL, 'gprebn'):.2f}**",
        *(
            line(f"{name}: batch 500 against batch 5 of a stream (ResNet-20)", value, 1.2)
            for name, value in measured["flatness"].items()
        ),
    ]


def page(rows: Path = ROWS) -> str:
    """The page about every network that the rows hold, from its latest run."""
    latest: dict[str, Measurement] = {}
    for line in rows.read_text().splitlines():
        measured: Measurement = json.loads(line)
        latest[measured["network"]] = measured
    parts = [HEAD.format(rows=rows.name)]
    for name in SETTINGS:
        if name in latest:
            parts.append(table(latest[name]).to_markdown())
            if latest[name]["flatness"]:
                promises = ["Promises, on WRN-40-2:\n", *targets(latest[name])]
                parts.append("\n".join(promises) + "\n")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--networks",
        nargs="*",
        default=list(SETTINGS),
        choices=list(SETTINGS),
        help="none at all: only write the page again",
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--candidates", nargs="+", default=candidates(), choices=candidates())
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", driftnorm.DriftnormWarning)  # random weights worry the guard
    if arguments.child:
        child(*arguments.child)
        return
    torch.set_num_threads(THREADS)
    for path in (arguments.rows, arguments.out):
        path.parent.mkdir(parents=True, exist_ok=True)
    for name in arguments.networks:
        measured = measure(name, arguments.rounds, arguments.candidates)
        with arguments.rows.open("a") as file:
            file.write(json.dumps(measured) + "\n")
    arguments.out.write_text(page(arguments.rows))
    print(arguments.out.read_text())


if __name__ == "__main__":
    main()

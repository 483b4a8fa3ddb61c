"""The real run behind the pictures of docs/concepts.md: the demo's network on foggy digits."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from driftnorm.adapter._adapt import adapt
from driftnorm.adapter._pass import Pass
from driftnorm.adapter._surgery import convert
from driftnorm.bench.rows import environment
from driftnorm.bench.stream_scores import evaluate
from driftnorm.bench.studies.digit_shifts import DIGIT_SHIFTS
from driftnorm.bench.studies.digits import normalized_digits, train_digits
from driftnorm.diagnosis.layer_drift import channel_distance
from driftnorm.errors import DriftnormWarning
from driftnorm.functional import Moments, batch_moments
from driftnorm.images.embedded_digits import split_digits
from driftnorm.parts.losses import softmax_entropy
from driftnorm.parts.statistics import Batch

SHIFT, SEVERITY = "fog", 2
BATCH_SIZE = 64
SHOWN_LAYER = "4"  # the second batch norm: late enough to mix pixels, early enough to be large
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
RATE_SEEDS, RATE_SHIFTS = (0, 1, 2), ("noise", "blur", "fog")
PATHS = ("preserved", "detached")


@dataclass(frozen=True)
class ConceptRun:
    """What the pictures show.

    Attributes:
        network: Trained on clean digits, seed 0.
        clean: The test images.
        shifted: The same images in fog.
    """

    network: nn.Module
    clean: Tensor
    shifted: Tensor

    @property
    def source(self) -> dict[str, Moments]:
        """Training statistics by layer."""
        layers = {n: m for n, m in self.network.named_modules() if isinstance(m, nn.BatchNorm2d)}
        return {n: Moments(m.running_mean, m.running_var) for n, m in layers.items()}  # type: ignore[arg-type]


def concept_run(seed: int = 0, epochs: int = 25) -> ConceptRun:
    """Train, and put the test half in fog."""
    training, test = split_digits(seed)
    generator = torch.Generator().manual_seed(1000 * seed + SEVERITY)
    shifted = DIGIT_SHIFTS[SHIFT](test.images, SEVERITY, generator)
    network = train_digits(training, seed, epochs)
    return ConceptRun(network, normalized_digits(test.images), normalized_digits(shifted))


@torch.no_grad()
def layer_inputs(run: ConceptRun, images: Tensor, statistics: str) -> dict[str, Tensor]:
    """What every batch-norm layer receives, normalising with ``source`` or ``batch`` statistics."""
    network = copy.deepcopy(run.network)
    kept: dict[str, Tensor] = {}
    for name, module in network.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_pre_hook(_keeping(kept, name))
            module.train(statistics == "batch")
    network(images)
    return kept


def _keeping(kept: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        kept[name] = inputs[0]

    return keep


def distances(run: ConceptRun) -> dict[str, dict[str, float]]:
    """Mean distance of every layer's input from training: clean, shifted, and mended."""
    cases = {
        "clean": (run.clean, "source"),
        f"{SHIFT}, source statistics": (run.shifted, "source"),
        f"{SHIFT}, batch statistics before it": (run.shifted, "batch"),
    }
    source = run.source
    return {
        kind: {
            name: float(channel_distance(source[name], batch_moments(x), 1e-5).mean())
            for name, x in layer_inputs(run, images, statistics).items()
        }
        for kind, (images, statistics) in cases.items()
    }


@dataclass(frozen=True)
class Gradients:
    """Of the mean entropy of one batch: at the input, and before every batch-norm layer."""

    images: Tensor
    before: Mapping[str, Tensor]
    received: Mapping[str, Tensor]


def gradients(run: ConceptRun, path: str) -> Gradients:
    """The gradients of a batch under batch statistics, with one or the other gradient path."""
    network = copy.deepcopy(run.network)
    kept: dict[str, Tensor] = {}
    now = Pass("adapt", {})
    for name, layer in convert(network).layers.items():
        layer.name, layer.stage.now = name, now
        layer.statistics = Batch()
        layer.gradient = path  # type: ignore[assignment]
        layer.register_forward_pre_hook(_retaining(kept, name))
    images = run.shifted[:BATCH_SIZE].clone().requires_grad_()
    softmax_entropy(network(images)).mean().backward()  # type: ignore[no-untyped-call]
    before = {name: x.grad for name, x in kept.items() if x.grad is not None}
    assert images.grad is not None
    return Gradients(images.grad, before, {name: x.detach() for name, x in kept.items()})


def _retaining(kept: dict[str, Tensor], name: str) -> Any:
    def keep(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        inputs[0].retain_grad()
        kept[name] = inputs[0]

    return keep


def pushing(found: Gradients) -> dict[str, float]:
    """Share of each layer's squared gradient along the channel's mean and along its scale.

    A step along these two directions moves or stretches a whole channel, which batch norm undoes in
    the next pass; the training-mode gradient has no part in them.
    """
    shares = {}
    for name, gradient in found.before.items():
        g = gradient.transpose(0, 1).flatten(1)  # channel, values
        x = found.received[name].transpose(0, 1).flatten(1)
        x = x - x.mean(dim=1, keepdim=True)
        along_mean = g.sum(dim=1).square() / g.shape[1]
        along_scale = (g * x).sum(dim=1).square() / x.square().sum(dim=1).clamp(min=1e-12)
        shares[name] = float((along_mean + along_scale).sum() / g.square().sum())
    return shares


def stray(run: ConceptRun, batch_size: int = 8, batches: int = 40) -> dict[str, list[float]]:
    """How far one batch's statistics, and their running average, are from the whole stream's."""
    x = layer_inputs(run, run.shifted, "source")[SHOWN_LAYER]
    whole = batch_moments(x)
    found: dict[str, list[float]] = {"one batch": [], "running": []}
    mean, var = torch.zeros_like(whole.mean), torch.zeros_like(whole.var)
    for number in range(batches):
        batch = batch_moments(x[number * batch_size : (number + 1) * batch_size])
        mean.lerp_(batch.mean, 1 / (number + 1))
        var.lerp_(batch.var, 1 / (number + 1))
        for name, moments in (("one batch", batch), ("running", Moments(mean, var))):
            found[name].append(float(channel_distance(whole, moments, 1e-5).mean()))
    return found


def rates() -> dict[str, Any]:
    """Error of GpreBN with either gradient path, at several learning rates."""
    errors: dict[str, list[float]] = {path: [] for path in PATHS}
    networks = {seed: train_digits(split_digits(seed)[0], seed) for seed in RATE_SEEDS}
    for rate in RATES:
        for path in PATHS:
            found = [_error(networks[s], s, shift, rate, path) for s, shift in _streams()]
            errors[path].append(sum(found) / len(found))
    note = (
        f"GpreBN, running statistics; digits, 899 samples per stream, {', '.join(RATE_SHIFTS)} at "
        f"severity {SEVERITY}, shuffled once, batch {BATCH_SIZE}, 1 Adam step, reset per shift, "
        f"scored before the update, guard off, seeds {min(RATE_SEEDS)} to {max(RATE_SEEDS)}."
    )
    return {"rates": list(RATES), "error": errors, "note": note}


def _streams() -> Iterator[tuple[int, str]]:
    for seed in RATE_SEEDS:
        for shift in RATE_SHIFTS:
            yield seed, shift


def shifted_batches(
    seed: int, shift: str, batch_size: int, count: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """The first ``count`` test digits under a shift, seeded as in the demo, with their labels."""
    test = split_digits(seed)[1]
    generator = torch.Generator().manual_seed(1000 * seed + SEVERITY)
    images = normalized_digits(DIGIT_SHIFTS[shift](test.images[:count], SEVERITY, generator))
    for begin in range(0, len(images), batch_size):
        part = slice(begin, begin + batch_size)
        yield images[part], test.labels[:count][part]


def _error(network: nn.Module, seed: int, shift: str, rate: float, path: str) -> float:
    stream = shifted_batches(seed, shift, BATCH_SIZE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DriftnormWarning)
        model = adapt(network, "gprebn", lr=rate, gradient=path, guard="off")
        return float(evaluate(model, stream)["error"])  # type: ignore[arg-type]


def measured(run: ConceptRun) -> dict[str, Any]:
    """Every number that docs/concepts.md prints."""
    setting = f"The demo's network, seed 0, digits in {SHIFT} of severity {SEVERITY}"
    return {
        "layers": list(run.source),
        "distance": distances(run),
        "pushing": {path: pushing(gradients(run, path)) for path in PATHS},
        "stray": stray(run),
        "rates": rates(),
        "notes": {
            "distance": f"{setting}, and clean; all 899 test images in one batch.",
            "pushing": (
                f"{setting}; gradients of the mean entropy of the first {BATCH_SIZE} of them, with "
                "batch statistics."
            ),
        },
        "environment": environment(),
    }

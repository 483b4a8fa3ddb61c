"""SWAD: the mean of all weights along the flat part of the validation loss.

Cha, Chun, Lee, Cho, Park, Lee and Park, "SWAD: Domain Generalization by Seeking Flat Minima",
NeurIPS 2021. Wraps any other algorithm.

Formula:
    A segment is the mean of the parameters after every step between two evaluations. From the first
    flat part of the validation loss to its rise (see `valley`) segments are taken; the answer is
    their mean, each with the same weight.

    Only parameters are averaged; buffers are those of the last step. With frozen statistics that is
    all. If batch norm was trained, re-estimate its statistics: :func:`reestimate_statistics`.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import vector_to_parameters

from driftnorm._internal.counts import counted
from driftnorm.errors import warn
from driftnorm.training.domains.algorithm import Algorithm, DomainBatch
from driftnorm.training.domains.algorithms.valley import Valley, ValleyRule
from driftnorm.training.loop import TrainState


class SWAD(Algorithm):
    """Another algorithm, and the mean of its weights along the valley.

    The trainer calls :meth:`after_step` after every step, :meth:`evaluated` after every evaluation
    on the training domains' validation splits (the first after step 1), and :meth:`finish` at the
    end. `forward` answers with the current weights, `deployed` with the mean.

    Keeps ``max(n_converge, n_tolerance) + 2`` copies of the parameters, in every checkpoint too.

    Args:
        algorithm: Trained as it would be alone.
        n_converge: N_s.
        n_tolerance: N_e.
        tolerance_ratio: r; the authors take 0.2 on VLCS.
        count_twice: Take segments twice where the released code does.
    """

    name = "swad"
    numbers: Tensor
    counts: Tensor
    running: Tensor
    segments: Tensor
    average: Tensor

    def __init__(
        self,
        algorithm: Algorithm,
        *,
        n_converge: int = 3,
        n_tolerance: int = 6,
        tolerance_ratio: float = 0.3,
        count_twice: bool = False,
    ) -> None:
        super().__init__(
            algorithm.network,
            algorithm.domains,
            lr=algorithm.lr,
            weight_decay=algorithm.weight_decay,
        )
        # The network belongs to the wrapped algorithm; saving it under two names would be a waste.
        del self._modules["network"]
        self.__dict__["network"] = algorithm.network
        self.algorithm = algorithm
        self.rule = ValleyRule(n_converge, n_tolerance, tolerance_ratio, count_twice)
        weights = _in_a_row(algorithm)
        self.register_buffer("numbers", torch.zeros(5 + self.rule.memory, dtype=torch.float64))
        self.register_buffer("counts", torch.zeros(2, dtype=torch.long))  # steps, segments taken
        self.register_buffer("running", torch.zeros_like(weights))
        self.register_buffer("segments", weights.new_zeros(self.rule.memory, len(weights)))
        self.register_buffer("average", torch.zeros_like(weights))
        self._remember(Valley())

    def optimizers(self) -> dict[str, torch.optim.Optimizer]:
        """Those of the wrapped algorithm."""
        return self.algorithm.optimizers()

    def step(self, state: TrainState, batch: DomainBatch) -> Mapping[str, float]:
        """A step of the wrapped algorithm."""
        return self.algorithm.step(state, batch)

    def forward(self, images: Tensor) -> Tensor:
        """Logits with the current weights."""
        logits: Tensor = self.algorithm(images)
        return logits

    @property
    def valley(self) -> Valley:
        """What is known about the losses so far."""
        seen, start, threshold, due, dead, *losses = self.numbers.tolist()
        kept = losses[: min(int(seen), self.rule.memory)]
        return Valley(int(seen), int(start), threshold, int(due), bool(dead), tuple(kept))

    @torch.no_grad()
    def after_step(self) -> None:
        """Takes the weights into the mean of this segment."""
        self.counts[0] += 1
        self.running += (_in_a_row(self.algorithm) - self.running) / int(self.counts[0])

    @torch.no_grad()
    def evaluated(self, validation_loss: float) -> bool:
        """Ends the segment.

        Args:
            validation_loss: Mean over the training domains of the cross-entropy of the current
                weights on the domain's validation split.

        Returns:
            Whether the valley is left and training can stop.
        """
        if not math.isfinite(validation_loss):
            raise ValueError(f"`validation_loss` must be finite, got {validation_loss}.")
        before = self.valley
        if before.dead:
            return True
        if int(self.counts[0]) == 0:
            raise RuntimeError("`evaluated` ends a segment: call `after_step` after every step.")
        self.segments[before.seen % self.rule.memory] = self.running
        self.running.zero_()
        self.counts[0] = 0
        valley, taken = self.rule.evaluated(before, validation_loss)
        self._remember(valley)
        if before.start < 0 <= valley.start:  # the answer, should no segment ever be taken
            self.average.copy_(self._segment(valley.start))
        for number in taken:
            self.counts[1] += 1
            self.average += (self._segment(number) - self.average) / int(self.counts[1])
        return valley.dead

    def finish(self) -> Mapping[str, float]:
        """What the mean consists of; warns if the loss never converged. Changes nothing."""
        valley = self.valley
        if valley.start < 0:
            warn(
                "SWAD: the validation loss did not converge within "
                f"{counted(valley.seen, 'evaluation')}; the weights are the mean of the last "
                "segment only. Train longer, or evaluate more often."
            )
        taken = int(self.counts[1]) + len(self.rule.remaining(valley))
        return {"segments": taken, "start": valley.start, "threshold": valley.threshold}

    @torch.no_grad()
    def averaged_weights(self) -> Tensor:
        """All parameters in a row, as they are if training ends here."""
        valley = self.valley
        if valley.seen == 0:
            raise RuntimeError("SWAD has no segment yet: `evaluated` was never called.")
        if valley.start < 0:
            return self._segment(valley.seen - 1).clone()
        average, taken = self.average.clone(), int(self.counts[1])
        for number in self.rule.remaining(valley):
            taken += 1
            average += (self._segment(number) - average) / taken
        return average

    def deployed(self) -> nn.Module:
        """The wrapped algorithm's network with the mean weights."""
        algorithm = copy.deepcopy(self.algorithm)
        vector_to_parameters(self.averaged_weights(), algorithm.parameters())
        return algorithm.deployed()

    def _segment(self, number: int) -> Tensor:
        return self.segments[number % self.rule.memory]

    def _remember(self, valley: Valley) -> None:
        padding = [0.0] * (self.rule.memory - len(valley.losses))
        numbers = [*valley[:5], *valley.losses, *padding]
        self.numbers.copy_(torch.tensor(numbers, dtype=torch.float64))


def _in_a_row(module: nn.Module) -> Tensor:
    """All parameters, whatever their memory layout (torch's own function needs contiguous ones)."""
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@torch.no_grad()
def reestimate_statistics(
    network: nn.Module, batches: Iterable[Tensor], within: Iterable[nn.Module] | None = None
) -> None:
    """Replaces the running statistics of every batch-norm layer by their mean over batches.

    Args:
        network: Changed in place; stays in evaluation mode but for its batch norm meanwhile.
        batches: Images, as training has them (SWAD's authors take 500 joint minibatches).
        within: Only in these parts of the network; in all of it by default.
    """
    layers = [layer for part in within or [network] for layer in part.modules()]
    norms = [m for m in layers if isinstance(m, _BatchNorm) and m.track_running_stats]
    before = [(norm.training, norm.momentum) for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None  # a plain mean
    try:
        for images in batches:
            network(images)
    finally:
        for norm, (training, momentum) in zip(norms, before, strict=True):
            norm.train(training)
            norm.momentum = momentum

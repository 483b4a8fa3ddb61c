"""When SWAD's valley begins and ends, and which segments of training lie in it.

A pure function of the validation losses. Evaluation i has the loss L_i and ends segment i. With
N_s, N_e and a ratio r:

1. Converged when the oldest of the last N_s losses is the smallest of them: t_s is that
   evaluation, T = (1 + r) x the mean of the N_s losses.
2. Look back, if N_e > N_s: from t_s backwards within the last N_e evaluations to the last one
   with L > T; segments up to t_s are taken from the second one after it. If N_e < N_s, the
   N_s - N_e segments after t_s are taken instead.
3. Then at every evaluation, once the oldest of the last N_e is t_s or later: if all N_e losses
   are above T, the valley is left and training ends; otherwise the oldest one's segment is
   taken.
4. At the end of training in the valley, the segments not decided about are taken in order, as
   long as one of the losses from there on is at most T.

The released code takes the segment of t_s twice (in 2 and in 3), and others too if convergence
comes within the first evaluations or training ends soon after it; ``count_twice`` does the
same. Without it, each is taken once.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from driftnorm._internal.arguments import check_number


class Valley(NamedTuple):
    """What the rule has to remember.

    Attributes:
        seen: How many evaluations there were.
        start: Number of the evaluation t_s, from 0; -1 before convergence.
        threshold: T.
        due: First evaluation whose segment is not decided about.
        dead: Whether the valley was left.
        losses: The last ones.
    """

    seen: int = 0
    start: int = -1
    threshold: float = 0.0
    due: int = 0
    dead: bool = False
    losses: tuple[float, ...] = ()

    def since(self, evaluation: int) -> tuple[float, ...]:
        """The losses from this evaluation on."""
        return self.losses[evaluation - self.seen + len(self.losses) :]


@dataclasses.dataclass(frozen=True)
class ValleyRule:
    """Which segments to take; a pure function of the losses.

    Attributes:
        n_converge: N_s.
        n_tolerance: N_e.
        tolerance_ratio: r.
        count_twice: Take segments twice where the released code does.
    """

    n_converge: int = 3
    n_tolerance: int = 6
    tolerance_ratio: float = 0.3
    count_twice: bool = False

    def __post_init__(self) -> None:
        check_number("n_converge", self.n_converge, least=1)
        check_number("n_tolerance", self.n_tolerance, least=1)
        check_number("tolerance_ratio", self.tolerance_ratio, least=0)

    @property
    def memory(self) -> int:
        """How many of the last losses and segments are needed."""
        return max(self.n_converge, self.n_tolerance)

    def evaluated(self, valley: Valley, loss: float) -> tuple[Valley, tuple[int, ...]]:
        """After an evaluation: what to remember, and the numbers of the segments to take."""
        if valley.dead:
            return valley, ()
        losses = (*valley.losses, loss)[-self.memory :]
        valley = valley._replace(seen=valley.seen + 1, losses=losses)
        if valley.start < 0:
            return self._look_for_start(valley)
        oldest = self._oldest(valley)
        if oldest < valley.start:
            return valley, ()
        if min(valley.since(oldest)) > valley.threshold:
            return valley._replace(dead=True), ()
        if oldest < valley.due and not self.count_twice:
            return valley, ()
        return valley._replace(due=oldest + 1), (oldest,)

    def remaining(self, valley: Valley) -> tuple[int, ...]:
        """The segments to take if training ends here."""
        if valley.dead or valley.start < 0:
            return ()
        first = self._oldest(valley) + 1 if self.count_twice else valley.due
        taken = []
        for number in range(first, valley.seen):
            if min(valley.since(number)) > valley.threshold:
                break
            taken.append(number)
        return tuple(taken)

    def _oldest(self, valley: Valley) -> int:
        return max(0, valley.seen - self.n_tolerance)

    def _look_for_start(self, valley: Valley) -> tuple[Valley, tuple[int, ...]]:
        start = valley.seen - self.n_converge
        if start < 0 or min(recent := valley.since(start)) < recent[0]:
            return valley, ()
        threshold = (1 + self.tolerance_ratio) * sum(recent) / len(recent)
        valley = valley._replace(start=start, threshold=threshold)
        extra = self.n_tolerance - self.n_converge
        if extra > 0:
            taken = self._look_back(valley, extra)
            due = start + 1 if start in taken else start
        else:
            taken = range(start + 1, start + 1 - extra)
            due = start + 1 - extra
        return valley._replace(due=due), tuple(taken)

    def _look_back(self, valley: Valley, extra: int) -> range:
        first = oldest = self._oldest(valley)
        end = min(oldest + extra + 1, valley.seen)
        if not self.count_twice:  # early on, the oldest ones reach beyond the minimum
            end = min(end, valley.start + 1)
        for number in reversed(range(oldest, end)):
            if valley.since(number)[0] > valley.threshold:
                first = number + 1
                break
        return range(first + 1, end)

"""The loop on a small network with dropout and batch norm: resuming, stopping, budgets, errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from driftnorm.errors import TrainingError
from driftnorm.training import (
    Hooks,
    LoopSettings,
    Progress,
    ResumeFile,
    ShuffledBatches,
    TrainState,
    constant,
    cosine,
    random_numbers,
    train,
)
from driftnorm.training.schedule import seconds_a_step, steps_within

STEPS = 12
Numbers = tuple[Tensor, Tensor]


class Nobody:
    """Keeps nothing."""

    def save(self, state: TrainState, progress: Progress) -> None:
        pass


def source(step: int) -> Numbers:
    rng = random_numbers(7, "order", step)
    x = torch.from_numpy(rng.normal(size=(8, 5)).astype(np.float32))
    return x, (x.sum(dim=1) > 0).long()


def new_state(optimizer: str = "sgd", rate: float = 0.1) -> TrainState:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        module = nn.Sequential(
            nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2)
        )
    if optimizer == "adam":
        return TrainState(module, {"adam": torch.optim.Adam(module.parameters(), lr=rate)})
    halves = (module[0].parameters(), [*module[1:].parameters()])
    return TrainState(
        module,
        {
            name: torch.optim.SGD(part, lr=rate, momentum=0.9, nesterov=True)
            for name, part in zip(("first", "rest"), halves, strict=True)
        },
    )


def step(state: TrainState, batch: Numbers) -> Mapping[str, float]:
    state.module.train()
    loss = nn.functional.cross_entropy(state.module(batch[0]), batch[1])
    for optimizer in state.optimizers.values():
        optimizer.zero_grad()
    loss.backward()
    for optimizer in state.optimizers.values():
        optimizer.step()
    return {"loss": loss.item()}


def stop_at(number: int) -> Hooks:
    """Presses Ctrl-C during a step."""

    def press(progress: Progress, losses: Mapping[str, float]) -> None:
        if progress.step == number:
            signal.raise_signal(signal.SIGINT)

    return Hooks(on_step=press)


def run(state: TrainState, progress: Progress, **given: Any) -> str:
    keeper = given.pop("keeper", Nobody())
    hooks, evaluate = given.pop("hooks", None), given.pop("evaluate", None)
    clock = {"clock": given.pop("clock")} if "clock" in given else {}
    settings = LoopSettings(**{"schedule": cosine(), "record_every": 5, **given})
    return train(
        state,
        source,
        step,
        progress,
        settings,
        keeper=keeper,
        hooks=hooks,
        evaluate=evaluate,
        **clock,
    )


class Clock:
    """Every look at it costs a second."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


def same_weights(a: TrainState, b: TrainState) -> bool:
    ours, theirs = a.module.state_dict(), b.module.state_dict()
    return all(torch.equal(value, theirs[name]) for name, value in ours.items())


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("stop", range(1, STEPS))
def test_stopped_and_resumed_is_uninterrupted_to_the_bit(
    tmp_path: Path, stop: int, optimizer: str
) -> None:
    whole, progress = new_state(optimizer), Progress(STEPS)
    assert run(whole, progress) == "finished"
    keeper = ResumeFile(tmp_path / "resume.pt", {"seed": 0})
    assert run(new_state(optimizer), Progress(STEPS), keeper=keeper, hooks=stop_at(stop)) == (
        "interrupted"
    )
    torch.manual_seed(stop)  # whatever the global state is
    resumed = new_state(optimizer)
    continued = keeper.restore(resumed)
    assert continued.step == stop
    assert run(resumed, continued, keeper=keeper) == "finished"
    assert same_weights(resumed, whole)
    for name, ours in resumed.optimizers.items():
        theirs = whole.optimizers[name].state_dict()["state"]
        for key, values in ours.state_dict()["state"].items():
            assert all(torch.equal(value, theirs[key][what]) for what, value in values.items())
    losses = [[record["loss"] for record in p.history] for p in (continued, progress)]
    assert losses[0] == losses[1]  # also where the stop was between two records


def test_another_seed_gives_other_dropout() -> None:
    states = [new_state() for _ in range(3)]
    for state, seed in zip(states, (0, 0, 1), strict=True):
        run(state, Progress(STEPS), seed=seed)
    assert same_weights(states[0], states[1])
    assert not same_weights(states[0], states[2])


def test_the_global_random_state_is_left_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    run(new_state(), Progress(3))
    assert torch.equal(torch.rand(3), expected)


def test_rates_follow_the_schedule_from_each_groups_own_rate() -> None:
    state, seen = new_state(rate=0.1), []
    state.optimizers["rest"].param_groups[0]["lr"] = 0.4

    def look(progress: Progress, losses: Mapping[str, float]) -> None:
        seen.append([o.param_groups[0]["lr"] for o in state.optimizers.values()])

    run(state, Progress(4), schedule=cosine(0.01), hooks=Hooks(on_step=look))
    factors = [0.01 + 0.99 * (1 + np.cos(np.pi * k / 4)) / 2 for k in range(4)]
    np.testing.assert_allclose(seen, [[0.1 * f, 0.4 * f] for f in factors], rtol=1e-12)


def test_schedules() -> None:
    assert constant(0.3) == 1
    assert cosine()(0) == 1
    assert cosine()(0.5) == pytest.approx(0.5)
    assert cosine()(1) == pytest.approx(0, abs=1e-15)
    assert cosine(1e-5)(1) == pytest.approx(1e-5)
    with pytest.raises(ValueError, match="`floor` must be from 0 to 1, got 2"):
        cosine(2)


def test_records_hold_means_and_evaluations() -> None:
    losses: list[float] = []
    records: list[Mapping[str, float]] = []
    evaluated: list[bool] = []

    def evaluate(state: TrainState) -> Mapping[str, float]:
        evaluated.append(True)
        return {"accuracy": float(len(evaluated))}

    hooks = Hooks(
        on_step=lambda progress, step_losses: losses.append(step_losses["loss"]),
        on_record=records.append,
    )
    progress = Progress(STEPS)
    run(new_state(), progress, hooks=hooks, evaluate=evaluate)
    assert [record["step"] for record in progress.history] == [5, 10, 12]
    assert [record["accuracy"] for record in progress.history] == [1, 2, 3]
    means = [np.mean(losses[:5]), np.mean(losses[5:10]), np.mean(losses[10:])]
    np.testing.assert_allclose([record["loss"] for record in progress.history], means)
    assert records == progress.history


def test_the_time_budget_ends_a_run_and_a_larger_one_finishes_it(tmp_path: Path) -> None:
    whole = new_state()
    run(whole, Progress(STEPS))
    keeper = ResumeFile(tmp_path / "resume.pt", {})
    state, progress = new_state(), Progress(STEPS)
    assert run(state, progress, keeper=keeper, budget_seconds=9, clock=Clock()) == "budget"
    assert 0 < progress.step < STEPS
    assert progress.seconds > 9
    resumed = new_state()
    again = keeper.restore(resumed)
    assert again.seconds == progress.seconds
    spent = again.seconds
    assert run(resumed, again, keeper=keeper, budget_seconds=9, clock=Clock()) == "budget"
    assert again.step == progress.step  # the time was spent already
    assert run(resumed, again, keeper=keeper, budget_seconds=1000, clock=Clock()) == "finished"
    assert again.seconds > spent
    assert same_weights(resumed, whole)


def test_checkpoints_come_as_often_as_asked_for(tmp_path: Path) -> None:
    marks: dict[float, list[int]] = {}
    for seconds in (1.0, 20.0, 1e9):
        marks[seconds] = steps = []
        hooks = Hooks(on_checkpoint=lambda progress, steps=steps: steps.append(progress.step))
        run(
            new_state(),
            Progress(STEPS),
            keeper=ResumeFile(tmp_path / f"{seconds}.pt", {}),
            hooks=hooks,
            checkpoint_seconds=seconds,
            clock=Clock(),
        )
    assert marks[1.0] == [*range(1, STEPS + 1), STEPS]
    assert STEPS > len(marks[20.0]) > 1
    assert marks[1e9] == [STEPS]


def test_a_loss_that_is_not_finite_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    keeper = ResumeFile(tmp_path / "resume.pt", {})

    def broken(state: TrainState, batch: Numbers) -> Mapping[str, float]:
        losses = step(state, batch)
        if torch.equal(batch[0], source(6)[0]):
            with torch.no_grad():
                next(state.module.parameters()).fill_(float("nan"))
            return {**losses, "loss": float("nan")}
        return losses

    settings = LoopSettings(checkpoint_seconds=1e-9)
    with pytest.raises(TrainingError, match=r"step 7 of 12: `loss` is nan.*lower learning rate"):
        train(new_state(), source, broken, Progress(STEPS), settings, keeper=keeper)
    state = new_state()
    assert keeper.restore(state).step == 6
    assert all(bool(t.isfinite().all()) for t in state.module.state_dict().values())


def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    keeper, state = ResumeFile(tmp_path / "resume.pt", {}), new_state()
    keeper.save(state, Progress(STEPS, step=2))
    before = keeper.path.read_bytes()
    with torch.no_grad():
        state.module[0].weight[0, 0] = float("inf")
    with pytest.raises(TrainingError, match=r"`0.weight` is no longer finite; the last good"):
        keeper.save(state, Progress(STEPS, step=3))
    assert keeper.path.read_bytes() == before


def test_any_exception_of_a_step_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    keeper = ResumeFile(tmp_path / "resume.pt", {})

    def failing(state: TrainState, batch: Numbers) -> Mapping[str, float]:
        raise RuntimeError("out of paper")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError, match="out of paper"):
        train(new_state(), source, failing, Progress(STEPS), LoopSettings(), keeper=keeper)
    assert keeper.restore(new_state()).step == 0
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_run_between_steps(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    progress = Progress(STEPS)

    def send(progress: Progress, losses: Mapping[str, float]) -> None:
        if progress.step == 3:
            signal.raise_signal(number)

    assert run(new_state(), progress, hooks=Hooks(on_step=send)) == "interrupted"
    assert progress.step == 3
    assert signal.getsignal(number) is before


def test_a_second_signal_interrupts_at_once() -> None:
    def impatient(progress: Progress, losses: Mapping[str, float]) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(new_state(), Progress(STEPS), hooks=Hooks(on_step=impatient))


def test_it_runs_outside_of_the_main_thread() -> None:
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(run(new_state(), Progress(3))))
    thread.start()
    thread.join()
    assert results == ["finished"]


def test_timing_leaves_the_run_untouched() -> None:
    whole = new_state()
    run(whole, Progress(STEPS))
    state = new_state()
    generator = torch.get_rng_state()
    duration = seconds_a_step(state, source, step, seconds=5, clock=Clock())
    assert torch.equal(torch.get_rng_state(), generator)
    assert duration == 1  # by this clock
    assert same_weights(state, new_state())
    run(state, Progress(STEPS))
    assert same_weights(state, whole)


def test_steps_within_a_budget() -> None:
    assert steps_within(1000, 1.0, at_most=10_000) == 900
    assert steps_within(1000, 1.0, at_most=50) == 50
    assert steps_within(0.1, 1.0, at_most=50) == 1
    assert steps_within(-1, 1.0, at_most=50) == 1


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "resume.pt"
    ResumeFile(path, {"recipe": "mixup", "seed": 1}).save(new_state(), Progress(3))
    with pytest.raises(TrainingError, match=r"another run: there `seed` is 1, here 2"):
        ResumeFile(path, {"recipe": "mixup", "seed": 2}).restore(new_state())
    with pytest.raises(TrainingError, match=r"there `rate` is None, here 0.1"):
        ResumeFile(path, {"recipe": "mixup", "seed": 1, "rate": 0.1}).restore(new_state())


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:500])


def _other_content(path: Path) -> None:
    torch.save({"weights": torch.zeros(3)}, path)


def _newer(path: Path) -> None:
    content = torch.load(path, weights_only=True)
    torch.save({**content, "format": 2}, path)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_cut, "truncated.*Delete it to start the run again"),
        (_other_content, "is not a checkpoint of a run"),
        (_newer, "has the format 2, this driftnorm reads 1"),
    ],
)
def test_damaged_checkpoints_say_what_is_wrong(
    tmp_path: Path, damage: Callable[[Path], None], message: str
) -> None:
    keeper = ResumeFile(tmp_path / "resume.pt", {})
    keeper.save(new_state(), Progress(3))
    damage(keeper.path)
    with pytest.raises(TrainingError, match=message):
        keeper.restore(new_state())


def test_every_image_comes_once_an_epoch_and_all_batches_are_full() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1)
    batches = ShuffledBatches(images, torch.arange(10), 4, seed=0)
    stream = torch.cat([batches(k).labels for k in range(10)])
    for epoch in stream.view(4, 10):
        assert sorted(epoch.tolist()) == list(range(10))
    assert len({tuple(epoch.tolist()) for epoch in stream.view(4, 10)}) == 4
    for k in (7, 2, 9, 0, 2):  # in any order, also by another object
        other = ShuffledBatches(images, torch.arange(10), 4, seed=0)(k)
        assert torch.equal(batches(k).images, other.images)
        assert torch.equal(other.images.flatten().long(), other.labels)
        assert batches(k).rng.random() == other.rng.random()
    larger = ShuffledBatches(images, torch.arange(10), 25, seed=0)(0).labels
    assert sorted(larger[:10].tolist()) == sorted(larger[10:20].tolist()) == list(range(10))


def test_random_numbers_are_independent_by_purpose_and_index() -> None:
    drawn = {
        random_numbers(seed, purpose, index).random()
        for seed in (0, 1)
        for purpose in ("order", "augmentation", "network")
        for index in (0, 1, 10**6)
    }
    assert len(drawn) == 18


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Progress(0), "`steps` must be at least 1, got 0"),
        (lambda: LoopSettings(record_every=0), "`record_every` must be positive, got 0"),
        (lambda: LoopSettings(budget_seconds=-1), "`budget_seconds` must be positive, got -1"),
        (
            lambda: random_numbers(-1, "order", 0),
            "`seed` must be at least 0, got -1",
        ),
        (
            lambda: ShuffledBatches(torch.zeros(2, 3, 4, 4), torch.zeros(2), 1, 0),
            "`images` must be bytes",
        ),
        (
            lambda: ShuffledBatches(
                torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(3), 1, 0
            ),
            "the same length, at least 1, got 2 and 3",
        ),
        (
            lambda: ShuffledBatches(
                torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.zeros(2), 0, 0
            ),
            "`batch_size` must be at least 1, got 0",
        ),
    ],
)
def test_senseless_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()

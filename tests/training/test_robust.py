"""Whole training runs on the bundled digits: checkpoints, resuming, the command, real data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from driftnorm._internal.files import exclusive
from driftnorm.cli.train_robust import train_robust
from driftnorm.errors import BusyError, TrainingError
from driftnorm.images.embedded_digits import load_digits
from driftnorm.images.image_set import ImageSet
from driftnorm.models import build, open_checkpoint, save_checkpoint, weights_hash
from driftnorm.training import (
    RECIPES,
    SHORT,
    Hooks,
    Optimization,
    Progress,
    RobustTraining,
    make_recipe,
)
from driftnorm.training import robust as robust_module
from driftnorm.training.evaluation import clean_accuracy
from driftnorm.training.robust import MODEL_FILE, RESUME_FILE
from driftnorm.training.start import starting_point
from driftnorm.training.training_run import Outcome

STEPS = 16
WAITING_STEP = 6


def digit_images(begin: int, end: int) -> ImageSet:
    """Some digits as images of 8 x 8 with three equal channels."""
    digits = load_digits()
    gray = (255 * digits.images[begin:end, 0]).round().to(torch.uint8).numpy()
    labels = digits.labels[begin:end].numpy()
    return ImageSet(
        "digits",
        np.repeat(gray[..., None], 3, axis=3),
        labels,
        tuple("0123456789"),
        np.arange(begin, end),
    )


TRAINING, TEST = digit_images(0, 600), digit_images(600, 700)


def job(name: str = "standard", *settings: str, **given: Any) -> RobustTraining:
    optimization = Optimization(learning_rate=0.05, batch_size=16)
    return RobustTraining(
        make_recipe(name, settings), **{"optimization": optimization, "steps": STEPS, **given}
    )


def saved_weights(folder: Path) -> str:
    return open_checkpoint(folder / MODEL_FILE).weights_hash


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights at which the run of `job()` ends."""
    folder = tmp_path_factory.mktemp("whole")
    assert job().run(TRAINING, TEST, folder).stop == "finished"
    return saved_weights(folder)


def test_it_learns_and_the_checkpoint_tells_all(tmp_path: Path) -> None:
    settings = ("alpha=0.2", "padding=1")
    training = job("mixup", *settings, steps=None, optimization=Optimization(0.1, epochs=8))
    outcome = training.run(TRAINING, TEST, tmp_path)
    assert outcome.files == (tmp_path / MODEL_FILE,)
    opened = open_checkpoint(*outcome.files)
    assert outcome.accuracy == clean_accuracy(opened.model, TEST)
    assert outcome.accuracy > 0.5  # chance is 0.1
    facts = opened.facts
    assert facts["run"]["recipe"] == "mixup"
    assert facts["run"]["settings"] == {"alpha": 0.2, "padding": 1}
    assert facts["run"]["optimization"]["learning_rate"] == 0.1
    assert facts["run"]["data"]["count"] == 600
    assert facts["run"]["init"] is None
    assert (facts["steps_done"], facts["steps_planned"], facts["stop"]) == (38, 38, "finished")
    assert facts["clean_accuracy"] == outcome.accuracy
    assert facts["minutes"] is None
    assert [record["step"] for record in facts["history"]] == [5 * k for k in range(1, 8)] + [38]
    assert facts["history"][-1]["loss"] < facts["history"][0]["loss"]
    assert facts["history"][-1]["clean_accuracy"] == outcome.accuracy
    assert opened.architecture == "resnet20"
    assert opened.classes == TRAINING.classes
    assert opened.preprocessing.size == 8
    assert not (tmp_path / RESUME_FILE).exists()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_the_same_network_twice(tmp_path: Path, name: str) -> None:
    settings = ["steps=2"] if name == "adversarial" else []
    hashes = []
    for number, seed in enumerate((0, 0, 1)):
        outcome = job(name, *settings, steps=2, seed=seed).run(
            TRAINING, TEST, tmp_path / f"{number}"
        )
        assert outcome.stop == "finished"
        hashes.append(saved_weights(tmp_path / f"{number}"))
    assert hashes[0] == hashes[1] != hashes[2]


def train_and_wait(folder: str) -> None:
    """What the stopped processes run: waits for a line between a step and its checkpoint."""
    torch.set_num_threads(1)

    def wait(progress: Progress, losses: object) -> None:
        if progress.step == WAITING_STEP:
            print("waiting", flush=True)
            sys.stdin.readline()

    outcome = job().run(
        TRAINING, TEST, Path(folder), checkpoint_seconds=1e-9, hooks=Hooks(on_step=wait)
    )
    print(outcome.stop, flush=True)


def waiting_process(folder: Path) -> subprocess.Popen[str]:
    here = Path(__file__)
    paths = [str(here.parent), str(here.parents[1]), str(Path(robust_module.__file__).parents[2])]
    code = f"import {here.stem}; {here.stem}.train_and_wait({str(folder)!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    return process


def test_killed_and_resumed_is_uninterrupted_to_the_bit(tmp_path: Path, uninterrupted: str) -> None:
    with waiting_process(tmp_path) as process:
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / MODEL_FILE).exists()
    told: list[str] = []
    assert job().run(TRAINING, TEST, tmp_path, tell=told.append).stop == "finished"
    assert told[0] == f"resuming at step {WAITING_STEP - 1} of {STEPS}"  # one step was lost
    assert saved_weights(tmp_path) == uninterrupted


def test_ctrl_c_leaves_a_checkpoint_to_go_on_from(tmp_path: Path, uninterrupted: str) -> None:
    with waiting_process(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate("\n")
    assert process.returncode == 0
    assert said == "interrupted\n"
    assert not (tmp_path / MODEL_FILE).exists()
    told: list[str] = []
    assert job().run(TRAINING, TEST, tmp_path, tell=told.append).stop == "finished"
    assert told[0] == f"resuming at step {WAITING_STEP} of {STEPS}"  # none was lost
    assert saved_weights(tmp_path) == uninterrupted


def test_a_finished_run_is_not_repeated_and_another_is_refused(tmp_path: Path) -> None:
    first = job(steps=1).run(TRAINING, TEST, tmp_path)
    before = (tmp_path / MODEL_FILE).stat().st_mtime_ns
    again = job(steps=1).run(TRAINING, TEST, tmp_path)
    assert again.earlier
    assert (again.accuracy, again.step) == (first.accuracy, 1)
    assert (tmp_path / MODEL_FILE).stat().st_mtime_ns == before
    for other in (job(steps=1, seed=1), job("cutout", steps=1), job(steps=2)):
        with pytest.raises(TrainingError, match="holds another run: there `"):
            other.run(TRAINING, TEST, tmp_path)


def test_one_process_at_a_time_trains_into_a_folder(tmp_path: Path) -> None:
    with (
        exclusive(tmp_path / ".lock", "busy"),
        pytest.raises(BusyError, match="Another process trains into"),
    ):
        job().run(TRAINING, TEST, tmp_path)


def test_resuming_asks_for_the_same_run(tmp_path: Path) -> None:
    def interrupt(progress: Progress, losses: object) -> None:
        signal.raise_signal(signal.SIGINT)

    outcome = job().run(TRAINING, TEST, tmp_path, hooks=Hooks(on_step=interrupt))
    assert (outcome.stop, outcome.step, outcome.accuracy) == ("interrupted", 1, None)
    with pytest.raises(TrainingError, match="another run: there `recipe` is 'standard', here 'cut"):
        job("cutout").run(TRAINING, TEST, tmp_path)
    with pytest.raises(TrainingError, match="another run: there `data`"):
        job().run(digit_images(0, 599), TEST, tmp_path)


def test_a_time_budget_plans_steps_and_the_plan_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uninterrupted: str
) -> None:
    monkeypatch.setattr(robust_module, "seconds_a_step", lambda *_: 1.0)
    monkeypatch.setattr(robust_module, "steps_within", lambda budget, each, at_most: STEPS)
    outcome = job(steps=None, minutes=1e-9).run(TRAINING, TEST, tmp_path)
    assert outcome.stop == "budget"
    assert outcome.step < STEPS == outcome.steps
    facts = open_checkpoint(tmp_path / MODEL_FILE).facts
    assert (facts["stop"], facts["steps_planned"]) == ("budget", STEPS)
    monkeypatch.setattr(robust_module, "steps_within", None)  # not planned again
    outcome = job(steps=None, minutes=1e9).run(TRAINING, TEST, tmp_path)
    assert (outcome.stop, outcome.step) == ("finished", STEPS)
    assert saved_weights(tmp_path) == uninterrupted  # of the run with that number of steps


def test_a_budget_measures_steps_but_never_exceeds_the_epochs(tmp_path: Path) -> None:
    optimization = Optimization(0.05, batch_size=16, epochs=0.1)
    training = job(steps=None, minutes=0.5, optimization=optimization)
    outcome = training.run(TRAINING, TEST, tmp_path)
    assert (outcome.stop, outcome.steps) == ("finished", 4)
    facts = open_checkpoint(tmp_path / MODEL_FILE).facts
    assert facts["minutes"] == 0.5
    assert "clean_accuracy" not in facts["history"][-1]


def test_training_starts_from_given_weights(tmp_path: Path) -> None:
    network = build("resnet20")
    plain = tmp_path / "plain.pt"
    torch.save(network.state_dict(), plain)
    start = starting_point("resnet20", plain, TRAINING, seed=0)
    assert weights_hash(start.model.network.state_dict()) == weights_hash(network.state_dict())
    assert start.preprocessing.mean == (0.4914, 0.4822, 0.4465)
    described = tmp_path / "described.safetensors"
    save_checkpoint(
        described,
        network,
        architecture="resnet20",
        classes=TRAINING.classes,
        preprocessing={"mean": (0.5, 0.4, 0.3), "std": (0.5, 0.5, 0.5), "size": 8},
    )
    start = starting_point("resnet20", described, TRAINING, seed=0)
    assert start.preprocessing.mean == (0.5, 0.4, 0.3)
    outcome = job(steps=1, init=described).run(TRAINING, TEST, tmp_path / "run")
    facts = open_checkpoint(*outcome.files).facts
    assert facts["init_file"] == "described.safetensors"
    # Where training begins is measured first: the network of the file, not yet trained.
    begun = clean_accuracy(open_checkpoint(described).model, TEST)
    assert facts["history"][0] == {"step": 0, "seconds": 0.0, "clean_accuracy": begun}
    assert [record["step"] for record in outcome.history] == [0, 1]
    assert len(facts["run"]["init"]) == 64
    with pytest.raises(ValueError, match=r"is a resnet20 for 10 classes.*expected a resnet32"):
        starting_point("resnet32", described, TRAINING, seed=0)
    with pytest.raises(FileNotFoundError, match=r"nowhere.pt does not exist"):
        job(init=tmp_path / "nowhere.pt").run(TRAINING, TEST, tmp_path / "other")


def test_a_diverging_run_ends_with_an_error_and_a_good_checkpoint(tmp_path: Path) -> None:
    wild = job(optimization=Optimization(learning_rate=1e30, batch_size=16))
    with pytest.raises(TrainingError, match=r"lower learning rate"):
        wild.run(TRAINING, TEST, tmp_path, checkpoint_seconds=1e9)
    content = torch.load(tmp_path / RESUME_FILE, weights_only=True)
    assert all(bool(t.isfinite().all()) for t in content["module"].values())
    assert not (tmp_path / MODEL_FILE).exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.0}, "`learning_rate` must be positive, got 0.0"),
        ({"epochs": float("inf")}, "`epochs` must be positive"),
        ({"momentum": -1.0}, "`momentum` must be at least 0, got -1.0"),
        ({"final_rate": 1.0}, "`final_rate` must be from 0 to the learning rate 0.1, got 1.0"),
    ],
)
def test_senseless_optimization_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimization(**given)  # type: ignore[arg-type]


def test_other_senseless_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`minutes` must be positive, got 0"):
        job(minutes=0)
    letters = ImageSet("letters", TEST.images, TEST.labels, tuple("abcdefghij"), TEST.indices)
    with pytest.raises(ValueError, match="must have the same classes"):
        job().run(TRAINING, letters, tmp_path)


# The command


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "train.npz", tmp_path / "test.npz"
    for path, data in zip(paths, (TRAINING, TEST), strict=True):
        np.savez(path, images=data.images, labels=data.labels, classes=np.array(data.classes))
    return paths


def test_the_command_trains_reports_and_does_not_repeat(
    tmp_path: Path,
    files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def command(**given: Any) -> str:
        train_robust(
            recipe="cutout",
            data=files[0],
            test_data=files[1],
            steps=2,
            settings=("size=4",),
            batch_size=16,
            out=tmp_path / "out",
            **given,
        )
        return " ".join(capsys.readouterr().out.split())

    said = command()
    assert "step 2, " in said
    assert f"Saved{tmp_path / 'out' / MODEL_FILE}," in said.replace(" ", "")
    assert "% on clean test images after 2 of 2 steps" in said
    assert "Already exists:" in command()
    instant = Outcome(
        "finished", 2, 2, 0.0, files=(tmp_path / MODEL_FILE,), accuracy=0.5, earlier=True
    )
    monkeypatch.setattr(RobustTraining, "run", lambda *_, **__: instant)
    assert "(32 images)." in command()  # too fast for its rounded seconds: no rate, no error
    facts = open_checkpoint(tmp_path / "out" / MODEL_FILE).facts
    assert facts["run"]["settings"]["size"] == 4
    assert facts["run"]["optimization"]["learning_rate"] == 0.1


def test_the_command_says_where_given_weights_begin(
    tmp_path: Path, files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    weights = tmp_path / "weights.pt"
    torch.save(build("resnet20").state_dict(), weights)
    given = {"recipe": "standard", "data": files[0], "test_data": files[1], "weights": weights}
    train_robust(**given, steps=1, batch_size=16, out=tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    facts = open_checkpoint(tmp_path / "out" / MODEL_FILE).facts
    begun = facts["history"][0]["clean_accuracy"]
    assert said.startswith(f"step 0, 0.0 minutes: clean accuracy {begun:.4f} step 1,")
    assert f"on clean test images, from {100 * begun:.2f} % at the start, after 1 of 1" in said


def test_the_short_preset_goes_easy_on_given_weights(
    tmp_path: Path, files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = tmp_path / "weights.pt"
    torch.save(build("resnet20").state_dict(), weights)
    jobs: list[RobustTraining] = []

    def note(self: RobustTraining, *_: Any, **__: Any) -> None:
        jobs.append(self)
        raise KeyboardInterrupt

    monkeypatch.setattr(RobustTraining, "run", note)
    for given in (
        {"weights": weights},
        {},
        {"weights": weights, "hours": 0.05, "learning_rate": 0.01},
    ):
        with pytest.raises(KeyboardInterrupt):
            train_robust(recipe="augmix", data=files[0], test_data=files[1], short=True, **given)
    assert [j.minutes for j in jobs] == [20, 20, 3]
    assert [j.optimization.learning_rate for j in jobs] == [0.02, 0.1, 0.01]
    assert [j.optimization.epochs for j in jobs] == [SHORT.epochs] * 3
    assert [j.optimization.final_rate for j in jobs] == [0, 1e-6, 0]


def test_ctrl_c_in_the_command_says_how_to_go_on(
    tmp_path: Path,
    files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted = Outcome("interrupted", 3, 9, 60.0)
    monkeypatch.setattr(RobustTraining, "run", lambda *_, **__: interrupted)
    with pytest.raises(KeyboardInterrupt):
        train_robust(recipe="mixup", data=files[0], test_data=files[1], out=tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "Stopped after 3 of 9 steps, 1.0 minutes. The same command resumes" in said


def test_an_early_end_is_said(
    tmp_path: Path,
    files: tuple[Path, Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Outcome("budget", 3, 9, 60.0, files=(tmp_path / MODEL_FILE,), accuracy=0.5)
    monkeypatch.setattr(RobustTraining, "run", lambda *_, **__: early)
    train_robust(recipe="mixup", data=files[0], test_data=files[1], out=tmp_path / "out")
    said = " ".join(capsys.readouterr().out.split())
    assert "Out of time before the plan was done (3 of 9 steps" in said
    assert "50.00 % on clean test images" in said


def test_the_command_refuses_data_it_cannot_use(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with pytest.raises(ValueError, match="`test_data` must name the test images"):
        train_robust(recipe="mixup", data=files[0])
    with pytest.raises(ValueError, match="no recipe 'cutot'"):
        train_robust(recipe="cutot", data=files[0])
    pictures = tmp_path / "pictures" / "cat"
    pictures.mkdir(parents=True)
    from PIL import Image

    Image.new("RGB", (8, 8)).save(pictures / "1.png")
    with pytest.raises(ValueError, match="is a folder of pictures"):
        train_robust(recipe="mixup", data=tmp_path / "pictures", test_data=files[1])


# Real data


def test_real_weights_start_at_their_accuracy() -> None:
    shared, cifar = os.environ.get("DRIFTNORM_SHARED"), os.environ.get("DRIFTNORM_CIFAR10")
    if not shared or not cifar:
        pytest.skip("set DRIFTNORM_SHARED and DRIFTNORM_CIFAR10 to test with real weights")
    from driftnorm.images.cifar import load_cifar10

    weights = Path(shared) / "weights" / "cifar10-resnet20.safetensors"
    test = load_cifar10(cifar, "test").first(300)
    start = starting_point("resnet20", weights, test, seed=0)
    assert clean_accuracy(start.model, test) > 0.9

"""Networks whose classifier alone is trained, and their table beside fine-tuned ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made_rows import made_row
from safetensors.torch import load_file
from tinted import SIDE, driftnorm, make_domains, plan
from torch import nn

import driftnorm as library
from driftnorm._internal.training_files import BEST, LAST, SWAD_FILE
from driftnorm.bench.rows import Row
from driftnorm.bench.studies.domains import read_trained
from driftnorm.errors import MixedRowsError
from driftnorm.images.domains.domain_arrays import DomainArrays
from driftnorm.images.domains.named import open_arrays
from driftnorm.models import Normalized
from driftnorm.training.domains.algorithms import ALGORITHMS
from driftnorm.training.domains.backbones import backbone
from driftnorm.training.domains.network import DomainNetwork
from driftnorm.views.domain_tables import domains_table
from driftnorm.views.fine_tuned_domains import METHODS, domains_fine_tuned_table

ON_FEATURES = {"coral", "mmd", "sagnet", "arm"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("fixed")
    make_domains(root / "data")
    return root


@pytest.fixture(scope="module")
def arrays(root: Path) -> DomainArrays:
    return open_arrays(str(root / "data"), SIDE, str(root / "cache"))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS.keys() - ON_FEATURES))
def test_only_the_classifier_changes(algorithm: str, arrays: DomainArrays, tmp_path: Path) -> None:
    fixed = plan(algorithm=algorithm, features="fixed", steps=3, evaluate_every=1, lr=0.1)
    fixed.run(arrays, tmp_path)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(fixed.seed)
        model = backbone("mnist-bn", None, 2, 3, SIDE)
    assert isinstance(model, Normalized)
    start, end = model.network.state_dict(), load_file(tmp_path / LAST)
    changed = {name for name in start if not torch.equal(start[name], end.get(name, start[name]))}
    assert changed <= {"fc.weight", "fc.bias"}
    assert algorithm == "mtl" or changed  # which has a classifier of another kind
    trained = read_trained(str(tmp_path / BEST))
    assert trained.label.startswith(
        f"{algorithm}, fixed features -> red, trial 0, mnist-bn at 12 px, "
    )
    adapter = library.adapt(trained.network(), "tent")
    assert torch.isfinite(adapter(torch.rand(8, 3, SIDE, SIDE))).all()


def test_a_classifier_on_fixed_features_learns(arrays: DomainArrays, tmp_path: Path) -> None:
    learned = plan(features="fixed", steps=30, evaluate_every=10, lr=0.03).run(arrays, tmp_path)
    # The first record is of one step, as DomainBed has it.
    assert learned.history[-1]["loss"] < learned.history[1]["loss"]


def test_swad_of_fixed_features_keeps_their_statistics(
    arrays: DomainArrays, tmp_path: Path
) -> None:
    averaged = plan(features="fixed", swad=True, steps=4, evaluate_every=1)
    with pytest.warns(UserWarning, match="did not converge"):
        averaged.run(arrays, tmp_path)
    one, other = load_file(tmp_path / SWAD_FILE), load_file(tmp_path / LAST)
    assert all(torch.equal(one[name], other[name]) for name in one if "running" in name)
    assert read_trained(str(tmp_path / SWAD_FILE)).label.startswith("swad erm, fixed features")


def test_fixed_features_are_in_evaluation_mode_and_are_deployed_as_usual() -> None:
    network = DomainNetwork(backbone("mnist-bn", None, 2), "trained", fixed=True).train()
    norms = [m for m in network.featurizer.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms
    assert not any(module.training for module in network.featurizer.modules())
    assert network.classifier.training
    assert {n for n, p in network.named_parameters() if p.requires_grad} == {
        "classifier.weight",
        "classifier.bias",
    }
    assert all(parameter.requires_grad for parameter in network.assembled().parameters())


@pytest.mark.parametrize("algorithm", sorted(ON_FEATURES))
def test_what_means_nothing_on_fixed_features_is_refused(algorithm: str) -> None:
    with pytest.raises(ValueError, match=f"{algorithm} cannot be trained on fixed features"):
        plan(algorithm=algorithm, features="fixed")
    with pytest.raises(ValueError, match="`features` must be one of"):
        plan(features="frozen")


# ---------------------------------------------------------------- the table


def study_rows(algorithm: str, errors: dict[str, float], targets: tuple[str, ...]) -> list[Row]:
    return [
        made_row(
            method,
            shift,
            0,
            error,
            data="VLCS",
            study="domains",
            model=f"{algorithm} -> {target}, trial 0@{target}",
            options=(("rho", 10),) if method.startswith("tent") else (),
        )
        for target in targets
        for shift in ("other/out", f"{target}/in")
        for method, error in errors.items()
    ]


ERRORS = dict(zip(METHODS, (0.2, 0.24, 0.4, 0.38), strict=True))


def test_fine_tuned_table() -> None:
    tuned = study_rows("erm", ERRORS, ("a", "b"))
    fixed = study_rows("erm, fixed features", {m: e + 0.1 for m, e in ERRORS.items()}, ("a", "b"))
    alone = study_rows("swad erm", {"source": 0.1}, ("a", "b"))
    table = domains_fine_tuned_table([*tuned, *fixed, *alone])
    assert [line[:2] for line in table.rows] == [
        (f"erm, {setting}", statistics)
        for setting in ("fine-tuned", "pre-trained")
        for statistics in ("source", "target")
    ]
    assert [line[2] for line in table.rows] == pytest.approx([80, 60, 70, 50])
    assert [line[3] for line in table.rows] == pytest.approx([76, 62, 66, 52])
    assert [str(line[4])[:4] for line in table.rows] == ["-4.0", "+2.0", "-4.0", "+2.0"]
    assert [line[5:] for line in table.rows] == [
        (77.5, 77.2),
        (56.4, 57.8),
        (70.0, 73.0),
        (70.1, 74.2),
    ]
    with pytest.raises(MixedRowsError, match="--features fixed; these rows are of erm only"):
        domains_fine_tuned_table(tuned)
    unfinished = [r for r in fixed if r.method != "tent" or r.cell.stream.label != "b/in"]
    with pytest.raises(MixedRowsError, match="pre-trained erm with 'tent' lacks 1 of 2"):
        domains_fine_tuned_table([*tuned, *unfinished])
    # The paper prints no main table of such networks.
    assert not [c.title for c in domains_table(fixed).columns if "paper" in c.title]


def test_commands(root: Path, arrays: DomainArrays, tmp_path: Path) -> None:
    common = ["--data", root / "data", "--cache", root / "cache"]
    command = ["train", "domains", *common, "--test-domains", "red", "--backbone", "mnist-bn"]
    command += ["--size", SIDE, "--steps", 2, "--batch-size", 4]
    trained = driftnorm(*command, "--features", "fixed", "--out", tmp_path / "runs" / "fixed")
    assert trained.returncode == 0, trained.stderr
    plan(steps=2).run(arrays, tmp_path / "runs" / "tuned")
    bench = ["bench", "domains", *common, "--models", tmp_path / "runs", "--workers", 1]
    bench += ["--table", "domains-fine-tuned", "--grid", "single", "--out", tmp_path / "rows"]
    measured = driftnorm(*bench)
    assert measured.returncode == 0, measured.stderr
    assert "erm, pre-trained" in measured.stdout
    refused = driftnorm(*command, "--features", "fixed", "--algorithm", "coral")
    assert refused.returncode == 2
    assert "cannot be trained on fixed features" in refused.stderr

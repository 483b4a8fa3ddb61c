"""A user's own method: one file outside the package, used by name and by object."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_method.py"


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.check_output(
        [sys.executable, "-W", "error", "-c", code], text=True, env=environment, cwd=folder
    )


def test_the_example_runs() -> None:
    out = subprocess.check_output([sys.executable, "-W", "error", str(EXAMPLE)], text=True)
    assert "'weighted' on Sequential" in out
    assert "Sure(sharpness=2.0)" in out
    assert "3 batches seen" in out


def test_a_method_from_another_folder_behaves_like_ours(tmp_path: Path) -> None:
    (tmp_path / "mymethod.py").write_text(EXAMPLE.read_text())
    code = """
import torch
from torch import nn
import driftnorm, mymethod

torch.manual_seed(0)
driftnorm.register(mymethod.METHOD)
assert "weighted" in driftnorm.list_methods()
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).eval()
data = [torch.randn(32, 8) + 1 for _ in range(3)]
named = driftnorm.adapt(net, "weighted+rt3a", sharpness=0.5, guard="off")
once = [named(x) for x in data]
named.reset()
assert all(torch.equal(a, named(x)) for a, x in zip(once, data))
given = driftnorm.adapt(net, mymethod.weighted(lr=0.01), guard="off")
given(data[0])
torch.testing.assert_close(given.bake()(data[1]), given.freeze()(data[1]))
for wrong in ("wieghted", "weighted"):
    try:
        driftnorm.adapt(net, wrong, sharpnes=1)
    except (ValueError, TypeError) as error:
        print(error)
try:
    driftnorm.register(mymethod.METHOD)
except ValueError as error:
    print(error)
"""
    out = run(code, tmp_path)
    assert "Did you mean 'weighted'?" in out
    assert "Did you mean 'sharpness'?" in out
    assert "is taken" in out

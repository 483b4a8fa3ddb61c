"""What every method must keep true on every kind of batch-norm layer: the promises, as a table."""

from __future__ import annotations

import copy
import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import CLASSES
from methods_table import CELL_IDS, CELLS, ROWS, Row
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import driftnorm

every_cell = pytest.mark.parametrize(("row", "kind"), CELLS, ids=CELL_IDS)
Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]


def stream(adapter: nn.Module, data: list[Tensor]) -> list[Tensor]:
    return [adapter(x) for x in data]


def same(given: list[Tensor], expected: list[Tensor]) -> bool:
    return len(given) == len(expected) and all(map(torch.equal, given, expected))


def differing(state: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """The entries that are not bit-identical."""
    assert state.keys() == other.keys()
    return [name for name, value in state.items() if not torch.equal(value, other[name])]


def snapshot(module: nn.Module) -> dict[str, Any]:
    """Everything about a network that a wrapper could spoil."""
    return {
        "state": copy.deepcopy(module.state_dict()),
        "training": [m.training for m in module.modules()],
        "requires_grad": [p.requires_grad for p in module.parameters()],
        "grad": [p.grad for p in module.parameters()],
        "layout": [p.stride() for p in module.parameters()],
        "types": [type(m) for m in module.modules()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()],
    }


def assert_untouched(before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
    assert differing(before["state"], after["state"]) == []
    for what in before.keys() - {"state"}:
        assert before[what] == after[what], what


def test_the_table_has_every_method() -> None:
    named = [row.method for row in ROWS if isinstance(row.method, str)]
    tested = {part for name in named for part in re.split("[+@]", name)}
    assert tested == set(driftnorm.list_methods())


@every_cell
def test_shape_dtype_and_report(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter = row.adapt(network(kind))
    for count, x in enumerate(batches(kind, 3), start=1):
        answer = adapter(x)
        assert answer.shape == (len(x), CLASSES)
        assert answer.dtype == torch.float32
        assert not answer.requires_grad
        assert answer.isfinite().all()
        assert adapter.batches == count
        assert (adapter.last.status, adapter.last.samples) == ("adapted", len(x))
        assert adapter.last.loss is None or row.trains is not None


@every_cell
def test_source_untouched(row: Row, kind: str, network: Build, batches: Draw) -> None:
    source, data = network(kind), batches(kind, 3)
    next(source.parameters()).requires_grad_(False)  # flags must survive, whatever they are
    before, answer = snapshot(source), source(data[0]).detach()
    adapter = row.adapt(source)
    stream(adapter, data)
    adapter.reset()
    if not row.recipe.unbakeable:
        adapter.bake()
    assert_untouched(before, snapshot(source))
    assert torch.equal(source(data[0]), answer)


@every_cell
def test_reset_equals_freshly_built(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network(kind)), batches(kind, 3)
    first = stream(adapter, data)
    adapter.reset()
    assert (adapter.batches, adapter.bad_batches, adapter.frozen) == (0, 0, False)
    assert same(stream(adapter, data), first)
    assert same(stream(row.adapt(network(kind)), data), first)


@every_cell
def test_resume_is_bit_exact(
    row: Row, kind: str, network: Build, batches: Draw, tmp_path: Path
) -> None:
    data = batches(kind, 3)
    adapter = row.adapt(network(kind))
    start = stream(adapter, data[:2])
    resumed = row.adapt(network(kind))
    resumed.load_state_dict(through_files(adapter.state_dict(), tmp_path))
    assert resumed.batches == 2
    assert torch.equal(resumed(data[2]), adapter(data[2]))
    assert differing(adapter.state_dict(), resumed.state_dict()) == []
    resumed.reset()
    assert same(stream(resumed, data[:2]), start)


def through_files(state: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The state as two real files give it back, neither of which may hold pickled objects."""
    torch.save(state, folder / "state.pt")
    save_file(state, folder / "state.safetensors")
    plain = torch.load(folder / "state.pt", weights_only=True)
    safe = load_file(folder / "state.safetensors")
    assert plain.keys() == state.keys()
    assert differing(plain, safe) == []
    return safe


@every_cell
def test_frozen_equals_baked(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network(kind)), batches(kind, 3)
    stream(adapter, data[:2])
    before = copy.deepcopy(adapter.state_dict())
    if row.recipe.unbakeable:
        with pytest.raises(ValueError, match=r"cannot be baked: .* as a whole"):
            adapter.bake()
        return
    baked = adapter.bake()
    frozen = adapter.freeze()(data[2])
    assert adapter.last is not None
    assert adapter.last.status == "frozen"
    torch.testing.assert_close(baked(data[2]), frozen, rtol=1e-5, atol=1e-5)
    adapter.unfreeze()
    assert differing(adapter.state_dict(), before) == []


@every_cell
def test_baked_is_plain_and_independent(row: Row, kind: str, network: Build, batches: Draw) -> None:
    adapter, data = row.adapt(network(kind)), batches(kind, 3)
    stream(adapter, data[:2])
    if row.recipe.unbakeable:
        return
    baked = adapter.bake()
    assert not any(type(m).__module__.startswith("driftnorm") for m in baked.modules())
    assert not any(m.training for m in baked.modules())
    assert not any(p.requires_grad for p in baked.parameters())
    written = io.BytesIO()
    torch.save(baked, written)
    assert b"driftnorm" not in written.getvalue()
    answer = baked(data[2])
    if kind != "untracked":  # a network that kept no statistics has no place for them
        fresh = network(kind, seed=1)
        fresh.load_state_dict(baked.state_dict())
        assert torch.equal(fresh(data[2]), answer)
    adapter(data[2])
    assert torch.equal(baked(data[2]), answer)


def declared(row: Row, parameters: set[str]) -> set[str]:
    """The parameters that the row says it trains."""
    norms = row.layers or ("bn1", "bn2")
    matches = {
        None: lambda name: False,
        "all": lambda name: True,
        "classifier": lambda name: name.startswith("fc."),
        "features": lambda name: not name.startswith("fc."),
        "affine": lambda name: name.split(".")[0] in norms,
    }[row.trains]
    return {name for name in parameters if matches(name)}


@every_cell
def test_only_declared_parameters_change(
    row: Row, kind: str, network: Build, batches: Draw
) -> None:
    adapter = row.adapt(network(kind))
    inside = adapter.converted.network
    before = {name: value.clone() for name, value in inside.state_dict().items()}
    stream(adapter, batches(kind, 3))
    named = dict(inside.named_parameters())
    changed = {n for n, v in adapter.trained_values().items() if not torch.equal(v, named[n])}
    assert changed == declared(row, set(named))
    assert differing(inside.state_dict(), before) == []  # what is learned is in the state
    assert all(p.grad is None and not p.requires_grad for p in adapter.parameters())


needing_source = [row for row in ROWS if row.needs_source]


@pytest.mark.parametrize("row", [r for r in needing_source if not r.layers], ids=lambda r: r.id)
def test_no_running_statistics_is_refused_where_they_are_needed(row: Row, network: Build) -> None:
    with pytest.raises(ValueError, match="track_running_stats"):
        row.adapt(network("untracked"))


@pytest.mark.parametrize("row", [r for r in needing_source if r.layers], ids=lambda r: r.id)
def test_layers_left_out_need_running_statistics(row: Row, network: Build, batches: Draw) -> None:
    x = batches()[0]
    with pytest.raises((ValueError, RuntimeError), match="track_running_stats"):
        row.adapt(network("untracked"))(x)

"""Conversion of any network: what is kept, what is refused, and the way back."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import pytest
import torch
from methods_table import KINDS
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import driftnorm
from driftnorm.adapter._layers import AdaptiveBatchNorm
from driftnorm.adapter._surgery import convert, find_batch_norms

Build = Callable[..., nn.Module]
Draw = Callable[..., list[Tensor]]
FORMULA_OF_ITS_OWN = ("frozen",)  # folds scale and shift first: equal up to rounding


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "untracked"])
def test_conversion_keeps_the_output(kind: str, network: Build, batches: Draw) -> None:
    plain, x = network(kind), batches(kind)[0]
    expected = plain(x)
    convert(plain)
    assert not any(isinstance(m, _BatchNorm) for m in plain.modules())
    if kind in FORMULA_OF_ITS_OWN:
        torch.testing.assert_close(plain(x), expected, rtol=1e-5, atol=1e-6)
    else:
        assert torch.equal(plain(x), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(kind: str, dtype: torch.dtype, network: Build, batches: Draw) -> None:
    plain, x = network(kind).to(dtype), batches(kind)[0].to(dtype)
    expected = plain(x)
    adapter = driftnorm.adapt(plain, "bn" if kind == "untracked" else "source", guard="off")
    answer = adapter(x)
    assert answer.dtype == dtype
    loose = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(answer, expected, **loose)
    wide = torch.promote_types(dtype, torch.float32)
    for memory in adapter.state["layers"].values():
        assert memory["mean"].dtype == memory["var"].dtype == wide
    for layer in adapter.converted.layers.values():
        assert layer.precision == dtype
        if layer.weight is not None:
            assert layer.weight.dtype == wide  # small steps would be lost in less
    assert {p.dtype for p in adapter.bake().parameters()} <= {dtype}


@pytest.mark.parametrize("kind", KINDS)
def test_names_eps_and_values_are_kept(kind: str, network: Build) -> None:
    plain = network(kind)
    for module in find_batch_norms(plain).values():
        module.eps = 0.02
    originals = find_batch_norms(plain)
    converted = copy.deepcopy(plain)
    layers = convert(converted).layers
    assert layers.keys() <= originals.keys()
    for name in originals:
        layer, original = converted.get_submodule(name), originals[name]
        assert isinstance(layer, AdaptiveBatchNorm)
        assert layer.eps == 0.02
        pairs = [("weight", "weight"), ("bias", "bias")]
        pairs += [("source_mean", "running_mean"), ("source_var", "running_var")]
        for own, theirs in pairs:
            value, given = getattr(layer, own), getattr(original, theirs)
            assert (value is None) == (given is None)
            assert given is None or torch.equal(value, given)


def test_shared_layers_stay_shared(network: Build) -> None:
    aliased = network("aliased")
    convert(aliased)
    assert aliased.bn1 is aliased.bn2


def test_shared_affine_parameters_stay_shared(network: Build, batches: Draw) -> None:
    plain = network()  # as in domain-specific batch norm: own statistics, common scale
    plain.bn2.weight = plain.bn1.weight
    adapter = driftnorm.adapt(plain, "tent", lr=0.1, guard="off")
    adapter(batches()[0])
    for network_now in (adapter.converted.network, adapter.bake()):
        assert network_now.bn1.weight is network_now.bn2.weight
        assert network_now.bn1.bias is not network_now.bn2.bias
    assert not torch.equal(adapter.bake().bn1.weight, plain.bn1.weight)


def test_shared_blocks_stay_shared(batches: Draw) -> None:
    block = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3))
    outer = nn.Sequential(block, nn.ReLU(), nn.ModuleDict({"again": block})["again"])
    plain = nn.Sequential(outer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)).eval()
    adapter = driftnorm.adapt(plain, "gprebn", guard="off")
    adapter(batches()[0])
    for network in (adapter.converted.network, adapter.bake()):
        assert network[0][0] is network[0][2]
        assert network[0][0][1] is network[0][2][1]
    first = next(iter(adapter.state["layers"].values()))
    assert first["batches"] == 2  # once for each use in the pass


def test_deeply_nested_network(batches: Draw) -> None:
    inner: nn.Module = nn.BatchNorm2d(3)
    for _ in range(4):
        inner = nn.Sequential(nn.Identity(), inner)
    plain = nn.Sequential(inner, nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    adapter = driftnorm.adapt(plain, "bn", guard="off")
    assert list(adapter.converted.layers) == ["0.1.1.1.1"]
    torch.testing.assert_close(adapter(batches()[0]).mean(dim=0), torch.zeros(3), atol=1e-5, rtol=0)


def test_subclass_without_a_forward_of_its_own_is_known(network: Build, batches: Draw) -> None:
    class Renamed(nn.BatchNorm2d):
        pass

    plain, x = network(), batches()[0]
    expected = driftnorm.adapt(plain, "bn", guard="off")(x)
    plain.bn1.__class__ = Renamed
    adapter = driftnorm.adapt(plain, "bn", guard="off")
    assert torch.equal(adapter(x), expected)
    assert type(adapter.bake().bn1) is Renamed


def test_hooks_are_kept(network: Build, batches: Draw) -> None:
    plain, x = network(), batches()[0]
    seen: list[str] = []
    plain.bn1.register_forward_pre_hook(lambda module, args: seen.append("before"))
    plain.bn1.register_forward_hook(
        lambda module, args, kwargs, output: seen.append("after"), with_kwargs=True
    )
    plain.bn2.register_forward_hook(lambda module, args, output: output + 1)
    changed = plain(x)
    for answer in (
        driftnorm.adapt(plain, "source", channels_last=False)(x),
        driftnorm.adapt(plain, "source", channels_last=False).bake()(x),
    ):
        assert torch.equal(answer, changed)
    assert set(seen) == {"before", "after"}
    assert seen.count("before") == seen.count("after") >= 3


def test_fx_graph_module(network: Build, batches: Draw) -> None:
    plain, data = network(), batches()
    traced = torch.fx.symbolic_trace(plain).eval()
    adapters = [driftnorm.adapt(n, "gprebn+rt3a", guard="off", lr=0.1) for n in (plain, traced)]
    for x in data:
        assert torch.equal(adapters[0](x), adapters[1](x))


# ------------------------------------------------------------------ refused


def test_lazy_layer_is_refused() -> None:
    lazy = nn.Sequential(nn.Conv2d(3, 4, 1), nn.LazyBatchNorm2d()).eval()
    with pytest.raises(TypeError, match=r"`1` is a LazyBatchNorm2d .* run one batch"):
        driftnorm.adapt(lazy, "bn")


def test_unknown_subclass_is_refused(network: Build) -> None:
    class Scaled(nn.BatchNorm2d):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    plain = network()
    plain.bn2 = Scaled(6).eval()
    with pytest.raises(TypeError, match=r"`bn2` is a .*Scaled.* forward of its own"):
        driftnorm.adapt(plain, "bn")


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn", "alpha-bn", "bn-prior", "gprebn+t3a"])
def test_network_without_batch_norm(method: str, network: Build) -> None:
    with pytest.raises(driftnorm.NoBatchNormError, match=r"GroupNorm x2.*t3a") as caught:
        driftnorm.adapt(network("normless"), method)
    assert "PixelNet" in str(caught.value)


@pytest.mark.parametrize("method", ["source", "t3a", "rt3a", "pl", "pl-c", "shot", "shot-im"])
def test_methods_that_need_no_batch_norm(method: str, network: Build, batches: Draw) -> None:
    adapter = driftnorm.adapt(network("normless"), method, guard="off")
    assert adapter(batches()[0]).isfinite().all()


@pytest.mark.parametrize("method", ["tent", "gprebn"])
def test_nothing_to_train(method: str) -> None:
    plain = nn.Sequential(nn.BatchNorm1d(3, affine=False), nn.Linear(3, 2)).eval()
    with pytest.raises(ValueError, match="trainable='affine'"):
        driftnorm.adapt(plain, method)


def test_a_bare_layer_is_refused() -> None:
    layer = nn.BatchNorm1d(4).eval()
    with pytest.raises(TypeError, match=r"nn\.Sequential"):
        driftnorm.adapt(layer, "bn")
    assert not layer._modules


def test_an_adapter_is_not_adapted_again(network: Build) -> None:
    adapter = driftnorm.adapt(network(), "bn").eval()
    with pytest.raises(TypeError, match="adapted already"):
        driftnorm.adapt(adapter, "bn")


def test_network_that_cannot_be_copied(network: Build, batches: Draw) -> None:
    plain = network()
    plain.lock = threading.Lock()
    with pytest.raises(TypeError, match="inplace=True"):
        driftnorm.adapt(plain, "bn")
    assert driftnorm.adapt(plain, "bn", inplace=True, guard="off")(batches()[0]).isfinite().all()


@pytest.mark.parametrize("method", ["bn", "tent", "gprebn"])
def test_untracked_network_runs_with_target_statistics(
    method: str, network: Build, batches: Draw
) -> None:
    plain, x = network("untracked"), batches()[0]
    # Such a layer always used its batch; the first batch of these methods does the same.
    answer = driftnorm.adapt(plain, method, guard="off")(x)
    torch.testing.assert_close(answer, plain(x), rtol=1e-4, atol=1e-5)


def test_untracked_network_before_any_batch(network: Build, batches: Draw) -> None:
    plain, x = network("untracked"), batches()[0]
    adapter = driftnorm.adapt(plain, "gprebn", guard="off").freeze()
    torch.testing.assert_close(adapter.bake()(x), plain(x))
    torch.testing.assert_close(adapter(x), plain(x), rtol=1e-4, atol=1e-5)

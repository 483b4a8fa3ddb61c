"""gprebn against eq. 6 written out, its six invariants, and every way that it can be called."""

import os
import shutil

import pytest
import reference
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from driftnorm import functional
from driftnorm.functional import Moments, batch_moments, gprebn, normalize

SHAPES = {"1d": (7, 5), "sequence": (4, 5, 6), "2d": (4, 5, 3, 2), "3d": (3, 5, 2, 3, 2)}
EPS = 1e-3  # large, so that a forgotten or doubled eps shows
STATISTICS_KERNEL = "aten::batch_norm_update_stats"
BACKWARD_KERNEL = "aten::native_batch_norm_backward"

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def draw(shape, seed=0, dtype=torch.float64):
    """x (off centre, channels of unlike spread), mean, var, weight and bias."""
    g = torch.Generator().manual_seed(seed)
    channels = shape[1]

    def normal(*size):
        return torch.randn(*size, generator=g, dtype=torch.float64)

    scale = torch.rand(channels, generator=g, dtype=torch.float64) * 2 + 0.2
    x = normal(*shape)
    x = x * reference.wide(scale, x) + reference.wide(normal(channels), x)
    var = torch.rand(channels, generator=g, dtype=torch.float64) * 2 + 0.3
    values = (x, normal(channels), var, normal(channels), normal(channels))
    return [value.to(dtype) for value in values]


def upstream(shape, seed=100):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outcome(function, x, mean, var, weight=None, bias=None, eps=EPS, grad=None, **options):
    """The value and the gradients of x, weight and bias (where they are given)."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, weight, bias)]
    y = function(leaves[0], mean, var, leaves[1], leaves[2], eps, **options)
    grad = upstream(x.shape).to(y.dtype) if grad is None else grad
    given_leaves = [t for t in leaves if t is not None]
    return [y.detach(), *torch.autograd.grad(y, given_leaves, grad)]


def assert_same(left, right, rtol=1e-10, atol=1e-10):
    torch.testing.assert_close(left, right, rtol=rtol, atol=atol)


class Recorder(TorchDispatchMode):
    """Remembers the name of every kernel that runs."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


# ---------------------------------------------------------------- eq. 6, value and gradient


@every_shape
def test_gradcheck_of_the_stop_gradient_formula(shape):
    # A numeric derivative knows no stop-gradient. So sg(mu_c) and sg(s_c) are held at x0 here, by
    # statistics that move with x such that (x - mean(x)) / s(x) is eq. 6 with both of them fixed.
    x, mean, var, weight, bias = draw(shape)
    mu_0, v_0 = reference.own_moments(x)
    s_0, s = (v_0 + EPS).sqrt(), (var + EPS).sqrt()

    def held(x, weight, bias):
        mu_c, v_c = reference.own_moments(x.detach())
        ratio = (v_c + EPS).sqrt() / s_0
        moving_mean, moving_var = mu_c - (mu_0 - mean) * ratio, (s * ratio).square() - EPS
        return gprebn(x, moving_mean, moving_var, weight, bias, EPS)

    leaves = [t.clone().requires_grad_() for t in (x, weight, bias)]
    assert_same(held(*leaves), gprebn(x, mean, var, weight, bias, EPS))
    assert torch.autograd.gradcheck(held, leaves)


@every_shape
def test_gradcheck_with_the_batch_s_own_statistics(shape):
    x, _, _, weight, bias = draw(shape)

    def own(x, weight, bias):
        return gprebn(x, *batch_moments(x)[:2], weight, bias, EPS)

    assert torch.autograd.gradcheck(own, [t.requires_grad_() for t in (x, weight, bias)])


@every_shape
@pytest.mark.parametrize("kept", ["weight and bias", "weight", "bias", "neither"])
def test_value_and_gradients_are_those_of_the_literal_formula(shape, kept):
    x, mean, var, weight, bias = draw(shape)
    weight = weight if "weight" in kept else None
    bias = bias if "bias" in kept else None
    assert_same(
        outcome(gprebn, x, mean, var, weight, bias),
        outcome(reference.literal_gprebn, x, mean, var, weight, bias),
    )


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(
    samples=st.integers(2, 6),
    channels=st.integers(1, 4),
    positions=st.lists(st.integers(1, 3), max_size=3),
    eps=st.sampled_from([1e-8, 1e-5, 0.1]),
    seed=st.integers(0, 1000),
)
def test_literal_formula_for_any_shape_and_eps(samples, channels, positions, eps, seed):
    inputs = draw((samples, channels, *positions), seed)
    assert_same(
        outcome(gprebn, *inputs, eps=eps),
        outcome(reference.literal_gprebn, *inputs, eps=eps),
        rtol=1e-7,
        atol=1e-8,
    )


@pytest.mark.parametrize("trained", ["x", "weight", "bias"])
def test_each_gradient_alone(trained):
    x, mean, var, weight, bias = draw((6, 5, 3))
    leaves = {"x": x, "weight": weight, "bias": bias}
    leaves[trained].requires_grad_()
    answers = [
        torch.autograd.grad(f(x, mean, var, weight, bias, EPS), leaves[trained], upstream(x.shape))
        for f in (gprebn, reference.literal_gprebn)
    ]
    assert_same(*answers)


# ---------------------------------------------------------------- the six invariants


@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("with_affine", [True, False])
def test_invariant_1_value_is_eval_mode_bit_for_bit(shape, dtype, with_affine):
    x, *others = draw(shape)
    x = x.to(dtype)
    mean, var, weight, bias = (t.to(torch.promote_types(dtype, torch.float32)) for t in others)
    if not with_affine:
        weight = bias = None
    expected = F.batch_norm(x, mean, var, weight, bias, training=False, eps=EPS)
    assert torch.equal(gprebn(x, mean, var, weight, bias, EPS), expected)
    assert torch.equal(outcome(gprebn, x, mean, var, weight, bias)[0], expected)
    with torch.inference_mode():
        assert torch.equal(gprebn(x, mean, var, weight, bias, EPS), expected)


@every_shape
def test_invariant_2_no_gradient_along_the_batch_mean(shape):
    grad_x = outcome(gprebn, *draw(shape))[1]
    assert float(grad_x.abs().max()) > 1e-2
    assert_same(grad_x.sum(reference.axes(grad_x)), torch.zeros(shape[1]).double())


@every_shape
@pytest.mark.parametrize("eps", [1e-5, 1e-2, 1.0])
def test_invariant_3_exact_eps_identity(shape, eps):
    x, mean, var, weight, bias = draw(shape)
    grad_x = outcome(gprebn, x, mean, var, weight, bias, eps)[1]
    mu_c, v_c = reference.own_moments(x)
    s_c, s = (v_c + eps).sqrt(), (var + eps).sqrt()
    xhat = (x - reference.wide(mu_c, x)) / reference.wide(s_c, x)
    arriving = upstream(shape) * reference.wide(weight * s_c / s, x)  # gradient at xhat
    axes = reference.axes(x)
    expected = eps / (v_c + eps) / s_c * (arriving * xhat).sum(axes)
    assert_same((xhat * grad_x).sum(axes), expected)


@every_shape
def test_invariant_4_affine_gradients_are_those_of_plain_batch_norm(shape):
    inputs = draw(shape)
    preserved, plain = outcome(gprebn, *inputs), outcome(reference.plain_bn, *inputs)
    assert_same(preserved[2:], plain[2:])
    assert_same(preserved[2:], outcome(normalize, *inputs)[2:])
    assert not torch.allclose(preserved[1], plain[1])


@every_shape
def test_invariant_5_input_gradient_is_tents_times_s_c_over_s(shape):
    x, mean, var, weight, bias = draw(shape)
    leaf = x.clone().requires_grad_()
    tent = torch.autograd.grad(reference.tent_bn(leaf, weight, bias, EPS), leaf, upstream(shape))[0]
    ratio = ((reference.own_moments(x)[1] + EPS) / (var + EPS)).sqrt()
    assert_same(outcome(gprebn, x, mean, var, weight, bias)[1], tent * reference.wide(ratio, x))


@every_shape
def test_invariant_6_detached_batch_statistics_are_bn_de(shape):
    x, _, _, weight, bias = draw(shape)
    mu_c, v_c = reference.own_moments(x)  # x carries no gradient here: both are constants
    detached = outcome(normalize, x, *batch_moments(x)[:2], weight, bias)
    assert_same(detached, outcome(reference.plain_bn, x, mu_c, v_c, weight, bias))
    scale = reference.wide(weight / (v_c + EPS).sqrt(), x)
    assert_same(detached[1], upstream(shape) * scale)
    assert_same(detached[0], reference.tent_bn(x, weight, bias, EPS))


@every_shape
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_with_the_batch_s_own_statistics_it_is_native_training_mode(shape, dtype, tolerance):
    x, _, _, weight, bias = draw(shape, dtype=dtype)

    def native(x, mean, var, weight, bias, eps):
        return F.batch_norm(x, None, None, weight, bias, training=True, eps=eps)

    mean, var, *_ = batch_moments(x)
    ours, natives = (outcome(f, x, mean, var, weight, bias) for f in (gprebn, native))
    assert_same(ours, natives, rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------- dtypes and layouts


@every_shape
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 3e-3)]
)
@pytest.mark.parametrize("affine_dtype", ["same", "statistics"])
def test_narrow_dtypes_stay_close_to_float64(shape, dtype, tolerance, affine_dtype):
    x, mean, var, weight, bias = draw(shape)
    x, mean, var = x.to(dtype), mean.float(), var.float()
    kind = dtype if affine_dtype == "same" else torch.float32
    weight, bias = weight.to(kind), bias.to(kind)
    grad = upstream(shape).to(dtype)
    answers = outcome(gprebn, x, mean, var, weight, bias, grad=grad)
    assert [t.dtype for t in answers] == [dtype, dtype, kind, kind]
    exact = [t.double() for t in (x, mean, var, weight, bias)]
    expected = outcome(reference.literal_gprebn, *exact, grad=grad.double())
    for answer, right in zip(answers, expected, strict=True):
        size = float(right.abs().max())
        assert_same(answer.double(), right, rtol=tolerance, atol=tolerance * size)


def test_float64_affine_parameters_on_float32_activations():
    x, mean, var, weight, bias = draw((6, 5, 3))
    narrow = outcome(gprebn, x.float(), mean, var, weight, bias)
    assert [t.dtype for t in narrow] == [torch.float32] * 2 + [torch.float64] * 2
    expected = outcome(gprebn, x, mean, var, weight, bias)
    assert_same([t.double() for t in narrow], expected, rtol=1e-4, atol=1e-4)


@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_batch_moments_are_wide_and_right(shape, dtype):
    x = draw(shape)[0].to(dtype)
    moments = batch_moments(x.requires_grad_())
    expected_mean, expected_var = reference.moments_by_loop(x)
    wide = torch.promote_types(dtype, torch.float32)
    assert moments.mean.dtype == moments.var.dtype == wide
    assert not moments.mean.requires_grad
    assert not moments.var.requires_grad
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert_same(moments.mean.double(), expected_mean, rtol=tolerance, atol=tolerance)
    assert_same(moments.var.double(), expected_var, rtol=tolerance, atol=tolerance)
    assert (moments.values, moments.samples) == (x.numel() // shape[1], shape[0])


@pytest.mark.parametrize("native", [True, False])
def test_moments_survive_squares_beyond_float16_and_a_far_mean(native, monkeypatch):
    if not native:
        monkeypatch.setattr(functional, "NATIVE_DEVICES", frozenset())
    large = (draw((50, 3), seed=3)[0] * 400).half()
    far = (draw((50, 3, 4), seed=3)[0] + 1000).float()
    for x, tolerance in ((large, 1e-5), (far, 1e-4)):
        expected = reference.moments_by_loop(x)[1]
        assert_same(batch_moments(x).var.double(), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "lanes"),
    [((64, 16, 16, 16), 8), ((64, 3, 28, 28), 16), ((32, 24, 15, 14), 2), ((64, 31, 9, 9), 1)],
)
def test_moments_of_few_channels_are_measured_in_lanes_and_right(shape, lanes, dtype):
    x = (draw(shape, seed=5)[0] + 3).to(dtype).contiguous(memory_format=torch.channels_last)
    assert functional._lanes(x) == lanes
    assert functional._lanes(x.contiguous()) == 1
    moments = batch_moments(x.requires_grad_())
    assert not moments.mean.requires_grad
    assert not moments.var.requires_grad
    wide = x.detach().double()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    dims = (0, 2, 3)
    assert_same(moments.mean.double(), wide.mean(dims), rtol=tolerance, atol=tolerance)
    expected = wide.var(dims, correction=0)
    assert_same(moments.var.double(), expected, rtol=tolerance, atol=tolerance)


LAYOUTS = {
    "contiguous": ((4, 5, 3, 2), torch.contiguous_format),
    "channels_last": ((4, 5, 3, 2), torch.channels_last),
    "channels_last_3d": ((3, 5, 2, 3, 2), torch.channels_last_3d),
}


@pytest.mark.parametrize(("shape", "layout"), LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grad_layout", ["same", "contiguous"])
def test_layout_is_preserved_and_does_not_change_numbers(shape, layout, dtype, grad_layout):
    x, *others = draw(shape)
    others = [t.to(torch.promote_types(dtype, torch.float32)) for t in others]
    plain = x.to(dtype)
    arranged = plain.contiguous(memory_format=layout)
    grad = upstream(shape).to(dtype)
    if grad_layout == "same":
        grad = grad.contiguous(memory_format=layout)
    answers = outcome(gprebn, arranged, *others, grad=grad)
    assert all(t.is_contiguous(memory_format=layout) for t in answers[:2])
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    assert_same(answers, outcome(gprebn, plain, *others), rtol=tolerance, atol=tolerance)


NOT_DENSE = {
    "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
    "strided": lambda t: torch.stack([t, -t], dim=-1)[..., 0],
    "permuted": lambda t: t.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1),
}


@pytest.mark.parametrize("rearranged", NOT_DENSE.values(), ids=NOT_DENSE)
def test_inputs_and_gradients_that_are_not_contiguous(rearranged):
    x, *others = draw(SHAPES["2d"])
    grad = upstream(x.shape)
    odd_x, odd_grad = rearranged(x), rearranged(grad)
    assert not odd_x.is_contiguous()
    expected = outcome(gprebn, x, *others, grad=grad)
    assert_same(outcome(gprebn, odd_x, *others, grad=grad), expected)
    assert_same(outcome(gprebn, x, *others, grad=odd_grad), expected)


def test_expanded_gradient_of_a_plain_sum():
    inputs = draw(SHAPES["2d"])
    ones = torch.ones((), dtype=torch.float64).expand(SHAPES["2d"])  # every stride is zero
    expected = outcome(reference.literal_gprebn, *inputs, grad=ones)
    assert_same(outcome(gprebn, *inputs, grad=ones), expected)


# ---------------------------------------------------------------- purity, memory, double backward


def test_nothing_is_changed_and_the_statistics_get_no_gradient():
    inputs = draw((6, 5, 3))
    before = [t.clone() for t in inputs]
    outcome(gprebn, *inputs)
    assert all(map(torch.equal, inputs, before))
    x, mean, var, weight, bias = (t.requires_grad_() for t in inputs)
    gprebn(x, mean, var, weight, bias).sum().backward()
    assert mean.grad is None
    assert var.grad is None
    constants = [x.detach(), mean, var, weight.detach(), bias.detach()]
    assert not gprebn(*constants).requires_grad


def test_given_moments_are_used_and_save_the_statistics_pass():
    x, *others = draw(SHAPES["2d"])
    with Recorder() as alone:
        expected = outcome(gprebn, x, *others)
    moments = batch_moments(x)
    with Recorder() as helped:
        answers = outcome(gprebn, x, *others, moments=moments)
    assert_same(answers, expected, rtol=0, atol=0)
    assert alone.names.count(STATISTICS_KERNEL) == 1
    assert STATISTICS_KERNEL not in helped.names


def saved_full_size(function, x, *others):
    saved = []

    def keep(tensor):
        saved.append(tensor)
        return tensor

    leaves = [t.requires_grad_() for t in others[2:]]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        function(x.requires_grad_(), *others[:2], *leaves, EPS)
    return [t for t in saved if t.numel() >= x.numel()]


def test_only_x_is_kept_for_the_backward_pass():
    x, *others = draw(SHAPES["2d"])
    (kept,) = saved_full_size(gprebn, x, *others)
    assert kept.data_ptr() == x.data_ptr()
    assert len(saved_full_size(reference.literal_gprebn, *draw(SHAPES["2d"]))) > 1


@pytest.mark.parametrize("loss", [torch.square, lambda y: y * upstream(y.shape)])
def test_double_backward_is_refused_instead_of_wrong(loss):
    x, mean, var, weight, bias = draw((6, 5))
    x.requires_grad_()
    total = loss(gprebn(x, mean, var, weight, bias)).sum()
    # x itself has a gradient too, so a forgotten path would go unnoticed.
    with pytest.raises(RuntimeError, match=r"twice|second"):  # noqa: PT012  either step may refuse
        (grad_x,) = torch.autograd.grad(total, x, create_graph=True)
        (grad_x.square().sum() + x.sum()).backward()


# ---------------------------------------------------------------- devices without native kernels


@every_shape
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("with_affine", [True, False])
def test_fallback_gives_the_same_values_and_gradients(shape, dtype, with_affine, monkeypatch):
    x, *others = draw(shape)
    wide = torch.promote_types(dtype, torch.float32)
    inputs = [x.to(dtype), *(t.to(wide) for t in others[: 4 if with_affine else 2])]
    expected = outcome(gprebn, *inputs)
    monkeypatch.setattr(functional, "NATIVE_DEVICES", frozenset())
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}[dtype]
    answers = outcome(gprebn, *inputs)
    assert_same(answers, expected, rtol=tolerance, atol=tolerance)
    assert torch.equal(answers[0], expected[0])


def test_fallback_never_calls_the_native_kernels(monkeypatch):
    with Recorder() as native:
        outcome(gprebn, *draw(SHAPES["2d"]))
    assert {STATISTICS_KERNEL, BACKWARD_KERNEL} <= set(native.names)
    monkeypatch.setattr(functional, "NATIVE_DEVICES", frozenset())
    with Recorder() as fallback:
        outcome(gprebn, *draw(SHAPES["2d"]))
    assert not {STATISTICS_KERNEL, BACKWARD_KERNEL} & set(fallback.names)


# ---------------------------------------------------------------- torch.compile and torch.export


@pytest.fixture
def compiler():
    torch.compiler.reset()
    yield torch.compile
    torch.compiler.reset()


def has_cpp_compiler():
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))


needs_cpp = pytest.mark.skipif(not has_cpp_compiler(), reason="inductor needs a C++ compiler")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, inside its compiler
@pytest.mark.parametrize(
    "backend", ["eager", "aot_eager", pytest.param("inductor", marks=needs_cpp)]
)
def test_compiled_gives_the_same_values_and_gradients(backend, compiler):
    compiled = compiler(gprebn, backend=backend, fullgraph=True)
    inputs = draw(SHAPES["2d"])
    assert_same(outcome(compiled, *inputs), outcome(gprebn, *inputs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_once_serves_other_batch_sizes_and_no_grad(compiler):
    compiled = compiler(gprebn, backend="aot_eager", fullgraph=True, dynamic=True)
    for samples in (4, 9):
        inputs = draw((samples, 5, 3, 2))
        assert_same(outcome(compiled, *inputs), outcome(gprebn, *inputs))
    with torch.no_grad():
        assert_same(compiled(*inputs), gprebn(*inputs))


class Layer(torch.nn.Module):
    def __init__(self, mean, var, weight, bias):
        super().__init__()
        self.weight, self.bias = torch.nn.Parameter(weight), torch.nn.Parameter(bias)
        self.register_buffer("mean", mean)
        self.register_buffer("var", var)

    def forward(self, x):
        return gprebn(x, self.mean, self.var, self.weight, self.bias, EPS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("trainable", [True, False])
def test_exported_gives_the_same_values_for_any_batch_size(strict, trainable):
    x, *others = draw(SHAPES["2d"])
    layer = Layer(*others).requires_grad_(trainable)
    samples = {0: torch.export.Dim("samples", min=2)}
    program = torch.export.export(layer, (x,), dynamic_shapes=(samples,), strict=strict)
    more = draw((11, 5, 3, 2), seed=1)[0]
    assert torch.equal(program.module()(more), layer(more))


# ---------------------------------------------------------------- edges and errors


def test_constant_channel_and_single_value_have_finite_gradients():
    x, *others = draw((6, 5, 3))
    x[:, 2] = 7.0
    answers = outcome(gprebn, x, *others)
    assert all(bool(t.isfinite().all()) for t in answers)
    assert_same(answers, outcome(reference.literal_gprebn, x, *others))
    single = outcome(gprebn, *draw((1, 5)))
    assert torch.equal(single[1], torch.zeros(1, 5).double())


WRONG = {
    "x": {"x": torch.zeros(5)},
    "mean": {"mean": torch.zeros(4)},
    "var": {"var": torch.ones(5, 1)},
    "weight": {"weight": torch.ones(4)},
    "weight of two axes": {"weight": torch.ones(5, 1)},
    "bias": {"bias": torch.ones(4)},
    "bias of two axes": {"bias": torch.ones(5, 1)},
    "moments": {"moments": Moments(torch.zeros(4), torch.ones(4))},
    # Not broadcast: the native kernel would read beyond the end of it.
    "moments of one value": {"moments": Moments(torch.zeros(1), torch.ones(1))},
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_shapes_are_named(wrong):
    names = ("x", "mean", "var", "weight", "bias")
    arguments = dict(zip(names, draw((6, 5), dtype=torch.float32), strict=True)) | wrong
    arguments["x"].requires_grad_()
    (name,) = wrong
    with pytest.raises(ValueError, match=f"`{name}"):
        gprebn(**arguments)

"""Weight evolution and the dense halves of layers against the plain torch form in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kernel_checks import refuses, same_bits
from kinks import away_from_kinks
from torch import Tensor
from torch.nn import functional

from dgbench.kernels_cuda.layers import dense_norm, frame_dense
from dgbench.kernels_cuda.scan import evolve_gru, plain_gates, time_lstm_gates
from dgbench.runtime.errors import UnsupportedError

WIDTHS = st.sampled_from([1, 2, 3, 8, 16, 17, 32, 33])


def draws(seed, *shapes, dtype=torch.float32):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=made, dtype=torch.float64).to(dtype) for s in shapes]


def evolve_inputs(rows, out, seed, dtype=torch.float32):
    shapes = [(rows, out), (3 * out, out), (3 * out, out), (3 * out,), (3 * out,)]
    tensors = draws(seed, *shapes, dtype=dtype)
    return [t * (out**-0.5 if i in (1, 2) else 0.5) for i, t in enumerate(tensors)]


def norm_inputs(rows, features, hidden, seed, dtype=torch.float32):
    return draws(seed, (rows, features), (features, hidden), *[(hidden,)] * 3, dtype=dtype)


def run(function, inputs):
    """The output, and gradients of a weighted sum of it: zeros where it needs nothing."""
    leaves = [t.detach().requires_grad_() for t in inputs]
    out = function(*leaves)
    (weights,) = draws(5, tuple(out.shape), dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad(
        (out * weights).sum() + 0 * sum(t.sum() for t in leaves), leaves
    )]  # fmt: skip


def assert_same(fused, plain, inputs, tolerance=1e-5):
    """Output and all gradients of a weighted sum, relative to the norm in float64."""
    doubles = [t.double() for t in inputs]
    exact = run(plain, doubles)
    # A gradient may be a difference of large sums (before a norm), so the largest norm counts.
    scale = [float(t.norm()) for t in exact]
    sizes = [scale[0]] + [max(scale[1:])] * (len(scale) - 1)
    for given_inputs, bar in ((inputs, tolerance), (doubles, 1e-9 * tolerance / 1e-5)):
        for a, b, size in zip(run(fused, given_inputs), exact, sizes, strict=True):
            assert a.shape == b.shape
            assert float((a.double() - b).norm()) <= bar * size + 1e-12


def evolve_plain(initial, w_ih, w_hh, b_ih, b_hh, steps):
    weight, out = initial, []
    for _ in range(steps):
        weight = torch.gru_cell(weight, weight, w_ih, w_hh, b_ih, b_hh)
        out.append(weight)
    return torch.stack(out) if out else initial.new_empty(0, *initial.shape)


def frame_dense_plain(a, w, relu):
    out = torch.bmm(a, w)
    return torch.relu(out) if relu else out


def dense_norm_plain(a, w, bias, gain, shift):
    return functional.batch_norm(torch.relu(a @ w + bias), None, None, gain, shift, training=True)


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 20), out=WIDTHS, steps=st.integers(0, 17), seed=st.integers(0, 9999))
def test_evolution_matches_the_cell(rows, out, steps, seed):
    inputs = evolve_inputs(rows, out, seed)
    assert_same(lambda *t: evolve_gru(*t, steps), lambda *t: evolve_plain(*t, steps), inputs)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.sampled_from([0, 1, 3, 16, 70]), rows=st.sampled_from([0, 1, 5, 48, 49, 170, 400]),
    features=WIDTHS, hidden=WIDTHS, relu=st.booleans(), seed=st.integers(0, 9999),
)  # fmt: skip
def test_frame_dense_matches(steps, rows, features, hidden, relu, seed):
    inputs = draws(seed, (steps, rows, features), (steps, features, hidden))
    plain = partial(frame_dense_plain, relu=relu)
    assume(away_from_kinks(plain, inputs))
    assert_same(partial(frame_dense, relu=relu), plain, inputs)


@settings(max_examples=50, deadline=None)
@example(rows=500, features=16, hidden=8, seed=4857)  # 3e-8 from a kink
@example(rows=3, features=32, hidden=16, seed=4857)  # a mean of 52 times the spread
@given(
    rows=st.sampled_from([2, 3, 47, 48, 49, 500, 3101]), features=WIDTHS, hidden=WIDTHS,
    seed=st.integers(0, 9999),
)  # fmt: skip
def test_dense_norm_matches(rows, features, hidden, seed):
    inputs = norm_inputs(rows, features, hidden, seed)
    # A column that is nearly constant but not dead multiplies every rounding error by its mean over
    # its spread, in any float32 program; such columns have a test of their own below.
    a, w, bias = (t.double() for t in inputs[:3])
    columns = torch.relu(a @ w + bias)
    spread, mean = columns.std(dim=0, correction=0), columns.mean(dim=0)
    assume(bool(((spread == 0) | (spread > 0.05 * mean.clamp(min=2))).all()))
    assume(away_from_kinks(dense_norm_plain, inputs))
    assert_same(dense_norm, dense_norm_plain, inputs, 3e-5)


def test_dense_norm_keeps_digits_far_from_zero():
    """Columns whose mean is a thousand times their spread; torch's float32 loses them."""
    a, w, _, gain, shift = norm_inputs(5000, 4, 16, 1)
    bias = torch.full((16,), 3000.0)
    exact = dense_norm_plain(*(t.double() for t in (a, w, bias, gain, shift)))
    rounded = (a @ w + bias).double()  # what float32 can hold of the layer at all
    limit = float(((a.double() @ w.double() + bias) - rounded).norm()) * float(gain.abs().max())
    found = dense_norm(a, w, bias, gain, shift)
    assert float((found.double() - exact).norm()) <= 4 * limit


def test_a_column_that_never_fires_has_no_gradient():
    a, w, bias, gain, shift = norm_inputs(60, 4, 20, 2)
    bias[7] = -1e4
    leaf = w.requires_grad_()
    y = dense_norm(a, leaf, bias, gain, shift)
    assert torch.equal(y[:, 7], shift[7].expand(60))
    (grad,) = torch.autograd.grad(y.square().sum(), leaf)
    assert torch.equal(grad[:, 7], torch.zeros(4))


def test_same_bits_for_any_layout_of_a_gradient():
    inputs = [t.requires_grad_() for t in norm_inputs(100, 6, 16, 3)]
    (wide,) = draws(4, (100, 40))
    for grad in (wide[:, 3:19], wide[:, :16].t().contiguous().t(), torch.ones(1).expand(100, 16)):
        y = dense_norm(*inputs)
        apart = torch.autograd.grad(y, inputs, grad, retain_graph=True)
        same_bits([apart, torch.autograd.grad(y, inputs, grad.contiguous())])


def gate_inputs(rows, width, dtype):
    shapes = (rows, width), (rows, width), (rows, 4 * width), (rows,)
    c, pre, gates, fade = draws(rows + width, *shapes, dtype=torch.float64)
    return [x.to(dtype) for x in (c, pre, 2 * gates, fade.sigmoid())]


@pytest.mark.parametrize("rows", [0, 1, 300])
@pytest.mark.parametrize("width", [1, 5, 16, 70])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gates_of_the_time_lstm_are_those_of_torch(rows, width, dtype):
    inputs = gate_inputs(rows, width, dtype)
    ours, theirs = (
        run(lambda *t, call=call: torch.stack(call(*t)), inputs)
        for call in (time_lstm_gates, plain_gates)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_mistakes_are_named():
    a, w, bias, gain, shift = norm_inputs(10, 3, 4, 1)
    refuses(
        dense_norm, {"a": a, "w": w, "bias": bias, "gain": gain, "shift": shift},
        ("w", w.double()), ("gain", gain[:3]), ("a|rows", a[:1]),
    )  # fmt: skip
    refuses(
        frame_dense, {"a": torch.zeros(2, 5, 3), "w": torch.zeros(2, 3, 4)},
        ("w", torch.zeros(2, 4, 4)),
    )  # fmt: skip
    names = ("initial", "w_ih", "w_hh", "b_ih", "b_hh")
    refuses(
        evolve_gru, {**dict(zip(names, evolve_inputs(3, 4, 1), strict=True)), "steps": 2},
        ("initial|w_ih", torch.zeros(3, 5)), ("steps", -1),
    )  # fmt: skip
    c, pre, gates, fade = gate_inputs(3, 5, torch.float64)
    refuses(
        time_lstm_gates, {"c": c, "pre": pre, "gates": gates, "fade": fade},
        ("gates", gates[:, :5]), ("fade", fade.float()),
    )  # fmt: skip


# --- Evolution on a device ------------------------------------------------------------------------


CASES = [  # steps, rows, width, shared memory, processors
    (1, 1, 1, None, 9), (3, 6, 33, None, 9), (0, 4, 3, None, 9), (3, 0, 3, None, 9),
    (16, 16, 32, None, 132),  # the first layer of PEMS08
    (2, 3, 70, None, 9),  # more columns of gates than threads
    (3, 33, 5, None, 1),  # four rows a block, blocks that take several tiles
    (2, 34, 33, 7000, 1),  # gates beyond shared memory, four rows a block
    (2, 9, 33, 2000, 9),  # the same, one row a block
    (40, 30, 3, None, 9),  # many parts of the weights' gradients
]  # fmt: skip


def evolve_native(native, tensors: list[Tensor], steps: int, grad: Tensor) -> list[Tensor]:
    given, size = [native.put(t) for t in tensors], native.module.evolve_workspace_size
    shape = steps, *tensors[0].shape
    weights, grads = native.poisoned(*shape), [native.poisoned(*t.shape) for t in tensors]
    native.call("evolve_gru_forward", *given, weights, native.poisoned(size(*shape, False)))
    scratch = native.poisoned(size(*shape, True))
    native.call("evolve_gru_backward", *given, weights, native.put(grad), *grads, scratch)
    return [weights, *grads]


@pytest.mark.parametrize("case", CASES, ids=lambda c: "-".join(map(str, c)))
def test_evolution_on_a_device(native, emulate, case):
    steps, rows, width, shared, processors = case
    emulate(shared=shared, processors=processors)
    tensors, (grad,) = evolve_inputs(rows, width, 1), draws(5, (steps, rows, width))
    first, second = (evolve_native(native, tensors, steps, grad) for _ in range(2))
    right = run(partial(evolve_plain, steps=steps), [t.double() for t in tensors])
    for one, again, exact in zip(first, second, right, strict=True):
        torch.testing.assert_close(one.cpu().double(), exact, rtol=1e-4, atol=1e-4)
        assert torch.equal(one, again)


@pytest.mark.cuda
@pytest.mark.usefixtures("usable_device")
@pytest.mark.parametrize(("rows", "width"), [(16, 32), (32, 32), (1500, 40), (20, 256)])
def test_the_operator_replays_in_a_graph(graphed, rows, width):
    tensors, (grad,) = evolve_inputs(rows, width, 1), draws(5, (16, rows, width))
    leaves = [t.cuda().requires_grad_() for t in tensors]
    up = grad.cuda()

    def work() -> list[Tensor]:
        weights = evolve_gru(*leaves, 16)
        return [weights.detach(), *torch.autograd.grad(weights, leaves, up)]

    expected, results = graphed(work)
    assert all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
    exact = run(partial(evolve_plain, steps=16), [t.double() for t in tensors])
    for one, right in zip(results, exact, strict=True):
        scale = float(right.abs().max())
        torch.testing.assert_close(one.cpu().double(), right, rtol=1e-4, atol=1e-4 * scale)
    with pytest.raises(UnsupportedError, match="float32"):
        evolve_gru(*(t.double().cuda() for t in tensors), 2)

"""Weight evolution and the dense halves of layers against the plain torch form in float64."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from kinks import away_from_kinks
from torch import nn
from torch.nn import functional

from dgbench.kernels_cuda.layers import dense_norm, frame_dense
from dgbench.kernels_cuda.scan import evolve_gru
from dgbench.runtime.errors import InvalidInputError

WIDTHS = st.sampled_from([1, 2, 3, 8, 16, 17, 32, 33])


def draws(shapes, seed, dtype=torch.float32):
    made = torch.Generator().manual_seed(seed)
    return [torch.randn(s, generator=made, dtype=torch.float64).to(dtype) for s in shapes]


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


def evolve_inputs(rows, out, seed, dtype=torch.float32):
    shapes = [(rows, out), (3 * out, out), (3 * out, out), (3 * out,), (3 * out,)]
    tensors = draws(shapes, seed, dtype)
    return [t * (out**-0.5 if i in (1, 2) else 0.5) for i, t in enumerate(tensors)]


def norm_inputs(rows, features, hidden, seed, dtype=torch.float32):
    shapes = [(rows, features), (features, hidden), (hidden,), (hidden,), (hidden,)]
    return draws(shapes, seed, dtype)


def assert_same(fused, plain, inputs, tolerance=1e-5):
    """Output and all gradients of a weighted sum, relative to the norm in float64."""

    def run(function, dtype):
        leaves = [t.detach().to(dtype, copy=True).requires_grad_() for t in inputs]
        out = function(*leaves)
        weights = draws([tuple(out.shape)], 5)[0].to(dtype)
        return [out.detach(), *torch.autograd.grad((out * weights).sum(), leaves)]

    exact = run(plain, torch.float64)
    # A gradient may be a difference of large sums (before a norm), so each is held to the largest.
    scale = [float(t.norm()) for t in exact]
    sizes = [scale[0]] + [max(s, max(scale[1:])) for s in scale[1:]]
    for place, (a, b, size) in enumerate(zip(run(fused, torch.float32), exact, sizes, strict=True)):
        assert a.shape == b.shape
        assert float((a.double() - b).norm()) <= tolerance * size + 1e-12, place


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 20), out=WIDTHS, steps=st.integers(0, 17), seed=st.integers(0, 9999))
def test_evolution_matches_the_cell(rows, out, steps, seed):
    inputs = evolve_inputs(rows, out, seed)
    assert_same(
        lambda *t: evolve_gru(*t, steps), lambda *t: evolve_plain(*t, steps) + 0 * t[1].sum()
        + 0 * t[2].sum() + 0 * t[3].sum() + 0 * t[4].sum() + 0 * t[0].sum(), inputs
    )  # fmt: skip


def test_evolution_is_that_of_the_model():
    from dgbench.models import EvolveGcnO

    torch.manual_seed(3)
    layer = EvolveGcnO(5, 24).layer_1
    cell = layer.cell
    mine = evolve_gru(layer.initial, cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh, 16)
    assert isinstance(cell, nn.GRUCell)
    assert torch.allclose(mine, torch.stack(layer.evolve(16)), rtol=1e-5, atol=1e-6)


@settings(max_examples=50, deadline=None)
@given(
    steps=st.sampled_from([0, 1, 3, 16, 70]),
    rows=st.sampled_from([0, 1, 5, 48, 49, 170, 400]),
    features=WIDTHS,
    hidden=WIDTHS,
    relu=st.booleans(),
    seed=st.integers(0, 9999),
)
def test_frame_dense_matches(steps, rows, features, hidden, relu, seed):
    inputs = draws([(steps, rows, features), (steps, features, hidden)], seed)
    plain = partial(frame_dense_plain, relu=relu)
    assume(away_from_kinks(plain, inputs))
    assert_same(partial(frame_dense, relu=relu), plain, inputs)


@settings(max_examples=50, deadline=None)
@example(rows=500, features=16, hidden=8, seed=4857)  # 3e-8 from a kink
@example(rows=3, features=32, hidden=16, seed=4857)  # a mean of 52 times the spread
@given(
    rows=st.sampled_from([2, 3, 47, 48, 49, 500, 3101]),
    features=WIDTHS,
    hidden=WIDTHS,
    seed=st.integers(0, 9999),
)
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


def test_a_gradient_with_rows_apart_is_read_in_place():
    inputs = [t.requires_grad_() for t in norm_inputs(100, 6, 16, 3)]
    wide = draws([(100, 40)], 4)[0]
    for grad in (wide[:, 3:19], wide[:, :16].t().contiguous().t(), torch.ones(1).expand(100, 16)):
        y = dense_norm(*inputs)
        found = torch.autograd.grad(y, inputs, grad)
        wanted = torch.autograd.grad(dense_norm(*inputs), inputs, grad.contiguous())
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


CASES = {
    "evolve": (lambda *t: evolve_gru(*t, 3), lambda d: evolve_inputs(4, 5, 1, d)),
    "dense": (lambda a, w: frame_dense(a, w), lambda d: draws([(2, 5, 3), (2, 3, 4)], 1, d)),
    "relu": (lambda a, w: frame_dense(a, w, True), lambda d: draws([(2, 9, 3), (2, 3, 9)], 1, d)),
    "norm": (dense_norm, lambda d: norm_inputs(60, 3, 9, 1, d)),
}


@pytest.mark.parametrize("case", CASES)
def test_gradcheck(case):
    function, make = CASES[case]
    assert torch.autograd.gradcheck(function, [t.requires_grad_() for t in make(torch.float64)])


@pytest.mark.parametrize("wants", [False, True])
def test_opcheck(wants):
    ops = torch.ops.dgbench
    evolve = [t.requires_grad_(wants) for t in evolve_inputs(3, 4, 1)]
    torch.library.opcheck(ops.evolve_gru.default, (*evolve, 3))
    dense = [t.requires_grad_(wants) for t in draws([(2, 5, 3), (2, 3, 4)], 1)]
    torch.library.opcheck(ops.frame_dense.default, (*dense, True))
    norm = [t.requires_grad_(wants) for t in norm_inputs(50, 3, 5, 1)]
    torch.library.opcheck(ops.dense_norm.default, (*norm, 1e-5))


def test_same_bits_for_any_number_of_threads():
    dense = draws([(16, 3000, 16), (16, 16, 32)], 1)
    norm = norm_inputs(40_000, 16, 32, 2)

    def gradients(function, inputs):
        leaves = [t.clone().requires_grad_() for t in inputs]
        out = function(*leaves)
        return [out.detach(), *torch.autograd.grad(out.square().mul(out).sum(), leaves)]

    def run():
        return gradients(lambda a, w: frame_dense(a, w, True), dense) + gradients(dense_norm, norm)

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = run()
        for threads in (2, 3):
            torch.set_num_threads(threads)
            assert all(torch.equal(a, b) for a, b in zip(one, run(), strict=True))
    finally:
        torch.set_num_threads(before)


def test_mistakes_are_named():
    a, w, bias, gain, shift = norm_inputs(10, 3, 4, 1)
    with pytest.raises(InvalidInputError, match=r"w has shape \[2, 4, 4\]"):
        frame_dense(torch.zeros(2, 5, 3), torch.zeros(2, 4, 4))
    with pytest.raises(InvalidInputError, match=r"w is torch\.float64"):
        dense_norm(a, w.double(), bias, gain, shift)
    with pytest.raises(InvalidInputError, match=r"gain has shape \[3\]"):
        dense_norm(a, w, bias, gain[:3], shift)
    with pytest.raises(InvalidInputError, match="1 rows"):
        dense_norm(a[:1], w, bias, gain, shift)
    first, *rest = evolve_inputs(3, 4, 1)
    with pytest.raises(InvalidInputError, match=r"w_ih has shape \[12, 4\], expected \[15, 5\]"):
        evolve_gru(torch.zeros(3, 5), *rest, 2)
    with pytest.raises(InvalidInputError, match="steps"):
        evolve_gru(first, *rest, -1)

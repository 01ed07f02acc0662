"""Fused GRU and LSTM scans against a plain loop over the steps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.scan import gru_scan, lstm_scan
from dgbench.runtime.errors import InvalidInputError

SCANS = ("gru", "lstm")


def gru_loop(x, w_in, w_hid, bias, h0):
    """h of every step, [T + 1, N, H] with h0 first."""
    hidden = w_hid.shape[0]
    states = [h0]
    for row in x:
        h, from_x = states[-1], row @ w_in + bias
        gates = torch.sigmoid(from_x[:, : 2 * hidden] + h @ w_hid[:, : 2 * hidden])
        z, r = gates[:, :hidden], gates[:, hidden:]
        c = torch.tanh(from_x[:, 2 * hidden :] + (r * h) @ w_hid[:, 2 * hidden :])
        states.append(z * h + (1 - z) * c)
    return torch.stack(states)


def lstm_loop(x, w_in, w_hid, bias, h0, c0):
    """h of every step, [T + 1, N, H], and the last c."""
    states, c = [h0], c0
    for row in x:
        i, f, g, o = (row @ w_in + states[-1] @ w_hid + bias).chunk(4, dim=1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        states.append(torch.sigmoid(o) * torch.tanh(c))
    return torch.stack(states), c


def make(scan, steps, n, features, hidden, *, seed=0, dtype=torch.float32):
    """Inputs in the order of the scan's arguments."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape, scale=1.0):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).mul(scale).to(dtype)

    columns = (3 if scan == "gru" else 4) * hidden
    inputs = [
        draw(steps, n, features),
        draw(features, columns, scale=max(features, 1) ** -0.5),
        draw(hidden, columns, scale=hidden**-0.5),
        draw(columns, scale=0.3),
        draw(n, hidden),
    ]
    return inputs if scan == "gru" else [*inputs, draw(n, hidden)]


def outputs_of(scan, inputs, *, fused):
    """(h_all, h_last[, c_last])."""
    if fused and scan == "gru":
        return gru_scan(*inputs, all_steps=True)
    if fused:
        return lstm_scan(*inputs, all_steps=True)
    if scan == "gru":
        states = gru_loop(*inputs)
        return states[1:], states[-1]
    states, c = lstm_loop(*inputs)
    return states[1:], states[-1], c


def run(scan, inputs, weights, *, fused):
    """Outputs, and the gradients of a weighted sum of them, in the order of the inputs."""
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    outputs = outputs_of(scan, leaves, fused=fused)
    loss = sum((o * w.to(o.dtype)).sum() for o, w in zip(outputs, weights, strict=True))
    grads = torch.autograd.grad(loss, leaves, materialize_grads=True)
    return [o.detach() for o in outputs], list(grads)


def loss_weights(scan, inputs, seed=1):
    steps, n, hidden = inputs[0].shape[0], inputs[0].shape[1], inputs[2].shape[0]
    generator = torch.Generator().manual_seed(seed)
    shapes = [(steps, n, hidden), (n, hidden), (n, hidden)][: 2 if scan == "gru" else 3]
    return [torch.randn(*s, generator=generator) for s in shapes]


def distance(found, exact):
    return float((found.double() - exact).norm())


def assert_as_good_as_torch(found, torch_made, exact, label, whole=0.0):
    """At most twice the error of plain torch in float32, over a floor of a few roundings.

    `whole` is the norm of all tensors of a kind: a gradient that is a sum of terms of both signs
    can come out far smaller than its terms, whose rounding it keeps.
    """
    size = float(exact.norm())
    allowed = 2 * distance(torch_made, exact) + 5e-7 * size + 5e-7 * whole + 1e-12
    assert distance(found, exact) <= allowed, label
    assert distance(found, exact) <= 1e-5 * max(size, whole / 10) + 1e-12, label


@pytest.mark.parametrize("scan", SCANS)
@settings(max_examples=60, deadline=None)
@given(
    steps=st.integers(0, 7),
    n=st.one_of(st.integers(0, 14), st.sampled_from([25, 48, 97, 200, 901])),
    features=st.sampled_from([1, 2, 3, 8, 16, 17, 33, 64]),
    hidden=st.sampled_from([1, 5, 6, 7, 16, 21, 32, 48, 64, 80]),
    seed=st.integers(0, 2**20),
)
def test_matches_loop(scan, steps, n, features, hidden, seed):
    inputs = make(scan, steps, n, features, hidden, seed=seed)
    weights = loss_weights(scan, inputs)
    found = run(scan, inputs, weights, fused=True)
    plain = run(scan, inputs, weights, fused=False)
    exact = run(scan, [t.double() for t in inputs], weights, fused=False)
    for kind, ours, theirs, truth in zip(("output", "grad"), found, plain, exact, strict=True):
        whole = float(torch.cat([t.flatten() for t in truth]).norm())
        for place, (a, b, c) in enumerate(zip(ours, theirs, truth, strict=True)):
            assert a.shape == c.shape
            assert_as_good_as_torch(a, b, c, f"{kind} {place}", whole)


@pytest.mark.parametrize("scan", SCANS)
def test_long_frame_over_many_vertices(scan):
    """More vertices than one block per shard, more steps than fit in the usual block."""
    inputs = make(scan, 90, 1500, 6, 24)
    weights = loss_weights(scan, inputs)
    found = run(scan, inputs, weights, fused=True)
    plain = run(scan, inputs, weights, fused=False)
    exact = run(scan, [t.double() for t in inputs], weights, fused=False)
    for ours, theirs, truth in zip(found, plain, exact, strict=True):
        for a, b, c in zip(ours, theirs, truth, strict=True):
            assert_as_good_as_torch(a, b, c, scan)


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize(("steps", "n"), [(5, 170), (16, 3000)])
def test_same_bits_for_any_number_of_threads(scan, steps, n):
    inputs = make(scan, steps, n, 16, 32)
    weights = loss_weights(scan, inputs)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = run(scan, inputs, weights, fused=True)
        for threads in (2, 3):
            torch.set_num_threads(threads)
            many = run(scan, inputs, weights, fused=True)
            for a, b in zip((*one[0], *one[1]), (*many[0], *many[1]), strict=True):
                assert torch.equal(a, b)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("scan", SCANS)
def test_strided_x_is_read_in_place(scan):
    """A permuted [N, T, F], a slice of wider rows, every second step, and rows read backwards in
    features (which are copied) give what the dense copy gives."""
    steps, n, features, hidden = 6, 40, 8, 16
    inputs = make(scan, steps, n, features, hidden)
    weights = loss_weights(scan, inputs)
    x = inputs[0]
    wide = torch.full((2 * steps, n, features + 5), float("nan"))
    wide[::2, :, 3 : 3 + features] = x
    forms = {
        "coalescent": x.permute(1, 0, 2).contiguous().permute(1, 0, 2),
        "slice": wide[::2, :, 3 : 3 + features],
        "features apart": x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
        "repeated": x[:1].expand(steps, n, features),
    }
    for name, form in forms.items():
        dense = form.contiguous()
        expected = run(scan, [dense, *inputs[1:]], weights, fused=True)
        # clone() would make the form dense, so the gradient flows through the same view.
        leaves = [form.detach().requires_grad_(), *(t.clone().requires_grad_() for t in inputs[1:])]
        outputs = outputs_of(scan, leaves, fused=True)
        loss = sum((o * w).sum() for o, w in zip(outputs, weights, strict=True))
        grads = torch.autograd.grad(loss, leaves)
        for a, b in zip((*expected[0], *expected[1]), (*outputs, *grads), strict=True):
            assert torch.equal(a, b), name


@pytest.mark.parametrize("scan", SCANS)
def test_nan_stays_with_its_vertex(scan):
    inputs = make(scan, 4, 60, 5, 20)
    clean = outputs_of(scan, inputs, fused=True)
    inputs[0][1, 17, 2] = float("nan")
    leaf = inputs[0].requires_grad_()
    outputs = outputs_of(scan, inputs, fused=True)
    others = torch.arange(60) != 17
    assert outputs[0][1:, 17].isnan().all()
    assert torch.equal(outputs[0][0], clean[0][0])
    for found, expected in zip(outputs, clean, strict=True):
        assert torch.equal(found[..., others, :], expected[..., others, :])
    (grad,) = torch.autograd.grad(outputs[1].sum(), leaf)
    assert not grad[:, others].isnan().any()


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-8, 3e-4, 0.02, 0.4, 3.0, 9.0, 40.0, 100.0, 1e30])
def test_gates_saturate_and_keep_small_digits(value):
    """One vertex, one step, weights that lead the value straight into tanh (and the sigmoid)."""
    for x in (value, -value):
        rows = torch.full((1, 1, 1), x)
        w_in = torch.tensor([[0.0, 0.0, 1.0]])  # z = 1/2, c = tanh(x)
        _, h = gru_scan(rows, w_in, torch.zeros(1, 3), torch.zeros(3))
        exact = 0.5 * torch.tanh(torch.tensor(x, dtype=torch.float32).double())
        assert float(h) == pytest.approx(float(exact), rel=3e-7, abs=0)
        w_in = torch.tensor([[1.0, 0.0, 0.0]])  # h = z + (1 - z) tanh(0) = z for h0 = 1
        _, h = gru_scan(rows, w_in, torch.zeros(1, 3), torch.zeros(3), torch.ones(1, 1))
        exact = torch.sigmoid(torch.tensor(x, dtype=torch.float32).double())
        assert float(h) == pytest.approx(float(exact), rel=3e-7, abs=1e-38)


@pytest.mark.parametrize("scan", SCANS)
def test_gradcheck(scan):
    for steps, n, features, hidden in ((3, 4, 2, 3), (1, 1, 1, 1), (2, 13, 1, 9)):
        inputs = make(scan, steps, n, features, hidden, dtype=torch.float64)
        leaves = [t.requires_grad_() for t in inputs]
        assert torch.autograd.gradcheck(
            lambda *leaves: outputs_of(scan, leaves, fused=True), leaves, fast_mode=n > 10
        )


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("all_steps", [False, True])
@pytest.mark.parametrize("with_state", [False, True])
def test_opcheck(scan, all_steps, with_state):
    inputs = make(scan, 3, 5, 4, 6)
    if not with_state:
        inputs = [*inputs[:4], *(None for _ in inputs[4:])]
    leaves = [t if t is None else t.requires_grad_() for t in inputs]
    name = "gru_scan" if scan == "gru" else "lstm_scan"
    torch.library.opcheck(getattr(torch.ops.dgbench, name).default, (*leaves, all_steps, True, 0))


@pytest.mark.parametrize("scan", SCANS)
def test_only_the_wanted_gradients(scan):
    """Weights only (as in a first layer), then x only; states absent mean zero."""
    inputs = make(scan, 4, 30, 3, 8)
    zero = [torch.zeros_like(t) for t in inputs[4:]]
    call = gru_scan if scan == "gru" else lstm_scan

    def gradients(wanted, states):
        leaves = [t.detach().clone() for t in inputs[:4]]
        for i in wanted:
            leaves[i].requires_grad_()
        h_all, h_last, *_ = call(*leaves, *states, all_steps=False)
        assert h_all is None
        return torch.autograd.grad(h_last.square().sum(), [leaves[i] for i in wanted])

    everything = gradients(range(4), zero)
    for wanted in ((1, 2, 3), (0,), (2,)):
        for i, found in zip(wanted, gradients(wanted, []), strict=True):
            assert torch.equal(found, everything[i])


@pytest.mark.parametrize("scan", SCANS)
def test_backward_twice_gives_the_same(scan):
    leaves = [t.requires_grad_() for t in make(scan, 3, 10, 4, 5)]
    loss = outputs_of(scan, leaves, fused=True)[1].sum()
    first = torch.autograd.grad(loss, leaves, retain_graph=True, allow_unused=True)
    second = torch.autograd.grad(loss, leaves, allow_unused=True)
    for a, b in zip(first, second, strict=True):
        assert torch.equal(a, b)


def test_no_steps_hands_the_states_on():
    x, w_in, w_hid, bias, h0, c0 = make("lstm", 0, 7, 3, 4)
    h_all, h_last, c_last = lstm_scan(x, w_in, w_hid, bias, h0, c0)
    assert h_all.shape == (0, 7, 4)
    assert torch.equal(h_last, h0)
    assert torch.equal(c_last, c0)


@pytest.mark.parametrize(
    ("place", "bad", "words"),
    [
        (0, torch.zeros(4, 3), r"x has shape \[4, 3\], expected \[T, N, F\]"),
        (0, torch.zeros(2, 4, 3, dtype=torch.int64), "x is torch.int64"),
        (1, torch.zeros(5, 15), r"w_in has shape \[5, 15\], expected \[3, 15\]"),
        (2, torch.zeros(5, 20), r"w_hid has shape \[5, 20\], expected \[H, 3 H\]"),
        (3, torch.zeros(5), r"bias has shape \[5\], expected \[15\]"),
        (4, torch.zeros(3, 5), r"h0 has shape \[3, 5\], expected \[4, 5\]"),
        (3, torch.zeros(15, dtype=torch.float64), "bias is torch.float64"),
        (4, [[0.0]], "h0 is a list, expected a torch.Tensor"),
    ],
)
def test_mistakes_are_named(place, bad, words):
    inputs = make("gru", 2, 4, 3, 5)
    inputs[place] = bad
    with pytest.raises(InvalidInputError, match=words):
        gru_scan(*inputs)

"""Scans over packed rows against every sequence run alone, and against torch's packed sequences."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_scan import gru_loop, lstm_loop, make
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from dgbench.kernels_cuda.scan import (
    CONTINUES,
    FROM_ZERO,
    gru_scan,
    lstm_scan,
    packed_gru_scan,
    packed_lstm_scan,
)
from dgbench.runtime.errors import InvalidInputError

SCANS = ("gru", "lstm")


def random_begins(steps, n, starts, generator):
    """int32[T, N] where sequences go on, begin from zero, and begin from a row each."""
    chance = torch.rand(steps, n, generator=generator)
    begins = torch.full((steps, n), CONTINUES, dtype=torch.int32)
    begins[chance < 0.4] = FROM_ZERO
    flat = begins.view(-1)
    place = torch.randperm(flat.numel(), generator=generator)[:starts]
    which = torch.randperm(starts, generator=generator)[: place.numel()]
    flat[place] = which.to(torch.int32)
    return begins


def alone(scan, inputs, begins, states):
    """h (and c) of every step [T, N, H]: each sequence cut out and run by the plain loop."""
    x, weights = inputs[0], inputs[1:4]
    steps, n, hidden = x.shape[0], x.shape[1], weights[1].shape[0]
    columns = []
    for v in range(n):
        pieces = []
        cuts = [t for t in range(steps) if t == 0 or begins[t, v] != CONTINUES]
        for first, last in zip(cuts, [*cuts[1:], steps], strict=True):
            k = int(begins[first, v])
            own = [s[k : k + 1] if k >= 0 else x.new_zeros(1, hidden) for s in states]
            rows = x[first:last, v : v + 1]
            if scan == "gru":
                pieces.append([gru_loop(rows, *weights, *own)[1:]])
            else:
                # The loop gives the last cell only, so c of each step is that of a shorter run.
                h = lstm_loop(rows, *weights, *own)[0][1:]
                c = [lstm_loop(rows[: i + 1], *weights, *own)[1] for i in range(last - first)]
                pieces.append([h, torch.stack(c)])
        columns.append([torch.cat(part) for part in zip(*pieces, strict=True)])
    return [torch.cat(part, dim=1) for part in zip(*columns, strict=True)]


def packed(scan, inputs, begins, states):
    if scan == "gru":
        return [packed_gru_scan(*inputs[:4], begins, *states)]
    return list(packed_lstm_scan(*inputs[:4], begins, *states))


def draw_case(scan, steps, n, features, hidden, starts, seed, dtype):
    inputs = make(scan, steps, n, features, hidden, seed=seed, dtype=dtype)[:4]
    generator = torch.Generator().manual_seed(seed + 1)
    begins = random_begins(steps, n, starts, generator)
    count = 1 if scan == "gru" else 2
    states = [
        torch.randn(starts, hidden, generator=generator, dtype=torch.float64).to(dtype)
        for _ in range(count)
    ]
    weights = [torch.randn(steps, n, hidden, generator=generator) for _ in range(count)]
    return inputs, begins, states, weights


def run(function, scan, inputs, begins, states, weights):
    """Outputs, then gradients of the four inputs and of the starts."""
    leaves = [t.detach().clone().requires_grad_() for t in (*inputs, *states)]
    outputs = function(scan, leaves[:4], begins, leaves[4:])
    loss = sum((o * w.to(o.dtype)).sum() for o, w in zip(outputs, weights, strict=True))
    grads = torch.autograd.grad(loss, leaves, materialize_grads=True, allow_unused=True)
    return [*(o.detach() for o in outputs), *grads]


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@settings(max_examples=25, deadline=None)
@given(
    steps=st.integers(1, 7),
    n=st.sampled_from([1, 2, 11, 13, 25]),
    features=st.sampled_from([1, 3, 8, 17]),
    hidden=st.sampled_from([1, 5, 16, 33]),
    starts=st.integers(0, 9),
    seed=st.integers(0, 2**20),
)
def test_equals_every_sequence_alone(scan, dtype, steps, n, features, hidden, starts, seed):
    case = draw_case(scan, steps, n, features, hidden, starts, seed, torch.float64)
    inputs, begins, states, weights = case
    exact = run(alone, scan, *case)
    cast = [[t.to(dtype) for t in part] for part in (inputs, states)]
    found = run(packed, scan, cast[0], begins, cast[1], weights)
    bar = 1e-12 if dtype == torch.float64 else 1e-6
    for place, (a, b) in enumerate(zip(found, exact, strict=True)):
        assert a.shape == b.shape
        # A sum over all vertex-steps keeps the rounding of its terms, not of its own size.
        size = max(1.0, float(b.abs().max()) if b.numel() else 0.0)
        assert float((a - b).abs().max() if b.numel() else 0.0) <= bar * size, place


@pytest.mark.parametrize("scan", SCANS)
def test_gradcheck(scan):
    inputs, _, states, _ = draw_case(scan, 4, 3, 2, 3, 2, 5, torch.float64)
    begins = torch.tensor([[-2, 1, -1], [-1, -2, -1], [0, -1, -2], [-1, -1, -2]], dtype=torch.int32)
    leaves = [t.requires_grad_() for t in (*inputs, *states)]
    assert torch.autograd.gradcheck(
        lambda *leaves: tuple(packed(scan, leaves[:4], begins, leaves[4:])), leaves
    )


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("with_states", [False, True])
def test_opcheck(scan, with_states):
    inputs, begins, states, _ = draw_case(scan, 3, 5, 4, 6, 2, 7, torch.float32)
    if not with_states:
        begins, states = begins.clamp(max=CONTINUES), [None for _ in states]
    leaves = [t if t is None else t.requires_grad_() for t in (*inputs, *states)]
    operator = getattr(torch.ops.dgbench, f"packed_{scan}_scan").default
    torch.library.opcheck(operator, (*leaves[:4], begins, *leaves[4:], True, 0))


@pytest.mark.parametrize("scan", SCANS)
def test_one_sequence_to_a_row_is_the_plain_scan(scan):
    inputs, _, _, _ = draw_case(scan, 9, 130, 6, 24, 0, 3, torch.float32)
    first = torch.zeros(9, 130, dtype=torch.uint8)
    plain = (gru_scan if scan == "gru" else lstm_scan)(*inputs, all_steps=True)[0]
    assert torch.equal(packed(scan, inputs, first, [])[0], plain)
    first[0] = 1
    assert torch.equal(packed(scan, inputs, first.bool(), [])[0], plain)


@pytest.mark.parametrize("scan", SCANS)
def test_nothing_crosses_a_seam(scan):
    """NaN in the first half of every row stays there, in values and in gradients."""
    inputs, _, _, _ = draw_case(scan, 8, 40, 5, 20, 0, 9, torch.float32)
    first = torch.zeros(8, 40, dtype=torch.bool)
    first[4] = True
    clean = packed(scan, inputs, first, [])
    x = inputs[0].clone()
    x[:4] = float("nan")
    x.requires_grad_()
    found = packed(scan, [x, *inputs[1:]], first, [])
    for a, b in zip(found, clean, strict=True):
        assert torch.equal(a[4:], b[4:])
        assert a[:4].isnan().all()
    (grad,) = torch.autograd.grad(found[0][4:].sum(), x)
    assert not grad[4:].isnan().any()
    assert bool((grad[4:] != 0).any())


@pytest.mark.parametrize("scan", SCANS)
def test_nothing_flows_back_over_a_seam(scan):
    inputs, _, _, _ = draw_case(scan, 6, 20, 3, 8, 0, 4, torch.float32)
    first = torch.zeros(6, 20, dtype=torch.bool)
    first[3] = True
    x = inputs[0].clone().requires_grad_()
    (grad,) = torch.autograd.grad(packed(scan, [x, *inputs[1:]], first, [])[0][3:].sum(), x)
    assert not grad[:3].any()
    assert bool(grad[3:].any())


@pytest.mark.parametrize("scan", SCANS)
def test_same_bits_for_any_number_of_threads(scan):
    case = draw_case(scan, 12, 2000, 8, 32, 300, 1, torch.float32)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = run(packed, scan, *case)
        torch.set_num_threads(3)
        many = run(packed, scan, *case)
    finally:
        torch.set_num_threads(before)
    for a, b in zip(one, many, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("scan", SCANS)
def test_unused_starts_get_no_gradient(scan):
    inputs, _, _, weights = draw_case(scan, 3, 4, 2, 5, 6, 2, torch.float32)
    begins = torch.full((3, 4), FROM_ZERO, dtype=torch.int32)
    begins[2, 1] = 4
    states = [torch.randn(6, 5).requires_grad_() for _ in weights]
    loss = sum(o.sum() for o in packed(scan, inputs, begins, states))
    for grad in torch.autograd.grad(loss, states):
        assert bool(grad[4].any())
        assert not grad[[0, 1, 2, 3, 5]].any()


def test_torch_packed_sequence_is_a_control():
    """The same LSTM by torch's PackedSequence, which sorts by length instead of packing rows."""
    torch.manual_seed(3)
    lengths = [5, 1, 3, 5, 2, 4]
    rows = [torch.randn(length, 7, dtype=torch.float64) for length in lengths]
    rnn = nn.LSTM(7, 9).double()
    theirs, _ = rnn(pack_padded_sequence(pad_sequence(rows), lengths, enforce_sorted=False))
    theirs, _ = pad_packed_sequence(theirs)
    weight = torch.randn(5, 6, 9, dtype=torch.float64)
    loss = (theirs * weight).sum()
    exact = torch.autograd.grad(loss, [rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0])

    joined = torch.cat(rows).unsqueeze(1)  # all in one row of 20 steps
    first = torch.zeros(20, 1, dtype=torch.bool)
    first[torch.cumsum(torch.tensor([0, *lengths[:-1]]), 0)] = True
    bias = rnn.bias_ih_l0 + rnn.bias_hh_l0
    ours, _ = packed_lstm_scan(joined, rnn.weight_ih_l0.t(), rnn.weight_hh_l0.t(), bias, first)
    parts = ours[:, 0].split(lengths)
    for v, part in enumerate(parts):
        torch.testing.assert_close(part, theirs[: lengths[v], v], rtol=1e-12, atol=1e-12)
    loss = sum((part * weight[: lengths[v], v]).sum() for v, part in enumerate(parts))
    found = torch.autograd.grad(loss, [rnn.weight_ih_l0, rnn.weight_hh_l0, rnn.bias_ih_l0])
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12)


def test_torch_gru_as_a_control_of_the_seam():
    """torch's GRU keeps h as our z does and resets after the product: with one unit and no
    product of the state in the candidate both are one GRU."""
    torch.manual_seed(4)
    lengths = [3, 1, 4]
    rows = [torch.randn(length, 2, dtype=torch.float64) for length in lengths]
    rnn = nn.GRU(2, 6).double()
    with torch.no_grad():  # order r, z, n
        rnn.weight_hh_l0[12:] = 0
        rnn.bias_hh_l0[12:] = 0
    theirs, _ = rnn(pack_padded_sequence(pad_sequence(rows), lengths, enforce_sorted=False))
    theirs, _ = pad_packed_sequence(theirs)
    order = torch.cat([torch.arange(6, 12), torch.arange(6), torch.arange(12, 18)])
    w_in, w_hid = rnn.weight_ih_l0[order].t(), rnn.weight_hh_l0[order].t()
    bias = (rnn.bias_ih_l0 + rnn.bias_hh_l0)[order]
    first = torch.tensor([1, 0, 0, 1, 1, 0, 0, 0], dtype=torch.uint8).unsqueeze(1)
    ours = packed_gru_scan(torch.cat(rows).unsqueeze(1), w_in, w_hid, bias, first)
    for v, part in enumerate(ours[:, 0].split(lengths)):
        torch.testing.assert_close(part, theirs[: lengths[v], v], rtol=1e-12, atol=1e-12)


def test_no_steps_and_no_rows():
    for steps, n in ((0, 4), (3, 0)):
        inputs, _, _, _ = draw_case("lstm", steps, n, 2, 3, 0, 1, torch.float32)
        begins = torch.zeros(steps, n, dtype=torch.int32)
        h, c = packed_lstm_scan(*inputs, begins)
        assert h.shape == c.shape == (steps, n, 3)


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        ([[0, 0], [1, 0]], "begins is a list"),
        (torch.zeros(2, 3, dtype=torch.int32), r"begins has shape \[2, 3\], expected \[2, 2\]"),
        (torch.zeros(2, 2), "begins is torch.float32, allowed are bool, uint8 and int32"),
        (torch.tensor([[-3, -1], [-1, -1]], dtype=torch.int32), "begins holds -3"),
        (torch.tensor([[0, -1], [3, -1]], dtype=torch.int32), "begins holds 3"),
        (torch.tensor([[0, -1], [-1, 0]], dtype=torch.int32), "starts 2 sequences from row 0"),
    ],
)
def test_mistakes_are_named(begins, words):
    inputs, _, states, _ = draw_case("gru", 2, 2, 3, 5, 3, 1, torch.float32)
    with pytest.raises(InvalidInputError, match=words):
        packed_gru_scan(*inputs, begins, states[0])


def test_begins_written_to_after_a_call_are_looked_at_again():
    inputs, _, states, _ = draw_case("gru", 2, 2, 3, 5, 3, 1, torch.float32)
    begins = torch.tensor([[0, -1], [1, -1]], dtype=torch.int32)
    packed_gru_scan(*inputs, begins, states[0])
    begins[0, 1] = 7
    with pytest.raises(InvalidInputError, match="begins holds 7"):
        packed_gru_scan(*inputs, begins, states[0])


def test_starts_must_fit():
    inputs, _, states, _ = draw_case("lstm", 2, 2, 3, 5, 3, 1, torch.float32)
    gru = draw_case("gru", 2, 2, 3, 5, 3, 1, torch.float32)[0]
    first = torch.zeros(2, 2, dtype=torch.bool)
    with pytest.raises(InvalidInputError, match="c_starts is None"):
        packed_lstm_scan(*inputs, first, states[0])
    with pytest.raises(InvalidInputError, match=r"c_starts has shape \[2, 5\], expected \[3, 5\]"):
        packed_lstm_scan(*inputs, first, states[0], states[1][:2])
    with pytest.raises(InvalidInputError, match=r"h_starts is torch\.float64"):
        packed_gru_scan(*gru, first, states[0].double())

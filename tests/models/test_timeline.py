"""The timeline models and their heads against plain loops over vertices and steps."""

from __future__ import annotations

import pytest
import torch
from dense_frames import DenseFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.datasets.transforms import m_transform_features
from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TmGcn, build_model, sample_pairs
from dgbench.models.dtdg.tm_gcn import m_average
from dgbench.models.frame import GcnLayer
from dgbench.runtime.errors import InvalidInputError

STEPS, NODES, WIDTH, HIDDEN = 7, 5, 2, 6


DATA = DenseFrame.drawn(STEPS, NODES, WIDTH, STEPS)


def build(name: str, **fields):
    fields = {"feature_dim": WIDTH, "hidden_dim": HIDDEN, "window": 3, "task": "class"} | fields
    return build_model(name, **fields).double()


def lstm_step(w_in, w_hid, bias, x, h, c):
    i, f, g, o = (x @ w_in + h @ w_hid + bias).chunk(4, -1)
    sigmoid = lambda v: 1 / (1 + torch.exp(-v))  # noqa: E731
    c = sigmoid(f) * c + sigmoid(i) * torch.tanh(g)
    return sigmoid(o) * torch.tanh(c), c


def test_cd_gcn_follows_the_equations():
    model, data = build("cd_gcn"), DATA
    assert model.spatial_dims == (8, 12)
    assert model.redistributed_dims == ((8, 6), (12, 6))
    hidden = data.features
    for layer, conv in enumerate((model.conv_1, model.conv_2)):
        h = c = torch.zeros(NODES, HIDDEN, dtype=torch.float64)
        after = []
        for t in range(STEPS):
            a = data.matrices[t] @ hidden[t]
            y = torch.cat([a, a @ conv.weight], dim=1).clamp(min=0)
            h, c = lstm_step(*model.scan_weights(layer), y, h, c)
            after.append(h)
        hidden = after
    outputs = model.forward_frame(data, range(STEPS))
    torch.testing.assert_close(torch.stack(outputs), torch.stack(hidden))


def test_tm_gcn_follows_the_equations():
    model, data = build("tm_gcn"), DATA
    assert model.redistributed_dims == ((6, 6),)
    first = [(data.first(t) @ model.conv_1.weight).clamp(min=0) for t in range(STEPS)]
    want = []
    for t in range(STEPS):
        near = first[max(0, t - 2) : t + 1]
        mean = sum(near) / len(near)
        want.append((data.matrices[t] @ mean @ model.conv_2.weight).clamp(min=0))
    outputs = model.forward_frame(data, range(STEPS))
    torch.testing.assert_close(torch.stack(outputs), torch.stack(want))


def test_evolvegcn_evolves_the_columns_of_its_weights():
    model, data = build("evolvegcn_o"), DATA
    assert model.redistributed_dims == ()
    hidden = list(data.features)
    for layer in (model.layer_1, model.layer_2):
        cell, inputs = layer.cell, layer.initial.shape[1]
        assert cell.hidden_size == inputs  # a column of W [inputs, H] has one float per input
        bias = cell.bias_ih + cell.bias_hh
        columns = [layer.initial[k] for k in range(HIDDEN)]
        memory = [torch.zeros(inputs, dtype=torch.float64)] * HIDDEN
        for t in range(STEPS):
            for k in range(HIDDEN):
                columns[k], memory[k] = lstm_step(
                    cell.weight_ih.t(), cell.weight_hh.t(), bias, columns[k], columns[k], memory[k]
                )
            weight = torch.stack(columns, dim=1)  # [inputs, H]
            x = data.matrices[t] @ hidden[t] @ weight
            hidden[t] = torch.where(x > 0, x, x * 11 / 48)
    outputs = model.forward_frame(data, range(STEPS))
    torch.testing.assert_close(torch.stack(outputs), torch.stack(hidden))


@settings(deadline=None, max_examples=30)
@given(steps=st.integers(1, 12), window=st.integers(1, 15), cut=st.integers(0, 12))
def test_m_average_is_the_transform_and_goes_on_after_a_cut(steps, window, cut):
    x = torch.randn(steps, 3, 2, generator=torch.Generator().manual_seed(steps)).double()
    whole = m_average(x, x[:0], window)
    torch.testing.assert_close(whole, m_transform_features(x, window))
    for t in range(steps):
        near = x[max(0, t - window + 1) : t + 1]
        torch.testing.assert_close(whole[t], near.mean(0))
    cut = min(cut, steps)
    rest = m_average(x[cut:], x[max(0, cut - window + 1) : cut], window)
    torch.testing.assert_close(rest, whole[cut:])


def test_class_head_is_a_softmax_over_labelled_vertices():
    head = build("cd_gcn", classes=3).head
    hidden = torch.randn(4, HIDDEN).double()
    label = torch.tensor([2, -1, 0, 1])
    logits = hidden @ head.linear.weight.t()
    p = torch.exp(logits) / torch.exp(logits).sum(1, keepdim=True)
    want = -sum(torch.log(p[v, label[v]]) for v in (0, 2, 3))
    torch.testing.assert_close(head.loss_sum(hidden, label), want)
    torch.testing.assert_close(head.loss(hidden, label), want / 3)
    frame = head.loss_sum(torch.stack([hidden, hidden]), torch.stack([label, label]))
    torch.testing.assert_close(frame, 2 * want)
    assert float(head.loss(hidden, torch.full((4,), -1)).detach()) == 0


def test_pair_head_is_one_layer_on_both_vertices():
    head = build("tm_gcn", task="link").head
    hidden = torch.randn(4, HIDDEN).double()
    pairs, label = torch.tensor([[0, 1, 1, 3], [1, 0, 1, 2]]), torch.tensor([1, 0, 0, 1])
    weight = torch.cat([head.source.weight, head.target.weight], dim=1)  # [2, 2 D]
    logits = torch.cat([hidden[pairs[0]], hidden[pairs[1]]], dim=1) @ weight.t() + head.source.bias
    torch.testing.assert_close(head(hidden, pairs), logits)
    p = torch.softmax(logits, 1)
    want = -torch.log(p[torch.arange(4), label]).mean()
    torch.testing.assert_close(head.loss(hidden, pairs, label.double()), want)
    nothing = head.loss(hidden, pairs[:, :0], label[:0])
    assert float(nothing.detach()) == 0
    nothing.backward()


def test_sampled_pairs_are_edges_and_random_ones():
    csr = Csr(torch.tensor([0, 2, 2, 30]), torch.arange(30, dtype=torch.int32) % 28, 28)
    edges = {(int(c), r) for r in range(3) for c in csr.indices[csr.indptr[r] : csr.indptr[r + 1]]}
    pairs, label = sample_pairs(csr, 0.25, seed=3, step=7)
    assert pairs.shape == (2, 16)
    assert label.tolist() == [1] * 8 + [0] * 8
    found = list(zip(*pairs.tolist(), strict=True))
    assert len(set(found[:8])) == 8
    assert set(found[:8]) <= edges
    assert all(0 <= s < 28 and 0 <= d < 3 for s, d in found)
    again, _ = sample_pairs(csr, 0.25, seed=3, step=7)
    assert torch.equal(pairs, again)
    other, _ = sample_pairs(csr, 0.25, seed=3, step=8)
    assert not torch.equal(pairs, other)
    everything, _ = sample_pairs(csr, 1.0, seed=1, step=0)
    assert set(zip(*everything[:, :30].tolist(), strict=True)) == edges
    empty = Csr(torch.zeros(4, dtype=torch.int64), torch.zeros(0, dtype=torch.int32), 28)
    assert sample_pairs(empty, seed=0, step=0)[0].shape == (2, 0)
    for theta in (0, -1, 1.5):
        with pytest.raises(InvalidInputError, match="theta is"):
            sample_pairs(csr, theta, seed=0, step=0)


def test_a_window_below_one_is_refused():
    with pytest.raises(InvalidInputError, match="window must be at least 1, got 0"):
        build("tm_gcn", window=0)
    with pytest.raises(InvalidInputError, match=r"window is 1\.5"):
        TmGcn(2, 3, 1.5)


def test_a_gradient_over_millions_of_rows_is_summed_by_step():
    """One product over all rows adds 0.1 to ever larger float32 sums, and is a percent off."""
    layer = GcnLayer(2, 6)
    rows, steps = 5_000, 200
    one = torch.rand(steps, 7, 2)
    torch.testing.assert_close(layer.by_step(one), layer(one))
    torch.testing.assert_close(layer.by_step(one[0]), layer(one[0]))
    layer.weight.grad = None
    layer.by_step(torch.ones(steps, rows, 2)).backward(torch.full((steps, rows, 6), 0.1))
    exact = steps * rows * float(torch.tensor(0.1))
    assert float((layer.weight.grad.double() / exact - 1).abs().max()) < 3e-4

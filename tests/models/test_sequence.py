"""Models cut for chunks: against torch_geometric, loops over vertices, and themselves in parts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from dgbench.models import (
    SEQUENCE_MODELS,
    SequenceModel,
    Starts,
    attend_rows,
    attention,
    build_model,
    packed_attention,
)
from dgbench.models.sequence import CONTINUES, FROM_ZERO
from dgbench.runtime.errors import InvalidInputError, UnsupportedError

STEPS, NODES, WIDTH, HIDDEN = 5, 7, 2, 6
RECURRENT = ("tgcn_2layer", "mpnn_lstm_bare")


def random_csr(rows, columns, draw, density=0.35):
    """indptr, indices without loops (column r of row r), possibly with duplicates."""
    dense = torch.rand(rows, columns, generator=draw) < density
    dense[torch.arange(rows), torch.arange(rows)] = False
    if rows > 1:
        dense[1] = False  # an isolated vertex
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), dense.sum(1).cumsum(0)])
    return indptr, dense.nonzero()[:, 1].to(torch.int32)


class Whole:
    """An aggregator over dense A-hat and lists of neighbours, in float64."""

    def __init__(self, steps=STEPS, nodes=NODES, width=WIDTH):
        draw = torch.Generator().manual_seed(11)
        self.lists = [random_csr(nodes, nodes, draw) for _ in range(steps)]
        self.matrices = []
        for indptr, indices in self.lists:
            dense = torch.eye(nodes, dtype=torch.float64)
            rows = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
            dense.index_put_((rows, indices.long()), torch.ones(()).double(), accumulate=True)
            self.matrices.append(dense / dense.sum(1, keepdim=True))
        self.features = torch.randn(steps, nodes, width, generator=draw).double()

    def raw(self, t):
        return self.features[t]

    def first(self, t):
        return self.matrices[t] @ self.features[t]

    def apply(self, t, h):
        return self.matrices[t] @ h

    def attend(self, t, values, source, target, slope):
        return attend_rows(*self.lists[t], values, source, target, slope)


def build(name, **fields) -> SequenceModel:
    fields = {"feature_dim": WIDTH, "hidden_dim": HIDDEN, "task": "link"} | fields
    model = build_model(name, **fields).double()
    draw = torch.Generator().manual_seed(5)
    for parameter in model.parameters():  # zero biases would hide where they enter
        parameter.data += torch.randn(parameter.shape, generator=draw).double() * 0.3
    return model


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 8),
    more=st.integers(0, 4),
    heads=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_attention_over_neighbours_is_a_loop(rows, more, heads, seed):
    draw = torch.Generator().manual_seed(seed)
    indptr, indices = random_csr(rows, rows + more, draw)
    values = torch.randn(rows + more, heads, 3, generator=draw).double()
    source = torch.randn(rows + more, heads, generator=draw).double() * 4
    target = torch.randn(rows, heads, generator=draw).double() * 4
    found = attend_rows(indptr, indices, values, source, target, 0.1)
    assert found.shape == (rows, heads, 3)
    for v in range(rows):
        near = [*indices[indptr[v] : indptr[v + 1]].tolist(), v]
        for head in range(heads):
            score = torch.stack([source[u, head] + target[v, head] for u in near])
            alpha = torch.softmax(torch.where(score > 0, score, 0.1 * score), 0)
            exact = sum(a * values[u, head] for a, u in zip(alpha, near, strict=True))
            torch.testing.assert_close(found[v, head], exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("at_once", [3, 1000])
def test_attention_over_neighbours_has_right_gradients(at_once, monkeypatch):
    monkeypatch.setattr(attention, "ENTRIES_AT_ONCE", at_once)
    draw = torch.Generator().manual_seed(1)
    indptr, indices = random_csr(5, 7, draw, 0.6)
    inputs = [
        torch.randn(*s, generator=draw).double().requires_grad_()
        for s in ((7, 2, 3), (7, 2), (5, 2))
    ]
    assert torch.autograd.gradcheck(lambda *i: attend_rows(indptr, indices, *i), inputs)


def test_large_scores_do_not_overflow():
    indptr, indices = torch.tensor([0, 1, 1]), torch.tensor([1], dtype=torch.int32)
    score = torch.tensor([[1e4], [2e4]])
    values = torch.tensor([[[1.0]], [[3.0]]])
    found = attend_rows(indptr, indices, values, score, score)
    assert found.flatten().tolist() == [3.0, 3.0]


@pytest.mark.parametrize("heads", [1, 3])
def test_structural_attention_is_that_of_torch_geometric(heads):
    geometric = pytest.importorskip("torch_geometric.nn")
    model, data = build("dysat", heads=heads), Whole()
    layer = geometric.GATConv(WIDTH, HIDDEN // heads, heads=heads).double()
    with torch.no_grad():
        layer.lin.weight.copy_(model.weight.t())
        layer.att_src.copy_(model.att_source.unsqueeze(0))
        layer.att_dst.copy_(model.att_target.unsqueeze(0))
        layer.bias.copy_(model.bias)
    for t in range(STEPS):
        indptr, indices = data.lists[t]
        rows = torch.repeat_interleave(torch.arange(NODES), indptr.diff())
        theirs = functional.elu(layer(data.raw(t), torch.stack([indices.long(), rows])))
        neighbours = SimpleNamespace(rows=NODES, attend=lambda *given, t=t: data.attend(t, *given))
        ours = model.spatial(neighbours, data.raw(t))
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        weight = torch.randn(NODES, HIDDEN, dtype=torch.float64)
        mine = torch.autograd.grad(
            (ours * weight).sum(), [model.weight, model.att_source, model.att_target, model.bias]
        )
        other = torch.autograd.grad(
            (theirs * weight).sum(), [layer.lin.weight, layer.att_src, layer.att_dst, layer.bias]
        )
        torch.testing.assert_close(mine[0], other[0].t(), rtol=1e-10, atol=1e-12)
        for a, b in zip(mine[1:], other[1:], strict=True):
            torch.testing.assert_close(a, b.view_as(a), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("at_once", [1, 100])
def test_attention_over_packed_rows_is_a_loop(causal, heads, at_once, monkeypatch):
    monkeypatch.setattr(attention, "PAIRS_AT_ONCE", at_once)
    draw = torch.Generator().manual_seed(heads)
    q, k, v = (torch.randn(6, 3, 4, generator=draw).double().requires_grad_() for _ in range(3))
    sequence = torch.tensor([[0, 2, 4], [0, 2, 5], [0, 3, 6], [1, 3, 7], [1, 3, -1], [-1, 3, -1]])
    found = packed_attention(q, k, v, sequence, heads=heads, causal=causal)
    width, exact = 4 // heads, {}
    for n in range(3):
        for t in range(6):
            if sequence[t, n] < 0:
                continue
            own = [
                s for s in range(6) if sequence[s, n] == sequence[t, n] and (s <= t or not causal)
            ]
            parts = []
            for h in range(heads):
                at = slice(h * width, (h + 1) * width)
                score = torch.stack([(q[t, n, at] * k[s, n, at]).sum() for s in own]) / width**0.5
                alpha = torch.softmax(score, 0)
                parts.append(sum(a * v[s, n, at] for a, s in zip(alpha, own, strict=True)))
            exact[t, n] = torch.cat(parts)
    for (t, n), value in exact.items():
        torch.testing.assert_close(found[t, n], value, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(sum(found[at].square().sum() for at in exact), [q, k, v])
    theirs = torch.autograd.grad(sum(e.square().sum() for e in exact.values()), [q, k, v])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_attention_without_steps_or_rows():
    for shape in ((0, 3, 4), (3, 0, 4)):
        x = torch.zeros(shape)
        assert packed_attention(x, x, x).shape == shape


def whole_outputs(model, data=None):
    data = data or Whole()
    return torch.stack(model.forward_frame(data, range(STEPS)))


def test_tgcn_is_its_formulas():
    model, data = build("tgcn_2layer"), Whole()
    h = torch.zeros(NODES, HIDDEN).double()
    found = whole_outputs(model, data)
    for t in range(STEPS):
        a, x = data.matrices[t], data.features[t]

        def gcn(q, a=a, x=x):
            one, two = getattr(model, f"conv_1_{q}"), getattr(model, f"conv_2_{q}")
            inner = torch.relu(a @ x @ one.weight + one.bias)
            return a @ inner @ two.weight + two.bias

        z = torch.sigmoid(model.linear_z(torch.cat([gcn("z"), h], 1)))
        r = torch.sigmoid(model.linear_r(torch.cat([gcn("r"), h], 1)))
        c = torch.tanh(model.linear_c(torch.cat([gcn("c"), r * h], 1)))
        h = z * h + (1 - z) * c
        torch.testing.assert_close(found[t], h, rtol=1e-11, atol=1e-12)


def test_gcn_rounds_are_those_of_torch_geometric():
    """A symmetric graph, so that the direction of torch_geometric's factors plays no part."""
    geometric = pytest.importorskip("torch_geometric.nn")
    model, x = build("mpnn_lstm_bare"), torch.randn(4, WIDTH).double()
    edges = torch.tensor([[0, 1, 1, 2, 0, 2], [1, 0, 2, 1, 2, 0]])  # vertex 3 is alone
    dense = torch.eye(4, dtype=torch.float64)
    dense[edges[1], edges[0]] = 1
    factor = dense.sum(1).rsqrt()
    a_hat = factor.unsqueeze(1) * dense * factor
    layers = []
    for conv in (model.conv_1, model.conv_2):
        layer = geometric.GCNConv(conv.weight.shape[0], HIDDEN).double()
        with torch.no_grad():
            layer.lin.weight.copy_(conv.weight.t())
            layer.bias.copy_(conv.bias)
        layers.append(layer)
    one = torch.relu(layers[0](x, edges))
    two = torch.relu(layers[1](one, edges))
    found = model.spatial(SimpleNamespace(rows=4, propagate=lambda h: a_hat @ h), x)
    torch.testing.assert_close(found, torch.cat([one, two], 1), rtol=1e-12, atol=1e-12)


def test_mpnn_lstm_is_torch_lstm():
    model = build("mpnn_lstm_bare")
    x = torch.randn(STEPS, NODES, 2 * HIDDEN).double()
    out, states = model.temporal(x)
    h1, (_, c1) = model.lstm_1(x)
    h2, (_, c2) = model.lstm_2(h1)
    torch.testing.assert_close(out, h2, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(states[1][-1], c1[0], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(states[3][-1], c2[0], rtol=1e-12, atol=1e-12)
    assert states[2] is out


def test_dysat_reads_all_steps_unless_causal():
    data = Whole()
    changed = Whole()
    changed.features = changed.features.clone()
    changed.features[-1] += 1
    for causal in (False, True):
        model = build("dysat", heads=2, causal=causal)
        before, after = whole_outputs(model, data), whole_outputs(model, changed)
        assert torch.equal(before[:-1], after[:-1]) == causal
        assert not torch.equal(before[-1], after[-1])


def rows_of(lengths, capacity):
    """Sequences in their order, a new row where one does not fit, as a driver hands them."""
    places, row, used = [], 0, 0
    for length in lengths:
        if used + length > capacity:
            row, used = row + 1, 0
        places.append((row, used))
        used += length
    shape = (capacity, row + 1)
    begins = torch.full(shape, FROM_ZERO, dtype=torch.int32)
    sequence, position = torch.full(shape, -1), torch.zeros(shape, dtype=torch.int64)
    for i, (length, (n, t)) in enumerate(zip(lengths, places, strict=True)):
        begins[t + 1 : t + length, n] = CONTINUES
        sequence[t : t + length, n] = i
        position[t : t + length, n] = torch.arange(length)
    return SimpleNamespace(begins=begins, sequence=sequence, position=position), places


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
@pytest.mark.parametrize("fused", [False, True])
def test_packed_rows_equal_sequences_alone(name, fused):
    more = {"heads": 2, "positions": 6} if name == "dysat" else {}
    model = build(name, **more)
    run = model.temporal_fused if fused else model.temporal
    lengths = [6, 2, 3, 1, 4, 1, 1, 5]
    rows, places = rows_of(lengths, 6)
    x = torch.randn(*rows.begins.shape, model.spatial_dim).double().requires_grad_()
    out, states = run(x, rows)
    assert [s.shape[2] for s in states] == list(model.state_dims)
    weight = torch.randn(out.shape).double()
    parts = [(slice(t, t + n), slice(r, r + 1)) for n, (r, t) in zip(lengths, places, strict=True)]
    alone = [model.temporal(x[part])[0] for part in parts]
    for part, exact in zip(parts, alone, strict=True):
        torch.testing.assert_close(out[part], exact, rtol=1e-12, atol=1e-12)
    leaves = [x, *model.parameters()]
    ours = sum((out[part] * weight[part]).sum() for part in parts)
    theirs = sum((a * weight[part]).sum() for part, a in zip(parts, alone, strict=True))
    found = torch.autograd.grad(ours, leaves, allow_unused=True, materialize_grads=True)
    exact = torch.autograd.grad(theirs, leaves, allow_unused=True, materialize_grads=True)
    for a, b in zip(found, exact, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", RECURRENT)
@pytest.mark.parametrize("fused", [False, True])
def test_a_cut_sequence_goes_on_from_its_states(name, fused):
    model = build(name)
    run = model.temporal_fused if fused else model.temporal
    x = torch.randn(6, 4, model.spatial_dim).double()
    whole, _ = model.temporal(x)
    first, states = run(x[:2])
    begins = torch.full((4, 4), CONTINUES, dtype=torch.int32)
    begins[0] = torch.tensor([2, 0, 1, 3])
    order = torch.tensor([1, 2, 0, 3])  # row k of the states is that of vertex order[k]
    second, _ = run(x[2:], None, Starts(begins, tuple(s[-1, order] for s in states)))
    torch.testing.assert_close(torch.cat([first, second]), whole, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad(second.square().sum(), list(model.parameters()), allow_unused=True)
    theirs = torch.autograd.grad(
        whole[2:].square().sum(), list(model.parameters()), allow_unused=True
    )
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_rows_of_other_workers_serve_a_round(name):
    """Two workers, each with some vertices of a snapshot: round by round, shown rows exchanged."""
    model, data = build(name, heads=2), Whole()
    neighbours = SimpleNamespace(
        rows=NODES,
        propagate=lambda h: data.matrices[0] @ h,
        attend=lambda *given: data.attend(0, *given),
    )
    whole = model.spatial(neighbours, data.raw(0))
    own = [torch.tensor([0, 3, 4]), torch.tensor([1, 2, 5, 6])]
    x = [data.raw(0)[rows] for rows in own]
    for k, width in enumerate(model.round_dims):
        shown = [model.show(k, part) for part in x]
        assert all(s.shape[1] == width for s in shown)
        for w in range(2):
            order = torch.cat([own[w], own[1 - w]])
            place = torch.empty(NODES, dtype=torch.int32)
            place[order] = torch.arange(NODES, dtype=torch.int32)
            indptr, indices = data.lists[0]
            lists = [place[indices[indptr[v] : indptr[v + 1]].long()] for v in own[w]]
            counts = torch.tensor([0, *(len(part) for part in lists)]).cumsum(0)
            part = SimpleNamespace(
                rows=len(own[w]),
                propagate=lambda h, w=w, o=order: data.matrices[0][own[w]][:, o] @ h,
                attend=lambda *given, c=counts, i=torch.cat(lists): attend_rows(c, i, *given),
            )
            x[w] = model.receive(k, part, torch.cat([shown[w], shown[1 - w]]))
    for w in range(2):
        torch.testing.assert_close(x[w], whole[own[w]], rtol=1e-12, atol=1e-12)
    assert whole.shape[1] == model.spatial_dim


@pytest.mark.parametrize("name", SEQUENCE_MODELS)
def test_a_model_trains(name):
    torch.manual_seed(2)
    model, data = build(name), Whole()
    pairs, labels = torch.tensor([[0, 1, 2, 3], [4, 5, 6, 0]]), torch.tensor([1, 0, 1, 0])
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(15):
        outputs = model.forward_frame(data, range(STEPS))
        loss = sum(model.head.loss(h, pairs, labels) for h in outputs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.9 * losses[0]
    assert all(p.grad is not None for p in model.parameters())


def test_mistakes_are_named():
    with pytest.raises(InvalidInputError, match="hidden_dim is 6, expected a multiple of the 4"):
        build("dysat", heads=4)
    with pytest.raises(InvalidInputError, match="positions must be at least 0, got -1"):
        build("dysat", positions=-1)
    model = build("dysat", positions=3)
    with pytest.raises(InvalidInputError, match="5 steps, but there are 3 positions"):
        whole_outputs(model)
    with pytest.raises(InvalidInputError, match="attention carries no state"):
        model.temporal(torch.zeros(2, 1, HIDDEN).double(), None, Starts(torch.zeros(2, 1), ()))
    plain = Whole()
    limited = SimpleNamespace(raw=plain.raw, first=plain.first, apply=plain.apply)
    with pytest.raises(UnsupportedError, match="has no `attend`"):
        build("dysat").forward_frame(limited, range(STEPS))


def test_torch_lstm_keeps_its_parameters():
    """The bare model reads nn.LSTM's parameters in place, so optimisers and states know them."""
    model = build("mpnn_lstm_bare")
    assert isinstance(model.lstm_1, nn.LSTM)
    assert model.scan_weights()[0][0].shape == (2 * HIDDEN, 4 * HIDDEN)

"""Models cut for chunks: against torch_geometric, loops over vertices, and themselves in parts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from dense_frames import DenseFrame
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.models import (
    SEQUENCE_MODELS,
    SequenceModel,
    Starts,
    attend_rows,
    attention,
    build_model,
    packed_attention,
)  # fmt: skip
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


class Whole(DenseFrame):
    """A frame with lists of neighbours."""

    def __init__(self, steps=STEPS, nodes=NODES, width=WIDTH):
        draw = torch.Generator().manual_seed(11)
        self.lists = [random_csr(nodes, nodes, draw) for _ in range(steps)]
        matrices = []
        for indptr, indices in self.lists:
            dense = torch.eye(nodes, dtype=torch.float64)
            rows = torch.repeat_interleave(torch.arange(nodes), indptr.diff())
            dense.index_put_((rows, indices.long()), torch.ones(()).double(), accumulate=True)
            matrices.append(dense / dense.sum(1, keepdim=True))
        super().__init__(matrices, torch.randn(steps, nodes, width, generator=draw).double())

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
@given(st.integers(0, 8), st.integers(0, 4), st.integers(1, 3), st.integers(0, 999))
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
    ours, theirs = (
        torch.autograd.grad(out.square().sum(), list(model.parameters()), materialize_grads=True,
                            allow_unused=True)
        for out in (second, whole[2:])
    )  # fmt: skip
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_mistakes_are_named():
    with pytest.raises(InvalidInputError, match="hidden_dim is 6, expected a multiple of the 4"):
        build("dysat", heads=4)
    with pytest.raises(InvalidInputError, match="positions must be at least 0, got -1"):
        build("dysat", positions=-1)
    model = build("dysat", positions=3)
    with pytest.raises(InvalidInputError, match="5 steps, but there are 3 positions"):
        model.forward_frame(Whole(), range(STEPS))
    with pytest.raises(InvalidInputError, match="attention carries no state"):
        model.temporal(torch.zeros(2, 1, HIDDEN).double(), None, Starts(torch.zeros(2, 1), ()))
    plain = Whole()
    limited = SimpleNamespace(raw=plain.raw, first=plain.first, apply=plain.apply)
    with pytest.raises(UnsupportedError, match="has no `attend`"):
        build("dysat").forward_frame(limited, range(STEPS))

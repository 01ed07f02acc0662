"""Windows, edge lives, averages and features against loops over dense matrices."""

import math
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_snapshots import slow_edge_snapshots

from dgbench.datasets import transforms
from dgbench.kernels_cuda.csr import Csr
from dgbench.runtime.errors import InvalidInputError


def dense(csr):
    out = torch.zeros(csr.num_rows, csr.num_cols)
    for row in range(csr.num_rows):
        for at in range(int(csr.indptr[row]), int(csr.indptr[row + 1])):
            value = 1.0 if csr.values is None else float(csr.values[at])
            out[row, int(csr.indices[at])] += value
    return out


def from_dense(matrix, weighted=False):
    rows, cols = matrix.nonzero(as_tuple=True)
    indptr = torch.zeros(len(matrix) + 1, dtype=torch.int64)
    indptr[1:] = torch.cumsum((matrix != 0).sum(1), 0)
    values = matrix[rows, cols].float() if weighted else None
    return Csr(indptr, cols.to(torch.int32), matrix.shape[1], values)


matrices = st.tuples(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**20)).map(
    lambda drawn: (
        torch.randint(
            -1, 3, (drawn[0], drawn[1], drawn[1]), generator=torch.Generator().manual_seed(drawn[2])
        )
        .clamp(min=0)
        .float()
    )
)
"""Square matrices of one size, half of whose entries are 0."""


def test_equal_windows_close_the_last_and_follow_time_not_rows():
    t = torch.tensor([0.0, 0.1, 0.2, 0.3, 9.9, 10.0], dtype=torch.float64)
    assert transforms.equal_windows(t, 2)[0].tolist() == [0, 0, 0, 0, 1, 1]
    t = torch.tensor([0.0, 5.0, 10.0], dtype=torch.float64)
    assert transforms.equal_windows(t, 2)[0].tolist() == [0, 1, 1]
    assert transforms.equal_windows(t.new_full((3,), 7.0), 4)[0].tolist() == [0, 0, 0]
    assert transforms.equal_windows(t[:0], 4)[0].numel() == 0
    with pytest.raises(InvalidInputError, match="count"):
        transforms.equal_windows(t, 0)


def slow_m_transform(snapshots, window):
    """One step at a time, every window united anew; sums and quotients in float64."""
    found = []
    for step in range(len(snapshots)):
        total = {}
        for csr in snapshots[max(0, step - window + 1) : step + 1]:
            for row in range(csr.num_rows):
                for at in range(int(csr.indptr[row]), int(csr.indptr[row + 1])):
                    value = 1.0 if csr.values is None else float(csr.values[at])
                    key = row, int(csr.indices[at])
                    total[key] = total.get(key, 0.0) + value
        found.append({k: v / min(window, step + 1) for k, v in sorted(total.items())})
    return found


@given(matrices, st.integers(1, 6), st.lists(st.booleans(), min_size=5, max_size=5), st.data())
@settings(max_examples=50, deadline=None)
def test_m_transform_keeps_the_entries_of_the_edge_life_in_order(stack, window, weighted, data):
    seed = data.draw(st.integers(0, 9))
    noise = torch.rand(stack.shape, generator=torch.Generator().manual_seed(seed)) - 0.5
    stack = torch.where(stack != 0, noise, 0.0)
    snapshots = [from_dense(m, w) for m, w in zip(stack, weighted, strict=False)]
    got = transforms.m_transform(snapshots, window)
    lives = transforms.edge_life([from_dense(m) for m in stack], window)
    for csr, life, want in zip(got, lives, slow_m_transform(snapshots, window), strict=True):
        assert torch.equal(csr.indptr, life.indptr)
        assert torch.equal(csr.indices, life.indices)
        rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
        assert list(zip(rows.tolist(), csr.indices.tolist(), strict=True)) == list(want)
        values = torch.tensor(list(want.values()), dtype=torch.float64)
        assert csr.values.dtype == torch.float32
        torch.testing.assert_close(csr.values.double(), values, rtol=3e-7, atol=1e-7)


def test_m_transform_of_nothing_and_of_snapshots_that_differ_in_size():
    assert transforms.m_transform([], 3) == []
    (same,) = transforms.m_transform([from_dense(torch.eye(2))], 3)
    assert same.values.tolist() == [1.0, 1.0]
    with pytest.raises(InvalidInputError, match="snapshot 1"):
        transforms.m_transform([from_dense(torch.eye(2)), from_dense(torch.eye(3))], 2)
    with pytest.raises(InvalidInputError, match="window"):
        transforms.m_transform([], 0)


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 40), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_edge_lives_of_events_are_those_of_their_snapshots(nodes, steps, events, life):
    draw = torch.Generator().manual_seed(events)
    src, dst = torch.randint(0, nodes, (2, events), generator=draw)
    bins = torch.randint(0, steps, (events,), generator=draw)
    lives = transforms.EdgeLives.of_events(src, dst, bins, steps, nodes)
    raw = slow_edge_snapshots(src, dst, bins, steps, nodes)
    for side in ("entries", "added", "removed"):
        of_snapshots = getattr(transforms.EdgeLives.of_snapshots(raw), side)(life)
        assert of_snapshots.tolist() == getattr(lives, side)(life).tolist()
    with mock.patch("dgbench.datasets.transforms.lives.CHUNK", 3):
        pieces = transforms.EdgeLives.of_events(src, dst, bins, steps, nodes)
    assert (pieces.waits == lives.waits).all()
    smooth = slow_edge_snapshots(src, dst, bins, steps, nodes, edge_life=life)
    assert lives.entries(life).tolist() == [csr.nnz for csr in smooth]
    for t in range(1, steps):
        one, two = (
            {*zip(*dense(c).nonzero().T.tolist(), strict=True)} for c in smooth[t - 1 : t + 1]
        )
        assert lives.added(life)[t] == len(two - one)
        assert lives.removed(life)[t] == len(one - two)


def test_edge_lives_refuse_what_they_cannot_count():
    one = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(InvalidInputError, match="life"):
        transforms.EdgeLives.of_events(one, one, one, 1, 1).entries(0)
    with pytest.raises(InvalidInputError, match="snapshots"):
        transforms.EdgeLives.of_events(one, one, one, 4, 2**31)
    with pytest.raises(InvalidInputError, match="bins"):
        transforms.EdgeLives.of_events(one, one, one + 3, 2, 2)
    assert transforms.EdgeLives.of_events(one[:0], one[:0], one[:0], 0, 3).entries(1).tolist() == []


@pytest.mark.parametrize("norm", ["sym", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
@given(stack=matrices)
@settings(max_examples=25, deadline=None)
def test_factors_match_the_dense_normalisation(norm, weighted, stack):
    matrix = stack[0].clone()
    matrix.fill_diagonal_(0)
    csr = from_dense(matrix, weighted)
    plus = dense(csr) + torch.eye(len(matrix))
    row, col = transforms.factors(csr, norm)
    degree = plus.sum(1)
    want = (
        degree.rsqrt()[:, None] * plus * degree.rsqrt() if norm == "sym" else plus / degree[:, None]
    )
    torch.testing.assert_close(row[:, None] * plus * col, want)


def test_factors_of_isolated_and_negative_rows():
    indices = torch.tensor([0], dtype=torch.int32)
    csr = Csr(torch.tensor([0, 0, 1]), indices, 2, torch.tensor([-1.0]))
    row, col = transforms.factors(csr, "mean")
    assert (row.tolist(), col.tolist()) == ([1.0, 0.0], [1.0, 1.0])
    with pytest.raises(InvalidInputError, match="norm"):
        transforms.factors(csr, "max")


def test_degree_features_by_eye():
    """0 -> 1, 2 -> 1: vertex 1 has in-degree 2, the others out-degree 1."""
    csr = from_dense(torch.tensor([[0.0, 0, 0], [1, 0, 1], [0, 0, 0]]))
    one, two = math.log(2), math.log(3)
    features = transforms.degree_features([csr, csr], 3)
    assert features.shape == (2, 3, 3)
    want = torch.tensor([[0, one, 0], [two, 0, two], [0, one, 0]])
    torch.testing.assert_close(features[0], want)
    torch.testing.assert_close(features[1], want)
    targets = transforms.degree_targets([csr, csr])
    torch.testing.assert_close(targets.mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(targets.std(correction=0), torch.tensor(1.0))


@given(st.integers(0, 6), st.integers(1, 4), st.integers(1, 8), st.integers(0, 5))
def test_lagged_features_against_a_loop(steps, nodes, dim, past):
    signal = torch.arange(1.0, steps * nodes + 1).reshape(steps, nodes)
    history = -torch.arange(1.0, past * nodes + 1).reshape(past, nodes)
    got = transforms.lagged_features(signal, dim, history if past else None)
    whole = torch.cat([history, signal])
    assert got.shape == (steps, nodes, dim)
    for t in range(steps):
        for lag in range(dim):
            at = past + t - lag
            want = whole[at] if at >= 0 else torch.zeros(nodes)
            assert torch.equal(got[t, :, dim - 1 - lag], want)


def test_standardise_and_fit_width():
    assert transforms.standardise(torch.full((3, 2), 5.0)).tolist() == [[0, 0]] * 3
    assert transforms.standardise(torch.empty(0, 2)).shape == (0, 2)
    x = torch.from_numpy(np.random.default_rng(1).normal(4, 3, (50, 2)))
    torch.testing.assert_close(
        transforms.standardise(x, 0).mean(0), torch.zeros(2), atol=1e-6, rtol=0
    )
    x = torch.tensor([[1.0, 2.0]])
    assert transforms.fit_width(x, 5).tolist() == [[1, 2, 1, 2, 1]]
    assert transforms.fit_width(x, 1).tolist() == [[1]]
    with pytest.raises(InvalidInputError):
        transforms.fit_width(x[:, :0], 2)

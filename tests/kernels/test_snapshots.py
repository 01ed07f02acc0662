"""edge_snapshots against a dictionary per snapshot."""

from __future__ import annotations

from collections import defaultdict

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.runtime.errors import InvalidInputError


def reference(events, weight, snapshots, life, symmetric, drop):
    """For each snapshot {(row, column): summed weight}, from the definition."""
    out = []
    for t in range(snapshots):
        entries = defaultdict(float)
        for i, (source, target, bin_) in enumerate(events):
            if not t - life < bin_ <= t or (drop and source == target):
                continue
            w = 1.0 if weight is None else float(weight[i])
            entries[target, source] += w
            if symmetric and source != target:
                entries[source, target] += w
        out.append(dict(entries))
    return out


def entries_of(csr):
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff()).tolist()
    values = [None] * csr.nnz if csr.values is None else csr.values.tolist()
    return list(zip(rows, csr.indices.tolist(), values, strict=True))


def columns_of(events):
    return [torch.tensor([e[i] for e in events], dtype=torch.int64) for i in range(3)]


@settings(max_examples=150, deadline=None)
@given(
    events=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 4)), max_size=40
    ),
    life=st.integers(1, 7),
    symmetric=st.booleans(),
    drop=st.booleans(),
    mode=st.sampled_from(["plain", "count", "sum"]),
)
def test_equals_the_definition(events, life, symmetric, drop, mode):
    weight = torch.arange(1.0, len(events) + 1) if mode == "sum" else None
    found = edge_snapshots(
        *columns_of(events),
        5,
        6,
        weight=weight,
        edge_life=life,
        symmetric=symmetric,
        drop_self_loops=drop,
        weighted=mode != "plain",
    )
    expected = reference(events, weight, 5, life, symmetric, drop)
    assert len(found) == 5
    for csr, entries in zip(found, expected, strict=True):
        assert csr.num_rows == csr.num_cols == 6
        assert (csr.values is None) == (mode == "plain")
        got = entries_of(csr)
        assert [e[:2] for e in got] == sorted(entries)  # rows, then columns ascending, no repeats
        if mode != "plain":
            assert [e[2] for e in got] == [entries[k] for k in sorted(entries)]


def test_drawn_example():
    """Vertex 2 hears from 0 in bin 0 (twice), from 1 in bin 1; edges live for two bins."""
    events = [(0, 2, 0), (0, 2, 0), (1, 2, 1), (2, 2, 1)]
    found = edge_snapshots(*columns_of(events), 4, 3, edge_life=2, weighted=True)
    assert [entries_of(c) for c in found] == [
        [(2, 0, 2.0)],
        [(2, 0, 2.0), (2, 1, 1.0)],
        [(2, 1, 1.0)],
        [],
    ]


def test_a_hub_and_any_thread_count():
    """Long rows take another sort, and threads share rows: same result, bit for bit."""
    g = torch.Generator().manual_seed(1)
    n, snapshots, count = 2000, 6, 60_000
    src = torch.randint(0, n, (count,), generator=g)
    dst = torch.where(torch.rand(count, generator=g) < 0.3, 7, torch.randint(0, n, (count,)))
    bins = torch.randint(0, snapshots, (count,), generator=g)
    weight = torch.randn(count, generator=g)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(
                edge_snapshots(
                    src, dst, bins, snapshots, n, weight=weight, edge_life=3, weighted=True
                )
            )
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert torch.equal(a.indptr, b.indptr)
            assert torch.equal(a.indices, b.indices)
            assert torch.equal(a.values, b.values)
    for t, csr in enumerate(results[0]):
        alive = (bins > t - 3) & (bins <= t) & (src != dst)
        keys, place = torch.unique(dst[alive] * n + src[alive], return_inverse=True)
        sums = torch.zeros(len(keys), dtype=torch.float64)
        sums.index_add_(0, place, weight[alive].double())
        rows = torch.repeat_interleave(torch.arange(n), csr.indptr.diff())
        assert torch.equal(rows * n + csr.indices, keys)
        torch.testing.assert_close(csr.values.double(), sums, rtol=1e-6, atol=1e-6)


def test_largest_ids_and_bins():
    n = 70_000
    found = edge_snapshots(
        torch.tensor([n - 1]), torch.tensor([n - 2]), torch.tensor([1]), 2, n, symmetric=True
    )
    assert found[0].nnz == 0
    assert entries_of(found[1]) == [(n - 2, n - 1, None), (n - 1, n - 2, None)]


def test_nothing():
    none = torch.zeros(0, dtype=torch.int64)
    assert edge_snapshots(none, none, none, 0, 0) == []
    assert [c.nnz for c in edge_snapshots(none, none, none, 3, 4)] == [0, 0, 0]
    assert [c.num_rows for c in edge_snapshots(none, none, none, 2, 0)] == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"src": torch.tensor([0, 4])}, r"src must satisfy 0 <= x < 4, got values in \[0, 4\]"),
        ({"dst": torch.tensor([-1, 2])}, r"dst must satisfy 0 <= x < 4, got values in \[-1, 2\]"),
        ({"bins": torch.tensor([0, 3])}, r"bins must satisfy 0 <= x < 3"),
        ({"bins": torch.tensor([0])}, "bins has 1 elements, expected 2"),
        ({"src": torch.tensor([0, 1]).int()}, "src is torch.int32"),
        ({"src": [0, 1]}, "src is a list"),
        ({"weight": torch.ones(3)}, "weight has 3 elements, expected 2"),
        ({"weight": torch.ones(2).double()}, "weight is torch.float64"),
        ({"edge_life": 0}, "edge_life is 0"),
        ({"num_nodes": -1}, "num_nodes is -1"),
        ({"num_snapshots": 1.5}, "num_snapshots is 1.5"),
    ],
)
def test_mistakes_are_named(change, message):
    arguments = {
        "src": torch.tensor([0, 1]),
        "dst": torch.tensor([1, 2]),
        "bins": torch.tensor([0, 2]),
        "num_snapshots": 3,
        "num_nodes": 4,
    }
    with pytest.raises(InvalidInputError, match=message):
        edge_snapshots(**(arguments | change))

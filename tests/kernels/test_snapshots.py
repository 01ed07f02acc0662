"""edge_snapshots against a dictionary per snapshot."""

from __future__ import annotations

from collections import defaultdict

import torch
from csr_cases import entries, rows_of
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_checks import refuses

from dgbench.kernels_cuda.snapshots import edge_snapshots


def reference(events, weight, snapshots, life, symmetric, drop):
    """For each snapshot {(row, column): summed weight}, from the definition."""
    out = []
    for t in range(snapshots):
        sums = defaultdict(float)
        for i, (source, target, bin_) in enumerate(events):
            if not t - life < bin_ <= t or (drop and source == target):
                continue
            w = 1.0 if weight is None else float(weight[i])
            sums[target, source] += w
            if symmetric and source != target:
                sums[source, target] += w
        out.append(dict(sums))
    return out


def entries_of(csr):
    values = [None] * csr.nnz if csr.values is None else csr.values.tolist()
    return [(*place, value) for place, value in zip(entries(csr), values, strict=True)]


def columns_of(events):
    return [torch.tensor([e[i] for e in events], dtype=torch.int64) for i in range(3)]


@settings(max_examples=50, deadline=None)
@given(
    events=st.lists(st.tuples(*[st.integers(0, 5)] * 2, st.integers(0, 4)), max_size=40),
    life=st.integers(1, 7), symmetric=st.booleans(), drop=st.booleans(),
    mode=st.sampled_from(["plain", "count", "sum"]),
)  # fmt: skip
def test_equals_the_definition(events, life, symmetric, drop, mode):
    weight = torch.arange(1.0, len(events) + 1) if mode == "sum" else None
    found = edge_snapshots(
        *columns_of(events), 5, 6, weight=weight, edge_life=life, symmetric=symmetric,
        drop_self_loops=drop, weighted=mode != "plain",
    )  # fmt: skip
    expected = reference(events, weight, 5, life, symmetric, drop)
    assert len(found) == 5
    for csr, right in zip(found, expected, strict=True):
        assert csr.num_rows == csr.num_cols == 6
        assert (csr.values is None) == (mode == "plain")
        got = entries_of(csr)
        assert [e[:2] for e in got] == sorted(right)  # rows, then columns ascending, no repeats
        assert mode == "plain" or [e[2] for e in got] == [right[k] for k in sorted(right)]


def test_a_hub():
    """Long rows take another sort."""
    g = torch.Generator().manual_seed(1)
    n, count = 2000, 60_000
    src = torch.randint(0, n, (count,), generator=g)
    dst = torch.where(torch.rand(count, generator=g) < 0.3, 7, torch.randint(0, n, (count,)))
    bins = torch.randint(0, 6, (count,), generator=g)
    weight = torch.randn(count, generator=g)
    found = edge_snapshots(src, dst, bins, 6, n, weight=weight, edge_life=3, weighted=True)
    for t, csr in enumerate(found):
        alive = (bins > t - 3) & (bins <= t) & (src != dst)
        keys, place = torch.unique(dst[alive] * n + src[alive], return_inverse=True)
        sums = torch.zeros(len(keys), dtype=torch.float64)
        sums.index_add_(0, place, weight[alive].double())
        assert torch.equal(rows_of(csr) * n + csr.indices, keys)
        torch.testing.assert_close(csr.values.double(), sums, rtol=1e-6, atol=1e-6)


def test_nothing_and_the_largest_ids():
    none = torch.zeros(0, dtype=torch.int64)
    assert edge_snapshots(none, none, none, 0, 0) == []
    assert [c.nnz for c in edge_snapshots(none, none, none, 3, 4)] == [0, 0, 0]
    last = torch.tensor([69_999])
    first, second = edge_snapshots(last, last - 1, last // last, 2, 70_000, symmetric=True)
    assert first.nnz == 0
    assert entries_of(second) == [(69_998, 69_999, None), (69_999, 69_998, None)]


def test_mistakes_are_named():
    src, dst, bins = columns_of([(0, 1, 0), (1, 2, 2)])
    right = {"src": src, "dst": dst, "bins": bins, "num_snapshots": 3, "num_nodes": 4}
    refuses(
        edge_snapshots, right, ("src", src + 3), ("dst", dst - 2), ("bins", bins + 1),
        ("bins", bins[:1]), ("src", src.int()), ("src", [0, 1]), ("weight", torch.ones(3)),
        ("weight", torch.ones(2).double()), ("edge_life", 0), ("num_nodes", -1),
        ("num_snapshots", 1.5),
    )  # fmt: skip

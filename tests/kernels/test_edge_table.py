"""Rows of edges by source, and the share of them that is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share, share_of
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError


def stream(seed: int, vertices: int, edges: int, last: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Edges with ties in time, duplicates and self edges, in no order of time."""
    rng = np.random.default_rng(seed)
    ends = torch.from_numpy(rng.integers(0, vertices, (2, edges)))
    times = torch.from_numpy(rng.integers(0, last, edges).astype(np.float64))
    return ends[0].contiguous(), ends[1].contiguous(), times


def rows_of(src, dst, t, vertices: int, undirected: bool) -> list[list[tuple[int, int, float]]]:
    """One list a vertex, by sorting."""
    rows: list[list[tuple[int, int, float]]] = [[] for _ in range(vertices)]
    for e in sorted(range(src.numel()), key=lambda e: float(t[e])):
        rows[int(src[e])].append((int(dst[e]), e, float(t[e])))
        if undirected:
            rows[int(dst[e])].append((int(src[e]), e, float(t[e])))
    return rows


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vertices=st.integers(1, 9),
    edges=st.integers(0, 60),
    undirected=st.booleans(),
    threads=st.sampled_from([1, 3]),
)
def test_rows_are_in_order_of_time_and_arrival(seed, vertices, edges, undirected, threads) -> None:
    src, dst, t = stream(seed, vertices, edges)
    table = EdgeTable.build(src, dst, t, vertices, undirected, threads=threads)
    wanted = rows_of(src, dst, t, vertices, undirected)
    for v in range(vertices):
        mine = slice(int(table.indptr[v]), int(table.indptr[v + 1]))
        found = zip(
            table.dst[mine].tolist(), table.eid[mine].tolist(), table.t[mine].tolist(), strict=True
        )
        assert list(found) == wanted[v]
    assert table.num_edges == edges
    assert table.num_nodes == vertices


@pytest.mark.parametrize("undirected", [False, True])
def test_many_buckets_give_the_rows_of_a_stable_sort(undirected: bool) -> None:
    src, dst, t = stream(1, 5000, 200_000, 1000)
    t = torch.sort(t).values
    table = EdgeTable.build(src, dst, t, 5000, undirected, threads=3)
    eid = torch.arange(src.numel())
    if undirected:
        ends, eid = torch.stack([src, dst], 1).view(-1), eid.repeat_interleave(2)
        dst = torch.stack([dst, src], 1).view(-1)
    else:
        ends = src
    order = torch.sort(ends, stable=True).indices
    assert torch.equal(table.eid.long(), eid[order])
    assert torch.equal(table.dst.long(), dst[order])
    assert torch.equal(table.t, t[eid][order])
    assert torch.equal(table.degrees, torch.bincount(ends, minlength=5000))


def test_times_are_exact_and_empty_graphs_have_rows() -> None:
    time = 1_600_000_000.123456789
    nobody = torch.empty(0, dtype=torch.int64)
    one = torch.zeros(1, dtype=torch.int64)
    assert float(EdgeTable.build(one, one, torch.tensor([time]).double(), 1).t[0]) == float(
        torch.tensor([time]).double()
    )
    for vertices in (0, 3):
        table = EdgeTable.build(nobody, nobody, nobody, vertices)
        assert table.indptr.tolist() == [0] * (vertices + 1)
        assert keep_share(table).numel() == 0


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 2 / 3, 1.0])
@pytest.mark.parametrize("threads", [1, 3])
def test_every_row_keeps_its_share(share: float, threads: int) -> None:
    src, dst, t = stream(2, 300, 20_000)
    table = EdgeTable.build(src, dst, t, 300)
    keep = keep_share(table, share, seed=5, threads=threads)
    kept = torch.bincount(src[keep], minlength=300)
    assert torch.equal(kept, share_of(table.degrees, share))
    assert torch.equal(keep, keep_share(table, share, seed=5, threads=1))
    if 0 < share < 1:
        assert not torch.equal(keep, keep_share(table, share, seed=6))


def test_share_rounds_halves_up() -> None:
    counts = torch.tensor([0, 1, 2, 3, 5, 7])
    assert share_of(counts, 0.5).tolist() == [0, 1, 1, 2, 3, 4]
    assert share_of(counts, 1.0).tolist() == counts.tolist()


def test_every_choice_is_as_likely() -> None:
    """Rows of five of which two are kept: ten choices, each of 4000 rows one draw."""
    rows = 4000
    src = torch.arange(rows).repeat_interleave(5)
    table = EdgeTable.build(src, src, torch.zeros(5 * rows).double(), rows)
    keep = keep_share(table, 0.4, seed=11).view(rows, 5).long()
    code = (keep << torch.arange(5)).sum(1)
    counts = torch.bincount(code, minlength=32)
    assert counts[counts > 0].numel() == 10
    assert stats.chisquare(counts[counts > 0].numpy()).pvalue > 1e-3


def test_long_rows_keep_every_place_alike() -> None:
    degree = 1 << 17
    src = torch.zeros(degree, dtype=torch.int64)
    table = EdgeTable.build(src, src, torch.arange(degree).double(), 1)
    keep = keep_share(table, 0.25, seed=3)
    assert int(keep.sum()) == degree // 4
    assert stats.chisquare(keep.view(64, -1).sum(1).numpy()).pvalue > 1e-3


def test_random_rounding_keeps_the_share_of_the_whole() -> None:
    rows = 20_000  # of one edge each: to the nearest, all or nothing would stay
    src = torch.arange(rows)
    table = EdgeTable.build(src, src, torch.zeros(rows).double(), rows)
    kept = int(keep_share(table, 0.3, seed=1, rounding="random").sum())
    assert stats.binomtest(kept, rows, 0.3).pvalue > 1e-3
    assert int(keep_share(table, 0.3, seed=1).sum()) == 0


def test_wrong_arguments_are_named() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    t = torch.zeros(2, dtype=torch.float64)
    with pytest.raises(InvalidInputError, match="num_nodes"):
        EdgeTable.build(ids, ids, t, -1)
    with pytest.raises(InvalidInputError, match="dst"):
        EdgeTable.build(ids, ids + 1, t, 1)
    with pytest.raises(InvalidInputError, match=r"t\[0\]"):
        EdgeTable.build(ids, ids, t / 0, 1)
    table = EdgeTable.build(ids, ids, t, 1)
    with pytest.raises(InvalidInputError, match="share"):
        keep_share(table, 1.5)
    with pytest.raises(UnknownKeyError, match="rounding"):
        keep_share(table, rounding="up")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="undirected"):
        keep_share(EdgeTable.build(ids, ids, t, 1, undirected=True))


def test_a_table_that_does_not_fit_together_is_refused() -> None:
    ids = torch.zeros(2, dtype=torch.int64)
    table = EdgeTable.build(ids, ids, torch.zeros(2).double(), 1)
    wrong = EdgeTable(table.indptr, table.dst + 1, table.eid, table.t, 2)
    with pytest.raises(ValueError, match="dst"):
        _ = wrong.rows

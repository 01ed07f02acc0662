"""A stream of events: putting in, sampling, a cache of rows, and weighted draws."""

from __future__ import annotations

import pytest
import torch
from graphs import million, stream
from work import LINE, Work

from dgbench.kernels_cuda.edge_sampling import EdgeTable, sample_nodewise
from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.kernels_cuda.temporal_sample import sample_hops, sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.weighted import SegmentTree, draw_without_replacement

VERTICES, EVENTS, BATCH, ROOTS = 100_000, 2_000_000, 100_000, 4_000
FANOUT = 10
LINES = {"recent": 6.5, "uniform": 14.0}
"""Lines for a root: vertex, uncached steps of the search, records."""


def store(events: int = EVENTS) -> TemporalStore:
    made = TemporalStore(VERTICES, policy=BlockPolicy("grown", 512), undirected=True)
    made.insert(*(column[:events] for column in stream(VERTICES, EVENTS)))
    return made


@pytest.fixture(scope="module")
def full() -> TemporalStore:
    return store()


def test_insert(timed):
    batch = [column[-BATCH:] for column in stream(VERTICES, EVENTS)]
    old = EVENTS - BATCH
    # vertex and record, in either direction
    work = Work(f"{million(BATCH)} into {million(old)}", 2 * 24 * BATCH, lines=4 * BATCH)
    timed(work, lambda made: made.insert(*batch), fresh=lambda: (store(old),))


@pytest.mark.parametrize("policy", LINES)
def test_sample_neighbours(timed, full, policy):
    roots, times = roots_of(ROOTS)
    lines = int(LINES[policy] * ROOTS)
    work = Work(f"{million(ROOTS)} roots, {FANOUT} each", LINE * lines, lines=lines)
    found = timed(work, sample_neighbours, full, roots, times, fanout=FANOUT, policy=policy)
    assert found is not None


def test_sample_hops(timed, full):
    roots, times = roots_of(600)
    lines = int(LINES["recent"] * 600 * (1 + FANOUT))
    work = Work(f"600 roots, {FANOUT} x {FANOUT}", LINE * lines, lines=lines)
    timed(work, sample_hops, full, roots, times, fanouts=[FANOUT, FANOUT], policy="recent")


def roots_of(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources of edges in the middle of the stream, at their times."""
    src, _, t = stream(VERTICES, EVENTS)
    half = slice(EVENTS // 2, EVENTS // 2 + count)
    return src[half].contiguous(), t[half].contiguous()


@pytest.mark.parametrize("policy", ["lru", "lfu", "fifo"])
def test_row_cache(timed, policy):
    ids_of, dim, size = 200_000, 128, 50_000
    draw = torch.Generator().manual_seed(5)
    ids = (torch.rand(size, generator=draw) ** 4 * ids_of).long()
    table, out = torch.rand(ids_of, dim), torch.empty(size, dim)
    cache = RowCache(ids_of, dim, 20_000, policy=policy)

    def fetch():
        found = cache.lookup(ids)
        cache.gather(found, table, out, by_id=True)
        return cache.update(found, out)

    work = Work(f"{million(size)} rows of {dim}", 2 * out.nbytes)
    timed(work, fetch)
    assert torch.equal(out, table[ids])


@pytest.mark.parametrize("k", [10, 1_000, 100_000])
def test_draw_without_replacement(timed, k):
    weights = torch.rand(1_000_000, generator=torch.Generator().manual_seed(6))
    work = Work(f"{million(k)} of {million(weights.numel())}", weights.nbytes + 8 * k)
    assert timed(work, draw_without_replacement, weights, k).unique().numel() == k


def test_segment_tree_search(timed):
    weights = torch.rand(1_000_000, generator=torch.Generator().manual_seed(6)).double()
    tree, count = SegmentTree(weights, arity=8), 100_000
    # levels that no cache holds: the lowest of seven
    work = Work(f"{million(count)} of {million(weights.numel())}", 64 * count, lines=count)
    found = timed(work, tree.draw, count, seed=1, remove=False)
    assert found.numel() == count


def test_sample_nodewise(timed):
    src, dst, t = (column[:400_000] for column in stream(VERTICES, EVENTS))
    table = EdgeTable.build(src, dst, t, num_nodes=VERTICES)
    roots = torch.arange(2_000)
    lines = 2 * 2_000 * FANOUT
    work = Work(f"2 k roots, {FANOUT} edges, 2 layers", LINE * lines, lines=lines)
    timed(work, sample_nodewise, table, roots, [FANOUT, FANOUT], method="keys")

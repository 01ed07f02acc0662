"""Valid calls of every entry point of `_cpu`, made through the functions that people call.

A scenario takes a size: a handful of vertices shows how arguments are checked, many thousands make
loops divide their work among threads. What a scenario returns is not looked at: what its calls of
the extension wrote and returned is (`entry_calls`). A test finds entry points without a scenario.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda import (
    _cpu,
    edge_sampling,
    scan,
    steps,
    supergraph,
    temporal_sample,
    twins,
    variants,
    weighted,
)
from dgbench.kernels_cuda.aggregate import aggregate_parts, aggregate_parts_scatter, degrees, spmm
from dgbench.kernels_cuda.attention import attend_rows, packed_attention, temporal_attention
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import count_changes, encode, rebuild
from dgbench.kernels_cuda.grids import SortedGrids, count_grids, place_grids, sort_grids
from dgbench.kernels_cuda.interact import edge_dots, group_edges, local_rows, partner_sums
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.layers import dense_norm, frame_dense
from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology, trace_edges
from dgbench.kernels_cuda.ranking import rank_columns
from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.kernels_cuda.slices import slice_count, slice_csr
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.tcsr import build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.time_encoding import encode_ages
from dgbench.kernels_cuda.transpose import transpose
from dgbench.kernels_cuda.variants.work_items import time_items
from dgbench.kernels_cuda.weighted import SegmentTree
from dgbench.systems.base.interaction_layout import t_batches
from dgbench.systems.dgc.fusion import fuse_units, shared_rows
from dgbench.systems.dgc.refinement import hypergraph_of
from dgbench.systems.dgc.supergraph import ExchangeCounts
from dgbench.systems.gnnflow.plain_cache import ListedCache
from dgbench.systems.pipad import wire


def normal(seed: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normally distributed numbers that want a gradient."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=dtype).requires_grad_()


def ids(seed: int, limit: int, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
    """Ids in [0, limit), the largest of them among these."""
    draw = torch.Generator().manual_seed(seed)
    made = torch.randint(0, limit, shape, generator=draw, dtype=dtype)
    if made.numel() > 1:
        made.view(-1)[made.numel() // 2] = limit - 1
    return made


def matrix(n: int, seed: int = 0, *, values: bool = False, degree: int = 4) -> Csr:
    """n x n, ascending columns, a row without any."""
    random = np.random.default_rng(seed)
    rows = np.repeat(np.arange(n), random.integers(0, 2 * degree, n))
    rows = rows[rows != 1]
    key = np.unique(rows * n + random.integers(0, n, len(rows)))
    counts = np.bincount(key // n, minlength=n)
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]))
    weight = torch.from_numpy(random.random(len(key)).astype(np.float32)) if values else None
    return Csr(indptr, torch.from_numpy((key % n).astype(np.int32)), n, weight)


def sequence(n: int, count: int = 3, *, values: bool = False) -> list[Csr]:
    """Snapshots that share most of their entries."""
    whole, out = matrix(n, 7, degree=6), []
    owner = torch.repeat_interleave(torch.arange(n), whole.indptr.diff())
    for seed in range(count):
        kept = torch.rand(whole.nnz, generator=torch.Generator().manual_seed(seed)) < 0.8
        lengths = torch.bincount(owner[kept], minlength=n)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        indices = whole.indices[kept].clone()
        weight = torch.rand(indices.numel(), generator=torch.Generator().manual_seed(seed))
        out.append(Csr(indptr, indices, n, weight if values else None))
    return out


def stream(n: int) -> tuple[Tensor, Tensor, Tensor]:
    """4 n events over n vertices, times ascending with ties."""
    return ids(1, n, 4 * n), ids(2, n, 4 * n), (torch.arange(4 * n) // 3).double()


def both_ways(out: Tensor | tuple[Tensor, ...]) -> None:
    """A backward pass from all that an operator gave."""
    parts = (out,) if isinstance(out, Tensor) else [x for x in out if x is not None]
    sum(x.double().square().sum() for x in parts).backward()


def run_products(n: int) -> None:
    for dtype in (torch.float32, torch.float64):
        csr, x = matrix(n, values=dtype == torch.float32), normal(1, n, 5, dtype=dtype)
        scale = torch.rand(n, dtype=dtype)
        for _ in range(2):  # rows are put in order at the second product
            both_ways(spmm(csr, x, scale, scale, True))
        for _ in range(4):
            spmm(csr, x.detach(), scale, scale, True)
    degrees(matrix(n, values=True))


def run_parts_in_one_call(n: int) -> None:
    for values in (False, True):
        parts = PartTopology.build(sequence(n, values=values))
        for _ in range(2):
            for dtype in (torch.float32, torch.float64):
                x, scale = normal(2, n, 3, 4, dtype=dtype), torch.rand(n, 3, dtype=dtype)
                both_ways(aggregate_parts(parts, x, scale, scale, True))
                both_ways(aggregate_parts_scatter(parts, x, scale, scale, True))


def run_switches(_: int) -> None:
    _cpu.aggregate_registers("")
    _cpu.aggregate_ahead(-1)
    _cpu.build_info()
    _cpu.scan_record_size(4, 7, 3, 5, 3, 4)


def run_topologies(n: int) -> None:
    for values in (False, True):
        csrs = sequence(n, values=values)
        for granularity in ("edge", "slice"):
            parts = PartTopology.build(csrs, granularity, 3)
            wire.unpack(*(lambda sent: (sent.layout, sent.tensors))(wire.pack(parts, cap=3)))
        UnionTopology.build(csrs)
        traced = trace_edges(csrs, 3, "edge")
        traced.counts([2, 3])
        traced.split(0, 3)
        transpose(csrs[0])


def run_sliced_products(n: int) -> None:
    for values in (False, True):
        sliced = slice_csr(matrix(n, values=values), 3)
        for width in (1, 8):
            x = normal(3, n, width).detach()
            for lanes in (False, True):
                variants.spmm_sliced(sliced, x, lanes=lanes)
                variants.scatter_sliced(sliced, x, lanes=lanes)
    slice_count(matrix(n), 3)
    parts, cube = PartTopology.build(sequence(n)), normal(4, n, 3, 4).detach()
    variants.aggregate_parts_sliced(parts, cube)
    variants.scatter_parts_sliced(parts, cube)


def run_item_times(n: int) -> None:
    time_items(matrix(n), normal(4, n, 8), repeats=1).actual(3)


def run_differences(n: int) -> None:
    one, other, _ = sequence(n)
    for index in ("int64", "int32"):
        made = encode(one, other, index=index, values=False, fallback=False)
        rebuild(one, made, check=True)
        first = encode(None, one, index=index, values=False)
        rebuild(None, first, check=True)
    count_changes(one, other)


def run_snapshots_of_events(n: int) -> None:
    src, dst, t = stream(n)
    bins = (t * 4 / (t[-1] + 1)).long()
    edge_snapshots(src, dst, bins, 4, n, edge_life=2)
    edge_snapshots(src, dst, bins, 4, n, weight=torch.rand(len(src)), symmetric=True, weighted=True)


def scan_inputs(n: int, gates: int, dtype: torch.dtype) -> list[Tensor]:
    shapes = [(4, n, 3), (3, gates * 5), (5, gates * 5), (gates * 5,)]
    return [normal(i, *shape, dtype=dtype) for i, shape in enumerate(shapes)]


def run_scans(n: int) -> None:
    for dtype in (torch.float32, torch.float64):
        start = [normal(9, n, 5, dtype=dtype) for _ in range(2)]
        both_ways(scan.gru_scan(*scan_inputs(n, 3, dtype), start[0], all_steps=True))
        both_ways(scan.lstm_scan(*scan_inputs(n, 4, dtype), *start, all_steps=True))
        both_ways(scan.gru_scan(*scan_inputs(n, 3, dtype)))
        both_ways(scan.lstm_scan(*scan_inputs(n, 4, dtype), recompute=True))


def run_packed_scans(n: int) -> None:
    begins = torch.full((4, n), scan.CONTINUES, dtype=torch.int32)
    begins[0], begins[2, ::2] = torch.arange(n), scan.FROM_ZERO
    for dtype in (torch.float32, torch.float64):
        starts = [normal(9, n, 5, dtype=dtype) for _ in range(2)]
        both_ways(scan.packed_gru_scan(*scan_inputs(n, 3, dtype), begins, starts[0]))
        both_ways(scan.packed_lstm_scan(*scan_inputs(n, 4, dtype), begins, *starts))


def run_layers(n: int) -> None:
    for dtype in (torch.float32, torch.float64):
        draw = partial(normal, dtype=dtype)
        weights = [draw(i, *shape) for i, shape in enumerate([(12, 4)] * 2 + [(12,)] * 2)]
        both_ways(scan.evolve_gru(draw(7, 6, 4), *weights, 3))
        both_ways(frame_dense(draw(1, 3, n, 4), draw(2, 3, 4, 5), True))
        both_ways(dense_norm(draw(1, n, 4), draw(2, 4, 5), *(draw(i, 5) for i in range(3))))
        fade = torch.rand(n, dtype=dtype).requires_grad_()
        gates = [draw(i, n, width) for i, width in enumerate((5, 5, 20))]
        both_ways(scan.time_lstm_gates(*gates, fade))


def run_whole_steps(n: int) -> None:
    features, hidden, frame = 3, 4, 3
    sizes = {steps.tgcn_model_step: 161, steps.evolvegcn_step: 273, steps.mpnn_lstm_step: 450}
    csr, part = matrix(n), [matrix(n, seed) for seed in (1, 2)]
    for dtype in (torch.float32, torch.float64):
        x, raw = (normal(i, frame, n, features, dtype=dtype).detach() for i in (1, 2))
        target = normal(3, frame, n, dtype=dtype).detach()
        product, scale = steps.FrameProduct(n, dtype), torch.rand(n, 2)
        product.add(PartTopology.build(part), scale, scale, 1)
        product.add(csr, scale[:, 0], scale[:, 1], 1)
        lines = normal(5, 3 * n * 2, dtype=dtype).detach()
        product.multiply(lines, torch.empty_like(lines), 2)
        for step, size in sizes.items():
            flat, last = steps.FlatParameters([normal(4, size, dtype=dtype)]), target
            given: list[Any] = [x]
            width = hidden
            if step is not steps.tgcn_model_step:
                given += [product]
            if step is steps.mpnn_lstm_step:
                given, last, width = [x, raw, product], target[-1], 2 * hidden + features + 2
            for adam in (None, steps.Adam(1e-2, decay=0.1)):
                output = x.new_empty(n, width)
                step(flat, *given, last, hidden, adam=adam, output=output)


def run_attention(n: int) -> None:
    csr = matrix(n)
    shown = normal(1, n, 2, 4), normal(2, n, 2), normal(3, n, 2)
    both_ways(attend_rows(csr.indptr, csr.indices, *shown))
    attend_rows(csr.indptr, csr.indices, *(x.detach() for x in shown))
    sequence = torch.zeros(6, n, dtype=torch.int64) + torch.arange(n)
    sequence[4:] = torch.arange(n) + n
    asked = [normal(i, 6, n, 8) for i in range(3)]
    both_ways(packed_attention(*asked, sequence, heads=2, causal=True))


def run_interactions(n: int) -> None:
    src, dst, t = stream(n)
    for dtype in (torch.float32, torch.float64):
        left, right = normal(1, n, 6, dtype=dtype), normal(2, n, 6, dtype=dtype)
        both_ways(edge_dots(src, dst, left, right))
        partner_sums(src, dst, left.detach(), right.detach(), last=dtype == torch.float32)
    group_edges(src, n)
    local_rows(src, dst, ids(5, n, len(src)), torch.full((n,), -1, dtype=torch.int32))
    t_batches(src, dst, ids(5, n, len(src)), n)
    t_batches(src, dst, ids(5, n, len(src)), n, t)


def run_labels(n: int) -> None:
    csr = matrix(n)
    weight = ids(1, 5, csr.nnz, dtype=torch.int32) + 1
    propagate_labels(csr, weight, torch.ones(n, dtype=torch.int32), cap=8, sweeps=2)
    propagate_labels(csr, cap=8, sweeps=2, active_only=True)


def run_supergraphs(n: int) -> None:
    csrs = sequence(n)
    graph = supergraph.build_supergraph(csrs, presence="edges")
    supergraph.build_supergraph(csrs, presence="tail", per_length=True)
    count = 5
    chunk = torch.arange(graph.num_vertices, dtype=torch.int32) % count
    supergraph.chunk_sequences(graph, chunk, count)
    supergraph.chunk_edges(graph, chunk, count)
    supergraph.weight_apart(graph.csr, graph.edge_weight, chunk)
    traffic = supergraph.chunk_traffic(graph, chunk, count)
    supergraph.order_by_chunk(chunk, count)
    work = torch.rand(count, dtype=torch.float64)
    most = float(work.sum() / 2)
    supergraph.assign_greedy(torch.arange(count), work, traffic, 2, most, 0.1, True)
    load = torch.ones(graph.num_vertices, dtype=torch.int64)
    counts = ExchangeCounts(2, 4, 1, 2)
    nets = hypergraph_of(graph, counts, load)
    worker = torch.arange(graph.num_vertices, dtype=torch.int32) % 3
    nets.cost(worker)
    nets.refine(worker, 3, graph.num_vertices // 2, sweeps=2)
    nets.contract(chunk, count)
    csr = matrix(n)
    reads = shared_rows(csr, torch.arange(n) % 4, 4)
    fuse_units(reads, memory=torch.ones(4, dtype=torch.float64), limit=3.0)


def run_stores(n: int) -> None:
    src, dst, t = stream(n)
    for layout in ("packed", "compact", "wide"):
        how = {"policy": BlockPolicy("fixed", 4), "undirected": True, "late": "sort"}
        store = TemporalStore(n, layout=layout, **how)
        half = len(src) // 2
        store.insert(src[half:], dst[half:], t[half:])
        store.insert(src[:half], dst[:half], t[:half])
        store.neighbours(n - 1)
        store.degrees(), store.list_lengths(), store.memory()
        store.delete_edges(torch.tensor([3, 1]))
        store.delete_vertices(torch.tensor([n - 1, 2]))
        store.revive_vertices(torch.tensor([2]))
        store.handle.deleted(), store.handle.pools()
        shelf = store.handle.older(float(t[half]))
        store.handle.drop(float(t[half]))
        kept = [torch.from_numpy(np.array(getattr(shelf, name)())) for name in SHELF]
        store._reload(kept)
        store.handle.resume(store.num_events, store.last_time)
        store.add_vertices(2)
    grown = TemporalStore(n, undirected=True)
    for batch in range(8):
        part = slice(batch * n // 2, (batch + 1) * n // 2)
        grown.insert(src[part], dst[part], t[part])


def run_shared_stores(n: int) -> None:
    if not hasattr(os, "memfd_create"):  # no memory to share by files
        return
    src, dst, t = stream(n)
    files = [os.memfd_create("entries") for _ in range(4)]
    writer = TemporalStore(n, undirected=True, files=files)
    reader = TemporalStore(n, undirected=True, files=files, writes=False)
    writer.insert(src, dst, t)
    reader.follow(writer.counts())
    assert reader.degrees().equal(writer.degrees())
    for file in files:
        os.close(file)


SHELF: Final = ("vertices", "counts", "sizes", "capacity", "records")


def run_temporal_neighbours(n: int) -> None:
    offsets, edge_times = torch.arange(n + 1) * 2, torch.rand(2 * n).double()
    times = 1 + torch.rand(n).double()
    for edge_dim, time_dim in ((2, 4), (0, 0)):
        query, neighbours = normal(1, 2, n, 3 + edge_dim + time_dim), normal(2, 2 * n, 3)
        edges = normal(3, 2 * n, edge_dim).detach() if edge_dim else None
        encoding = (normal(4, time_dim, 1), normal(5, time_dim)) if time_dim else (None, None)
        given = (offsets, times, edge_times, query, neighbours, edges, *encoding)
        both_ways(temporal_attention(*given))


def run_encoded_ages(n: int) -> None:
    ages = torch.rand(4 * n).double()
    for dtype in (torch.float32, torch.float64):
        both_ways(encode_ages(ages, normal(1, 5, 1, dtype=dtype), normal(2, 5, dtype=dtype)))


def run_temporal_samples(n: int) -> None:
    sample_hops = temporal_sample.sample_hops
    src, dst, t = stream(n)
    store = TemporalStore(n, undirected=True, policy=BlockPolicy("fixed", 3))
    store.insert(src, dst, t)
    roots, when = ids(3, n, n), torch.full((n,), float(t[-1]), dtype=torch.float64)
    places = 3 * torch.arange(n)
    sample_hops(store, roots, when, [2, 3], policy="uniform", positions=places)
    temporal_sample.sample_between(store, roots, when - 5, when, fanout=2)
    sample_hops(store, roots, when, [2], policy="uniform", replace=True, search="linear")
    length = float(t[-1]) / 3
    sample_hops(store, roots, when, [3], window=length, snapshots=2, grouped=False)
    sample_hops(store, roots, when, [2, 2], window=length, prop_time=True)
    temporal_sample.random_walks(store, roots, when, 2)
    temporal_sample.count_walk(store, roots, when - 5, when)
    rows = build_tcsr(n, src, dst, t, undirected=True)
    sample_tcsr_hops(rows, roots, when, [2, 2], policy="uniform", positions=places)
    sample_tcsr_hops(rows, roots, when, [2], window=5.0)


def run_caches(n: int) -> None:
    table = torch.arange(n * 3, dtype=torch.float32).view(n, 3)
    for index in ("dense", "hash"):
        for policy in ("lru", "lfu", "fifo"):
            cache = RowCache(n, 3, max(4, n // 4), policy=policy, index=index)
            for batch in range(3):
                asked = ids(batch, n, n)
                found, out = cache.lookup(asked), torch.empty(n, 3)
                cache.gather(found, table, out, by_id=True)
                cache.gather(found, table[found.misses], out, by_id=False)
                cache.update(found, out)
            cache.assign(cache.state())
            cache.grow(n + 5)
            assert cache.index_bytes > 0
    plain = ListedCache(table, max(2, n // 4), threads=torch.get_num_threads())
    plain.fetch(ids(1, n, n))


def run_trees(n: int) -> None:
    for dtype in (torch.float64, torch.int64):
        tree = SegmentTree(ids(1, 9, n).to(dtype) + 1)
        assert tree.total > 0
        assert tree.height > 0
        assert tree.nodes_visited == 0
        assert len(tree.weights) == n
        tree.search(torch.zeros(3, dtype=dtype))
        tree.modify(torch.tensor([n - 1, 0]), torch.tensor([3, 0], dtype=dtype))
        tree.draw(4, seed=1, remove=False)
        tree.draw(4, seed=1, remove=True)


def run_weighted_draws(n: int) -> None:
    for dtype in (torch.float64, torch.int64, torch.float32):
        weights = (ids(2, 9, n) + 1).to(dtype)
        for method in weighted.METHODS:
            alike = torch.ones_like(weights) if method == "reservoir" else weights
            weighted.draw_many(alike, 3, 2, method=method)


def run_edge_samples(n: int) -> None:
    src, dst, t = stream(n)
    table = edge_sampling.EdgeTable.build(src, dst, t, n)
    both = edge_sampling.EdgeTable.build(src, dst, t, n, True)
    for rounding in ("nearest", "random"):
        edge_sampling.keep_share(table, 0.5, rounding=rounding)
    roots = ids(4, n, 12)
    before = torch.full((12,), float(t[-1]), dtype=torch.float64)
    weights = torch.rand(len(src), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    edge_sampling.sample_nodewise(both, roots, [2, 2], before=before)
    edge_sampling.sample_nodewise(both, roots, weights=weights)
    edge_sampling.sample_layerwise(both, roots, [4, 4], batch=4, items="vertices")
    edge_sampling.sample_layerwise(both, roots, weights="degree")
    sets = edge_sampling.sample_subgraph(both, 8, 16, count=2, induced=False)
    edge_sampling.sample_subgraph(both, 8, 16, count=2, replacement=True, rebuild="rest")
    edge_sampling.induced_edges(both, sets.offsets, sets.vertices)


def run_ranks(n: int) -> None:
    column = ids(1, 9, 4 * n)
    skip = (column + 1) % 9
    for dtype in (torch.float32, torch.float64):
        scores = normal(2, 4 * n, 9, dtype=dtype)
        rank_columns(scores, column)
        rank_columns(scores, column, torch.arange(4 * n + 1), skip)


def run_grids(n: int) -> None:
    src, dst, _ = stream(n)
    intervals = torch.tensor([0, n, 4 * n])
    bounds = torch.tensor([0, n // 3, n])
    counts = count_grids(src, dst, intervals, bounds)
    made = sort_grids(src, dst, intervals, bounds, local=True)
    starts = made.offsets[:-1].clone().view(2, 2, 2)
    empty = [torch.empty_like(x) for x in (made.order, made.local_src, made.local_dst)]
    into = SortedGrids(made.offsets, *empty)
    place_grids(src, dst, intervals, bounds, into, starts, base=0)
    assert int(counts.sum()) == len(src)


def run_twin_streams(n: int) -> None:
    spec = twins.RankCopySpec(
        events=4 * n, num_src=n, num_dst=n, repeat=0.3, mem_src=0.2, mem_dst=0.2, reach_pair=5,
        reach_src=5, reach_dst=5, blocks=2, mixing=0.5,
    )  # fmt: skip
    stream = twins.RankCopy(spec, 3, threads=torch.get_num_threads())
    assert stream.position == 0
    stream.take(3 * n)
    u = twins.uniforms(3, 0, n, 1)
    twins.rank_draws(1.0, 1.0, n, u)
    twins.lag_draws(0.5, 5, 2, u, u)
    twins.exact_log2(u + 1)
    twins.exact_exp2(u)


def run_copies(n: int) -> None:
    thread = _cpu.CopyThread()
    source, target = torch.arange(n), torch.empty(n, dtype=torch.int64)
    thread.hold()
    job = thread.submit([(target.data_ptr(), source.data_ptr(), 8 * n)])
    thread.go()
    thread.wait(job)
    thread.progress()
    thread.close()
    assert not thread.running


def run_lines(n: int) -> None:
    table = ids(1, 99, 8 * n)
    _cpu.read_lines(table, torch.arange(n), torch.get_num_threads())


SCENARIOS: Final = {n.removeprefix("run_"): f for n, f in vars().items() if n.startswith("run_")}

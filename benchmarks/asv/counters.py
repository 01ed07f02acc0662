"""Exact counts of every system's mechanism on small twins: the same on every machine.

A count that grows is a change of behaviour, and the gate refuses it at factor 1:

    asv run --python=same --set-commit-hash HEAD --bench counters
    dgbench compare benchmarks/asv/baseline.json .asv/results

A change that is wanted keeps the new counts with `--keep`. Smaller is better in all of them.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

# Whatever takes long to import is imported where it is used: asv starts a process for every name.
if TYPE_CHECKING:
    from dgbench.datasets import EventStream
    from dgbench.kernels_cuda.csr import Csr

SNAPSHOTS, CHUNKS, STEP = 8, 16, 600
RANKS, DEVICES, DRAWS = 4, 8, 512
NAMES = (
    "pipad: words, COO",
    "pipad: words, CSR",
    "pipad: words, sliced",
    "pipad: words, overlap and exclusive parts",
    "pipad: words, union",
    "pipad: transactions, partition, F 2",
    "pipad: requests, partition, F 2",
    "pipad: transactions, GE-SpMM, F 2",
    "pipad: transactions, partition, F 16",
    "pipad: requests, partition, F 16",
    "pipad: transactions, GE-SpMM, F 16",
    "pipad: transactions, partition, F 64",
    "pipad: requests, partition, F 64",
    "pipad: transactions, GE-SpMM, F 64",
    "pipad: longest warp over mean, in thousandths",
    "esdg: changed entries",
    "esdg: bytes of differences",
    "dgc: weight cut by chunks",
    "dgc: chunks",
    "gnnflow: blocks, grown",
    "gnnflow: bytes, grown",
    "gnnflow: blocks visited, grown",
    "gnnflow: times compared, grown",
    "gnnflow: blocks, adaptive",
    "gnnflow: bytes, adaptive",
    "gnnflow: blocks visited, adaptive",
    "gnnflow: times compared, adaptive",
    "gnnflow: blocks, strawman",
    "gnnflow: bytes, strawman",
    "gnnflow: blocks visited, strawman",
    "gnnflow: times compared, strawman",
    "gnnflow: rows fetched, lru",
    "gnnflow: rows fetched, lfu",
    "gnnflow: rows fetched, fifo",
    "esdg: bytes between 4 ranks, snapshots, cd_gcn",
    "esdg: bytes between 4 ranks, vertices, cd_gcn",
    "esdg: bytes between 4 ranks, snapshots, tm_gcn",
    "esdg: bytes between 4 ranks, vertices, tm_gcn",
    "dgc: padded vertex-steps, packed",
    "dgc: padded vertex-steps, to the longest",
    "tgcn: nodes visited, sis of arity 2",
    "tgcn: nodes visited, sis of arity 8",
    "tgcn: elements scanned, its_linear",
    "tgcn: redraws, its_linear",
    "tgcn: nodes visited, its_bitmap",
    "tgcn: elements scanned, its_list",
    "tgcn: elements scanned, its_rebuild",
    "tgcn: tables made anew, its_rebuild",
    "tgcn: nodes visited, brs",
    "tgcn: bytes a round, ring",
    "tgcn: bytes times hops, ring",
    "tgcn: bytes a round, gather",
    "tgcn: bytes times hops, gather",
    "tgcn: largest grid over mean, in thousandths, equal",
    "tgcn: phases over even ones, in thousandths, equal",
    "tgcn: largest grid over mean, in thousandths, edges",
    "tgcn: phases over even ones, in thousandths, edges",
    "tgcn: largest grid over mean, in thousandths, dealt",
    "tgcn: phases over even ones, in thousandths, dealt",
    "dygnn: t-batches",
    "dygnn: padded edges, t-batches",
)
"""In the order of `counted`; asv wants to know them before it counts."""


def events() -> EventStream:
    """A twin of Wikipedia with a sixth of its edits."""
    from dgbench import datasets

    return datasets.open_events("wikipedia", "twin", 1 / 6)


def snapshots() -> list[Csr]:
    """Eight snapshots of a twin of Flickr whose edges live three snapshots."""
    from dgbench import datasets

    spec = datasets.SnapshotSpec(
        dataset="flickr", source="twin", scale=1 / 512, snapshots=SNAPSHOTS, edge_life=3,
        feature_dim=2, symmetric=True,
    )  # fmt: skip
    return list(datasets.open_snapshots(spec).topology)


def formats(csrs: list[Csr]) -> dict[str, int]:
    """PiPAD: words that are sent, and transactions of one aggregation."""
    from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
    from dgbench.kernels_cuda.slices import coo_words, csr_words, slice_csr
    from dgbench.kernels_cuda.variants.memory_model import (
        gespmm_loads,
        imbalance,
        partition_loads,
        slice_work,
    )

    parts = PartTopology.build(csrs)
    sliced = [slice_csr(csr) for csr in csrs]
    found = {
        "pipad: words, COO": sum(coo_words(csr.nnz) for csr in csrs),
        "pipad: words, CSR": sum(csr_words(csr) for csr in csrs),
        "pipad: words, sliced": sum(one.words() for one in sliced),
        "pipad: words, overlap and exclusive parts": parts.words(),
        "pipad: words, union": UnionTopology.build(csrs).words(),
    }
    for width in (2, 16, 64):
        loads, plain = partition_loads(parts, width), [gespmm_loads(c, width) for c in csrs]
        found[f"pipad: transactions, partition, F {width}"] = loads.transactions
        found[f"pipad: requests, partition, F {width}"] = loads.requests
        found[f"pipad: transactions, GE-SpMM, F {width}"] = sum(p.transactions for p in plain)
    uneven = max(imbalance(slice_work(one, 16)) for one in sliced)
    found["pipad: longest warp over mean, in thousandths"] = round(1000 * uneven)
    return found


def differences(csrs: list[Csr]) -> dict[str, int]:
    """ESDG: bytes of graph differences, plain where that is less."""
    from dgbench.kernels_cuda.difference import count_changes, difference_bytes

    sent = csrs[0].nnz
    changed = 0
    for old, new in itertools.pairwise(csrs):
        removed, added = count_changes(old, new)
        changed += removed + added
        sent += difference_bytes(added, removed, new.nnz)
    return {"esdg: changed entries": changed, "esdg: bytes of differences": sent}


def cuts(csrs: list[Csr]) -> dict[str, int]:
    """DGC: weight that chunks of bounded size cut."""
    from dgbench.kernels_cuda.label_propagation import propagate_labels
    from dgbench.kernels_cuda.supergraph import build_supergraph, chunk_traffic

    graph = build_supergraph(csrs)
    cap = -(-graph.num_vertices // CHUNKS)
    run = propagate_labels(graph.csr, graph.edge_weight, cap=cap, seed=1)
    chunk, count = run.chunks()
    _, traffic = chunk_traffic(graph, chunk, count)
    return {"dgc: weight cut by chunks": int(traffic.sum()) // 2, "dgc: chunks": count}


def blocks(stream: EventStream) -> dict[str, int]:
    """GNNFlow: blocks and bytes of a store that grew, and what a walk along its lists visits."""
    import torch

    from dgbench.kernels_cuda.temporal_sample import count_walk
    from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore

    found = {}
    for name, policy in (
        ("grown", BlockPolicy("grown", 512)),
        ("adaptive", BlockPolicy("adaptive", 64)),
        ("strawman", BlockPolicy("strawman", 64)),
    ):
        store = TemporalStore(stream.num_nodes, policy=policy, undirected=True)
        for first in range(0, len(stream), STEP):
            cut = slice(first, first + STEP)
            store.insert(stream.src[cut], stream.dst[cut], stream.t[cut])
        memory = store.memory()
        roots = torch.arange(stream.num_nodes)
        ends = torch.full((stream.num_nodes,), float("inf"), dtype=torch.float64)
        visited, compared = count_walk(store, roots, torch.full_like(ends, -1.0), ends)
        found |= {
            f"gnnflow: blocks, {name}": memory.blocks,
            f"gnnflow: bytes, {name}": memory.total,
            f"gnnflow: blocks visited, {name}": int(visited.sum()),
            f"gnnflow: times compared, {name}": int(compared.sum()),
        }
    return found


def misses(stream: EventStream) -> dict[str, int]:
    """GNNFlow: rows that a cache of a tenth of the vertices has to fetch."""
    import torch

    from dgbench.kernels_cuda.row_cache import RowCache

    found = {}
    capacity = stream.num_nodes // 10
    for policy in ("lru", "lfu", "fifo"):
        cache = RowCache(stream.num_nodes, 1, capacity, policy=policy, limit=capacity // 5)
        rows, missed = torch.arange(stream.num_nodes, dtype=torch.float32).unsqueeze(1), 0
        for first in range(0, len(stream), STEP):
            ids = torch.cat([stream.src[first : first + STEP], stream.dst[first : first + STEP]])
            answer = cache.lookup(ids)
            out = torch.empty(ids.numel(), 1)
            cache.gather(answer, rows, out, by_id=True)
            missed += answer.misses.numel()
            cache.update(answer, out)
        found[f"gnnflow: rows fetched, {policy}"] = missed
    return found


def exchanges(csrs: list[Csr]) -> dict[str, int]:
    """ESDG: bytes that ranks send each other in an epoch, by walking its exchanges without data."""
    import torch

    from dgbench.systems.esdg.vertex_parts import VertexParts
    from dgbench.systems.esdg.vertex_plan import read_counts
    from dgbench.systems.esdg.volumes import count_snapshot, count_vertex

    found = {}
    nodes = csrs[0].num_rows
    owner = torch.arange(nodes) * RANKS // nodes
    reads = list(read_counts(csrs, VertexParts(owner, RANKS)))
    for model in ("cd_gcn", "tm_gcn"):
        moved = count_snapshot(model, size=RANKS, steps=len(csrs), num_nodes=nodes, blocks=2)
        asked = count_vertex(model, reads, blocks=2)
        found[f"esdg: bytes between {RANKS} ranks, snapshots, {model}"] = moved.total()
        found[f"esdg: bytes between {RANKS} ranks, vertices, {model}"] = asked.total()
    return found


def padding(csrs: list[Csr]) -> dict[str, int]:
    """DGC: zeros between the sequences of vertices that its time encoder packs into rows."""
    import torch

    from dgbench.kernels_cuda.transpose import transpose
    from dgbench.systems.dgc.packing import pack_sequences

    live = torch.stack([(c.indptr.diff() > 0) | (transpose(c).indptr.diff() > 0) for c in csrs])
    steps = torch.arange(1, len(csrs) + 1)[:, None]
    last = (live * steps).amax(0)
    first = torch.where(live, steps, len(csrs) + 1).amin(0)
    lengths = (last - first + 1).clamp(min=0)
    packed = pack_sequences(lengths[lengths > 0].long())
    return {
        "dgc: padded vertex-steps, packed": packed.padding,
        "dgc: padded vertex-steps, to the longest": packed.padding_unpacked,
    }


def draws(stream: EventStream) -> dict[str, int]:
    """T-GCN: what its tree and the rivals' tables look at for the same number of draws."""
    import torch

    from dgbench.kernels_cuda.weighted import DrawStats, draw_many

    degree = torch.bincount(torch.cat([stream.src, stream.dst]), minlength=stream.num_nodes)
    weights = degree[degree > 0]
    found = {}

    def count(method: str, arity: int = 8) -> DrawStats:
        stats = DrawStats()
        draw_many(weights, DRAWS, 8, method=method, seed=1, stats=stats, arity=arity, threads=1)
        return stats

    for arity in (2, 8):
        found[f"tgcn: nodes visited, sis of arity {arity}"] = count("sis", arity).nodes_visited
    linear, rebuilt = count("its_linear"), count("its_rebuild")
    return found | {
        "tgcn: elements scanned, its_linear": linear.elements_scanned,
        "tgcn: redraws, its_linear": linear.redraws,
        "tgcn: nodes visited, its_bitmap": count("its_bitmap").nodes_visited,
        "tgcn: elements scanned, its_list": count("its_list").elements_scanned,
        "tgcn: elements scanned, its_rebuild": rebuilt.elements_scanned,
        "tgcn: tables made anew, its_rebuild": rebuilt.rebuilt,
        "tgcn: nodes visited, brs": count("brs").nodes_visited,
    }


def rounds(stream: EventStream) -> dict[str, int]:
    """T-GCN: bytes of a round and the links that they pass, and how evenly grids are filled."""
    from dgbench.systems.tgcn.balance import balance
    from dgbench.systems.tgcn.grids import Grids, cut_vertices
    from dgbench.systems.tgcn.links import machine
    from dgbench.systems.tgcn.schedule import bytes_by_hops, make_schedule, traffic

    found: dict[str, int] = {}
    rows = cut_vertices(stream.num_nodes, DEVICES).sizes
    for kind in ("ring", "gather"):
        sent = traffic(make_schedule(DEVICES, kind), rows, read=256, add=256)
        hops = bytes_by_hops(sent, machine(size=DEVICES))
        found[f"tgcn: bytes a round, {kind}"] = int(sent.sum())
        found[f"tgcn: bytes times hops, {kind}"] = sum(abs(h) * n for h, n in hops.items())
    for cut in ("equal", "edges", "dealt"):
        grids = Grids.build(stream.src, stream.dst, stream.t, stream.num_nodes, intervals=16,
                            parts=4, vertex_cut=cut, local=False, threads=1)  # fmt: skip
        fill = balance(grids.counts)
        found[f"tgcn: largest grid over mean, in thousandths, {cut}"] = round(1000 * fill.largest)
        found[f"tgcn: phases over even ones, in thousandths, {cut}"] = round(4000 / fill.busy)
    return found


def batches(stream: EventStream) -> dict[str, int]:
    """DyGNN: t-batches, and edges of zeros where all are padded to the largest."""
    import torch

    from dgbench.systems.base.interaction_layout import t_batches

    count = padded = 0
    for first in range(0, len(stream), STEP):
        cut = slice(first, first + STEP)
        sizes = torch.bincount(t_batches(stream.src[cut], stream.dst[cut], None, stream.num_nodes))
        count += sizes.numel()
        padded += sizes.numel() * int(sizes.max()) - int(sizes.sum())
    return {"dygnn: t-batches": count, "dygnn: padded edges, t-batches": padded}


def counted() -> dict[str, int]:
    """Every counter by its name."""
    csrs, stream = snapshots(), events()
    found: dict[str, int] = {}
    for part, data in ((formats, csrs), (differences, csrs), (cuts, csrs), (blocks, stream),
                       (misses, stream), (exchanges, csrs), (padding, csrs), (draws, stream),
                       (rounds, stream), (batches, stream)):  # fmt: skip
        found |= part(data)
    return found


class Counters:
    """Every counter as a benchmark of its own; all are counted once, in one process."""

    params = NAMES
    param_names = ("counter",)
    timeout = 300

    def setup_cache(self) -> dict[str, int]:
        return counted()

    def track_count(self, found: dict[str, int], counter: str) -> int:
        return found[counter]

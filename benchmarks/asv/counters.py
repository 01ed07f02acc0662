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
    from dgbench.kernels_cuda.memory_model import (
        gespmm_loads,
        imbalance,
        partition_loads,
        slice_work,
    )
    from dgbench.kernels_cuda.overlap import PartTopology, UnionTopology
    from dgbench.kernels_cuda.slices import coo_words, csr_words, slice_csr

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

    from dgbench.kernels_cuda.temporal_counts import count_walk
    from dgbench.kernels_cuda.temporal_store import TemporalStore
    from dgbench.kernels_cuda.temporal_types import BlockPolicy

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


def counted() -> dict[str, int]:
    """Every counter by its name."""
    csrs, stream = snapshots(), events()
    found: dict[str, int] = {}
    for part, data in ((formats, csrs), (differences, csrs), (cuts, csrs), (blocks, stream),
                       (misses, stream)):  # fmt: skip
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

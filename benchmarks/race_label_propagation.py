"""Race chunks by label propagation against METIS on the same supergraph.

    python benchmarks/race_label_propagation.py            # a minute or two on one core
    python benchmarks/race_label_propagation.py --json     # one object for machines

A supergraph of 5 M edges and more: entities of a few thousand groups, of power-law popularity and
in random order, meet inside their group four times out of five. Time is processor time of one
thread; contenders take turns and a ratio is formed inside a round. An edge is counted once, though
both ends read it in every sweep. METIS cuts into as many parts as there are workers; a partition
here ends with every vertex at a worker too: chunks, traffic between chunks, assignment. Cut is the
share of edge weight between workers, balance the largest number of vertices over the mean.
What is refined is rows sent, not the cut, and balance is in work: vertices and edges.
Exits with 1 where a bar is missed, and with 2 where METIS gives up: there is nothing to race then.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Callable

import numpy as np
import pymetis
import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph, chunk_traffic
from dgbench.systems.dgc.assignment import assign_chunks
from dgbench.systems.dgc.partition import partition_chunks
from dgbench.systems.dgc.supergraph import ExchangeCounts, chunk_cap, cut_weight, make_chunks

ENTITIES, GROUP, STEPS, WORKERS = 150_000, 60, 16, 8
EDGE_BAR, METIS_BAR = 20e6, 3.0
Part = tuple[float, Tensor]


def snapshots(edges: int, seed: int = 1) -> list[Csr]:
    """STEPS symmetric snapshots with about `edges` pairs together."""
    draw = np.random.default_rng(seed)
    names = draw.permutation(ENTITIES)
    source = (draw.random(edges) ** 1.5 * ENTITIES).astype(np.int64)
    inside = source // GROUP * GROUP + draw.integers(0, GROUP, edges)
    anywhere = (draw.random(edges) ** 1.5 * ENTITIES).astype(np.int64)
    target = np.where(draw.random(edges) < 0.8, np.minimum(inside, ENTITIES - 1), anywhere)
    when = torch.from_numpy(draw.integers(0, STEPS, edges))
    one, other = (torch.from_numpy(names[ids]) for ids in (source, target))
    both = torch.cat([one, other]), torch.cat([other, one])
    return edge_snapshots(*both, torch.cat([when, when]), STEPS, ENTITIES)


def timed(job: Callable[[], Tensor]) -> Part:
    """Processor seconds and the worker of each vertex."""
    start = time.process_time()
    part = job()
    return time.process_time() - start, part


def by_labels(graph: Supergraph, levels: int) -> Tensor:
    """Chunks, their traffic, their workers; loads are numbers of vertices."""
    made = make_chunks(graph, chunk_cap(graph, WORKERS), levels=levels, threads=1)
    traffic = chunk_traffic(graph, made.chunk, made.count)
    sizes = torch.bincount(made.chunk, minlength=made.count).double()
    return assign_chunks(sizes, traffic, WORKERS).worker[made.chunk.long()]


def by_chunks(graph: Supergraph) -> Tensor:
    """The whole partition with refinement; half the weights of a two-layer model's exchanges."""
    counts = ExchangeCounts(spatial=2, spatial_floats=1, temporal=1, temporal_floats=1)
    return partition_chunks(graph, counts, WORKERS, threads=1).placement.structure


def by_metis(graph: Supergraph) -> Tensor:
    """METIS with its own defaults."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        _, part = pymetis.part_graph(
            WORKERS,
            xadj=graph.csr.indptr.numpy(),
            adjncy=graph.csr.indices.numpy(),
            eweights=graph.edge_weight.numpy(),
        )
    return torch.tensor(part)


def sweep_rates(graph: Supergraph) -> tuple[float, float]:
    """Edges per second of the first sweep, and the median of those after it; all vertices swept."""
    seconds: list[float] = []
    last = time.process_time()

    def note() -> bool:
        nonlocal last
        now = time.process_time()
        seconds.append(now - last)
        last = now
        return False

    cap = chunk_cap(graph, WORKERS)
    csr, weight = graph.csr, graph.edge_weight
    propagate_labels(csr, weight, cap=cap, sweeps=8, share=0.0, threads=1, stop=note)
    edges = graph.csr.nnz / 2
    return edges / seconds[0], edges / statistics.median(seconds[1:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=int, default=3_200_000, help="meetings to draw")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    topology = snapshots(arguments.edges)
    start = time.process_time()
    graph = build_supergraph(topology, spatial=2, temporal=1, threads=1)
    build = time.process_time() - start
    edges, weight = graph.csr.nnz // 2, int(graph.edge_weight.sum(dtype=torch.int64)) // 2
    contenders = {
        "labels, one level": lambda: by_labels(graph, 1),
        "labels, levels": lambda: by_labels(graph, 8),
        "chunks, refined": lambda: by_chunks(graph),
        "METIS": lambda: by_metis(graph),
    }
    runs: dict[str, list[Part]] = {name: [] for name in contenders}
    rates = []
    for _ in range(arguments.rounds):
        rates.append(sweep_rates(graph))
        for name, job in contenders.items():
            try:
                runs[name].append(timed(job))
            except RuntimeError as error:
                print(f"{name} gave up on {edges} edges: {error}", file=sys.stderr)
                return 2
    first, later = (statistics.median(r[i] for r in rates) for i in (0, 1))
    found = {
        "vertices": graph.num_vertices,
        "edges": edges,
        "build_edges_per_s": edges / build,
        "first_sweep_edges_per_s": first,
        "later_sweep_edges_per_s": later,
        "partitions": {},
    }
    for name, parts in runs.items():
        part = parts[0][1]
        faster = [m[0] / p[0] for m, p in zip(runs["METIS"], parts, strict=True)]
        found["partitions"][name] = {
            "seconds": statistics.median(seconds for seconds, _ in parts),
            "faster_than_metis": statistics.median(faster),
            "cut": cut_weight(graph, part) / weight,
            "balance": float(torch.bincount(part, minlength=WORKERS).max())
            / (graph.num_vertices / WORKERS),
        }
    slowest = min(p["faster_than_metis"] for n, p in found["partitions"].items() if n != "METIS")
    met = min(first, later) >= EDGE_BAR and slowest >= METIS_BAR
    if arguments.json:
        print(json.dumps({"edge_bar": EDGE_BAR, "metis_bar": METIS_BAR, "met": met, **found}))
        return 0 if met else 1
    print(f"{graph.num_vertices} vertex-steps, {edges} edges; built {edges / build / 1e6:.1f} M/s")
    print(f"sweeps: first {first / 1e6:.1f} M edges/s, later {later / 1e6:.1f} (bar 20)")
    for name, row in found["partitions"].items():
        print(
            f"{name:18} {row['seconds']:7.2f} s  {row['faster_than_metis']:5.1f} x METIS (bar 3)  "
            f"cut {row['cut']:.4f}  balance {row['balance']:.3f}"
        )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())

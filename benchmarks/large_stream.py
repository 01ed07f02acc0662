"""Ingest a twin of 200 M edges and sample it: time, memory, and whether samples are right.

    python benchmarks/large_stream.py                     # the twin of GDELT, 191 M edges
    python benchmarks/large_stream.py --scale 0.01        # a small one
    python benchmarks/large_stream.py --json

Edges arrive in batches of 100 k, directed as in the paper; times are their ordinals, so that the
newest edges before a time are known without any structure. Samples of random roots at random times
are compared with what the generator gives when it is run a second time.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np
import torch

from dgbench.datasets import twins
from dgbench.kernels_cuda.temporal_sample import sample_neighbours
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore

BATCH = 100_000
ROOTS = 12_000
FANOUT = 10
CHECKED = 200
"""Roots whose samples are compared with a second run of the generator."""


def resident_bytes() -> int:
    """Largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ingest(store: TemporalStore, name: str, scale: float) -> tuple[float, float]:
    """Insert every batch; returns the seconds spent in inserts and in all."""
    begin, spent, done = time.perf_counter(), 0.0, 0
    for src, dst in twins.stream(name, scale, chunk=BATCH):
        ends = torch.from_numpy(src), torch.from_numpy(dst)
        now = torch.arange(done, done + len(src), dtype=torch.float64)
        start = time.perf_counter()
        store.insert(*ends, now)
        spent += time.perf_counter() - start
        done += len(src)
    return spent, time.perf_counter() - begin


def ask(store: TemporalStore, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random vertices at random times."""
    draw = np.random.default_rng(seed)
    nodes = torch.from_numpy(draw.integers(0, store.num_vertices, ROOTS))
    return nodes, torch.from_numpy(draw.uniform(0, store.last_time + 1, ROOTS))


def wrong_samples(
    name: str, scale: float, nodes: torch.Tensor, times: torch.Tensor, found: list[list[int]]
) -> int:
    """Roots whose newest edges are not those of a second run of the generator."""
    wanted = {int(node) for node in nodes[:CHECKED]}
    edges: dict[int, list[np.ndarray]] = {node: [] for node in wanted}
    asked = np.array(sorted(wanted))
    done = 0
    for src, _ in twins.stream(name, scale, chunk=BATCH):
        hit = np.flatnonzero(np.isin(src, asked))
        for node in np.unique(src[hit]):
            edges[int(node)].append(done + hit[src[hit] == node])
        done += len(src)
    wrong = 0
    for node, t, eids in zip(nodes.tolist(), times.tolist(), found, strict=False):
        parts = edges[node]
        mine = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        wrong += mine[mine < t][-FANOUT:].tolist() != eids
    return wrong


def run(name: str, scale: float, tau: int, layout: str) -> dict[str, Any]:
    before = resident_bytes()
    vertices = twins.describe(name, scale)["vertices"]
    store = TemporalStore(vertices, policy=BlockPolicy("adaptive", tau), layout=layout)  # type: ignore[arg-type]
    inserting, whole = ingest(store, name, scale)
    memory = store.memory()
    report: dict[str, Any] = {
        "twin": name,
        "scale": scale,
        "layout": layout,
        "events": store.num_events,
        "vertices": vertices,
        "insert_s": inserting,
        "ingest_s": whole,
        "edges_per_s": store.num_events / inserting,
        "bytes_per_record": memory.total / max(1, memory.records),
        "longest_list": int(store.list_lengths().max()),
        "largest_degree": int(store.degrees().max()),
    }
    nodes, times = ask(store, seed=1)
    for policy in ("recent", "uniform"):
        start = time.perf_counter()
        sample = sample_neighbours(store, nodes, times, fanout=FANOUT, policy=policy)  # type: ignore[arg-type]
        report[f"{policy}_roots_per_s"] = ROOTS / (time.perf_counter() - start)
        owner = torch.repeat_interleave(torch.arange(ROOTS), sample.offsets.diff())
        report[f"{policy}_leaks"] = int((sample.edge_times >= times[owner]).sum())
        if policy == "recent":
            upto = sample.offsets.tolist()
            found = [sample.eids[upto[i] : upto[i + 1]].tolist() for i in range(CHECKED)]
    report["peak_bytes"] = resident_bytes()
    report["peak_before_bytes"] = before
    report["wrong_roots"] = wrong_samples(
        name, scale, nodes[:CHECKED], times[:CHECKED], found[:CHECKED]
    )
    return report


def show(report: dict[str, Any]) -> None:
    gib = float(1 << 30)
    print(
        f"{report['twin']} at scale {report['scale']:g}, {report['layout']}: "
        f"{report['events']:,} edges of {report['vertices']:,} vertices, longest list "
        f"{report['longest_list']}, largest degree {report['largest_degree']:,}"
    )
    print(
        f"  inserted in {report['insert_s']:.1f} s ({report['edges_per_s'] / 1e6:.2f} M edges/s), "
        f"{report['ingest_s']:.1f} s with the generator; {report['bytes_per_record']:.2f} bytes a "
        f"record; peak resident {report['peak_bytes'] / gib:.2f} GiB "
        f"({report['peak_before_bytes'] / gib:.2f} before)"
    )
    for policy in ("recent", "uniform"):
        print(
            f"  {policy}: {report[f'{policy}_roots_per_s'] / 1e6:.3f} M roots/s, "
            f"{report[f'{policy}_leaks']} edges at or after their root"
        )
    print(f"  {report['wrong_roots']} of {CHECKED} roots differ from a second run of the generator")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--twin", default="gdelt")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--tau", type=int, default=8192, help="threshold of adaptive blocks")
    parser.add_argument("--layout", default="packed", choices=("packed", "compact", "wide"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    report = run(options.twin, options.scale, options.tau, options.layout)
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


if __name__ == "__main__":
    main()

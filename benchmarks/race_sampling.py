"""Race temporal sampling from the block store against every sampler that is installed.

    python benchmarks/race_sampling.py                    # 200 k vertices, 10 M edges: some minutes
    python benchmarks/race_sampling.py --edges 1e6 --vertices 1e4
    python benchmarks/race_sampling.py --threads 1 --json  # one object for machines

Roots are sources, destinations and random vertices of edges in the middle of the stream, each at
its own time; fan-out 10. Contenders take turns on the same batches, and ratios are formed turn by
turn. Beside every speed stand recall, leaks and duplicates against a brute-force search, whether
two calls give the very same sample, and the share of the rate at which this machine fetches
independent cache lines: a recent root touches about 6.5 of them, a uniform one about 14.
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from typing import Any

import torch
from stream_contenders import Contender, Events, Truth, available, batch_roots, synthetic_events

from dgbench.kernels_cuda import _cpu
from dgbench.runtime.statistics import median, paired_ratio

FANOUT = 10
BATCHES = (600, 4000)
HOPS = (1, 2)
LINES = {"recent": 6.5, "uniform": 14.0}
"""Lines of 64 bytes for a root: vertex, uncached steps of the search, records."""
JUDGED = 400
OURS = "blocks"


def line_rate(threads: int, mebibytes: int = 512) -> float:
    """Lines of a table that are read in a second at independent random places, asked for ahead."""
    table = torch.zeros(mebibytes << 17, dtype=torch.int64)
    order = torch.randint(0, table.numel() // 8, (1 << 22,), dtype=torch.int64)
    best = 0.0
    for _ in range(5):
        start = time.perf_counter()
        _cpu.read_lines(table, order, threads)
        best = max(best, order.numel() / (time.perf_counter() - start))
    return best


def race(events: Events, threads: int, turns: int) -> list[dict[str, Any]]:
    """Every contender in turns; rows of batch, policy, hops and contender."""
    middle = len(events) // 2
    here: dict[str, Contender] = {}
    for name, one in available().items():
        here[name] = one(threads=threads)
        here[name].build(events if one.looks_back else events.first(middle))
    truth, lines = Truth(events), line_rate(threads)
    found = []
    for batch, policy, hops in product(BATCHES, ("recent", "uniform"), HOPS):
        racing = {n: o for n, o in here.items() if policy in o.policies and hops <= o.hops}
        seconds: dict[str, list[float]] = {name: [] for name in racing}
        for turn in range(turns + 1):
            nodes, times = batch_roots(events, middle + turn * batch, batch)
            for name in racing if turn % 2 else reversed(racing):
                start = time.perf_counter()
                racing[name].sample(nodes, times, [FANOUT] * hops, policy)
                if turn:
                    seconds[name].append(time.perf_counter() - start)
        targets = _targets(racing[OURS], events, middle, batch, policy, hops)
        for name, spent in seconds.items():
            row: dict[str, Any] = {
                "batch": batch, "policy": policy, "hops": hops, "threads": threads, "name": name,
                "title": type(here[name]).title, "ms": 1e3 * median(spent),
                "targets_per_s": targets / median(spent),
                "line_share": targets / median(spent) * LINES[policy] / lines,
                "ratio": paired_ratio(spent, seconds[OURS])._asdict(),
            }  # fmt: skip
            if hops == 1:
                row |= _quality(racing[name], truth, events, middle, batch, policy)
            found.append(row)
            _show(row)
    return found


def _targets(
    ours: Contender, events: Events, first: int, batch: int, policy: str, hops: int
) -> int:
    """Vertices that are asked for in all hops of a batch, as our sampler counts them."""
    nodes, times = batch_roots(events, first, batch)
    answer = ours.sample(nodes, times, [FANOUT] * hops, policy)
    return sum(hop.nodes.numel() for hop in answer[0])


def _quality(
    one: Contender, truth: Truth, events: Events, first: int, batch: int, policy: str
) -> dict[str, float]:
    if not type(one).looks_back:
        first = len(events) // 2  # what it holds ends there
    nodes, times = batch_roots(events, first, batch)
    answers = [one.first_hop(one.sample(nodes, times, [FANOUT], policy)) for _ in range(2)]
    quality = truth.judge(
        nodes, times, FANOUT, policy, *answers[0], every=max(1, nodes.numel() // JUDGED)
    )
    return {
        "recall": quality.recall,
        "leaks": quality.leaks,
        "duplicates": quality.duplicates,
        "repeats": float(torch.equal(answers[0][1], answers[1][1])),
    }


def _show(row: dict[str, Any]) -> None:
    low, high = row["ratio"]["low"], row["ratio"]["high"]
    interval = f" ({low:.2f} to {high:.2f})" if low is not None else ""
    quality = (
        f"; recall {row['recall']:.3f}, leaks {row['leaks']:.1%}, duplicates "
        f"{row['duplicates']:.1%}, {'repeats' if row['repeats'] else 'two calls differ'}"
        if "recall" in row
        else ""
    )
    print(
        f"{row['policy']:8s} {row['hops']} hop, batch {row['batch']:5d}, {row['threads']} thr  "
        f"{row['title']:24s} {row['ms']:9.3f} ms {row['targets_per_s'] / 1e6:6.2f} M targets/s "
        f"{row['line_share']:4.0%} of lines {row['ratio']['value']:7.2f}x{interval}{quality}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=float, default=200_000)
    parser.add_argument("--edges", type=float, default=10_000_000)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    events = synthetic_events(int(args.vertices), int(args.edges))
    rows = []
    for threads in args.threads:
        torch.set_num_threads(threads)
        print(f"{threads} threads: {line_rate(threads) / 1e6:.0f} M independent lines/s")
        rows += race(events, threads, args.turns)
    if args.json:
        print(json.dumps({"vertices": args.vertices, "edges": args.edges, "rows": rows}))


if __name__ == "__main__":
    main()

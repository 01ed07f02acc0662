"""Race inserting a batch of edges into a growing graph: the block store alone, and against others.

    python benchmarks/race_insert.py                 # 10 M edges, some minutes on one core
    python benchmarks/race_insert.py --edges 1e6     # smaller
    python benchmarks/race_insert.py --alone         # policies and layouts of the store only
    python benchmarks/race_insert.py --json          # one object for machines

Both directions of every edge are stored. Contenders take turns, round by round, and a ratio is
formed inside a round; time is processor time. A round adds 100 k edges to what the round before
left. After the last round every contender that can look back is asked for the newest neighbours of
a batch and judged against a brute-force search, so that a fast insert of wrong lists shows.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch
from stream_contenders import Contender, Events, Truth, available, batch_roots, synthetic_events

from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.runtime.statistics import median, paired_ratio

POLICIES = (
    BlockPolicy("grown", 512),
    BlockPolicy("adaptive", 48),
    BlockPolicy("adaptive", 64),
    BlockPolicy("adaptive", 8192),
    BlockPolicy("adaptive_literal", 64),
    BlockPolicy("fixed", 4),
    BlockPolicy("fixed", 64),
    BlockPolicy("strawman"),
)
LINES_PER_EDGE = 4
"""Cache lines that an edge touches at least: vertex and record, in either direction."""
FANOUT = 10


def line_rate(lines: int = 1 << 22, count: int = 1 << 21) -> float:
    """Random 64-byte lines of a 256 MB table that one thread gathers in a second, by torch."""
    table = torch.zeros(lines, 8, dtype=torch.int64)
    at = torch.randint(0, lines, (count,))
    best = min(_seconds(lambda: table[:, 0].index_select(0, at)) for _ in range(3))
    return count / best


def _seconds(job: Any) -> float:
    start = time.process_time()
    job()
    return time.process_time() - start


def alone(
    events: Events, old: int, batch: int, rounds: int, policy: BlockPolicy, layout: str
) -> dict[str, Any]:
    """Seconds and bytes of the store itself: all of `old` edges first, then batches."""
    store = TemporalStore(events.num_vertices, policy=policy, layout=layout, undirected=True)  # type: ignore[arg-type]

    def insert(first: int, last: int) -> None:
        store.insert(events.src[first:last], events.dst[first:last], events.t[first:last])

    built = sum(_seconds(lambda at=at: insert(at, at + batch)) for at in range(0, old, batch))
    seconds = [
        _seconds(lambda at=at: insert(at, at + batch))
        for at in range(old, old + rounds * batch, batch)
    ]
    memory = store.memory()
    return {
        "policy": f"{policy.name} {policy.size}" if policy.name != "strawman" else policy.name,
        "layout": layout,
        "edges_per_s": batch / median(seconds),
        "build_edges_per_s": old / built,
        "bytes_per_record": memory.total / memory.records,
        "slack": memory.slots / memory.records - 1,
        "longest_list": int(store.list_lengths().max()),
    }


def race(events: Events, old: int, batch: int, rounds: int) -> list[dict[str, Any]]:
    """Every contender that is installed, in turns."""
    here: dict[str, Contender] = {name: one(threads=1) for name, one in available().items()}
    built = {name: _seconds(lambda o=one: o.build(events.first(old))) for name, one in here.items()}
    seconds: dict[str, list[float]] = {name: [] for name in here}
    for r in range(rounds):
        grown = events.first(old + (r + 1) * batch)
        for name, one in here.items():
            seconds[name].append(_seconds(lambda o=one, g=grown: o.add(g, len(g) - batch)))
    known = events.first(old + rounds * batch)
    truth = Truth(known)
    return [
        {
            "name": name,
            "title": type(one).title,
            "note": type(one).note,
            "build_s": built[name],
            "add_s": median(seconds[name]),
            "edges_per_s": batch / median(seconds[name]),
            "ratio": paired_ratio(seconds[name], seconds["blocks"])._asdict(),
            **_recall(one, known, truth),
        }
        for name, one in here.items()
    ]


def _recall(one: Contender, known: Events, truth: Truth) -> dict[str, float]:
    """How right the newest neighbours are just after the last insert."""
    if "recent" not in one.policies:
        return {}
    nodes, _ = batch_roots(known, len(known) - 1000, 1000)
    times = torch.full((nodes.numel(),), float(known.t[-1]) + 1, dtype=torch.float64)
    root, eid = one.first_hop(one.sample(nodes, times, [FANOUT], "recent"))
    found = truth.judge(nodes, times, FANOUT, "recent", root, eid, every=10)
    return {"recall": found.recall, "foreign": found.foreign}


def show(report: dict[str, Any]) -> None:
    size = f"{report['batch']:,} edges into {report['edges']:,}, {report['vertices']:,} vertices"
    limit = report["lines_per_s"] / LINES_PER_EDGE
    print(
        f"{size}; torch gathers {report['lines_per_s'] / 1e6:.0f} M lines/s = {limit / 1e6:.1f} M"
    )
    for row in report["alone"]:
        print(
            f"  {row['policy']:20s} {row['layout']:8s} {row['edges_per_s'] / 1e6:6.2f} M edges/s, "
            f"build {row['build_edges_per_s'] / 1e6:6.2f}; {row['bytes_per_record']:5.1f} bytes a "
            f"record, slack {row['slack']:6.1%}, longest list {row['longest_list']}"
        )
    for row in report["race"]:
        low, high = row["ratio"]["low"], row["ratio"]["high"]
        interval = f" ({low:.1f} to {high:.1f})" if low is not None else ""
        recall = f", recall {row['recall']:.3f}" if "recall" in row else ""
        print(
            f"  {row['title']:24s} {row['add_s'] * 1e3:10.2f} ms {row['edges_per_s'] / 1e6:9.3f} M "
            f"edges/s {row['ratio']['value']:8.1f}x{interval}{recall}"
            + (f"; {row['note']}" if row["note"] else "")
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--edges", type=float, default=1e7, help="edges before the first round")
    parser.add_argument("--vertices", type=float, default=2e5)
    parser.add_argument("--batch", type=float, default=1e5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--alone", action="store_true", help="the store without others")
    options = parser.parse_args()
    torch.set_num_threads(1)
    old, batch, vertices = int(options.edges), int(options.batch), int(options.vertices)
    events = synthetic_events(vertices, old + options.rounds * batch)
    tried = [(policy, "packed") for policy in POLICIES]
    tried += [(BlockPolicy("adaptive", 64), layout) for layout in ("compact", "wide")]
    report = {
        "vertices": vertices,
        "edges": old,
        "batch": batch,
        "lines_per_s": line_rate(),
        "alone": [alone(events, old, batch, options.rounds, *one) for one in tried],
        "race": [] if options.alone else race(events, old, batch, options.rounds),
    }
    if options.json:
        print(json.dumps(report))
    else:
        show(report)


if __name__ == "__main__":
    main()

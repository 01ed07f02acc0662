"""Race the feature cache against a gather without one, a list-based LRU and torch's operators.

    python benchmarks/race_cache.py            # about half a minute on two cores
    python benchmarks/race_cache.py --json     # one object for machines

Batches of ids follow a power law, as nodes do, or come from a window that moves, as edges do. Every
contender's rows are compared before anything is timed, and its hit rate stands beside its time.
Contenders take turns on the same batches. GB/s counts every row once read and once written. On a
CPU the cache lies in the same memory as the table, so this shows what looking up, scoring and
admitting cost on top of a gather; what a cache saves is the bytes that do not cross to a device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.row_cache import RowCache
from dgbench.kernels_cuda.workspace import scratch
from dgbench.systems.gnnflow.cache import FeatureCache, TableRows
from dgbench.systems.gnnflow.plain_cache import ListedCache, TorchCache

# name, rows of the table, floats of a row, slots, ids of a batch, ids follow
CASES = (
    ("edges, 172 floats", 400_000, 172, 40_000, 100_000, "window"),
    ("nodes, 128 floats", 200_000, 128, 20_000, 100_000, "power law"),
    ("nodes, 768 floats", 60_000, 768, 6_000, 20_000, "power law"),
    ("small batches, 172 floats", 200_000, 172, 4_000, 5_000, "window"),
)
Fetch = Callable[[Tensor], Tensor]


def batches(rows: int, size: int, kind: str, count: int) -> list[Tensor]:
    """Ids of `count` batches."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for i in range(count):
        spread = torch.rand(size, generator=generator)
        if kind == "power law":
            made.append((spread**4 * rows).long().clamp(max=rows - 1))
        else:
            newest = rows // 2 + i * rows // (4 * count)
            made.append((newest - spread**3 * rows / 8).long())
    return made


def contenders(table: Tensor, slots: int, threads: int) -> dict[str, tuple[Fetch, Any]]:
    """Fetch by name, and what knows its hits."""
    nothing = RowCache(table.shape[0], table.shape[1], 0)

    def gather(ids: Tensor) -> Tensor:
        found = nothing.lookup(ids)
        out = scratch.empty((ids.numel(), table.shape[1]), table)
        nothing.gather(found, table, out, by_id=True)
        return out

    def select(ids: Tensor) -> Tensor:
        out = scratch.empty((ids.numel(), table.shape[1]), table)
        return torch.index_select(table, 0, ids, out=out)

    caches = {
        "dgbench": FeatureCache(TableRows(table), slots),
        "dgbench, hash index": FeatureCache(TableRows(table), slots, index="hash"),
        "dgbench, lfu": FeatureCache(TableRows(table), slots, policy="lfu"),
        "dgbench, fifo": FeatureCache(TableRows(table), slots, policy="fifo"),
        "torch operators": TorchCache(table, slots),
        "list and lock": ListedCache(table, slots, threads=threads),
    }
    plain = {
        "torch index_select": (select, None),
        "lookup of nothing and gather": (gather, None),
    }
    return plain | {name: (cache.fetch, cache) for name, cache in caches.items()}


def check(fetches: dict[str, tuple[Fetch, Any]], table: Tensor, ids: Tensor) -> None:
    for name, (fetch, _) in fetches.items():
        if not torch.equal(fetch(ids), table[ids]):
            raise SystemExit(f"{name} gives wrong rows")


def race(case: tuple, threads: int, rounds: int, scale: float) -> dict[str, Any]:
    name, rows, dim, slots, size, kind = case
    rows, slots, size = (max(16, int(n * scale)) for n in (rows, slots, size))
    torch.set_num_threads(threads)
    table = torch.rand(rows, dim)
    runs = batches(rows, size, kind, rounds + 4)
    fetches = contenders(table, slots, threads)
    check(fetches, table, runs[0])
    seconds: dict[str, list[float]] = {other: [] for other in fetches}
    for turn, ids in enumerate(runs[1:]):
        for other in fetches if turn % 2 else reversed(fetches):
            begin = time.perf_counter()
            fetches[other][0](ids)
            if turn >= 3:  # the first three fill caches and memory
                seconds[other].append(time.perf_counter() - begin)
    limit = seconds["torch index_select"]
    found = {}
    for other, times in seconds.items():
        cache = fetches[other][1]
        found[other] = {
            "seconds": statistics.median(times),
            "bytes_per_s": 8 * dim * size / statistics.median(times),
            "of_gather": statistics.median(
                a / b for a, b in zip(limit, times, strict=True)
            ),
            "hit_rate": None if cache is None else cache.hits / cache.requests,
        }  # fmt: skip
    return {"case": name, "threads": threads, "ids": size, "contenders": found}


def show(row: dict[str, Any]) -> None:
    print(f"\n{row['case']}, {row['ids']} ids a batch, {row['threads']} threads")
    for name, one in row["contenders"].items():
        hits = "" if one["hit_rate"] is None else f"{100 * one['hit_rate']:6.1f} % hit"
        print(
            f"    {name:30s}{1e3 * one['seconds']:9.2f} ms {one['bytes_per_s'] / 1e9:7.2f} GB/s"
            f"{100 * one['of_gather']:7.0f} % of a gather  {hits}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--scale", type=float, default=1.0, help="of tables, slots and batches")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    rows = []
    for threads in options.threads:
        for case in CASES:
            rows.append(race(case, threads, options.rounds, options.scale))
            if not options.json:
                show(rows[-1])
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()

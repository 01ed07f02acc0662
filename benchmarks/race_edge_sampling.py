"""Race the samplers of edges over every way to make a single draw (T-GCN, Figure 7).

    python benchmarks/race_edge_sampling.py                     # a power-law graph of 1.3 M edges
    python benchmarks/race_edge_sampling.py --vertices 2.3e6 --edges 3.3e7
    python benchmarks/race_edge_sampling.py --frontier 1e4 --json

One thread, the same sampler for all: only how one edge or slot is drawn differs. Methods take
turns, and ratios to `sis` are formed turn by turn, from the thread's processor time. A method that
needs longer than `--limit` seconds for a turn is left out, with the reason.

Subgraphs come twice for methods with prefix sums: `whole` sums up the table anew after each move,
as C-SAW's region search does and the paper compares with; `rest` only from the moved slot on.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgbench.kernels_cuda.edge_sampling import (
    EdgeTable,
    keep_share,
    sample_layerwise,
    sample_nodewise,
    sample_subgraph,
)
from dgbench.runtime.statistics import median, paired_ratio

METHODS = (
    "sis", "its_linear", "its_bitmap", "its_list", "its_rebuild", "alias", "brs", "reservoir",
    "keys",
)  # fmt: skip
TABLES = ("its_linear", "its_bitmap", "its_list", "its_rebuild", "brs")
"""Methods with prefix sums."""
SCANS = ("its_linear", "its_list", "its_rebuild")
"""Methods that read a part of a pool for every draw."""
SCANNED_PER_S = 1e9
Race = dict[str, Callable[[int], Any]]


def power_law(vertices: int, edges: int, exponent: float = 0.8) -> tuple[Tensor, Tensor, Tensor]:
    """Ends drawn with probabilities that fall with a power of a vertex's rank; in time order."""
    numbers = torch.Generator().manual_seed(1)
    sums = (torch.arange(vertices, dtype=torch.float64) + 10).pow(-exponent).cumsum(0)
    names = torch.randperm(vertices, generator=numbers)

    def ends() -> Tensor:
        drawn = torch.rand(edges, generator=numbers, dtype=torch.float64) * sums[-1]
        return names[torch.searchsorted(sums, drawn).clamp_(max=vertices - 1)]

    return ends(), ends(), torch.arange(edges, dtype=torch.float64)


def races(table: EdgeTable, roots: int, frontier: int, draws: int, count: int) -> dict[str, Race]:
    """Every sampler with every method, as functions of a seed."""
    numbers = torch.Generator().manual_seed(2)
    some = torch.randint(0, table.num_nodes, (roots,), generator=numbers)
    found: dict[str, Race] = {}
    for layers in (2, 3):
        sizes = (64, 32, 16)[:layers]
        found[f"node-wise, union, {layers} layers of a half"] = {
            m: lambda s, m=m, k=layers: sample_nodewise(table, some[:1], layers=k, method=m, seed=s)
            for m in METHODS
        }
        found[f"node-wise, union, {layers} layers of {sizes}"] = {
            m: lambda s, m=m, k=sizes: sample_nodewise(table, some, k, method=m, seed=s)
            for m in METHODS
        }
        found[f"node-wise, by definition, {layers} layers of 12"] = {
            m: lambda s, m=m, k=layers: sample_nodewise(
                table, some, (12,) * k, union=False, method=m, seed=s
            )
            for m in METHODS
        }
    found["layer-wise, 2 layers of 2000"] = {
        m: lambda s, m=m: sample_layerwise(table, some[:512], (2000, 2000), method=m, seed=s)
        for m in METHODS
    }
    found[f"subgraph, frontier {frontier}, {count} of {draws} draws"] = {
        f"{m} {how}".strip(): lambda s, m=m, how=how: sample_subgraph(
            table, frontier, draws, count=count, method=m, rebuild=how or "rest", induced=False,
            seed=s,
        )
        for m in METHODS
        if m != "reservoir"
        for how in (("whole", "rest") if m in TABLES else ("",))
    }  # fmt: skip
    return found


def race(title: str, racing: Race, turns: int, limit: float) -> list[dict[str, Any]]:
    """All methods in turns; one row each."""
    seconds: dict[str, list[float]] = {}
    counts: dict[str, Any] = {}
    scanned = 0.0
    for name, run in racing.items():
        if name in SCANS and scanned > SCANNED_PER_S * limit:
            print(f"{title:55s} {name:18s} would read {scanned:.1e} elements: left out")
            continue
        spent, sample = _clock(run, 0)
        if name == "sis" and hasattr(sample, "pools"):
            drawn = torch.stack([layer.offsets.diff() for layer in sample.layers], 1)
            scanned = float((sample.pools.double() * drawn).sum() / 2)
        counts[name] = sample.stats
        if spent > limit:
            print(f"{title:55s} {name:18s} {1e3 * spent:10.1f} ms: left out after one turn")
        else:
            seconds[name] = []
    for turn in range(1, turns + 1):
        for name in seconds if turn % 2 else reversed(list(seconds)):
            seconds[name].append(_clock(racing[name], turn)[0])
    rows = []
    for name, spent in seconds.items():
        ratio = paired_ratio(spent, seconds["sis"])._asdict()
        drawn = max(1, counts[name].draws)
        row = {"race": title, "method": name, "ms": 1e3 * median(spent), "ratio": ratio}
        row |= {"ns_per_draw": 1e9 * median(spent) / drawn, "stats": vars(counts[name])}
        rows.append(row)
        low, high = ratio["low"], ratio["high"]
        interval = f" ({low:.2f} to {high:.2f})" if low is not None else ""
        print(
            f"{title:55s} {name:18s} {row['ms']:10.2f} ms {row['ns_per_draw']:10.0f} ns a draw "
            f"{ratio['value']:8.2f}x{interval}",
            flush=True,
        )
    return rows


def _clock(run: Callable[[int], Any], seed: int) -> tuple[float, Any]:
    start = time.thread_time()
    sample = run(seed)
    return time.thread_time() - start, sample


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vertices", type=float, default=7000)
    parser.add_argument("--edges", type=float, default=1.3e6)
    parser.add_argument("--roots", type=int, default=2000)
    parser.add_argument("--frontier", type=float, default=1e4)
    parser.add_argument("--draws", type=float, default=None, help="of a subgraph; |E| / 100")
    parser.add_argument("--count", type=int, default=4, help="subgraphs of a turn")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--only", default="", help="races whose title has this in it")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    src, dst, t = power_law(int(args.vertices), int(args.edges))
    start = time.thread_time()
    table = EdgeTable.build(src, dst, t, int(args.vertices))
    built = time.thread_time() - start
    start = time.thread_time()
    keep_share(table)
    kept = time.thread_time() - start
    edges = table.num_edges
    print(f"{edges} edges: built in {1e9 * built / edges:.1f} ns an edge, a half kept in "
          f"{1e9 * kept / edges:.1f}")  # fmt: skip
    draws = int(args.draws or edges // 100)
    rows = []
    every = races(table, args.roots, int(args.frontier), draws, args.count)
    for title, racing in every.items():
        if args.only in title:
            rows += race(title, racing, args.turns, args.limit)
    if args.json:
        print(json.dumps({"vertices": table.num_nodes, "edges": edges, "rows": rows}))


if __name__ == "__main__":
    main()

"""Race weighted draws without replacement against numpy and torch, and one draw against its size.

    python benchmarks/race_weighted.py                     # some minutes
    python benchmarks/race_weighted.py --sizes 1e6 --turns 30 --no-growth
    python benchmarks/race_weighted.py --json              # one object for machines

First, half of n items in one call on one core. Contenders take turns on the same weights, and
ratios to ours are formed turn by turn, with their 95 % paired interval. Then one draw and the
change that follows it (what is drawn is taken, or gets another weight as in frontier sampling) at
n = 1e3 .. 1e7: a search by a tree of sums should at most double per decade, what walks or rebuilds
prefix sums grows with n. Beside wall time stands processor time, which a busy machine changes less.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import astuple
from typing import Any

import numpy as np
import torch

from dgbench.kernels_cuda.build_info import build_info
from dgbench.kernels_cuda.weighted import DrawStats, draw_without_replacement, time_draws
from dgbench.runtime.statistics import median, paired_ratio

SHAPES = ("power", "equal")
GROWTH = ("sis", "its_linear", "its_bitmap", "its_list", "its_rebuild", "alias", "brs", "keys")
SLOW = 0.5
"""Seconds that a contender may take before it runs no larger size."""
OURS = "ours, keys"


def weights_of(shape: str, n: int) -> np.ndarray:
    """float64[n]: a power law as of degrees (exponent 2.2), or all 1."""
    return np.random.default_rng(1).pareto(1.2, n) + 1 if shape == "power" else np.ones(n)


def contenders(w: np.ndarray, k: int) -> dict[str, Callable[[int], object]]:
    """Name to a call that draws k of them; its argument is the turn. Each has the weights in the
    type that it likes best, so that nobody is charged for a conversion."""
    n, rng = len(w), np.random.default_rng(2)
    p, w32 = w / w.sum(), w.astype(np.float32)
    t, t64 = torch.from_numpy(w32), torch.from_numpy(w)

    def numpy_keys(_: int) -> object:
        keys = rng.standard_exponential(n, dtype=np.float32) / w32
        return np.argpartition(keys, k)[:k] if k < n else keys

    def torch_exponential(_: int) -> object:
        return torch.empty(n).exponential_().div_(t).topk(k, largest=False, sorted=False).indices

    def torch_log(_: int) -> object:
        return torch.rand(n).log_().div_(t).topk(k, sorted=False).indices

    def ours(method: str, weights: torch.Tensor) -> Callable[[int], object]:
        return lambda turn: draw_without_replacement(weights, k, method=method, stream=turn)

    found: dict[str, Callable[[int], object]] = {
        OURS: ours("keys", t64),
        "ours, keys, float32": ours("keys", t),
        "ours, sis": ours("sis", t64),
        "ours, its_bitmap": ours("its_bitmap", t64),
        "ours, alias": ours("alias", t64),
        "numpy choice": lambda _: rng.choice(n, k, replace=False, p=p),
        "numpy keys": numpy_keys,
        "torch exponential, topk": torch_exponential,
        "torch log, topk": torch_log,
    }
    if n <= 1 << 24:
        found["torch multinomial"] = lambda _: torch.multinomial(t, k)
    if len(set(w[:100])) == 1:
        found["ours, reservoir"] = ours("reservoir", t64)
    return found


def race(sizes: list[int], turns: int) -> list[dict[str, Any]]:
    """Every contender in turns; rows of shape, n and contender."""
    found: list[dict[str, Any]] = []
    too_slow: set[str] = set()
    for n in sizes:
        for shape in SHAPES:
            racing = contenders(weights_of(shape, n), n // 2)
            racing = {name: call for name, call in racing.items() if name not in too_slow}
            wall: dict[str, list[float]] = {name: [] for name in racing}
            busy: dict[str, list[float]] = {name: [] for name in racing}
            for turn in range(turns + 1):
                for name in racing if turn % 2 else reversed(racing):
                    start, start_busy = time.perf_counter(), time.thread_time()
                    racing[name](turn)
                    if turn:
                        wall[name].append(time.perf_counter() - start)
                        busy[name].append(time.thread_time() - start_busy)
            for name in racing:
                if median(wall[name]) > SLOW:
                    too_slow.add(name)
                row = {
                    "n": n, "k": n // 2, "shape": shape, "name": name,
                    "ms": 1e3 * median(wall[name]), "cpu_ms": 1e3 * median(busy[name]),
                    "least_cpu_ms": 1e3 * min(busy[name]),
                    "ratio": paired_ratio(wall[name], wall[OURS])._asdict(),
                }  # fmt: skip
                found.append(row)
                _show(row)
    return found


def _show(row: dict[str, Any]) -> None:
    low, high = row["ratio"]["low"], row["ratio"]["high"]
    interval = f" ({low:.2f} to {high:.2f})" if low is not None else ""
    print(
        f"n {row['n']:9d} {row['shape']:6s} {row['name']:24s} {row['ms']:9.3f} ms, processor "
        f"{row['cpu_ms']:9.3f}, least {row['least_cpu_ms']:9.3f}  "
        f"{row['ratio']['value']:7.2f}x{interval}",
        flush=True,
    )


def growth(sizes: list[int], turns: int) -> list[dict[str, Any]]:
    """One draw with the change behind it, methods in turns; microseconds per draw."""
    found: list[dict[str, Any]] = []
    for change in ("take", "replace"):
        before: dict[str, float] = {}
        for n in sizes:
            weights = torch.from_numpy(weights_of("power", n))
            each: dict[str, list[float]] = {method: [] for method in GROWTH}
            stats = {method: DrawStats() for method in GROWTH}
            for turn in range(turns):
                for method in GROWTH if turn % 2 else reversed(GROWTH):
                    found_time = time_draws(
                        weights, method=method, replace=change == "replace", stream=turn
                    )
                    each[method].append(found_time.draw_s)
                    stats[method].add(*astuple(found_time.stats))
            for method in GROWTH:
                us = 1e6 * median(each[method])
                ratio = us / before[method] if method in before else None
                before[method] = us
                touched = stats[method].nodes_visited + stats[method].elements_scanned
                row = {
                    "change": change, "n": n, "method": method, "us": us, "growth": ratio,
                    "touched": touched / max(1, stats[method].draws),
                }  # fmt: skip
                found.append(row)
                grown = f", {ratio:6.2f}x the size before" if ratio else ""
                print(
                    f"{change:7s} n {n:9d} {method:12s} {us:11.3f} us a draw, touches "
                    f"{row['touched']:11.1f} elements{grown}",
                    flush=True,
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e3, 1e4, 1e5, 1e6])
    parser.add_argument("--growth-sizes", type=float, nargs="+", default=[1e3, 1e4, 1e5, 1e6, 1e7])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--no-growth", action="store_true")
    parser.add_argument("--no-race", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"vector registers: {build_info()['cpu'].get('vector')}; 1 thread")
    rows = [] if args.no_race else race([int(n) for n in args.sizes], args.turns)
    grown = [] if args.no_growth else growth([int(n) for n in args.growth_sizes], 5)
    if args.json:
        print(json.dumps({"race": rows, "growth": grown}))


if __name__ == "__main__":
    main()

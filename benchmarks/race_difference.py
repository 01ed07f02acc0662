"""Race making and applying a graph difference against numpy, scipy and torch.

    python benchmarks/race_difference.py            # about a minute on one core
    python benchmarks/race_difference.py --json     # one object for machines

Pairs of random snapshots of the sizes that ESDG (SC 2021) uses, by number of vertices, entries and
share of changes. Every contender's sets are compared before anything is timed. Time is processor
time of one thread; contenders take turns, and a ratio is formed inside a round. Keys per second
count the keys of both snapshots, GB/s of a rebuild the bytes that must be read and written once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy import sparse

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import count_changes, encode, plain_bytes, rebuild

# name, vertices, entries, (added + removed) / entries
CASES = (
    ("amlsim smoothed", 1_000_000, 5_200_000, 0.23),
    ("epinions smoothed", 755_000, 2_070_000, 0.04),
    ("50 entries a row", 100_000, 5_000_000, 0.10),
    ("amlsim raw", 1_000_000, 620_000, 1.90),
    ("youtube raw", 3_200_000, 59_000, 2.0),
)
Job = Callable[[], Any]


def keys_to_csr(keys: np.ndarray, vertices: int) -> Csr:
    counts = np.bincount(keys // vertices, minlength=vertices)
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
    indices = (keys % vertices).astype(np.int32)
    return Csr(torch.from_numpy(indptr), torch.from_numpy(indices), vertices)


def snapshots(vertices: int, entries: int, share: float, seed: int) -> tuple[Csr, Csr]:
    """Two uniform random snapshots that differ by about `share` of their entries."""
    rng = np.random.default_rng(seed)
    pool = np.unique(rng.integers(0, vertices**2, int(entries * (1 + share / 2))))
    own = int(len(pool) * (share / 2) / (1 + share / 2))
    order = rng.permutation(len(pool))
    first, second = pool[order[own:]], pool[order[: len(pool) - own]]
    return keys_to_csr(np.sort(first), vertices), keys_to_csr(np.sort(second), vertices)


def linear_keys(csr: Csr) -> torch.Tensor:
    rows = torch.repeat_interleave(torch.arange(csr.num_rows), csr.indptr.diff())
    return rows * csr.num_cols + csr.indices


def encoders(a: Csr, b: Csr) -> dict[str, Job]:
    """Ways to the sorted keys that only one side holds; all start from what a system holds."""
    keys = linear_keys(a), linear_keys(b)
    arrays = tuple(k.numpy() for k in keys)
    n = a.num_cols

    def by_scipy() -> tuple[np.ndarray, np.ndarray]:
        ones = [np.ones(c.nnz, np.int8) for c in (a, b)]
        left, right = (
            sparse.csr_array((v, c.indices.numpy(), c.indptr.numpy()), shape=(c.num_rows, n))
            for v, c in zip(ones, (a, b), strict=True)
        )
        coo = (right - left).tocoo()
        linear = coo.row.astype(np.int64) * n + coo.col
        return linear[coo.data < 0], linear[coo.data > 0]

    def by_torch() -> tuple[torch.Tensor, torch.Tensor]:
        both, counts = torch.cat(keys).unique(return_counts=True)
        single = both[counts == 1]
        at = torch.searchsorted(keys[0], single).clamp(max=max(0, a.nnz - 1))
        mine = keys[0][at] == single if a.nnz else torch.zeros_like(single, dtype=torch.bool)
        return single[mine], single[~mine]

    return {
        "dgbench": lambda: encode(a, b, fallback=False),
        "numpy setdiff1d": lambda: (
            np.setdiff1d(arrays[0], arrays[1], assume_unique=True),
            np.setdiff1d(arrays[1], arrays[0], assume_unique=True),
        ),
        "scipy subtract": by_scipy,
        "torch unique": by_torch,
    }


def rebuilders(a: Csr, b: Csr) -> dict[str, Job]:
    sent = encode(a, b, fallback=False)
    n = a.num_cols
    old, gone, come = linear_keys(a), *(p[0] * n + p[1] for p in (sent.removed, sent.added))

    def by_torch() -> torch.Tensor:
        keep = torch.ones(old.numel(), dtype=torch.bool)
        keep[torch.searchsorted(old, gone)] = False
        return torch.cat([old[keep], come]).sort().values

    def by_numpy() -> np.ndarray:
        left = np.delete(old.numpy(), np.searchsorted(old.numpy(), gone.numpy()))
        return np.insert(left, np.searchsorted(left, come.numpy()), come.numpy())

    return {
        "dgbench": lambda: rebuild(a, sent),
        "torch mask and sort": by_torch,
        "numpy delete and insert": by_numpy,
        "copy of as many bytes": _copy(rebuild_bytes(a, b) // 2),
    }


def rebuild_bytes(a: Csr, b: Csr) -> int:
    """Both matrices once, and the pairs."""
    return 4 * (a.nnz + b.nnz) + 16 * (a.num_rows + 1) + 16 * sum(count_changes(a, b))


def _copy(size: int) -> Job:
    source = torch.ones(size, dtype=torch.uint8)
    return source.clone


def check(a: Csr, b: Csr) -> None:
    """All contenders agree, or the race stops with the name of the one that does not."""
    sent = encode(a, b, fallback=False)
    want = tuple((p[0] * a.num_cols + p[1]).numpy() for p in (sent.removed, sent.added))
    for name, run in encoders(a, b).items():
        if name == "dgbench":
            continue
        for one, other in zip(run(), want, strict=True):
            if not np.array_equal(np.asarray(one), other):
                raise SystemExit(f"{name} and dgbench disagree")
    target = linear_keys(b).numpy()
    for name, run in rebuilders(a, b).items():
        made = run()
        if isinstance(made, Csr):
            made = linear_keys(made)
        if "copy" not in name and not np.array_equal(np.asarray(made), target):
            raise SystemExit(f"{name} does not rebuild the snapshot")


def take_turns(jobs: dict[str, Job], rounds: int) -> dict[str, list[float]]:
    """Processor seconds of each job in each round; one round before is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for i in range(rounds + 1):
        for name, run in jobs.items():
            start = time.process_time()
            run()
            if i:
                seconds[name].append(time.process_time() - start)
    return seconds


def race(name: str, a: Csr, b: Csr, rounds: int) -> dict[str, Any]:
    check(a, b)
    gone, come = count_changes(a, b)
    sent = encode(a, b)
    row: dict[str, Any] = {
        "case": name,
        "keys": a.nnz + b.nnz,
        "change_share": (gone + come) / b.nnz,
        "bytes": sent.nbytes,
        "gain": plain_bytes(b.nnz) / sent.nbytes,
    }
    for kind, jobs in (("encode", encoders(a, b)), ("rebuild", rebuilders(a, b))):
        seconds = take_turns(jobs, rounds)
        row[kind] = {
            other: {
                "seconds": statistics.median(times),
                "ratio": statistics.median(
                    t / own for t, own in zip(times, seconds["dgbench"], strict=True)
                ),
            }
            for other, times in seconds.items()
        }
    row["keys_per_s"] = row["keys"] / row["encode"]["dgbench"]["seconds"]
    row["rebuild_bytes_per_s"] = rebuild_bytes(a, b) / row["rebuild"]["dgbench"]["seconds"]
    return row


def show(row: dict[str, Any]) -> None:
    print(
        f"\n{row['case']}: {row['keys'] / 1e6:.2f} M keys, delta {row['change_share']:.3f}, "
        f"{row['bytes'] / 1e6:.1f} MB ({row['gain']:.2f}x less than plain)"
    )
    print(
        f"  encode {row['keys_per_s'] / 1e6:.0f} M keys/s, "
        f"rebuild {row['rebuild_bytes_per_s'] / 1e9:.1f} GB/s"
    )
    for kind in ("encode", "rebuild"):
        for name, found in row[kind].items():
            print(f"    {kind:8s}{name:26s}{found['seconds'] * 1e3:9.2f} ms {found['ratio']:8.2f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="of vertices and entries")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed, (name, vertices, entries, share) in enumerate(CASES):
        size = int(vertices * options.scale), int(entries * options.scale)
        rows.append(race(name, *snapshots(*size, share, seed), options.rounds))
        if not options.json:
            show(rows[-1])
    if options.json:
        print(json.dumps({"rows": rows}))


if __name__ == "__main__":
    main()

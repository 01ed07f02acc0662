"""Race the aggregation operators against torch CSR (MKL) and DGL, in one interleaved run.

    python benchmarks/race_aggregate.py            # about two minutes
    python benchmarks/race_aggregate.py --json     # one object for machines

100 k vertices, 2 M entries, power law; eight snapshots that share 90 % of their entries. Every
result is compared with a float64 product before anything is timed. Contenders take turns; a ratio
is formed inside a round, and the interval is a paired t interval on log ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import torch
from scipy import sparse, stats

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology

VERTICES, ENTRIES, SNAPSHOTS, SHARED = 100_000, 2_000_000, 8, 0.9
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 100, 128)
MERGED_WIDTHS = (2, 6, 16)
Contenders = dict[str, Callable[[], object]]


def power_law_keys(count: int, rng: np.random.Generator, permutations: np.ndarray) -> np.ndarray:
    """`count` distinct keys row * VERTICES + column, both ends by weight rank^-0.75."""
    bounds = np.cumsum(np.arange(1, VERTICES + 1) ** -0.75)
    keys = np.zeros(0, dtype=np.int64)
    while len(keys) < count:
        draws = rng.random((2, int(1.4 * count))) * bounds[-1]
        rows, columns = (
            p[np.searchsorted(bounds, d)] for p, d in zip(permutations, draws, strict=True)
        )
        keys = np.unique(np.concatenate([keys, rows * VERTICES + columns]))
    return np.sort(rng.choice(keys, count, replace=False))


def csr_of(keys: np.ndarray, rng: np.random.Generator) -> Csr:
    """The weighted matrix of sorted keys."""
    counts = np.bincount(keys // VERTICES, minlength=VERTICES)
    indptr = np.concatenate([[0], counts.cumsum()]).astype(np.int64)
    values = rng.random(len(keys), dtype=np.float32)
    arrays = (indptr, (keys % VERTICES).astype(np.int32), values)
    indptr, indices, values = (torch.from_numpy(a) for a in arrays)
    return Csr(indptr, indices, VERTICES, values)


def take_turns(contenders: Contenders, rounds: int) -> dict[str, list[float]]:
    """Seconds of each contender in each round; one round before is dropped."""
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds + 1):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            elapsed = time.perf_counter() - start
            if i:
                seconds[name].append(elapsed)
    return seconds


def ratio(slow: Sequence[float], fast: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of slow / fast per round, with its 95 % paired t interval."""
    logs = np.log(np.asarray(slow) / np.asarray(fast))
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / math.sqrt(len(logs))
    return tuple(float(math.exp(logs.mean() + d)) for d in (0.0, -half, half))


def torch_csr(csr: Csr, weighted: bool = True) -> torch.Tensor:
    """torch's CSR with int32 indices, MKL's faster form."""
    values = csr.values if weighted else torch.ones(csr.nnz)
    return torch.sparse_csr_tensor(csr.indptr.int(), csr.indices, values, (VERTICES, VERTICES))


def dgl_sum(csr: Csr) -> Callable[[torch.Tensor], torch.Tensor] | str:
    """DGL's unweighted copy_u_sum, its fast path, or why it is not here."""
    os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes one into the home folder
    try:
        import dgl
        from dgl import ops

        none = torch.empty(0, dtype=torch.int64)
        graph = dgl.graph(("csc", (csr.indptr, csr.indices.long(), none)), num_nodes=VERTICES)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    graph = graph.formats(["csc"]).int()
    return lambda x: ops.copy_u_sum(graph, x)


def copy_bandwidth() -> float:
    """Bytes per second of a large copy, reads and writes counted."""
    source = torch.ones(64 * 2**20)
    target = torch.empty_like(source)
    best = min(take_turns({"copy": lambda: target.copy_(source)}, 5)["copy"])
    return 2 * source.numel() * 4 / best


def deviation(found: torch.Tensor, csr: Csr, x: torch.Tensor) -> float:
    """Largest deviation from the float64 product, relative to its largest element."""
    exact = sparse.csr_matrix((csr.values.numpy(), csr.indices.numpy(), csr.indptr.numpy()))
    exact.resize(VERTICES, VERTICES)
    expected = exact.astype(np.float64) @ x.double().numpy()
    return float(np.abs(found.double().numpy() - expected).max() / np.abs(expected).max())


def race_single(csr: Csr, rounds: int, limit: float) -> list[dict]:
    """One weighted product for every width."""
    mkl, dgl = torch_csr(csr), dgl_sum(csr)
    rows = []
    for width in WIDTHS:
        x = torch.rand(VERTICES, width)
        spmm(csr, x)
        off = deviation(spmm(csr, x), csr, x)  # the second takes rows by length: what is timed
        contenders: Contenders = {"ours": lambda x=x: spmm(csr, x), "mkl": lambda x=x: mkl @ x}
        if callable(dgl):
            contenders["dgl"] = lambda x=x: dgl(x)
        seconds = take_turns(contenders, rounds)
        typical = {name: float(np.median(s)) for name, s in seconds.items()}
        peer = min((name for name in typical if name != "ours"), key=typical.__getitem__)
        moved = csr.nnz * (8 + 4 * width) + VERTICES * (8 + 4 * width)
        rows.append(
            {
                "F": width,
                "ms": {name: 1e3 * s for name, s in typical.items()},
                "peer": peer,
                "ratio": ratio(seconds[peer], seconds["ours"]),
                "gb_per_s": moved / typical["ours"] / 1e9,
                "share_of_copy": moved / typical["ours"] / limit,
                "deviation": off,
            }
        )
    return rows


def race_merged(base: np.ndarray, rng: np.random.Generator, perms, rounds: int) -> list[dict]:
    """Eight products by MKL against one merged call, plain and with the factored scaling."""
    shared = np.sort(rng.choice(base, int(SHARED * ENTRIES), replace=False))
    csrs = []
    for _ in range(SNAPSHOTS):
        fresh = np.setdiff1d(power_law_keys(ENTRIES // 4, rng, perms), shared)
        own = rng.choice(fresh, ENTRIES - len(shared), replace=False)
        csr = csr_of(np.sort(np.concatenate([shared, own])), rng)
        csrs.append(Csr(csr.indptr, csr.indices, VERTICES))
    parts = PartTopology.build(csrs)
    mkl = [torch_csr(csr, weighted=False) for csr in csrs]
    rows = []
    for width in MERGED_WIDTHS:
        x = torch.rand(VERTICES, SNAPSHOTS, width)
        each = [x[:, s].contiguous() for s in range(SNAPSHOTS)]
        scale = torch.rand(VERTICES, SNAPSHOTS)
        aggregate_parts(parts, x)
        y = aggregate_parts(parts, x)  # the second product takes its rows by length: what is timed
        last = csrs[-1]
        ones = Csr(last.indptr, last.indices, VERTICES, torch.ones(last.nnz))
        off = deviation(y[:, -1], ones, each[-1])
        contenders: Contenders = {
            "merged": lambda x=x: aggregate_parts(parts, x),
            "scaled": lambda x=x, r=scale: aggregate_parts(parts, x, r, r, True),
            "mkl": lambda each=each: [m @ e for m, e in zip(mkl, each, strict=True)],
        }
        seconds = take_turns(contenders, rounds)
        rows.append(
            {
                "F": width,
                "ms": {name: 1e3 * float(np.median(s)) for name, s in seconds.items()},
                "ratio": ratio(seconds["mkl"], seconds["merged"]),
                "ratio_scaled": ratio(seconds["mkl"], seconds["scaled"]),
                "deviation": off,
            }
        )
    return rows


def show(result: dict) -> None:
    print(f"{result['threads']} threads, copy {result['copy_gb_per_s']:.1f} GB/s (read + write)")
    if result["dgl"]:
        print(f"DGL is not raced: {result['dgl']}")
    print("\none snapshot, weighted; DGL unweighted; bytes count every gathered row")
    print("   F  ours ms  MKL ms  DGL ms  best peer/ours [95 %]      GB/s  of copy  deviation")
    for r in result["single"]:
        ms, (mid, low, high) = r["ms"], r["ratio"]
        dgl = f"{ms['dgl']:7.2f}" if "dgl" in ms else "      -"
        print(
            f"{r['F']:4d}  {ms['ours']:7.2f} {ms['mkl']:7.2f} {dgl}  {mid:5.2f} "
            f"[{low:4.2f}, {high:4.2f}] ({r['peer']})  {r['gb_per_s']:6.1f}  "
            f"{r['share_of_copy']:6.0%}  {r['deviation']:.1e}"
        )
    print(f"\n{SNAPSHOTS} snapshots sharing {SHARED:.0%}; MKL takes them one by one")
    print("   F  merged ms  with scaling ms  MKL ms  MKL/merged [95 %]    MKL/scaled  deviation")
    for r in result["merged"]:
        ms, (mid, low, high) = r["ms"], r["ratio"]
        print(
            f"{r['F']:4d}  {ms['merged']:9.2f}  {ms['scaled']:15.2f} {ms['mkl']:7.2f}  {mid:5.2f} "
            f"[{low:4.2f}, {high:4.2f}]  {r['ratio_scaled'][0]:13.2f}  {r['deviation']:9.1e}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15, help="rounds per width (default 15)")
    options = parser.parse_args()
    if options.rounds < 2:
        parser.error("--rounds must be at least 2, an interval needs two ratios")
    warnings.filterwarnings("ignore", message="Sparse")
    rng = np.random.default_rng(1)
    permutations = np.stack([rng.permutation(VERTICES) for _ in range(2)])
    keys = power_law_keys(ENTRIES, rng, permutations)
    csr = csr_of(keys, rng)
    limit = copy_bandwidth()
    missing = dgl_sum(csr)
    result = {
        "threads": torch.get_num_threads(),
        "copy_gb_per_s": limit / 1e9,
        "dgl": missing if isinstance(missing, str) else "",
        "single": race_single(csr, options.rounds, limit),
        "merged": race_merged(keys, rng, permutations, options.rounds),
    }
    if options.json:
        print(json.dumps(result))
    else:
        show(result)


if __name__ == "__main__":
    main()

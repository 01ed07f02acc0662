"""Times the CUDA operators beside what the machine can do and what PyTorch offers; one table.

Each line: microseconds (median of event-timed calls after warm-up), bytes that must move at least,
the share of the measured copy rate that makes, and how far the result is from a float64 reference
or from the contender. Inputs larger than the second-level cache are rotated where they fit in it.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.scan import gru_scan, lstm_scan
from dgbench.kernels_cuda.slices import slice_csr, slice_unchecked
from dgbench.kernels_cuda.variants import spmm_gespmm, spmm_sliced

WARM_UP, REPEATS = 5, 30


class DeviceTable:
    """Rows as they are measured; stops taking more when the time is over."""

    def __init__(self, path: str, seconds: float) -> None:
        self.rows: list[dict] = []
        self.path, self.end, self.copy_rate = path, time.monotonic() + seconds, 0.0

    def measure(
        self, group: str, name: str, work: Callable[[], object], bytes_: float, error: float = 0.0
    ) -> float:
        if time.monotonic() > self.end:
            print(f"out of time: {group} {name}", file=sys.stderr)
            return float("nan")
        for _ in range(WARM_UP):
            work()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(REPEATS + 1)]
        marks[0].record()
        for mark in marks[1:]:
            work()
            mark.record()
        torch.cuda.synchronize()
        samples = [1e3 * a.elapsed_time(b) for a, b in itertools.pairwise(marks)]
        median = statistics.median(samples)
        row = {"group": group, "name": name, "us": median, "bytes": bytes_, "error": error}
        row["share"] = bytes_ / (median * 1e-6) / self.copy_rate if self.copy_rate else 1.0
        self.rows.append(row)
        with open(self.path, "a") as file:
            file.write(json.dumps({**row, "samples_us": samples}) + "\n")
        return median

    def show(self) -> None:
        print(f"copy rate, read and written: {self.copy_rate / 1e12:.2f} TB/s")
        print(f"{'group':34}{'operator':30}{'us':>10}{'MB':>9}{'of copy':>9}{'error':>10}")
        for row in self.rows:
            print(
                f"{row['group']:34}{row['name']:30}{row['us']:10.1f}{row['bytes'] / 1e6:9.1f}"
                f"{row['share']:8.0%} {row['error']:10.1e}"
            )


def power_law(vertices: int, edges: int, seed: int) -> torch.Tensor:
    """Distinct keys row * N + column with skewed rows and columns."""
    random = np.random.default_rng(seed)
    rows = (vertices * random.random(edges) ** 3).astype(np.int64)
    columns = (vertices * random.random(edges) ** 2).astype(np.int64)
    return torch.from_numpy(np.unique(rows * vertices + columns)).cuda()


def from_keys(keys: torch.Tensor, vertices: int) -> Csr:
    indptr = torch.zeros(vertices + 1, dtype=torch.int64, device=keys.device)
    indptr[1:] = torch.bincount(keys // vertices, minlength=vertices).cumsum(0)
    return Csr(indptr, (keys % vertices).int(), vertices)


def sequence(vertices: int, edges: int, count: int, keep: float) -> list[Csr]:
    base = power_law(vertices, edges, 0)
    generator = torch.Generator("cuda").manual_seed(1)
    group = []
    for seed in range(count):
        kept = base[torch.rand(base.numel(), device="cuda", generator=generator) < keep]
        fresh = power_law(vertices, int(edges * (1 - keep)) + 1, seed + 1)
        group.append(from_keys(torch.cat([kept, fresh]).unique(), vertices))
    return group


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def limits(table: DeviceTable) -> None:
    source = torch.empty(1 << 28, device="cuda")
    target = torch.empty_like(source)
    moved = 2.0 * 4 * source.numel()
    us = table.measure("limit", "copy of 1 GiB", lambda: target.copy_(source), moved)
    table.copy_rate = moved / (us * 1e-6)
    table.rows[-1]["share"] = 1.0
    small = torch.empty(1, device="cuda")
    table.measure("limit", "smallest torch kernel", lambda: small.add_(1), 4)


def aggregation(table: DeviceTable, title: str, vertices: int, edges: int, count: int, width: int):
    group = sequence(vertices, edges, count, 0.9)
    nnz = sum(csr.nnz for csr in group)
    parts = PartTopology.build(group)
    x = torch.randn(vertices, count, width, device="cuda")
    slabs = [x[:, i].contiguous() for i in range(count)]
    ends = 2.0 * 4 * x.numel()
    plain = ends + 4 * nnz + count * 8 * vertices
    merged = ends + 4 * (parts.over.nnz + sum(p.nnz for p in parts.exclusive)) + 16 * vertices
    torch_csr = [
        torch.sparse_csr_tensor(
            c.indptr.int(), c.indices, torch.ones(c.nnz, device="cuda"), (vertices, vertices)
        )
        for c in group
    ]
    library = list(zip(torch_csr, slabs, strict=True))
    expected = torch.stack([m.double() @ s.double() for m, s in library], 1)
    tag = f"{title} S={count} F={width}"
    pairs = list(zip(group, slabs, strict=True))

    def run(name: str, work: Callable[[], object], bytes_: float, result: torch.Tensor) -> None:
        table.measure(tag, name, work, bytes_, error_of(result, expected))

    def each(operator: Callable) -> torch.Tensor:
        return torch.stack([operator(c, s) for c, s in pairs], 1)

    run("one launch, parts", lambda: aggregate_parts(parts, x), merged, aggregate_parts(parts, x))
    run("one by one, ours", lambda: [spmm(c, s) for c, s in pairs], plain, each(spmm))
    run(
        "one by one, GE-SpMM like",
        lambda: [spmm_gespmm(c, s) for c, s in pairs],
        plain,
        each(spmm_gespmm),
    )
    over, rest = slice_unchecked(parts.over, 32), [slice_unchecked(p, 32) for p in parts.exclusive]
    wide, out = x.view(vertices, -1), torch.empty(vertices, count * width, device="cuda")

    def paper() -> torch.Tensor:
        out.zero_()
        spmm_sliced(over, wide, out=out)
        for i, part in enumerate(rest):
            columns = slice(i * width, (i + 1) * width)
            spmm_sliced(part, wide[:, columns], out=out[:, columns])
        return out

    run("parts as the paper (sliced)", paper, merged, paper().view_as(x))
    stacked = torch.stack([m @ s for m, s in library], 1)
    run(
        "one by one, torch CSR",
        lambda: [m @ s for m, s in library],
        plain,
        stacked,
    )
    rows = [
        torch.repeat_interleave(torch.arange(vertices, device="cuda"), c.indptr.diff())
        for c, _ in pairs
    ]
    columns = [c.indices.long() for c in group]

    def gather(i: int) -> torch.Tensor:
        return torch.zeros_like(slabs[i]).index_add_(0, rows[i], slabs[i][columns[i]])

    scattered = torch.stack([gather(i) for i in range(count)], 1)
    run("one by one, gather + scatter", lambda: [gather(i) for i in range(count)], plain, scattered)
    source = x.clone().requires_grad_()
    table.measure(
        tag,
        "parts, forward + backward",
        lambda: aggregate_parts(parts, source).sum().backward(),
        2 * merged,
    )
    table.measure(tag, "build parts", lambda: PartTopology.build(group), 8.0 * nnz)
    table.measure(tag, "slice one snapshot", lambda: slice_csr(group[0]), 12.0 * vertices)


def scans(table: DeviceTable, steps: int, vertices: int, features: int, hidden: int) -> None:
    x = torch.randn(steps, vertices, features, device="cuda", requires_grad=True)
    for name, scan, gates, module in (
        ("GRU", gru_scan, 3, torch.nn.GRU),
        ("LSTM", lstm_scan, 4, torch.nn.LSTM),
    ):
        tag = f"{name} T={steps} N={vertices} F={features} H={hidden}"
        w, u, b = (
            (torch.randn(*s, device="cuda") * 0.2).requires_grad_()
            for s in [(features, gates * hidden), (hidden, gates * hidden), (gates * hidden,)]
        )
        cells = module(features, hidden).cuda()
        moved = 4.0 * steps * vertices * (features + hidden)
        saved = moved + 8.0 * steps * vertices * hidden * (2 * gates)

        def forward(scan=scan, w=w, u=u, b=b) -> None:
            with torch.no_grad():
                scan(x, w, u, b, all_steps=True)

        def both(scan=scan, w=w, u=u, b=b) -> None:
            scan(x, w, u, b, all_steps=True)[0].sum().backward()

        table.measure(tag, "forward, ours", forward, moved)
        table.measure(tag, "forward + backward, ours", both, saved)
        with torch.no_grad():
            table.measure(tag, "forward, cuDNN", lambda c=cells: c(x), moved)
        table.measure(
            tag, "forward + backward, cuDNN", lambda c=cells: c(x)[0].sum().backward(), saved
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", required=True, help="file for the raw samples, one JSON a line")
    parser.add_argument("--seconds", type=float, default=240, help="begin nothing after this long")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    table = DeviceTable(options.out, options.seconds)
    limits(table)
    aggregation(table, "22 k vertices, 84 k nnz", 22_000, 84_000, 4, 16)
    aggregation(table, "100 k, 2 M nnz", 100_000, 2_000_000, 8, 2)
    aggregation(table, "100 k, 2 M nnz", 100_000, 2_000_000, 8, 6)
    aggregation(table, "2.3 M, 3.6 M nnz", 2_300_000, 3_640_000, 8, 2)
    aggregation(table, "100 k, 2 M nnz", 100_000, 2_000_000, 2, 64)
    scans(table, 16, 170, 16, 32)
    scans(table, 16, 20_000, 16, 32)
    scans(table, 16, 1_000_000, 32, 32)
    scans(table, 16, 20_000, 64, 128)
    table.show()


if __name__ == "__main__":
    main()

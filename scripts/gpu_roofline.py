"""Every operator against its roof: counted bytes and products, time, launches, registers, spills.

The roofs are measured in the same run: a copy inside the device and a product of matrices in
single precision. What an operator must move (each array once, gathered rows as often as they are
gathered) and multiply is counted; the roof is the larger of the two times, and `of roof` what share
of the time it explains: more than all of it where data stays in a cache. Random rows are fetched in
sectors of 32 bytes, so narrow ones can reach only a part of the roof: `sectors` says how much the
fetches make of the bytes.

Kernels are named as the profiler saw them run, each with its registers, shared memory and
occupancy; spills are what the assembler said of it, from a file of `kernel_resources.py`
(--resources). Results are compared elsewhere: `tests/cuda` comes before this.

One JSON line per operator goes to --out as it is measured, the table to standard output.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_timing import LATE, Rows, call_seconds, need_device
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dgbench.harness.machine.limits import measure_limits
from dgbench.kernels_cuda.aggregate import aggregate_parts, spmm
from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.difference import encode, rebuild
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.interact import edge_dots, group_edges, partner_sums
from dgbench.kernels_cuda.label_propagation import propagate_labels
from dgbench.kernels_cuda.overlap import PartTopology
from dgbench.kernels_cuda.row_cache import open_row_cache
from dgbench.kernels_cuda.scan import gru_scan, lstm_scan, packed_gru_scan
from dgbench.kernels_cuda.snapshots import edge_snapshots
from dgbench.kernels_cuda.temporal_sample import sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import DeviceStore
from dgbench.kernels_cuda.weighted import draw_without_replacement
from dgbench.runtime.errors import DgbenchError

SECTOR = 32


@dataclass(frozen=True)
class RooflineWork:
    """One operator with what it does at least.

    Attributes:
        name, size: for people. run: one call.
        moved: bytes, counted once. products: floating point operations.
        fetched: bytes of the sectors that its gathers touch, where that is more than `moved`.
    """

    name: str
    size: str
    run: Callable[[], object]
    moved: float
    products: float = 0.0
    fetched: float = 0.0


@dataclass
class Kernel:
    """A kernel as it ran; None where the profiler did not say."""

    name: str
    us: float
    count: int
    registers: int | None = None
    shared: int | None = None
    occupancy: float | None = None
    spilled: int | None = None
    blocks: list[int] = field(default_factory=list)


def sectors(rows: float, width: int) -> float:
    """Bytes that `rows` random rows of `width` floats are fetched in."""
    return rows * SECTOR * -(-4 * width // SECTOR)


def snapshots(options: Any, device: str) -> list[Csr]:
    """Four that share most of their entries."""
    draw = torch.Generator().manual_seed(1)
    ends = (torch.rand(2, options.entries, generator=draw) ** 2 * options.vertices).long()
    times = torch.randint(0, 4, (options.entries,), generator=draw)
    made = edge_snapshots(ends[0], ends[1], times, 4, options.vertices, edge_life=3)
    return [Csr(c.indptr.to(device), c.indices.to(device), c.num_cols) for c in made]


def aggregations(options: Any, device: str) -> Iterator[RooflineWork]:
    group = snapshots(options, device)
    csr, n = group[-1], options.vertices
    topology = csr.indptr.nbytes + csr.indices.nbytes
    for width in (2, 16, 64):
        x = torch.rand(n, width, device=device)
        yield RooflineWork(f"spmm, {width} wide", f"{csr.nnz:,} entries", lambda x=x: spmm(csr, x),
                   topology + 4 * width * (csr.nnz + n), 2 * csr.nnz * width,
                   topology + sectors(csr.nnz, width) + 4 * width * n)  # fmt: skip
    parts = PartTopology.build(group)
    entries = parts.over.nnz + sum(p.nnz for p in parts.exclusive)
    x = torch.rand(n, 4, 16, device=device, requires_grad=True)
    rows = 4 * 16 * (4 * parts.over.nnz + entries - parts.over.nnz + 4 * n)

    def both() -> None:
        x.grad = None
        aggregate_parts(parts, x).sum().backward()

    yield RooflineWork("parts of 4, forward", f"{entries:,} entries",
               lambda: aggregate_parts(parts, x.detach()), 4 * parts.words() + rows)  # fmt: skip
    yield RooflineWork(
        "parts of 4, both ways", f"{entries:,} entries", both, 2 * (4 * parts.words() + rows)
    )
    new, old = group[2], group[1]
    sent = encode(*(Csr(c.indptr.cpu(), c.indices.cpu(), c.num_cols) for c in (old, new)),
                  values=False)  # fmt: skip
    there = sent.with_tensors([t.to(device) for t in sent.tensors])
    moved = 4 * (old.nnz + new.nnz) + 16 * (n + 1) + sum(t.nbytes for t in sent.tensors)
    yield RooflineWork("rebuild", f"{new.nnz:,} entries", lambda: rebuild(old, there), moved)
    cap, sweeps = -(-n // 64), 3
    yield RooflineWork(
        "labels, 3 sweeps", f"{csr.nnz:,} entries",
        lambda: propagate_labels(csr, cap=cap, sweeps=sweeps, share=0.0, block=1 << 16),
        sweeps * (topology + 4 * csr.nnz + 8 * n), 0.0, sweeps * (topology + sectors(csr.nnz, 1)),
    )  # fmt: skip


def recurrences(options: Any, device: str) -> Iterator[RooflineWork]:
    steps, rows, width, hidden = 16, options.rows, 16, 32
    for name, scan, gates in (("GRU", gru_scan, 3), ("LSTM", lstm_scan, 4)):
        shapes = ((steps, rows, width), (width, gates * hidden), (hidden, gates * hidden))
        given = [0.1 * torch.randn(s, device=device) for s in (*shapes, (gates * hidden,))]
        leaves = [tensor.clone().requires_grad_() for tensor in given]
        moved = 4 * steps * rows * (width + hidden)
        products = 2 * steps * rows * (width + hidden) * gates * hidden
        size = f"{steps} x {rows:,}"

        def both(scan: Any = scan, leaves: list[Tensor] = leaves) -> None:
            for leaf in leaves:
                leaf.grad = None
            scan(*leaves, all_steps=True)[0].sum().backward()

        yield RooflineWork(f"{name}, forward", size,
                           lambda s=scan, g=given: s(*g, all_steps=True), moved,
                   products)  # fmt: skip
        yield RooflineWork(f"{name}, both ways", size, both, 3 * moved, 3 * products)
        if name == "GRU":
            begins = torch.rand(steps, rows, device=device) < 0.2
            yield RooflineWork("packed GRU, forward", size,
                       lambda g=given, b=begins: packed_gru_scan(*g, b), moved,
                       products)  # fmt: skip


def samplers(options: Any, device: str) -> Iterator[RooflineWork]:
    draw = torch.Generator().manual_seed(2)
    n, events = options.vertices, options.entries
    ends = (torch.rand(2, events, generator=draw) ** 2 * n).long()
    times = torch.arange(events, dtype=torch.float64)
    store = TemporalStore(n, policy=BlockPolicy("grown", 512), undirected=True)
    store.insert(*ends, times)
    there = DeviceStore(store, "cuda") if device == "cuda" else None
    roots = torch.randint(n, (options.roots,), generator=draw)
    asked = roots, torch.full((options.roots,), float(events), dtype=torch.float64)
    for policy in ("recent", "uniform"):

        def one(policy: str = policy) -> Any:
            if there is None:
                return sample_hops(store, *asked, [10], policy=policy, seed=1, draw=0)
            return there.sample_hops(*asked, [10], policy=policy, seed=1, draw=0)

        found = one()[0][0].neighbours.numel()
        yield RooflineWork(f"sample, {policy}", f"{options.roots:,} roots", one,
                   (16 + 24) * found + 64 * options.roots, 0.0,
                   (16 if policy == "recent" else SECTOR) * found + 24 * found
                   + 5 * SECTOR * options.roots)  # fmt: skip
    table = table_on(EdgeTable.build(*ends, times, n), device)
    yield RooflineWork("half of every row", f"{events:,} edges",
                       lambda: keep_share(table, 0.5, seed=1),
               5 * events + 16 * n)  # fmt: skip
    weights = torch.rand(events, device=device) + 0.1
    yield RooflineWork("draw half by weight", f"{events:,} items",
               lambda: draw_without_replacement(weights, events // 2, seed=1),
               8 * events)  # fmt: skip
    rows, dim = options.rows * 4, 128
    cache = open_row_cache(rows, dim, rows // 2, limit=rows // 4, device=device)
    features = torch.rand(rows, dim)
    ids = torch.randint(rows // 4, (options.rows,), generator=draw)
    out = torch.empty(len(ids), dim, device=device)
    for _ in range(3):
        known = cache.lookup(ids.unique())
        cache.gather(known, features, out[: len(ids.unique())], by_id=True)
        cache.update(known, out[: len(ids.unique())])

    def fetch() -> None:
        cache.gather(cache.lookup(ids), features, out, by_id=True)

    yield RooflineWork("cache, all hits", f"{len(ids):,} rows", fetch, (8 * dim + 24) * len(ids))


def interactions(options: Any, device: str) -> Iterator[RooflineWork]:
    draw = torch.Generator().manual_seed(3)
    n, edges, width = options.vertices // 4 or 1, options.entries // 4, 64
    src, dst = ((torch.rand(edges, generator=draw) ** 2 * n).long().to(device) for _ in range(2))
    x = torch.rand(n, width, device=device)
    by_src, by_dst = group_edges(src, n), group_edges(dst, n)
    size = f"{edges:,} edges"
    yield RooflineWork("sums over partners", size,
               lambda: partner_sums(src, dst, x, x, by_src=by_src, by_dst=by_dst),
               2 * (edges * (16 + 4 * width) + n * (8 + 4 * width)), 2 * edges * width)  # fmt: skip
    yield RooflineWork("products of rows", size, lambda: edge_dots(src, dst, x, x),
               edges * (20 + 8 * width), 2 * edges * width)  # fmt: skip


def kernels_of(run: Callable[[], object], spills: dict[tuple[str, int], int]) -> list[Kernel]:
    """The kernels of one call, by the profiler's own record of each launch."""
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "trace.json"
        seen.export_chrome_trace(str(path))
        return read_trace(json.loads(path.read_text()), spills)


def read_trace(trace: dict[str, Any], spills: dict[tuple[str, int], int]) -> list[Kernel]:
    """Kernels of a trace, those of one name and shape together, the longest first."""
    found: dict[tuple[str, int | None], Kernel] = {}
    for event in trace.get("traceEvents", ()):
        if event.get("cat") != "kernel":
            continue
        facts = event.get("args", {})
        registers = facts.get("registers per thread")
        name = base(str(event.get("name", "")))
        one = found.setdefault((name, registers), Kernel(
            name, 0.0, 0, registers, facts.get("shared memory"),
            facts.get("est. achieved occupancy %"), spills.get((name, registers or 0)),
            list(facts.get("block", [])),
        ))  # fmt: skip
        one.us += float(event.get("dur", 0.0))
        one.count += 1
    return sorted(found.values(), key=lambda one: -one.us)


def base(name: str) -> str:
    """`void space::kernel<int>(float*)` as `kernel`."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", name, maxsplit=1)[0].rpartition("::")[2]


def spills_of(path: str | None) -> dict[tuple[str, int], int]:
    """(kernel, registers) -> bytes a thread spills at most, of a file of `kernel_resources.py`."""
    found: dict[tuple[str, int], int] = {}
    for line in Path(path).read_text().splitlines() if path and Path(path).exists() else ():
        row = json.loads(line)
        key = base(row["kernel"]), row["registers"]
        found[key] = max(found.get(key, 0), row["spill_stores"] + row["spill_loads"])
    return found


def measure(
    work: RooflineWork, device: str, roofs: dict[str, float], options: Any, spills: Any
) -> dict:
    """One operator's row."""
    took = call_seconds(work.run, device, options.rounds)
    roof = max(work.moved / roofs["copy"], work.products / roofs["products"])
    row: dict[str, Any] = {
        "what": "operator", "name": work.name, "size": work.size, "seconds": took,
        "moved": work.moved, "products": work.products, "fetched": work.fetched or work.moved,
        "bound": "products" if work.products / roofs["products"] >= roof else "copy",
        "of_roof": roof / took, "gb_s": work.moved / took / 1e9,
        "gflop_s": work.products / took / 1e9, "kernels": [],
    }  # fmt: skip
    if device == "cuda":
        kernels = kernels_of(work.run, spills)
        row["kernels"] = [asdict(kernel) for kernel in kernels]
        row["device_s"] = 1e-6 * sum(kernel.us for kernel in kernels)
        row["launches"] = sum(kernel.count for kernel in kernels)
    return row


def shown(row: dict[str, Any]) -> list[str]:
    launches = ""
    if "launches" in row:
        launches = f"{row['launches']:4} kernels, {1e6 * row['device_s']:.1f} us"
    lines = [
        f"{row['name']:24}{row['size']:22}{1e6 * row['seconds']:11.1f} us"
        f"{row['gb_s']:9.1f} GB/s{row['gflop_s']:10.1f} GFLOP/s{row['of_roof']:8.0%} of "
        f"{row['bound']:9}{row['fetched'] / row['moved']:6.2f} sectors{launches}"
    ]  # fmt: skip
    for one in row["kernels"][:4]:
        spilled = "spills not known" if one["spilled"] is None else f"{one['spilled']} B spilled"
        lines.append(f"    {one['name'][:40]:42}{one['us']:9.1f} us {one['count']:4} x "
                     f"{one['registers']} registers, {one['shared']} B shared, occupancy "
                     f"{one['occupancy']} %, {spilled}")  # fmt: skip
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--resources", help="rows of kernel_resources.py, for spills")
    parser.add_argument("--vertices", type=int, default=1_000_000)
    parser.add_argument("--entries", type=int, default=10_000_000)
    parser.add_argument("--rows", type=int, default=100_000, help="of recurrences and the cache")
    parser.add_argument("--roots", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=110, help="begin nothing after this long")
    options = parser.parse_args()
    device = options.device
    need_device(device)
    out = Rows(options.out, options.seconds)
    kept = out.kept("name", "size")
    torch.backends.cuda.matmul.allow_tf32 = False
    limits = measure_limits(device, budget_s=0.4)
    place = {"place": "device"} if device == "cuda" else {"place": "host", "using": "all"}
    roofs = {
        what: next(o.value for o in limits if o.metric == metric and o.dims == place)
        for what, metric in (("copy", "bandwidth"), ("products", "product_rate"))
    }
    spills = spills_of(options.resources)

    out.add(
        f"roofs: {roofs['copy'] / 1e9:.0f} GB/s copied, "
        f"{roofs['products'] / 1e9:.0f} GFLOP/s multiplied",
        what="roofs", **roofs,
    )  # fmt: skip
    for family in (aggregations, recurrences, samplers, interactions):
        try:
            for work in family(options, device):
                if f"{work.name} {work.size}" in kept:
                    continue
                if out.over:
                    out.add(f"{work.name}: {LATE}", what="cut", name=work.name, failed=LATE)
                    break
                row = measure(work, device, roofs, options, spills)
                out.add("\n".join(shown(row)), **row)
        except (DgbenchError, RuntimeError, MemoryError) as error:
            out.failed += 1
            out.add(f"{family.__name__}: {type(error).__name__}: {str(error)[:200]}",
                    what="failed", name=family.__name__, failed=str(error)[:300])  # fmt: skip
    sys.exit(out.status)


if __name__ == "__main__":
    main()

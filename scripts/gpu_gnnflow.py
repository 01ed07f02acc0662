"""GNNFlow on a device, all in one process: samples by placement, updates, and the feature cache.

Three tables. How fast neighbours are sampled where the graph lies in the device's, the host's or
managed memory, in turns with the CPU's sampler with two threads and with all; what an update of the
device's graph takes and moves after an insert of so many edges; and what a fetch through the cache
takes beside a gather by torch. A model on the device needs its samples there, so two contenders
sample on the CPU, with all threads, and bring what they found: our store, and sorted rows as TGL
keeps them. `of feeding` is the gain over the faster of these two.

Beside the time of a call stands what the device worked in it, copies included, by torch's profiler:
the rest is what a call costs on the host. Samples and rows are compared with the CPU's before they
are timed.

One JSON line per measurement goes to --out, the tables to standard output.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from gpu_timing import Report
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dgbench.kernels_cuda.row_cache import open_row_cache
from dgbench.kernels_cuda.tcsr import Tcsr, build_tcsr, sample_tcsr_hops
from dgbench.kernels_cuda.temporal_sample import Sample, sample_hops
from dgbench.kernels_cuda.temporal_store import BlockPolicy, TemporalStore
from dgbench.kernels_cuda.temporal_store.device import PLACEMENTS, DeviceStore
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import median, paired_ratio

SHAPES = (("recent", (10,)), ("uniform", (10,)), ("uniform", (10, 10)))
WRONG = "wrong"
TWO = "cpu, 2 threads"
"""Baseline of a device, which should be 15 times as fast."""
FED, TGL = "cpu, fed", "tgl-style, fed"
"""Sampled on the CPU and brought to the device: by our store, and by sorted rows."""
ARRAYS = ("nodes", "times", "offsets", "neighbours", "eids", "edge_times")
"""Of a sample, what a model reads."""
PROFILED = 3
MAX_LISTED = 4000
"""Edges of a batch above which the walk of the list is left out."""


def stream(edges: int, vertices: int, begin: float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Events with a few vertices that most of them meet."""
    random = torch.Generator().manual_seed(edges)
    src = (vertices * torch.rand(edges, generator=random, dtype=torch.float64) ** 4).long()
    dst = torch.randint(vertices, (edges,), generator=random)
    return src, dst, begin + torch.arange(edges).double()


def roots(store: TemporalStore, batch: int, seed: int) -> tuple[Tensor, Tensor]:
    """Three roots for each of `batch` edges, in the newest tenth of the stream."""
    random = torch.Generator().manual_seed(seed)
    count = store.num_vertices
    hubs = (count * torch.rand(batch, generator=random, dtype=torch.float64) ** 4).long()
    nodes = torch.cat([hubs, torch.randint(count, (2 * batch,), generator=random)])
    times = store.last_time * (1 - 0.1 * torch.rand(batch, generator=random, dtype=torch.float64))
    return nodes, times.repeat(3)


class HostFeeder:
    """Brings samples to the device: all their arrays in one copy through page-locked memory."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.staging = torch.empty(0, dtype=torch.int64)

    def __call__(self, found: list[list[Sample]]) -> list[list[Sample]]:
        """The same samples on the device; every array of them has eight bytes an element."""
        arrays = [getattr(one, name) for hops in found for one in hops for name in ARRAYS]
        words = sum(array.numel() for array in arrays)
        if self.staging.numel() < words:
            pinned = self.device == "cuda"
            self.staging = torch.empty(2 * words, dtype=torch.int64, pin_memory=pinned)
        torch.cat([array.view(torch.int64) for array in arrays], out=self.staging[:words])
        # Not asynchronous: the staging memory is written again by the next call.
        there = self.staging[:words].to(self.device, copy=True)
        pieces = iter(zip(arrays, there.split([a.numel() for a in arrays]), strict=True))
        return [
            [replace(one, **{n: self._as(*next(pieces)) for n in ARRAYS}) for one in hops]
            for hops in found
        ]

    @staticmethod
    def _as(array: Tensor, piece: Tensor) -> Tensor:
        return piece.view(array.dtype)


def updates(
    report: Report, store: TemporalStore, there: dict[str, DeviceStore], edges: int
) -> None:
    """Insert on the host, then bring each placement up to date."""
    print(
        f"\n{'inserted':>10}{'placement':>11}{'insert':>11}{'update':>11}{'moved':>11}{'pieces':>9}"
    )
    for size in (100, edges // 10, edges):
        batch = stream(size, store.num_vertices, store.last_time + 1)
        insert = report.seconds(lambda batch=batch: store.insert(*batch))
        for name, one in there.items():
            update = report.seconds(one.update)
            report.add(
                f"{size:10}{name:>11}{1e3 * insert:8.2f} ms{1e3 * update:8.2f} ms"
                f"{one.sent.bytes / 1e6:8.2f} MB{one.sent.patches:9}",
                what="update", edges=size, placement=name, insert_s=insert, update_s=update,
                bytes=one.sent.bytes, patches=one.sent.patches, whole=one.sent.whole,
            )  # fmt: skip


def equal(found: list[list[Sample]], right: list[list[Sample]]) -> bool:
    return all(
        torch.equal(getattr(one, name).cpu(), getattr(other, name))
        for mine, its in zip(found, right, strict=True)
        for one, other in zip(mine, its, strict=True)
        for name in ARRAYS
    )


def samples(
    report: Report, store: TemporalStore, there: dict[str, DeviceStore], rows: Tcsr, options: Any
) -> None:
    """Every placement and the CPU in turns, for several shapes and sizes of a batch."""
    print(f"\n{'policy':8}{'fan-outs':>9}{'edges':>7}{'walk':>8}{'placement':>15}{'batch':>11}"
          f"{'device':>11}{'neighbours/s':>14}{'of 2 thr.':>10}{'of CPU':>9}"
          f"{'of feeding':>11}")  # fmt: skip
    for policy, fanouts in SHAPES:
        for batch in options.batches:
            for walk in ("fences", "list") if batch <= MAX_LISTED else ("fences",):
                if report.over(f"{policy} {fanouts} {batch}"):
                    return
                _race(
                    report, store, there, rows, policy, list(fanouts), batch, walk, options.rounds
                )


def _race(report, store, there, rows, policy, fanouts, batch, walk, rounds) -> None:
    how = {"policy": policy, "seed": 3, "search": "linear" if walk == "list" else "binary"}
    feed = HostFeeder(report.device)
    contenders: dict[str, Callable[..., list[list[Sample]]]] = {
        "cpu": lambda *roots, draw: sample_hops(store, *roots, fanouts, draw=draw, **how),
        TWO: lambda *roots, draw: sample_hops(store, *roots, fanouts, draw=draw, threads=2, **how),
        FED: lambda *roots, draw: feed(sample_hops(store, *roots, fanouts, draw=draw, **how)),
        TGL: lambda *roots, draw: feed(
            sample_tcsr_hops(rows, *roots, fanouts, draw=draw, policy=policy, seed=3)
        ),
    }
    for name, one in there.items():
        contenders[name] = lambda *roots, draw, one=one: one.sample_hops(
            *roots, fanouts, draw=draw, **how
        )
    first = roots(store, batch, 0)
    right = contenders["cpu"](*first, draw=0)
    for name in list(contenders):
        if not equal(contenders[name](*first, draw=0), right):
            report.wrong += 1
            report.add(f"{name}: {WRONG}", what="sample", placement=name, failed=WRONG)
            del contenders[name]
    taken = sum(hop.neighbours.numel() for hop in right[0])
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(1, rounds + 1):
        asked = roots(store, batch, number)
        for name in list(contenders)[:: 1 if number % 2 else -1]:
            seconds[name].append(report.seconds(partial(contenders[name], *asked, draw=number)))
    feeders = [seconds[name] for name in (FED, TGL) if name in seconds]
    fed = min(feeders or [seconds["cpu"]], key=median)
    for name, took in seconds.items():
        ratio = paired_ratio(seconds["cpu"], took, method="sign")
        over_fed = paired_ratio(fed, took, method="sign")
        two = paired_ratio(seconds[TWO], took, method="sign")
        works = device_seconds(lambda name=name: contenders[name](*first, draw=0)) if (
            name in there and walk == "fences") else None  # fmt: skip
        shown = "" if works is None else f"{1e3 * works:8.3f} ms"
        report.add(
            f"{policy:8}{'x'.join(map(str, fanouts)):>9}{batch:7}{walk:>8}{name:>15}"
            f"{1e3 * median(took):8.2f} ms{shown:>11}{taken / median(took):14.3g}"
            f"{two.value:9.2f}x{ratio.value:8.2f}x{over_fed.value:10.2f}x",
            what="sample", policy=policy, fanouts=fanouts, batch=batch, walk=walk, placement=name,
            seconds=took, neighbours=taken, over_cpu=ratio.value, low=ratio.low, high=ratio.high,
            over_two=two.value, over_two_low=two.low, over_two_high=two.high, device_s=works,
            over_fed=over_fed.value, over_fed_low=over_fed.low, over_fed_high=over_fed.high,
        )  # fmt: skip


def device_seconds(work: Callable[[], object]) -> float:
    """Seconds of the device's kernels and copies in one call, by torch's profiler."""
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(PROFILED):
            work()
        torch.cuda.synchronize()
    return sum(
        event.self_device_time_total
        for event in seen.key_averages()
        if event.device_type == torch.autograd.DeviceType.CUDA
    ) / (1e6 * PROFILED)


def caches(report: Report, options: Any) -> None:
    """A fetch of rows through the cache beside a plain gather and copy, by share of hits."""
    print(f"\n{'hits':>6}{'table':>11}{'cache':>11}{'gather':>11}{'gain':>9}")
    rows = torch.rand(options.rows, options.dim, generator=torch.Generator().manual_seed(1))
    tables = {"pageable": rows}
    if report.device == "cuda":
        tables["page-locked"] = rows.pin_memory()
    capacity = options.rows // 4
    for share in (0.0, 0.7, 1.0):
        for name, table in tables.items():
            if report.over(f"cache at {share}"):
                return
            cache = open_row_cache(
                options.rows, options.dim, capacity, limit=capacity // 5, device=report.device
            )
            random = torch.Generator().manual_seed(2)
            warm = torch.randint(capacity, (capacity,), generator=random).unique()
            fetch(cache, warm, table, report.device)
            hits = round(share * options.asked)
            inside = cache.ids()[torch.randint(len(cache.ids()), (hits,), generator=random)]
            outside = torch.randint(
                capacity, options.rows, (options.asked - hits,), generator=random
            )
            ids = torch.cat([inside, outside])
            found = fetch(cache, ids, table, report.device, update=False)
            if not torch.equal(found.cpu(), rows[ids]):
                report.wrong += 1
                report.add(f"{share:6.0%}{name:>11} {WRONG}", what="cache", failed=WRONG)
                continue
            through = partial(fetch, cache, ids, table, report.device, update=False)
            plain = partial(_plain, ids, table, report.device)
            took: list[list[float]] = [[], []]
            for _ in range(options.rounds):
                for one, work in zip(took, (through, plain), strict=True):
                    one.append(report.seconds(work))
            gain = paired_ratio(took[1], took[0], method="sign")
            report.add(
                f"{share:6.0%}{name:>11}{1e3 * median(took[0]):8.2f} ms"
                f"{1e3 * median(took[1]):8.2f} ms{gain.value:8.2f}x",
                what="cache", hits=share, table=name, cache_s=took[0], gather_s=took[1],
                gain=gain.value, low=gain.low, high=gain.high, dim=options.dim,
            )  # fmt: skip


def fetch(cache: Any, ids: Tensor, table: Tensor, device: str, *, update: bool = True) -> Tensor:
    found = cache.lookup(ids)
    out = torch.empty(ids.numel(), table.shape[1], device=device)
    cache.gather(found, table, out, by_id=True)
    if update:
        cache.update(found, out)
    return out


def _plain(ids: Tensor, table: Tensor, device: str) -> Tensor:
    return table[ids].to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--vertices", type=int, default=500_000)
    parser.add_argument("--inserted", type=int, default=100_000, help="edges of the largest insert")
    parser.add_argument("--batches", type=int, nargs="*", default=[600, 4000, 40000])
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the feature table")
    parser.add_argument("--dim", type=int, default=186)
    parser.add_argument("--asked", type=int, default=198_000, help="rows of a fetch")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=110, help="begin nothing after this long")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device; nothing to measure")
    report = Report(options.out, options.device, options.seconds)
    store = TemporalStore(options.vertices, policy=BlockPolicy("adaptive", 64), undirected=True)
    events = stream(options.edges, options.vertices)
    store.insert(*events)
    begin = time.perf_counter()
    rows = build_tcsr(options.vertices, *events, undirected=True)
    took = time.perf_counter() - begin
    report.add(f"sorted rows of all edges, built as TGL does: {took:.2f} s", what="build",
               contender=TGL, seconds=took, bytes=rows.nbytes)  # fmt: skip
    there: dict[str, DeviceStore] = {}
    for name in PLACEMENTS if options.device == "cuda" else ():
        try:
            there[name] = DeviceStore(store, name)
        except (DgbenchError, MemoryError, RuntimeError) as error:
            report.add(f"{name}: {error}", what="open", placement=name, failed=str(error))
    if options.device == "cpu":
        print("on the CPU there are no placements; its own sampler and cache run alone")
    # Sampled before anything is inserted, so that the sorted rows hold the same graph.
    samples(report, store, there, rows, options)
    del rows
    updates(report, store, there, options.inserted)
    caches(report, options)
    sys.exit(1 if report.wrong else 0)


if __name__ == "__main__":
    main()

"""Twitter's twin, 1.47 billion edges, on one device: memory by count, ingest, samples, an epoch.

T-GCN trains on Twitter in 9237.4 s on V100s of 32 GB, in a machine with eight (section 6.2; how
many it used and for how many epochs is not said). Here the whole graph lies on one device. Before
anything is made its bytes are counted, phase by phase, and the largest share of the twin is taken
that host and device have room for; what was predicted stands beside what was allocated. Then

- ingest: the generator hands out edges, which become rows on the host, then on the device. If the
  clock runs low the first edges are taken, and every row says how many;
- samples: half of every vertex's neighbours, as an epoch needs them, compared with the CPU's on the
  first edges and by count on the whole; and neighbours of neighbours around random vertices;
- training: intervals over the state of all vertices. The source has no times and the paper draws
  them at random, so an interval is a random draw of edges. The epoch is projected from the edges a
  second that a few intervals took, and says so.

One JSON line per measurement goes to --out, what a person reads to standard output.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from gpu_timing import Report
from torch import Tensor

from dgbench.datasets import EventStream
from dgbench.datasets.twins.params import params
from dgbench.datasets.twins.scaling import at_scale
from dgbench.harness.probes.cpu import available_memory
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share, sample_nodewise, share_of
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.twins import RankCopy, RankCopySpec
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.statistics import median
from dgbench.systems.base.interactions import TRAIN, InteractionWorkload, interaction_data
from dgbench.systems.tgcn.printed import values
from dgbench.systems.tgcn.system import TgcnSystem
from dgbench.systems.tgcn.trainer import state_bytes

NAME = "twitter"
PAPER_S = values()["fig6-twitter-time"]
SHARE = 0.5
SCALES = [2.0**-k for k in range(13)]
HOST_ROOM, DEVICE_ROOM = 0.85, 0.9
"""Shares of what is free that a plan may take."""
CHUNK = 1 << 22
CHECKED = 1 << 20
"""Edges of the stretch whose samples are compared with the CPU's."""
GENERATOR = 8
"""Bytes an edge that the generator holds of the past."""
SEED = 1


@dataclass(frozen=True)
class BillionPlan:
    """Bytes of a share of the twin, by phase.

    Attributes:
        scale, events, vertices: of the twin.
        host, device: phase -> bytes that are held in it at once.
    """

    scale: float
    events: int
    vertices: int
    host: dict[str, int]
    device: dict[str, int]

    def fits(self, host: float, device: float) -> bool:
        return max(self.host.values()) <= host and max(self.device.values()) <= device


@cache
def spec(scale: float) -> RankCopySpec:
    """The generator of a share of the twin."""
    return at_scale(NAME, params(NAME), scale)


def plan(scale: float, hidden: int = 64) -> BillionPlan:
    """Count what a share of the twin takes."""
    edges, vertices = spec(scale).events, spec(scale).num_nodes
    table = 16 * edges + 8 * vertices
    host = {
        "generate": (16 + GENERATOR) * edges,
        # both ends and the time go in, checks take a byte an edge
        "build rows": 25 * edges + table,
        "hold rows": table,
        "train": vertices * state_bytes(hidden, torch.float32),  # it is made here
    }
    device = {
        # degrees, what is needed of each row, a mask of edges
        "sample half": table + 24 * vertices + edges,
        # the table has gone by then
        "train": vertices * state_bytes(hidden, torch.float32),
    }
    return BillionPlan(scale, edges, vertices, host, device)


def choose(scales: list[float], host: float, device: float, hidden: int = 64) -> BillionPlan:
    """The largest share that fits, else the smallest there is."""
    plans = [plan(scale, hidden) for scale in sorted(scales, reverse=True)]
    return next((one for one in plans if one.fits(host, device)), plans[-1])


class BillionReport(Report):
    """`Report` of parts that may fail or lack the time."""

    def median_seconds(self, work: Callable[[], object], rounds: int) -> float:
        """Median seconds of calls; fewer of them where time is short."""
        took = []
        for _ in range(rounds):
            took.append(self.seconds(work))
            if self.left < 2 * took[-1]:
                break
        return median(took)

    @contextmanager
    def part(self, what: str, least: float) -> Iterator[bool]:
        """Yield True if there is time for a part; a failure in it is recorded as a row."""
        if self.left < least:
            self.add(f"{what}: out of time", what=what, failed="out of time")
            yield False
            return
        try:
            yield True
        except (DgbenchError, MemoryError, RuntimeError) as error:
            self.add(f"{what}: {type(error).__name__}: {str(error)[:200]}", what=what,
                     failed=str(error)[:500])  # fmt: skip


def generate(
    report: BillionReport, chosen: BillionPlan, until: float, threads: int
) -> tuple[Tensor, Tensor]:
    """Both ends of the edges; of the first ones only, where the clock says so."""
    src, dst = (torch.empty(chosen.events, dtype=torch.int64) for _ in range(2))
    done, start = 0, time.perf_counter()
    source = RankCopy(spec(chosen.scale), SEED, threads=threads)
    while done < chosen.events:
        one, other = source.take(min(CHUNK, chosen.events - done))
        src[done : done + len(one)] = torch.from_numpy(one)
        dst[done : done + len(one)] = torch.from_numpy(other)
        done += len(one)
        if time.monotonic() > until:
            break
    took = time.perf_counter() - start
    share = "" if done == chosen.events else f", the first {done / chosen.events:.1%} of it"
    report.add(
        f"generated {done:,} edges in {took:.1f} s, {done / took / 1e6:.1f} M/s{share}",
        what="generate", edges=done, of=chosen.events, seconds=took, threads=threads,
    )  # fmt: skip
    return src[:done], dst[:done]


def build(report: BillionReport, src: Tensor, dst: Tensor, vertices: int) -> EdgeTable:
    """Rows of all edges, on the host."""
    start = time.perf_counter()
    t = torch.arange(src.numel(), dtype=torch.float64)
    table = EdgeTable.build(src, dst, t, vertices)
    took = time.perf_counter() - start
    report.add(
        f"rows built in {took:.1f} s, {src.numel() / took / 1e6:.1f} M edges/s, "
        f"{table.nbytes / 1e9:.2f} GB, largest degree {int(table.degrees.max()):,}",
        what="build", edges=src.numel(), vertices=vertices, seconds=took, bytes=table.nbytes,
    )  # fmt: skip
    return table


def check(report: BillionReport, src: Tensor, dst: Tensor, vertices: int) -> None:
    """The device keeps what the CPU keeps, on the first edges."""
    count = min(CHECKED, src.numel())
    small = EdgeTable.build(
        src[:count], dst[:count], torch.arange(count, dtype=torch.float64), vertices
    )
    found = keep_share(table_on(small, report.device), SHARE, seed=1).cpu()
    good = torch.equal(found, keep_share(small, SHARE, seed=1))
    report.wrong += not good
    report.add(f"samples of the first {count:,} edges {'equal' if good else 'DIFFER FROM'} the "
               "CPU's", what="check", edges=count, equal=good)  # fmt: skip


def sample(report: BillionReport, table: EdgeTable, roots: int, predicted: int) -> float:
    """Half of every vertex's neighbours, and neighbours around roots; seconds of an epoch's."""
    took = report.median_seconds(lambda: keep_share(table, SHARE, seed=1), 3)
    kept = keep_share(table, SHARE, seed=1)
    wanted = int(share_of(table.degrees, SHARE).sum())
    good = int(kept.sum()) == wanted
    report.wrong += not good
    peak = torch.cuda.max_memory_allocated() if report.device == "cuda" else 0
    report.add(
        f"half of every vertex's neighbours in {took:.3f} s, {table.num_edges / took / 1e6:.0f} M "
        f"edges/s; kept {wanted:,}{'' if good else ' BY COUNT WRONG'}; device memory "
        f"{predicted / 1e9:.1f} GB by count, {peak / 1e9:.1f} GB at the most",
        what="sample half", edges=table.num_edges, seconds=took, kept=wanted, counted_right=good,
        predicted_bytes=predicted, peak_bytes=peak,
    )  # fmt: skip
    del kept
    asked = torch.randint(table.num_nodes, (roots,), generator=torch.Generator().manual_seed(2))
    asked = asked.to(table.indptr.device)

    def around() -> Any:
        return sample_nodewise(table, asked, [10, 10], method="keys", seed=1, union=False)

    edges = sum(layer.eids.numel() for layer in around().layers)
    each = report.median_seconds(around, 5)
    report.add(f"{roots:,} roots, 10 x 10: {1e3 * each:.2f} ms, {edges / each / 1e6:.1f} M edges/s",
               what="sample around", roots=roots, seconds=each, edges=edges)  # fmt: skip
    return took


def train(
    report: BillionReport, stream: EventStream, interval: int, hidden: int, free: float
) -> float:
    """Edges of the stream that are taken in a second, sampling and cutting included."""
    count = max(1, round(TRAIN * len(stream) / interval))
    work = InteractionWorkload(dataset=NAME, hidden_dim=hidden, intervals=count, share=SHARE)
    data = interaction_data(stream, work)
    trainer = TgcnSystem().open(
        work, data=data, device=report.device, memory_bytes=int(free) or None
    )
    try:
        first = report.seconds(trainer.train_epoch)  # samples, cuts, and warms the device up
        took = report.median_seconds(trainer.train_epoch, 3)
        rate = data.train_end / took
        report.add(
            f"trained on {data.train_end:,} edges of {stream.num_nodes:,} vertices in {took:.2f} s "
            f"({first:.2f} s with sampling and cutting), {rate / 1e6:.2f} M edges/s; state "
            f"{'on the device' if trainer.resident else 'streamed from the host'}",
            what="train", edges=data.train_end, vertices=stream.num_nodes, intervals=count,
            seconds=took, first_s=first, rate=rate, resident=bool(trainer.resident),
        )  # fmt: skip
    finally:
        trainer.close()
    return rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="file for the rows, one JSON a line")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--scale", type=float, help="of the twin; by default the most that fits")
    parser.add_argument("--stretch", type=int, default=8_000_000, help="edges trained on")
    parser.add_argument("--interval", type=int, default=1_000_000, help="edges of an interval")
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--roots", type=int, default=10_000)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seconds", type=float, default=480, help="begin nothing after this long")
    parser.add_argument("--plan", action="store_true", help="count, say, and make nothing")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available() and not options.plan:
        sys.exit("torch sees no CUDA device; nothing to measure")
    report = BillionReport(options.out, options.device, options.seconds)
    host = HOST_ROOM * available_memory()
    there = options.device == "cuda" and torch.cuda.is_available()
    free = DEVICE_ROOM * torch.cuda.mem_get_info()[0] if there else host
    chosen = choose([options.scale] if options.scale else SCALES, host, free, options.hidden)
    counted = [
        ", ".join(f"{what} {size / 1e9:.1f}" for what, size in phases.items())
        for phases in (chosen.host, chosen.device)
    ]
    report.add(
        f"scale {chosen.scale:g}: {chosen.events:,} edges of {chosen.vertices:,} vertices; GB by "
        f"count, host: {counted[0]} (of {host / 1e9:.0f}); device: {counted[1]} (of "
        f"{free / 1e9:.0f})",
        what="plan", scale=chosen.scale, edges=chosen.events, vertices=chosen.vertices,
        host=chosen.host, device=chosen.device, host_bytes=host, device_bytes=free,
        fits=chosen.fits(host, free),
    )  # fmt: skip
    if options.plan:
        return
    if not chosen.fits(host, free):
        sys.exit("not even the smallest share fits here")
    run(report, chosen, options, free)
    sys.exit(1 if report.wrong else 0)


def run(report: BillionReport, chosen: BillionPlan, options: Any, free: float) -> None:
    """All parts, each in what time is left."""
    vertices = chosen.vertices
    until = report.begin + 0.45 * options.seconds
    src, dst = generate(report, chosen, until, max(1, options.threads))
    edges, sampled, rate = src.numel(), 0.0, 0.0
    drawn = torch.randint(edges, (options.stretch,), generator=torch.Generator().manual_seed(3))
    stretch = src[drawn], dst[drawn]
    with report.part("check", 5) as go:
        if go:
            check(report, src, dst, vertices)
    with report.part("build and sample", 20) as go:
        if go:
            table = build(report, src, dst, vertices)
            del src, dst
            gc.collect()
            if options.device == "cuda":
                torch.cuda.reset_peak_memory_stats()
            found: list[EdgeTable] = []
            took = report.seconds(lambda: found.append(table_on(table, report.device)))
            moved = table.nbytes
            del table
            report.add(f"brought to the device in {took:.2f} s, {moved / took / 1e9:.1f} GB/s",
                       what="bring", seconds=took, bytes=moved)  # fmt: skip
            predicted = 16 * edges + 32 * vertices + edges
            sampled = sample(report, found.pop(), options.roots, predicted)
    gc.collect()
    if options.device == "cuda":
        torch.cuda.empty_cache()
    with report.part("train", 30) as go:
        if go:
            t = torch.arange(options.stretch, dtype=torch.float64)
            stream = EventStream.build(*stretch, t, num_nodes=vertices)
            rate = train(report, stream, options.interval, options.hidden, free)
    if sampled and rate:
        trained = TRAIN * edges / rate
        report.add(
            f"an epoch of {edges:,} edges: samples {sampled:.1f} s, training {trained:.0f} s "
            f"(projected from {rate / 1e6:.2f} M edges/s), {sampled + trained:.0f} s in all; the "
            f"paper: {PAPER_S} s on V100s",
            what="epoch", edges=edges, whole=edges == plan(1.0).events, sample_s=sampled,
            train_s=trained, seconds=sampled + trained, paper_s=PAPER_S, evidence="projected",
        )  # fmt: skip


if __name__ == "__main__":
    main()

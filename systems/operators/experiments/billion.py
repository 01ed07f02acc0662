"""A twin of 1.47 billion edges on one device: memory by count, rows, and samples."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from statistics import median
from typing import Any, ClassVar

import torch
from torch import Tensor

from dgbench.datasets.twins.params import params as params_of
from dgbench.datasets.twins.scaling import at_scale
from dgbench.kernels_cuda.edge_sampling import EdgeTable, keep_share, sample_nodewise, share_of
from dgbench.kernels_cuda.edge_sampling.device import table_on
from dgbench.kernels_cuda.twins import RankCopy, RankCopySpec
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import at_most, equal
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.memory import available_memory
from dgbench.systems.operators.race import OURS, torch_threads
from dgbench.systems.operators.timing import CallSetting, Timer, open_timer

NAME = "twitter"
SHARE = 0.5
HOST_SHARE, DEVICE_SHARE = 0.85, 0.9
"""Shares of what is free that a graph may take."""
CHUNK = 1 << 22
CHECKED = 1 << 20
"""Edges of the stretch whose samples are compared with the CPU's."""
GENERATOR = 8
"""Bytes an edge that the generator holds of the past."""
ROOTS, TURNS = 10_000, 3


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes that a share of the twin takes, by phase.

    Attributes:
        events, vertices: of the twin.
        host, device: phase -> bytes that are held in it at once.
    """

    events: int
    vertices: int
    host: Mapping[str, int]
    device: Mapping[str, int]

    def lacks(self, host: float, device: float) -> str:
        """The memory that is too small for it, or ""."""
        for place, needed, free in (("host", self.host, host), ("device", self.device, device)):
            if max(needed.values()) > free:
                sizes = f"{max(needed.values()) / 1e9:.1f} GB, {free / 1e9:.1f} may be taken"
                return f"the graph does not fit into the memory of the {place}: {sizes}"
        return ""


@cache
def spec(scale: float) -> RankCopySpec:
    """The generator of a share of the twin."""
    return at_scale(NAME, params_of(NAME), scale)


def plan_memory(scale: float) -> MemoryPlan:
    """Count what a share of the twin takes."""
    edges, vertices = spec(scale).events, spec(scale).num_nodes
    table = 16 * edges + 8 * vertices
    host = {
        "generate": (16 + GENERATOR) * edges,
        # both ends and the time go in, checks take a byte an edge
        "build rows": 25 * edges + table,
        "hold rows": table,
    }
    # degrees, what is needed of each row, a mask of edges
    return MemoryPlan(edges, vertices, host, {"sample half": table + 24 * vertices + edges})


class Billion(Grid):
    paper = "operators"
    name = "billion"
    title = "A graph of 1.47 billion edges on one device"
    question = "Does Twitter's whole graph lie on one device, and how fast is it sampled there?"
    reading = (
        "A twin with as many edges and vertices as T-GCN's largest graph. Its bytes are counted "
        "phase by phase before anything is made; a share that does not fit says so. Half of every "
        "vertex's neighbours are drawn, as an epoch needs them, and neighbours of neighbours of "
        "random vertices. Training on it is `tgcn/fig6`."
    )
    own_data = "the stream is a twin that is generated batch by batch"
    axes: ClassVar[Mapping[str, Any]] = {
        "dataset": (NAME,),
        "scale": {"smoke": (0.00025,), "quick": (1 / 64,), None: (0.125, 0.5, 1.0)},
    }
    fixed: ClassVar[Mapping[str, Any]] = {"operator": name}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 120, None: 540}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        lacking = "" if device == "cuda" else "needs a GPU: it is about a device's memory"
        return [
            self.cell(point, preset, group=f"{point['dataset']}/{point['scale']:g}",
                      unavailable=lacking)
            for point in list(self.points(preset, device))[: None if device == "cuda" else 1]
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        scale = cell.params["scale"]
        timer = open_timer(context.device, time.perf_counter)
        plan = plan_memory(scale)
        host = HOST_SHARE * available_memory()
        there = timer.place == "cuda"
        free = DEVICE_SHARE * torch.cuda.mem_get_info()[0] if there else host
        if lacking := plan.lacks(host, free):
            raise UnsupportedError(lacking)
        found = Measurement(data={"dataset": NAME, "twin": True, "scale": scale, "note": ""})
        for place, phases in (("host", plan.host), ("device", plan.device)):
            for phase, size in phases.items():
                found.observe("memory", size, place=place, phase=phase)
        with torch_threads(context.threads):
            src, dst = generate(found, scale, context.threads)
            check_first(found, src, dst, plan.vertices, timer.place)
            table = build(found, src, dst, plan.vertices)
            del src, dst
            gc.collect()
            measure(found, table, timer)
        timer.finish(found)
        return found

    def answer(self, rows: Sequence[Any]) -> str:
        best = max(
            rows_of(rows, experiment=self.name), key=lambda r: r.params["scale"], default=None
        )
        if best is None:
            return ""
        table = Table.of([best])
        (edges,) = table.where("edges").values
        (rate,) = table.where("throughput", of="edges", phase="sample half").values
        return f"{edges:,} edges lie on one device; half of them are drawn at {rate / 1e9:.3g} G/s."


def generate(found: Measurement, scale: float, threads: int) -> tuple[Tensor, Tensor]:
    """Both ends of all edges."""
    edges = spec(scale).events
    src, dst = (torch.empty(edges, dtype=torch.int64) for _ in range(2))
    source, done, start = RankCopy(spec(scale), 1, threads=threads), 0, time.perf_counter()
    while done < edges:
        one, other = source.take(min(CHUNK, edges - done))
        src[done : done + len(one)] = torch.from_numpy(one)
        dst[done : done + len(one)] = torch.from_numpy(other)
        done += len(one)
    found.observe("edges", edges)
    found.observe("throughput", edges / (time.perf_counter() - start), of="edges", phase="generate")
    return src, dst


def table_of(src: Tensor, dst: Tensor, vertices: int) -> EdgeTable:
    """Rows of edges whose times are their ordinals."""
    return EdgeTable.build(src, dst, torch.arange(src.numel(), dtype=torch.float64), vertices)


def build(found: Measurement, src: Tensor, dst: Tensor, vertices: int) -> EdgeTable:
    """Rows of all edges, on the host."""
    start = time.perf_counter()
    table = table_of(src, dst, vertices)
    found.observe(
        "throughput", src.numel() / (time.perf_counter() - start), of="edges", phase="build rows"
    )
    found.observe("vertices", vertices)
    found.observe("memory", table.nbytes, of="rows")
    found.observe("degree", float(table.degrees.max()), statistic="largest")
    return table


def check_first(found: Measurement, src: Tensor, dst: Tensor, vertices: int, place: str) -> None:
    """The device keeps what the CPU keeps, on the first edges."""
    small = table_of(src[:CHECKED], dst[:CHECKED], vertices)
    own = keep_share(table_on(small, place), SHARE, seed=1)
    wanted = keep_share(small, SHARE, seed=1)
    found.checks.append(equal("samples", own, wanted, against="samples of the CPU"))


def measure(found: Measurement, table: EdgeTable, timer: Timer) -> None:
    """Bring the rows to the device and sample them there."""
    brought: list[EdgeTable] = []
    took = timer.once(lambda: brought.append(table_on(table, timer.place)))
    found.observe("bandwidth", table.nbytes / took, place="host to device")
    (there,) = brought
    half = partial(keep_share, there, SHARE, seed=1)
    kept, wanted = int(half().sum()), int(share_of(table.degrees, SHARE).sum())
    gap = abs(kept - wanted) / max(wanted, 1)
    found.checks.append(
        at_most("samples", gap, 0.0, against="shares of degrees", compared=table.num_nodes)
    )
    roots = torch.randint(
        table.num_nodes, (ROOTS,), generator=torch.Generator().manual_seed(2)
    ).to(timer.place)  # fmt: skip
    around = partial(sample_nodewise, there, roots, [10, 10], method="keys", seed=1, union=False)
    edges = sum(layer.eids.numel() for layer in around().layers)
    for phase, call, count in (
        ("sample half", half, table.num_edges), ("sample around", around, edges)
    ):  # fmt: skip
        samples = [timer.turn(call, 1, CallSetting()) for _ in range(TURNS)]
        found.observe("operation_time", median(samples), samples=samples, method=OURS, phase=phase)
        found.observe("throughput", count / median(samples), of="edges", phase=phase)
    if timer.place == "cuda":
        found.observe("peak_memory", torch.cuda.max_memory_allocated(), of="device")

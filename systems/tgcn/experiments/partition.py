"""Section 4.1: how evenly the three-dimensional cut fills its grids, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.grids import sort_grids
from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import AGAIN, observe_control, with_control
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.interaction_checks import check_now
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream_data import check_parts, part_ends
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.grids import VERTEX_CUTS, Grids, cut_vertices
from dgbench.systems.tgcn.races import PROCESSES
from dgbench.systems.tgcn.recounts import check_balance, check_grids, check_sample, intervals_of
from dgbench.systems.tgcn.schedule import make_schedule
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    HELD_NAMES,
    PIECES,
    TWIN_NAMES,
    open_graph,
    synthetic_data,
    workload,
)

DEVICES: Final = (4, 8)
SKEWS: Final = (0.0, 0.5, 1.0, 1.5)
"""Exponents of Zipf's law by which sources and destinations are drawn; 0 is uniform."""
SYNTHETIC: Final = {
    "smoke": (2_000, 50_000),
    "quick": (40_000, 400_000),
    "full": (1_000_000, 30_000_000),
}
"""Vertices and edges of synthetic streams."""
TURNS: Final = 4
TRAINED: Final = "twitter"
"""The graph on which the share of partitioning is printed."""
SMALLEST: Final = 1 / 4096
"""Scale of that twin at least."""
FIRST: Final = {"smoke": 20_000, "quick": 40_000, "full": 2_000_000}
"""Events of it that are trained on."""


def measure_fill(name: str, context: RunContext) -> Measurement:
    """Balance of the grids under every cut."""
    events = open_graph(name, context.preset)
    check_parts(*part_ends(events), len(events))
    train = events.select(0, part_ends(events)[0])
    src, dst, t, count = train.src, train.dst, train.t, events.num_nodes
    found = Measurement(data=describe(events), checks=[])
    at = intervals_of(t, PIECES)
    for devices in DEVICES:
        phases = make_schedule(devices).assignments
        for cut in VERTEX_CUTS:
            parts = cut_vertices(count, devices, cut=cut, src=src)
            grids = Grids.build(src, dst, t, count, intervals=PIECES, parts=parts, local=False)
            one = balance(grids.counts, phases)
            found.checks += check_grids(grids, src, dst, at, cut, count, f"{cut} on {devices}")
            found.checks.append(check_balance(one, grids.counts, phases))
            about: dict[str, Any] = {"method": cut, "ranks": devices}
            found.observe("busy_devices", one.busy, **about)
    return found


def _timed(calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Median seconds of each call; all take turns, the first of which warms up."""
    seconds: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(TURNS + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:
                seconds[name].append(time.perf_counter() - start)
    return {name: median(all_) for name, all_ in seconds.items()}


def zipf_ends(vertices: int, edges: int, skew: float, *, shuffle: bool) -> tuple[Tensor, Tensor]:
    """Sources and destinations int64[E] drawn by Zipf's law over ranks; ids are ranks, or mixed."""
    rng = np.random.default_rng(7)
    weight = np.cumsum(np.arange(1, vertices + 1, dtype=np.float64) ** -skew)
    ends = np.searchsorted(weight, rng.uniform(0, weight[-1], (2, edges)))
    ends = np.minimum(ends, vertices - 1)
    if shuffle:
        ends = rng.permutation(vertices)[ends]
    return torch.from_numpy(ends[0].copy()), torch.from_numpy(ends[1].copy())


def measure_degrees(vertices: int, edges: int) -> Measurement:
    """The same sizes with other degrees: balance of the grids."""
    intervals = torch.arange(PIECES + 1) * edges // PIECES
    found = Measurement(data=zipf_data(vertices, edges))
    t = torch.arange(edges, dtype=torch.float64)
    at = np.searchsorted(intervals[1:-1].numpy(), np.arange(edges), side="right")
    for skew in SKEWS:
        for order in ("rank", "mixed"):
            src, dst = zipf_ends(vertices, edges, skew, shuffle=order == "mixed")
            for cut in ("equal", "dealt"):
                grids = Grids.build(
                    src, dst, t, vertices, intervals=intervals, parts=8, vertex_cut=cut,
                    local=False,
                )  # fmt: skip
                one = balance(grids.counts)
                part = f"{order} {cut} {skew:g}"
                found.checks += check_grids(grids, src, dst, at, cut, vertices, part)
                about: dict[str, Any] = {"setting": order, "method": cut, "skew": skew}
                found.observe("imbalance", one.largest, of="grid", **about)
    return found


def zipf_data(vertices: int, edges: int) -> dict[str, Any]:
    """The `data` field of a measurement on such streams."""
    return synthetic_data(f"{edges} edges of {vertices} vertices by Zipf's law")


def measure_sort(vertices: int, edges: int, *, control: bool) -> Measurement:
    """The same sizes with other degrees: edges a second of the sort, and that it orders edges."""
    intervals = torch.arange(PIECES + 1) * edges // PIECES
    bounds = cut_vertices(vertices, 8).bounds
    found = Measurement(data=zipf_data(vertices, edges))
    streams = {skew: zipf_ends(vertices, edges, skew, shuffle=True) for skew in SKEWS}
    calls: dict[Any, Any] = {
        skew: lambda s=skew: sort_grids(*streams[s], intervals, bounds) for skew in SKEWS
    }
    seconds = _timed(with_control(calls, on=control))
    if control:
        observe_control(found, [seconds[SKEWS[0]]], [seconds.pop(AGAIN)], skew=SKEWS[0])
    for skew, spent in seconds.items():
        found.observe("throughput", edges / spent, skew=skew)
    t = torch.arange(edges, dtype=torch.float64)
    at = np.searchsorted(intervals[1:-1].numpy(), np.arange(edges), side="right")
    src, dst = streams[SKEWS[-1]]
    grids = Grids.build(src, dst, t, vertices, intervals=intervals, parts=8, local=False)
    found.checks = check_grids(grids, src, dst, at, "equal", vertices, f"{SKEWS[-1]:g}")
    return found


def measure_share(name: str, context: RunContext) -> Measurement:
    """Seconds of partitioning beside an epoch of training here."""
    graph = BY_NAME[name]
    task = workload(
        graph,
        context.preset,
        scale=max(graph.scale(context.preset), SMALLEST),
        events=FIRST.get(context.preset),
    )
    trainer = get_system("tgcn").open(task, device=context.device)
    trainer.prepare()
    start = time.perf_counter()
    trainer.train_epoch()
    epoch = time.perf_counter() - start
    report = trainer.report()
    kept = trainer.kept[0]
    stream = trainer.data.events
    edges = [one[kept] for one in (stream.src, stream.dst, stream.t)]

    def build() -> Grids:
        return Grids.build(*edges, stream.num_nodes, intervals=PIECES, parts=8)

    (cut,) = _timed({"cut": build}).values()
    grids = build()
    at = intervals_of(edges[2], PIECES)
    total = epoch + report["sample_s"] + report["partition_s"]
    found = Measurement(
        checks=[
            *check_grids(grids, *edges[:2], at, "equal", stream.num_nodes, "the timed cut"),
            *check_now(trainer, "after an epoch"),
            *check_sample(trainer, "after an epoch"),
        ],
        data=trainer.data.describe(),
    )
    for phase, seconds in (("cut", cut), ("plan", report["partition_s"])):
        found.observe("time_share", seconds / total, phase=phase)
    trainer.close()
    return found


FILL, DEGREES, SORT, SHARE = "fill", "degrees", "sort", "share"
SHOWN = {"smoke": ("lastfm", "college-msg"), None: (*TWIN_NAMES, *HELD_NAMES)}
EVEN = 1.5
"""Factor up to which the largest grid is as large as with uniform degrees."""

BUSY = observed("busy_devices", per="dataset", kind=FILL, ranks=8,
                method=("equal", "edges", "dealt"))  # fmt: skip


def sort_time(**skew: Any) -> MeasuredQuantity:
    """Time to sort over that with uniform degrees."""
    rate = observed("throughput", kind=SORT, per="skew")
    return rate.where(skew=SKEWS[0]) / rate.where(**skew)


def largest_grid(order: str, cut: str, **skew: Any) -> MeasuredQuantity:
    """Edges of the largest grid over those with uniform degrees."""
    of = {"of": "grid", "setting": order, "method": cut}
    grid = observed("imbalance", kind=DEGREES, per="skew", **of)
    return grid.where(**skew) / grid.where(skew=SKEWS[0])


def is_even(order: str) -> outcomes.Rule:
    """The largest grid with degrees of a power law is as large as with uniform ones."""
    return rules.at_most(largest_grid(order, "equal", skew=SKEWS[-1]), EVEN, report=rules.largest)


def part_of_epoch(phase: str) -> outcomes.Rule:
    """Percent of an epoch here that a part of partitioning takes."""
    share = observed("time_share", kind=SHARE, phase=phase, setting=None)
    return rules.near_claim(100 * share)


class Partition(FormExperiment):
    forms, name = FORMS, "partition"
    control = {"kind": SORT}
    group = ""
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 60, "quick": 60, None: 1800}
    headline = BUSY.where(method=("equal", "dealt"))
    figure_forms = (
        Sweep(
            "partition_busy", "Devices of 8 that train at a time, by the cut of the vertices", BUSY,
            series="{method}", x="{dataset}", gaps={"series": "equal width"},
            more=lambda *_: {"counted": True}, xlabel="graph", ylabel="devices", ylog=False,
            sort=False,
        ),
        Sweep(
            "partition_degrees",
            "What degrees change: edges of the largest grid, and time to sort",
            {
                "largest grid, ids by degree": largest_grid("rank", "equal"),
                "largest grid, ids mixed": largest_grid("mixed", "equal"),
                "largest grid, dealt": largest_grid("rank", "dealt"),
                "time": sort_time(),
            },
            series="of", x="skew", gaps={"series": "time", "x": 0.0},
            xlabel="exponent of Zipf's law", ylabel="over uniform degrees", xlog=False,
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s41-partition-degree-independent": combine.interpretations(
            "what must not depend on degrees is not said",
            {
                "edges of a grid, ids by degree": is_even("rank"),
                "edges of a grid, ids mixed": is_even("mixed"),
                "time of the cut": rules.all_below(
                    sort_time(skew=SKEWS[-1]).pooled("workloads"), EVEN, report=rules.largest
                ),
            },
        ),
        "tgcn-s65-partition-share": combine.interpretations(
            "what belongs to the partition is not said",
            {
                "the sort alone": part_of_epoch("cut"),
                "with negatives, rows and counts of every interval": part_of_epoch("plan"),
            },
        ),
    }

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": FILL, "dataset": n} for n in by_preset(SHOWN, preset))
        yield {"kind": SHARE, "dataset": TRAINED}
        yield {"kind": DEGREES}
        yield {"kind": SORT}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        # Fill is counted; what is timed needs processes, where a claim can be decided.
        once = (FILL, DEGREES, SHARE) if preset == "quick" else (FILL, DEGREES)
        return [
            self.cell(
                one,
                preset,
                group="/".join(one.values()),
                **({"repeats": 1} if one["kind"] in once else {}),
            )
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        kind = str(cell.params["kind"])
        with one_thread():
            if kind in (DEGREES, SORT):
                size = SYNTHETIC.get(context.preset, SYNTHETIC["full"])
                if kind == DEGREES:
                    return measure_degrees(*size)
                return measure_sort(*size, control=self.controls(cell))
            work = {FILL: measure_fill, SHARE: measure_share}[kind]
            return work(str(cell.params["dataset"]), context)

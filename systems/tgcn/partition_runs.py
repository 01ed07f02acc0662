"""Grids of real and of drawn streams: balance, time of the cut, and its share of an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from dgbench.kernels_cuda.grids import count_grids, sort_grids
from dgbench.lab.compare import AGAIN, observe_control, with_control
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.interaction_checks import check_now
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream_data import TRAIN, check_parts, part_ends
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.grids import VERTEX_CUTS, Grids, cut_time, cut_vertices
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.recounts import check_balance, check_grids, check_sample, intervals_of
from dgbench.systems.tgcn.schedule import make_schedule
from dgbench.systems.tgcn.settings import BY_NAME, PIECES, open_graph, synthetic_data, workload

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
    """Balance of the grids under every cut, and edges per second of the sort."""
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
            found.observe("imbalance", one.largest, of="grid", **about)
            found.observe("imbalance", one.device, of="device", **about)
            found.observe("imbalance", max(parts.sizes) * devices / count, of="part", **about)
            found.observe("busy_devices", one.busy, **about)
            found.observe("portion", one.empty, of="empty grids", **about)
    for method, seconds in _rates(src, dst, t, count).items():
        found.observe("throughput", len(train) / seconds, method=method)
    found.observe("edges", len(train))
    found.observe("vertices", count)
    return found


def _rates(src: Tensor, dst: Tensor, t: Tensor, count: int) -> dict[str, float]:
    """Seconds to sort into 8 x 8 grids, to count them, and to sort by key as torch does."""
    intervals, bounds = cut_time(t, PIECES), cut_vertices(count, 8).bounds

    def by_key() -> Tensor:
        key = torch.bucketize(torch.arange(src.numel()), intervals[1:-1], right=True)
        for ids in (src, dst):
            key = key * 8 + torch.bucketize(ids, bounds[1:-1], right=True)
        return torch.sort(key, stable=True).indices

    return _timed(
        {
            "sort": lambda: sort_grids(src, dst, intervals, bounds, local=True),
            "count": lambda: count_grids(src, dst, intervals, bounds),
            "torch": by_key,
        }
    )


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
                found.observe("busy_devices", one.busy, **about)
    found.observe("edges", edges)
    found.observe("vertices", vertices)
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
    cut = median(
        _timed(
            {"cut": lambda: Grids.build(*edges, stream.num_nodes, intervals=PIECES, parts=8)}
        ).values()
    )
    grids = Grids.build(*edges, stream.num_nodes, intervals=PIECES, parts=8)
    at = intervals_of(edges[2], PIECES)
    total = epoch + report["sample_s"] + report["partition_s"]
    rate = kept.numel() / cut
    found = Measurement(
        checks=[
            *check_grids(grids, *edges[:2], at, "equal", stream.num_nodes, "the timed cut"),
            *check_now(trainer, "after an epoch"),
            *check_sample(trainer, "after an epoch"),
        ],
        data=trainer.data.describe(),
    )
    parts = {"cut": cut, "plan": report["partition_s"], "sample": report["sample_s"]}
    for phase, seconds in parts.items():
        found.observe("part_time", seconds, phase=phase)
    for phase in ("cut", "plan"):
        found.observe("time_share", parts[phase] / total, phase=phase)
    found.observe("epoch_time", epoch)
    found.observe("throughput", rate)
    found.observe("edges", kept.numel())
    whole = BY_NAME[TRAINED].printed.edges * TRAIN * task.share / rate
    share = whole / table2("tgcn", "total")[TRAINED]
    found.observe("time_share", share, phase="cut", setting="printed")
    trainer.close()
    return found

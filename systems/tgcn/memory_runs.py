"""Memory planned at printed sizes, grids counted a piece at a time, and training within a limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch

from dgbench import datasets
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.models.streaming import build_interaction_model
from dgbench.systems.base import Measurement, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.interaction_checks import check_now
from dgbench.systems.base.interactions import (
    InteractionWorkload,
    interaction_data,
    load_interactions,
)
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.stream_data import TRAIN
from dgbench.systems.tgcn.balance import balance
from dgbench.systems.tgcn.grids import by_times, count_streamed, cut_vertices, inner_times
from dgbench.systems.tgcn.plan import (
    Cut,
    MemoryPlan,
    ModelSize,
    baseline_memory,
    fewest,
    streamed_bytes,
    table,
    tgcn_memory,
)
from dgbench.systems.tgcn.printed import table2
from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.races import observe_report
from dgbench.systems.tgcn.recounts import (
    check_balance,
    check_bytes,
    check_sample,
    intervals_of,
    parts_of,
)
from dgbench.systems.tgcn.settings import BY_NAME, GPU_BYTES, open_graph, workload

LIMIT: Final = 16 * 2**30
"""Bytes within which Flickr is trained on."""
COUNTED: Final = {"smoke": 1 / 4096, "quick": 1 / 4096, "full": 1 / 64, "paper": 1 / 8}
"""Scale of Twitter's twin whose grids are counted a piece at a time."""
TRAINED: Final = {"smoke": 1 / 1024, "full": 1.0, "paper": 1.0}
"""Scale of Flickr's twin that is trained on; not in `quick`."""
EDGES: Final = 16_000
"""Edges of an interval when Flickr is trained on; equally many, as half of them have one time."""
PIECE: Final = 1 << 20
"""Edges of a piece that is counted."""
INTERVALS: Final = 1000
"""Of an epoch in the plans; fewer hold more rows at a time."""
BASELINES: Final = {"paper": "five vectors, edges", "dygnn": "DyGNN", "jodie": "JODIE"}


def plan_memory(name: str, context: RunContext) -> Measurement:
    """Memory maps by printed sizes, and what streaming moves."""
    printed = BY_NAME[name].printed
    size = ModelSize(printed.vertices, printed.edges)
    cut = Cut(intervals=INTERVALS)
    maps: dict[str, MemoryPlan] = {
        title: baseline_memory(size, system) for system, title in BASELINES.items()
    }
    state = {system: maps[title].device["state"] for system, title in BASELINES.items()}
    device = {system: maps[title].device_bytes for system, title in BASELINES.items()}
    whole = maps["T-GCN, 1 GPU"] = tgcn_memory(size, cut)
    device["tgcn"], host = whole.device_bytes, {"tgcn": whole.host_bytes}
    found = Measurement(
        data={"dataset": name, "twin": False, "scale": 1.0, "note": "printed sizes alone"}
    )
    fitting: dict[str, int] = {}
    for what in ("parts", "devices"):
        count = fitting[what] = fewest(size, cut, GPU_BYTES, what) or 0
        found.observe(what, count)
        if count > 1:
            one = tgcn_memory(size, Cut(intervals=INTERVALS, **{what: count}))
            maps[f"T-GCN, {count} {what}"] = one
            device[what], host[what] = one.device_bytes, one.host_bytes
            for region, nbytes in one.device.items():
                found.observe("memory", nbytes, of=region, setting=what)
    for of, held in (("state", state), ("device", device), ("host", host)):
        for setting, nbytes in held.items():
            found.observe("memory", nbytes, of=of, setting=setting)
    eight = tgcn_memory(size, Cut(intervals=INTERVALS, devices=8))
    maps["T-GCN, 8 GPUs"] = eight
    found.observe("memory", eight.device_bytes, of="device", setting="tgcn", ranks=8)
    streams = streamed_bytes(size, Cut(intervals=INTERVALS, parts=max(1, fitting["parts"])))
    found.observe("host_to_device", streams["h2d"])
    found.observe("device_to_host", streams["d2h"])
    # Bytes that 12 GB/s move in the printed time.
    found.observe("estimate", table2("tgcn", "io")[name] * 12e9, of="printed io")
    found.checks = [_checked_plan(size, cut, state, device, fitting), _checked_small_plan()]
    found.notes = table(maps, GPU_BYTES).splitlines()[1:]
    return found


def _checked_plan(
    size: Any, cut: Any, state: dict[str, int], device: dict[str, int], fitting: dict[str, int]
) -> ResultCheck:
    """Check of planned bytes against tensors of a hundred vertices, multiplied up."""
    bytes_of = {}
    for system in ("tgcn", "dygnn", "jodie"):
        task = InteractionWorkload(
            dataset="none", model="jodie" if system == "jodie" else "dygnn",
            propagation=system == "dygnn",
        )  # fmt: skip
        tables = build_interaction_model(task).new_state(100)
        held = [x for one in tables for x in one.columns().values() if x is not None]
        bytes_of[system] = sum(x.nbytes for x in held) // 100
    model = build_interaction_model(InteractionWorkload(dataset="none"))
    leaves = 4 * sum(p.nbytes for p in model.parameters())
    # Both ends of an edge and its time.
    record = sum(torch.empty(0, dtype=x).element_size() for x in (torch.int64, torch.int64,
                                                                  torch.float64))  # fmt: skip
    own: dict[str, int] = {f"state {s}": state[s] for s in ("dygnn", "jodie")}
    wanted = {f"state {s}": size.vertices * bytes_of[s] for s in ("dygnn", "jodie")}
    for system in ("dygnn", "jodie"):
        own[f"device {system}"] = device[system]
        wanted[f"device {system}"] = wanted[f"state {system}"] + size.edges * record + leaves
    # Five vectors of 64 floats and two times of each vertex.
    own["state paper"], wanted["state paper"] = state["paper"], size.vertices * 1296
    ends = 3 * -(-round(0.4 * size.edges) // INTERVALS)  # of edges and negatives of an interval
    rows, edges = min(size.vertices, ends), -(-round(0.4 * size.edges) // INTERVALS)
    own["device tgcn"] = device["tgcn"]
    wanted["device tgcn"] = leaves + size.vertices * bytes_of["tgcn"]
    wanted["device tgcn"] += rows * 48 * 256 + 2 * 2 * edges * 8
    for what in ("parts", "devices"):
        count = fitting[what]
        near = [
            tgcn_memory(size, type(cut)(intervals=INTERVALS, **{what: max(1, n)})).device_bytes
            for n in (count, count - 1)
        ]
        own[f"fits {what}"] = near[0] <= GPU_BYTES and (count == 1 or near[1] > GPU_BYTES)
        wanted[f"fits {what}"] = True
    return equal("bytes", own, wanted, against="bytes of tensors, multiplied up")


def _checked_small_plan() -> ResultCheck:
    """Check of the plan's regions against those that a trainer of a small stream holds."""
    task = workload(BY_NAME["college-msg"], "smoke", events=None, intervals=3)
    events = datasets.open_events("college-msg", source="twin", scale=1 / 8)
    data = interaction_data(events.select(max(0, len(events) - 600), len(events)), task)
    trainer = get_system("tgcn").open(task, data=data)
    trainer.train_epoch()
    planned = tgcn_memory(
        ModelSize(data.events.num_nodes, len(data.events)), Cut(intervals=3)
    ).device
    held = trainer.region_bytes
    names = ("R1 parameters", "R1 state")
    checked = check_bytes(trainer)
    trainer.close()
    return equal(
        "bytes",
        {**{n: planned[n] for n in names}, "held": checked.gap},
        {**{n: held[n] for n in names}, "held": 0.0},
        against="bytes that a trainer of a small twin holds",
    )


def count_grids_streamed(name: str, context: RunContext) -> Measurement:
    """Grids of a twin, counted a piece at a time."""
    events = open_graph(name, context.preset, COUNTED.get(context.preset, COUNTED["full"]))
    end = round(len(events) * TRAIN)

    def pieces() -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        for first in range(0, end, PIECE):
            last = min(end, first + PIECE)
            yield events.src[first:last], events.dst[first:last], events.t[first:last]

    first, last = float(events.t[0]), float(events.t[end - 1])
    cut = by_times(inner_times(first, last, INTERVALS))
    found = Measurement(data=describe(events))
    found.observe("edges", end)
    ends, at = (events.src[:end], events.dst[:end]), intervals_of(events.t[:end], INTERVALS)
    for by in ("equal", "dealt"):
        parts = cut_vertices(events.num_nodes, 8, cut=by)
        begin = time.process_time()
        counts = count_streamed(pieces, cut, parts)
        found.observe("throughput", end / (time.process_time() - begin), method=by)
        one = balance(counts.sum(0, keepdim=True))
        key = at
        for ids in ends:
            key = key * 8 + parts_of(by, ids, events.num_nodes, 8, parts.bounds)
        recount = np.bincount(key, minlength=counts.numel())
        turns = [[(i + p) % 8 for i in range(8)] for p in range(8)]
        found.checks += [
            equal("counters", counts.reshape(-1), recount, against="count over all edges"),
            check_balance(one, counts.sum(0, keepdim=True), turns),
        ]
        found.observe("busy_devices", one.busy, method=by)
        found.observe("imbalance", one.largest, of="grid", method=by)
    return found


def train_within_limit(name: str, context: RunContext) -> Measurement:
    """One epoch of a twin, sampled, cut into intervals of equally many edges, and trained on."""
    scale = TRAINED[context.preset]
    graph = BY_NAME[name]
    edges = round(graph.printed.edges * scale)
    intervals = max(1, round(edges * TRAIN / 2 / EDGES))
    task = workload(graph, context.preset, scale=scale, intervals=intervals)
    data = load_interactions(task)
    trainer = get_system("tgcn").open(
        task,
        data=data,
        device=context.device,
        memory_bytes=LIMIT,
        program=Program("keep_share", time_cut="edges"),
    )
    trainer.prepare()
    begin = time.perf_counter()
    loss = trainer.train_epoch()
    seconds = time.perf_counter() - begin
    report = trainer.report()
    size = ModelSize(data.events.num_nodes, len(data.events))
    planned = tgcn_memory(size, Cut(intervals=intervals))
    found = Measurement(
        checks=[
            *check_now(trainer, "after the epoch"),
            *check_sample(trainer, "after the epoch"),
            check_bytes(trainer),
        ],
        data=data.describe(),
    )
    found.observe("epoch_time", seconds)
    found.observe("loss", loss)
    found.observe("throughput", report["kept_edges"] / seconds)
    found.observe("memory", planned.device_bytes, of="device", method="planned")
    observe_report(found, report, tuple(report))
    for region, nbytes in trainer.region_bytes.items():
        found.observe("memory", nbytes, of=region)
    found.observe("vertices", data.events.num_nodes)
    found.observe("edges", len(data.events))
    found.observe("parts", intervals, of="intervals")
    trainer.close()
    return found

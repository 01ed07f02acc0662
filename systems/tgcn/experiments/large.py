"""Graphs beyond one device: Twitter by count, and Flickr whole within 16 GB."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import torch

from dgbench import datasets
from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.estimates import gaps_of_failures
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal
from dgbench.lab.study import FormExperiment
from dgbench.models.streaming import build_interaction_model
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
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
    table,
    tgcn_memory,
)
from dgbench.systems.tgcn.program import Program
from dgbench.systems.tgcn.recounts import (
    check_balance,
    check_bytes,
    check_sample,
    intervals_of,
    parts_of,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    FORMS,
    GPU_BYTES,
    TWIN_NAMES,
    open_graph,
    workload,
)

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
    """Memory maps by printed sizes."""
    printed = BY_NAME[name].printed
    size = ModelSize(printed.vertices, printed.edges)
    cut = Cut(intervals=INTERVALS)
    maps: dict[str, MemoryPlan] = {
        title: baseline_memory(size, system) for system, title in BASELINES.items()
    }
    state = {system: maps[title].device["state"] for system, title in BASELINES.items()}
    device = {system: maps[title].device_bytes for system, title in BASELINES.items()}
    whole = maps["T-GCN, 1 GPU"] = tgcn_memory(size, cut)
    device["tgcn"] = whole.device_bytes
    found = Measurement(
        data={"dataset": name, "twin": False, "scale": 1.0, "note": "printed sizes alone"}
    )
    fitting: dict[str, int] = {}
    for what in ("parts", "devices"):
        count = fitting[what] = fewest(size, cut, GPU_BYTES, what) or 0
        if count > 1:
            one = tgcn_memory(size, Cut(intervals=INTERVALS, **{what: count}))
            maps[f"T-GCN, {count} {what}"] = one
            device[what] = one.device_bytes
    for setting, nbytes in device.items():
        found.observe("memory", nbytes, of="device", setting=setting)
    eight = tgcn_memory(size, Cut(intervals=INTERVALS, devices=8))
    maps["T-GCN, 8 GPUs"] = eight
    found.observe("memory", eight.device_bytes, of="device", setting="tgcn", ranks=8)
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
    ends, at = (events.src[:end], events.dst[:end]), intervals_of(events.t[:end], INTERVALS)
    for by in ("equal", "dealt"):
        parts = cut_vertices(events.num_nodes, 8, cut=by)
        counts = count_streamed(pieces, cut, parts)
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
    trainer.train_epoch()
    seconds = time.perf_counter() - begin
    found = Measurement(
        checks=[
            *check_now(trainer, "after the epoch"),
            *check_sample(trainer, "after the epoch"),
            check_bytes(trainer),
        ],
        data=data.describe(),
    )
    found.observe("epoch_time", seconds)
    found.observe("memory", int(trainer.report()["device_bytes"]), of="device")
    trainer.close()
    return found


PLANNED_BYTES = "formula of bytes at printed sizes"
PLAN, COUNT, EPOCH = "plan", "count", "train"
PLANNED = observed("memory", experiment="large", kind=PLAN, of="device", per="dataset")
"""Planned bytes of a device, on one of it and on several."""
ALONE = PLANNED.where(ranks=None)
GB = 1e-9 * ALONE.where(dataset="twitter")
ROOM = GPU_BYTES / 1e9


class Large(FormExperiment):
    forms, name = FORMS, "large"
    group = "{kind}/{dataset}"
    timeout_s = {"smoke": 60, "quick": 60, None: 7200}
    headline, unit = GB.where(setting=("dygnn", "jodie", "tgcn", "parts")), "GB"
    figure_forms = (
        Sweep(
            "large", "Device memory by printed sizes, and 32 GiB of a V100",
            {
                title: PLANNED.where(setting=system, ranks=ranks).keep(gaps_of_failures)
                for title, system, ranks in (
                    *((title, system, None) for system, title in BASELINES.items()),
                    ("T-GCN, 1 GPU", "tgcn", None),
                    ("T-GCN, 1 GPU, streamed", "parts", None),
                    ("T-GCN, 8 GPUs", "tgcn", 8),
                )
            },
            series="of", x="{dataset}", gaps={"series": "DyGNN"},
            xlabel="graph", ylabel="bytes", sort=False, hline=float(GPU_BYTES),
            hline_label="32 GiB",
        ),
    )  # fmt: skip
    claims = {
        name: combine.by_model(rules.all_above(GB.where(setting=systems), ROOM, unit="GB"),
                               PLANNED_BYTES)
        for name, systems in (("tgcn-fig6-twitter-oom", ("dygnn", "jodie")),
                              ("tgcn-s613-partition-not-separable", "tgcn"))
    }  # fmt: skip

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield from ({"kind": PLAN, "dataset": name} for name in TWIN_NAMES)
        yield {"kind": COUNT, "dataset": "twitter"}
        if preset in TRAINED:
            yield {"kind": EPOCH, "dataset": "flickr"}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell(one, preset, memory_bytes=LIMIT if one["kind"] == EPOCH else None)
            for one in self.points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        work = {PLAN: plan_memory, COUNT: count_grids_streamed, EPOCH: train_within_limit}[
            str(cell.params["kind"])
        ]
        with one_thread():
            return work(str(cell.params["dataset"]), context)

"""Table 7 and section 6.4: static models on a partitioned graph, beside DistDGL's way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, ClassVar, Final

import torch

from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.compare import (
    AGAIN,
    Ratio,
    observe_speedup,
    ratio_of,
    take_control,
    with_control,
)
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.experiments.partition_checks import assignment_check, places_check
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    samples_check,
    sampling_task,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    SETTINGS,
    STATIC_MODELS,
    panel,
    workload,
)

NAME: Final = "table7"
BUILD, TRAIN, ACCURACY = "build", "train", "accuracy"
OURS, DISTDGL = "GNNFlow", "DistDGL"
HASH_ROWS, METIS_BLOCKS = "hash, sorted rows", "METIS, blocks"
CONTENDERS: Final = (OURS, DISTDGL, HASH_ROWS, METIS_BLOCKS)
"""Partition and store differ: the last two change one of them at a time."""
FASTEST: Final = "graphsage"
"""Model of which Table 7 gives the printed factor."""
MACHINES: Final = 4
FANOUT: Final = 10
WHOLE: Final = 200
"""Vertices of a machine whose records are compared, drawn ones of them."""
INGEST: Final = 10_000_000
"""Edges of an incremental batch at full size (section 6.4)."""
BATCH: Final = {"smoke": 6, "quick": 16, "full": 120, "paper": SETTINGS["gat"].batch}
"""Events of a batch of one rank."""
TURNS: Final = {"smoke": 2, "quick": 4, "full": 21, "paper": 21}
BUILT: Final = {"quick": 1 / 4096}
"""Size of the twin, at most."""
BUILDS: Final = {"smoke": 2, "quick": 1, "full": 5, "paper": 2}
REAL: Final = "college-msg"
"""Where accuracy is compared: a twin's edges are too easy to guess."""
TRAINED: Final = {"smoke": (400, 200), "quick": (700, 350), "full": (35_000, 10_000)}
"""Events to train on and to score then."""

Rows = Sequence[Any]


class Table7(Grid):
    paper = "gnnflow"
    name = NAME
    sources: ClassVar[Any] = {"portion": "counted"}
    title = "Table 7: static models on a partitioned graph"
    device = "cpu"
    own_data = "it builds and trains on a twin of MAG at the paper's size"
    question = "Is a hash-partitioned dynamic graph built and trained faster than DistDGL's?"
    reading = (
        "DistDGL's way is re-implemented on the same ranks: METIS, sorted rows built once, the "
        "same rule of sampling, features and models, so only partition and store differ; two "
        "mixed forms take these apart in the preset full. Batches are dealt evenly as GNNFlow "
        "does; DistDGL gives events to the machine that has them, which spares requests where "
        "METIS finds communities. The paper has 4 machines with 8 GPUs; here ranks are processes "
        "of one CPU, and MAG is a twin, which has no communities. Building is processor time of "
        "all machines' parts one after the other, without a network. A sample is one event."
    )
    claims = (
        "gnnflow-tab7-graph-building",
        "gnnflow-tab7-dgl-throughput",
        "gnnflow-tab7-gnnflow-throughput",
        "gnnflow-abs-mag-throughput-gain",
        "gnnflow-s64-accuracy-parity",
    )

    control: ClassVar[Any] = {"kind": BUILD}
    timeout_s: ClassVar[Any] = {"smoke": 90, "quick": 90, None: 3600}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        yield {"kind": BUILD, "dataset": "mag"}
        models = (FASTEST,) if preset == "quick" else STATIC_MODELS
        for kind, name in ((TRAIN, "mag"), (ACCURACY, REAL)):
            for model in models if (kind, preset) != (ACCURACY, "quick") else ():
                yield {"kind": kind, "dataset": name, "model": model}

    def cell(self, params: Mapping[str, Any], preset: Preset, **fields: Any) -> Cell:
        if params["kind"] == BUILD or (params["kind"], params["model"]) == (TRAIN, FASTEST):
            fields |= {"repeats": turn_rounds(preset), "interleaved": True}
        return super().cell(params, preset, group="/".join(params.values()), **fields)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        with one_thread():
            if cell.params["kind"] == BUILD:
                return _build(context.preset, control=self.controls(cell))
            return _train(cell, context.preset, first_process=context.round == 1)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table7",
                "Training throughput on a partitioned graph (Table 7), by processor time",
                train_points, xlabel="model", ylabel="events/s"),
            sweep("table7_build", "Partition and build for 4 machines, processor seconds",
                build_points, xlabel="graph", ylabel="s"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        words = []
        built = rows_of_kind(rows, BUILD)
        if built:
            words.append(f"building {build_gain(built).value:.1f}x as fast as METIS and rows")
        for row in last_rows(rows, TRAIN):
            mine = [r for r in rows_of_kind(rows, TRAIN) if r.params == row.params]
            gain = ratio_of(Table.of(mine).where("speedup", baseline=DISTDGL)).value
            words.append(f"{MODEL_TITLES[row.params['model']]} trained {gain:.2f}x as fast")
        return f"On a twin of MAG, GNNFlow against DistDGL: {', '.join(words)}." if words else ""


def _build(preset: Preset, *, control: bool) -> Measurement:
    """Processor seconds to partition a graph and to build what its machines store."""
    from dgbench import datasets
    from dgbench.systems.gnnflow.dispatch import records_of, split_records
    from dgbench.systems.gnnflow.local_graph import GRAPHS, open_graph
    from dgbench.systems.gnnflow.partitioners import partition

    graph = BY_NAME["mag"]
    scale = min(graph.scale(preset), BUILT.get(preset, 1.0))
    events = datasets.open_events(graph.name, "auto", scale, 1)
    step = max(1000, round(INGEST * scale))

    built: dict[str, tuple[Any, list[Any]]] = {}

    def build(name: str, by: str, kind: str) -> tuple[float, float]:
        """(seconds of the partitioner, seconds of the rest)."""
        begin = time.process_time()
        owners, _ = partition(by, events.num_nodes, events.src, events.dst, MACHINES)
        cut = time.process_time()
        parts = [
            open_graph(kind, events.num_nodes, tau=graph.tau, origin=events.span[0])
            for _ in range(MACHINES)
        ]
        for first in range(0, len(events), step):
            piece = slice(first, first + step)
            records = records_of(
                events.src[piece], events.dst[piece], events.t[piece], events.eid[piece],
                undirected=graph.undirected,
            )  # fmt: skip
            for part, own in zip(parts, split_records(owners, records), strict=True):
                part.insert(own)
        for part in parts:
            part.finish()
        seconds = cut - begin, time.process_time() - cut
        built[name] = owners, parts
        return seconds

    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in CONTENDERS}
    ways = {
        OURS: ("hash", GRAPHS[0]), DISTDGL: ("metis", GRAPHS[1]),
        HASH_ROWS: ("hash", GRAPHS[1]), METIS_BLOCKS: ("metis", GRAPHS[0]),
    }  # fmt: skip
    build(OURS, *ways[OURS])
    sides = with_control({name: name for name in CONTENDERS[:3]}, on=control)
    whole: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(BUILDS[preset]):
        for side, name in sides.items() if turn % 2 == 0 else reversed(sides.items()):
            spent = build(name, *ways[name])
            whole[side].append(sum(spent))
            if side != AGAIN:
                seconds[name].append(spent)
    found = Measurement(data=describe(events))
    take_control(found, whole, phase="build")
    for name, times in seconds.items():
        if times:
            cut, built_s = median(cut for cut, _ in times), median(whole[name])
            found.observe("preparation_time", cut, setting=name, phase="partition")
            found.observe("preparation_time", built_s, setting=name, phase="build")
            if name == OURS:
                found.observe("throughput", len(events) / built_s, of="edges")
    observe_speedup(
        found, whole[DISTDGL], whole[OURS], setting=OURS, baseline=DISTDGL, phase="build"
    )
    for name, (owners, parts) in built.items():
        found.checks += parts_checks(name, owners, parts, events, undirected=graph.undirected)
    found.observe("events", len(events))
    found.observe("vertices", events.num_nodes)
    found.observe("batch_size", step, of="ingest")
    return found


def parts_checks(
    name: str, owners: Any, parts: Sequence[Any], events: Any, *, undirected: bool
) -> list[ResultCheck]:
    """Checks of what machines hold: each vertex on one, and drawn ones with their newest records.

    Args:
        name: of the contender. owners: of the vertices. parts: of each machine.
        events: all of them. undirected: whether both ends have a record.
    """
    count = events.num_nodes
    machine = owners.of(torch.arange(count))
    found = [
        assignment_check(machine, count, len(parts), name),
        places_check(owners, count, name),
    ]
    task = sampling_task((FANOUT,), "recent", undirected=undirected)
    held = []
    for k, part in enumerate(parts):
        mine = (machine == k).nonzero()[:, 0]
        times = torch.full((mine.numel(),), torch.inf, dtype=torch.float64)
        hop = part.sample(mine, times, fanout=FANOUT, policy="recent")
        held.append(int((hop.offsets.diff() > 0).sum()))
        if mine.numel():
            active = mine[hop.offsets.diff() > 0][:WHOLE]
            some = part.sample(active, times[: active.numel()], fanout=FANOUT, policy="recent")
            for one in (hop, some):
                at = times[: one.nodes.numel()]
                found.append(samples_check(task, events, one.nodes, at, 0, [[one]], part=name))
    ends = torch.cat([events.src, events.dst]) if undirected else events.src
    wanted = torch.bincount(machine[ends.unique()], minlength=len(parts))
    found.append(equal("counters", torch.tensor(held), wanted, against="vertices with an edge"))
    return of_contender(name, by_subject(found))


def _train(cell: Cell, preset: Preset, *, first_process: bool) -> Measurement:
    """Throughput, losses and scores of the contenders, batch by batch in turns."""
    from dgbench.systems.base.stream import load_stream
    from dgbench.systems.gnnflow.experiments.trainer_checks import checked_race
    from dgbench.systems.gnnflow.owners import MachineLayout
    from dgbench.systems.gnnflow.partitioners import partition
    from dgbench.systems.gnnflow.ranked import GraphPlacement
    from dgbench.systems.gnnflow.remote_access import NO_CACHES, GraphRankSettings

    graph, model = BY_NAME[str(cell.params["dataset"])], str(cell.params["model"])
    accuracy = cell.params["kind"] == ACCURACY
    layout = MachineLayout(2)
    batch = layout.ranks * (50 if accuracy else BATCH[preset])
    fields: dict[str, Any] = {"batch": batch, "chunks": 1}
    if not graph.real:
        fields["scale"] = min(graph.scale(preset), BUILT.get(preset, 1.0))
    if accuracy:
        fields |= {"fanouts": (5, 5), "lr": 1e-3}
    task = workload(graph, model, preset, **fields)
    data = load_stream(task)
    events = data.events
    part, _ = partition("metis", events.num_nodes, events.src, events.dst, layout.machines)
    common = {
        "tau": graph.tau, "node_cache": graph.node_cache, "edge_cache": graph.edge_cache
    }  # fmt: skip
    rows = {"graph": "rows", **NO_CACHES}
    contenders = {
        OURS: GraphPlacement(GraphRankSettings(layout, **common)),
        DISTDGL: GraphPlacement(GraphRankSettings(layout, **rows), part),
    }
    last = len(events)
    first, score = max(0, last - TURNS[preset] * batch), None
    if accuracy:
        trained, scored = TRAINED.get(preset, TRAINED["full"])
        first, last = 0, min(trained, last)
        score = (last, min(last + scored, len(events)))
    elif preset not in ("smoke", "quick"):
        contenders |= {
            HASH_ROWS: GraphPlacement(GraphRankSettings(layout, **rows)),
            METIS_BLOCKS: GraphPlacement(GraphRankSettings(layout, **common), part),
        }
    runs, checks = checked_race(
        task, contenders, data, first_process=first_process, first=first, last=last, score=score,
        timeout_s=cell.timeout_s,
    )  # fmt: skip
    found = _said(runs, data, batch)
    machine, count = part.of(torch.arange(events.num_nodes)), events.num_nodes
    found.checks = [*checks, assignment_check(machine, count, layout.machines, "metis")]
    return found


def _said(runs: dict[str, Any], data: Any, batch: int) -> Measurement:
    found, losses, apart = Measurement(data=data.describe()), runs[OURS].losses, 0.0
    found.observe("batch_size", batch)
    slowest = {
        name: [max(turn) for turn in zip(*run.work_s, strict=True)] for name, run in runs.items()
    }
    for name, run in runs.items():
        found.observe("throughput", run.own_throughput, setting=name, clock="processor")
        found.observe("throughput", run.throughput, setting=name, clock="wall")
        far = [abs(a - b) / abs(b) for a, b in zip(run.losses, losses, strict=True)]
        apart = max(apart, *far)
        rows = {k: sum(c.get(f"node_rows_{k}", 0) for c in run.counters)
                for k in ("local", "remote")}  # fmt: skip
        remote = rows["remote"] / max(1, sum(rows.values()))
        found.observe("portion", remote, setting=name, of="remote rows")
        found.observe("exchanged", run.traffic.total(), setting=name)
        if run.scores is not None:
            found.observe("average_precision", run.scores.ap, setting=name)
        if name != OURS:
            which = {"setting": OURS, "baseline": name}
            observe_speedup(found, slowest[name], slowest[OURS], **which)
    found.deviation["loss"] = apart
    return found


def rows_of_kind(rows: Rows, kind: str) -> list[Any]:
    """All processes of a kind that ran."""
    return rows_of(rows, experiment=NAME, kind=kind)


def last_rows(rows: Rows, kind: str) -> list[Any]:
    """The last row of each graph and model of a kind that ran."""
    found = rows_of(rows, experiment=NAME, kind=kind)
    return list({(r.params["dataset"], r.params.get("model")): r for r in found}.values())


def throughputs(row: Any) -> dict[str, float]:
    """Events per second of processor time by contender."""
    return Table.of([row]).where("throughput", clock="processor").numbers("setting")


def build_times(rows: Rows) -> dict[str, float]:
    """Processor seconds to partition and build by contender, mean over processes."""
    found = Table.of(rows).where("preparation_time", phase="build").by("setting")
    return {name: sum(table.values) / len(table) for name, table in found.items()}


def build_gain(rows: Rows) -> Ratio:
    """Speedup of a build over DistDGL's, pooled over processes."""
    return ratio_of(Table.of(rows).where("speedup", phase="build"))


def train_points(rows: Rows) -> list[dict[str, Any]]:
    """Throughput by model and contender."""
    points = [
        {
            "series": name,
            "x": f"{MODEL_TITLES[row.params['model']]}, {panel(row)}",
            "y": throughputs(row)[name],
            "row_ids": [row.id],
        }
        for row in last_rows(rows, TRAIN)
        for name in CONTENDERS
        if name in throughputs(row)
    ]
    return points + [
        {"series": OURS, "x": MODEL_TITLES[row.params["model"]], "failed": failed(row)}
        for row in failures(rows, NAME)
        if row.params["kind"] == TRAIN
    ]


def build_points(rows: Rows) -> list[dict[str, Any]]:
    """Seconds to partition and build by contender."""
    return [
        {
            "series": name,
            "x": panel(row),
            "y": build_times([row])[name],
            "row_ids": [row.id],
        }
        for row in last_rows(rows, BUILD)
        for name in CONTENDERS
        if name in build_times([row])
    ]

"""Table 7 and section 6.4: static models on a partitioned graph, beside DistDGL's way."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, ClassVar, Final

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_speedup, take_control, with_control
from dgbench.lab.estimates import EvaluationContext, gaps_of_failures
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.result_checks import ResultCheck, equal, of_contender
from dgbench.lab.study import FormExperiment
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.turns import turn_rounds
from dgbench.systems.gnnflow.experiments.fig15 import observe_race
from dgbench.systems.gnnflow.experiments.partition import assignment_check, places_check
from dgbench.systems.gnnflow.experiments.sample_checks import (
    by_subject,
    samples_check,
    sampling_task,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    FORMS,
    MODEL_TITLES,
    SETTINGS,
    STATIC_MODELS,
    workload,
)

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
TRAINED: Final = {"smoke": (400, 200), "quick": (700, 350), None: (35_000, 10_000)}
"""Events to train on and to score then."""

NEAR: Final = 0.25
"""Relative distance up to which a factor counts as the printed one."""
GAIN: Final = observed("speedup", per="model", kind=TRAIN, setting=OURS, baseline=DISTDGL)
"""Training throughput over DistDGL's way."""
BUILT_FASTER: Final = observed("speedup", kind=BUILD, setting=OURS, baseline=DISTDGL, phase="build")
BUILDING: Final = observed(
    "preparation_time", per="dataset", kind=BUILD, phase="build", setting=CONTENDERS
).keep(gaps_of_failures)
"""Processor seconds to partition and build."""
THROUGHPUT: Final = observed(
    "throughput", per=("model", "dataset"), kind=TRAIN, clock="processor", setting=CONTENDERS
).keep(gaps_of_failures)
"""Events per second of processor time."""


def built_as_printed(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: METIS and rows take longer to build than hash and blocks, by the printed factor."""
    found = rules.all_above(BUILT_FASTER, 1.0, unit="x")(context)
    if found.lacking:
        return found
    printed = float(context.claim.value["DGL"]) / float(context.claim.value["GNNFlow"])
    return replace(found, met=abs(found.estimates[0].value / printed - 1) <= NEAR)


def by_t4(setting: str) -> outcomes.Rule:
    """Throughput of 32 T4, beside what ranks of a CPU do."""
    return combine.shown_beside(
        rules.not_measurable("a number of 32 T4, which no smaller machine can stand for"),
        {f"2 ranks of a CPU, {MODEL_TITLES[model]}": THROUGHPUT.where(setting=setting, model=model)
         for model in STATIC_MODELS}, "samples/s",
    )  # fmt: skip


class Table7(FormExperiment):
    forms, name = FORMS, "table7"
    device = "cpu"
    headline, unit = GAIN, "x"
    figure_forms = (
        Sweep(
            "table7", "Training throughput on a partitioned graph (Table 7), by processor time",
            THROUGHPUT, series="setting", x="{model}, {dataset}", gaps={"series": OURS},
            xlabel="model", ylabel="events/s",
        ),
        Sweep(
            "table7_build", "Partition and build for 4 machines, processor seconds", BUILDING,
            series="setting", x="{dataset}", gaps={"series": OURS},
            xlabel="graph", ylabel="s",
        ),
    )  # fmt: skip
    claims = {
        "gnnflow-tab7-graph-building": built_as_printed,
        "gnnflow-tab7-dgl-throughput": by_t4(DISTDGL),
        "gnnflow-tab7-gnnflow-throughput": by_t4(OURS),
        # Both sample on the CPU by one rule, so that only partition and store differ.
        "gnnflow-abs-mag-throughput-gain": rules.near_claim(
            GAIN.where(model=FASTEST), above=1.0
        ),
        "gnnflow-s64-accuracy-parity": combine.shown_beside(
            rules.not_measurable(
                "needs DistDGL's own training: the two ways here differ in partition and store "
                "alone, so that they are as accurate by construction"
            ),
            {f"average precision, {name}": observed(
                "average_precision", per="model", kind=ACCURACY, setting=name
            ) for name in (OURS, DISTDGL)}, "",
        ),
    }  # fmt: skip
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

    def build(name: str, by: str, kind: str) -> float:
        """Processor seconds of partition and build."""
        begin = time.process_time()
        owners, _ = partition(by, events.num_nodes, events.src, events.dst, MACHINES)
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
        seconds = time.process_time() - begin
        built[name] = owners, parts
        return seconds

    ways = {
        OURS: ("hash", GRAPHS[0]), DISTDGL: ("metis", GRAPHS[1]), HASH_ROWS: ("hash", GRAPHS[1])
    }  # fmt: skip
    build(OURS, *ways[OURS])
    sides = with_control({name: name for name in ways}, on=control)
    whole: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(BUILDS[preset]):
        for side, name in sides.items() if turn % 2 == 0 else reversed(sides.items()):
            whole[side].append(build(name, *ways[name]))
    found = Measurement(data=describe(events))
    take_control(found, whole, phase="build")
    for name in ways:
        found.observe("preparation_time", median(whole[name]), setting=name, phase="build")
    observe_speedup(
        found, whole[DISTDGL], whole[OURS], setting=OURS, baseline=DISTDGL, phase="build"
    )
    for name, (owners, parts) in built.items():
        found.checks += parts_checks(name, owners, parts, events, undirected=graph.undirected)
    return found


def parts_checks(
    name: str, owners: Any, parts: Sequence[Any], events: Any, *, undirected: bool
) -> list[ResultCheck]:
    """Checks of what machines hold: each vertex on one, drawn ones with their records."""
    count = events.num_nodes
    machine = owners.of(torch.arange(count))
    found = [assignment_check(machine, count, len(parts), name), places_check(owners, count, name)]
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
    common = {"tau": graph.tau, "node_cache": graph.node_cache, "edge_cache": graph.edge_cache}
    rows = {"graph": "rows", **NO_CACHES}
    contenders = {
        OURS: GraphPlacement(GraphRankSettings(layout, **common)),
        DISTDGL: GraphPlacement(GraphRankSettings(layout, **rows), part),
    }
    last = len(events)
    first, score = max(0, last - TURNS[preset] * batch), None
    if accuracy:
        trained, scored = by_preset(TRAINED, preset)
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
    found = Measurement(data=data.describe())
    observe_race(found, runs, OURS)
    for name, run in runs.items():
        if run.scores is not None:
            found.observe("average_precision", run.scores.ap, setting=name)
    machine, count = part.of(torch.arange(events.num_nodes)), events.num_nodes
    found.checks = [*checks, assignment_check(machine, count, layout.machines, "metis")]
    return found

"""Figures 13 and 14: partitions over synthetic graphs of rising non-uniformity (section 7.3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.lab.charts import failed, failures, sweep
from dgbench.lab.compare import select
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Table, number
from dgbench.runtime.threads import one_thread
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.common import PARTITION_TITLES
from dgbench.systems.dgc.experiments.lifetimes import gini
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, races, running
from dgbench.systems.dgc.experiments.race_runs import (
    PLACED,
    PLAIN,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.experiments.race_runs import SHOWN as SHOWN_FORMS
from dgbench.systems.dgc.recount import (
    EdgeRecount,
    drawn,
    recounted,
    unevenness,
)
from dgbench.systems.dgc.synthetic import ENDS, FAMILIES, Synthetic

LEVELS = {"spatial": (0.0, 0.25, 0.5, 1.0), "temporal": (0.0, 0.02, 0.05, 0.1, 0.2)}
"""Standard deviation over mean; of vertices less is enough, as each change ends sequences."""
FEW = {"spatial": (0.0, 0.5, 1.0), "temporal": (0.0, 0.05, 0.2)}
"""Levels of the smaller presets."""
SCALES = {"smoke": 1 / 2500, "quick": 1 / 500, "full": 1 / 20, "paper": 1.0}
TIMED = {
    "smoke": (1 / 12500, 12),
    "full": (1 / 50, 100),
    "paper": (1.0, 100),
}
"""Scale and snapshots of timed graphs. Baselines go snapshot by snapshot, so that fewer and fuller
ones take less of what only small graphs suffer from."""
PROCESSES = {"smoke": 1, "full": 5, "paper": 5}
MIN_TURNS = {"smoke": 1, "full": 4, "paper": 10}
BUDGETS_S = {"smoke": 0.05, "full": 1.0, "paper": 10.0}
RANKS = {"smoke": 2, "full": 4, "paper": 8}
WORKERS = 8
MODEL = "tgcn_2layer"
OTHERS = ("snapshots", "sequences", "both")
CHUNKS = "chunks"
DESCRIBED = "chunks-described"
CONTIGUOUS = "snapshots-contiguous"
SHOWN = {
    **{name: PARTITION_TITLES[name] for name in (*OTHERS, CONTIGUOUS)},
    DESCRIBED: "PGC",
    CHUNKS: "PGC + dgbench",
}
"""Partitions whose traffic is counted, with their titles."""
VARIED = {"spatial": "edges per snapshot", "temporal": "vertices per snapshot"}
JOINED = {"random": "random ends", "groups": "ends in groups"}


class Fig14(Experiment):
    paper = "dgc"
    name = "fig14"
    title = "Figures 13, 14: synthetic graphs"
    claims = (
        "dgc-s731-synthetic",
        "dgc-fig14-nonuniform-trend",
    )
    own_data = "its graphs are synthetic, with given degrees and lifetimes"
    question = "Does partition by chunks gain as snapshots and sequences get less even?"
    reading = (
        "Totals are the paper's, scaled: vertices and edges summed over 100 snapshots. It prints "
        "neither the model, nor what a normal draw below zero becomes, nor how edges find their "
        "ends. We take the T-GCN model, clip at zero, and let ends be random or meet in groups: "
        "random ends leave nothing for a partition to find. The partition stands alone, without "
        "fusion and without stale aggregation, as in the paper: once with labels propagated once, "
        "as described there, and with the refinement that our system adds. Traffic is counted for "
        "8 workers; whole runs of snapshots (PSS, contiguous) stand beside, as they send little "
        "and make the workers of a recurrence wait for one another. Epochs take turns on one group "
        "of ranks, in the small presets over fewer snapshots."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = [
            self._cell(preset, family, kind="traffic", model=MODEL, ranks=WORKERS)
            for family in FAMILIES
        ]
        # A time needs several processes, for which quick has no room; its traffic decides there.
        families = {"smoke": FAMILIES[:1], "quick": ()}.get(preset, FAMILIES)
        cells += [
            self._cell(preset, family, kind="time", model=MODEL, ranks=RANKS[preset])
            for family in families
        ]
        return cells

    def _cell(self, preset: Preset, family: str, **params: Any) -> Cell:
        group = "-".join(str(v) for v in (family, *params.values()))
        return self.cell_of(
            {"dataset": f"synthetic-{family}", **params},
            group,
            repeats=PROCESSES[preset] if params["kind"] == "time" else 1,
            interleaved=params["kind"] == "time",
            timeout_s=3600 if preset == "paper" else 300 if preset == "full" else 60,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        run = _count if cell.params["kind"] == "traffic" else _time
        with one_thread():  # graphs are small, and ranks have one thread each
            return run(cell, context)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("fig13", "Non-uniformity of the synthetic graphs (Figure 13)", uneven_points,
                xlabel="standard deviation over mean of what varies", ylabel="Gini index",
                xlog=False, ylog=False),
            sweep("fig14_traffic", "Traffic of an epoch by partition, 8 workers", traffic_points,
                xlabel="standard deviation over mean of what varies", ylabel="MB per epoch",
                xlog=False),
            sweep("fig14_span", "How much of a recurrence runs in a row by partition, 8 workers",
                span_points, xlabel="standard deviation over mean of what varies",
                ylabel="vertex-steps in a row, even share = 1", xlog=False),
            sweep("fig14", "Epoch time by partition (Figure 14)", time_points,
                xlabel="standard deviation over mean of what varies", ylabel="ms per epoch, median",
                xlog=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        for row in traffic_rows(rows):
            family = row.params["dataset"].removeprefix("synthetic-")
            for ends in ENDS:
                levels = levels_of(row)
                first, last = (against_best(row, ends, level) for level in (levels[0], levels[-1]))
                parts.append(f"{VARIED[family]}, {JOINED[ends]}: {first:.2f}x to {last:.2f}x")
        if not parts:
            return ""
        return (
            "Traffic by chunks over that of the best other partition, from even to uneven: "
            f"{'; '.join(parts)}."
        )


def timed(preset: Preset, family: str) -> list[tuple[str, float]]:
    """Ends and levels of a family whose epochs are timed."""
    levels = LEVELS[family]
    if preset == "smoke":
        return [("groups", levels[-1])]
    return list(product(ENDS, levels))


def _count(cell: Cell, context: RunContext) -> Measurement:
    """Traffic of every partition at every level."""
    from dgbench.models import build_model
    from dgbench.systems.dgc.partition import critical_path
    from dgbench.systems.dgc.volumes import hearing, shape_of, traffic_of

    family = str(cell.params["dataset"]).removeprefix("synthetic-")
    workers = int(cell.params["ranks"])  # type: ignore[arg-type]
    shape = shape_of(
        build_model(cell.params["model"], feature_dim=2, hidden_dim=32, task="class", classes=2)
    )
    found = Measurement()
    checks: list[ResultCheck] = []
    made = None
    levels = FEW if context.preset in ("smoke", "quick") else LEVELS
    for ends, level in product(ENDS, levels[family]):
        made = Synthetic(
            family=family,  # type: ignore[arg-type]
            level=level,
            ends=ends,
            scale=SCALES[context.preset],
        )
        data = made.snapshots()
        graph = _graph(data.topology[:], shape.counts())
        at: dict[str, Any] = {"ends": ends, "level": level}
        lengths = np.diff(graph.start.numpy())
        edges = np.array(data.num_edges)
        found.observe("vertex_steps", graph.num_vertices, **at)
        found.observe("edges", int(edges.sum()), **at)
        found.observe("snapshots", len(data), **at)
        found.observe("gini_index", gini(lengths[lengths > 0]), of="lengths", **at)
        found.observe("gini_index", gini(edges), of="edges", **at)
        hears, recount = hearing(data, graph), EdgeRecount(data, len(data))
        wanted, counts = recount.sizes(**at), np.unique(recount.entity, return_counts=True)[1]
        wanted.observe("gini_index", unevenness(counts), of="lengths", **at)
        wanted.observe("gini_index", unevenness(recount.per_step()), of="edges", **at)
        (chosen,) = drawn((*SHOWN,), 1)
        for name, placement in _placements(graph, shape, workers):
            observe = partial(_observe, method=name, **at)
            loads = placement.loads().double()
            load = float((loads.amax(1) / loads.mean(1)).max())
            sent = traffic_of(graph, hears, placement, shape).bytes()
            observe(found, sent, critical_path(graph, placement), load)
            checks.append(recount.partition(placement, name))
            if name == chosen:
                work = recount.work(placement)
                load = max(float(work[of].max() / work[of].mean()) for of in ("vertices", "rows"))
                sent = sum(recount.bytes(placement, shape).values())
                observe(wanted, sent, recount.span(placement), load)
        checks += [recount.vertex_steps(graph), *recounted(found, wanted)]
    found.data, found.checks = made.described() if made else {}, checks
    found.notes = [
        f"'load' counts vertex-steps of the fuller encoder of {workers} workers, 'span' those "
        "that recurrences run one after another"
    ]
    return found


def _observe(
    found: Measurement, sent: int, path: tuple[int, float], load: float, **dims: Any
) -> None:
    """Bytes of an epoch, stages and span of the recurrence, and balance under a partition."""
    found.observe("exchanged", sent, **dims)
    found.observe("stages", path[0], **dims)
    found.observe("span", path[1], **dims)
    found.observe("imbalance", load, **dims)


def _graph(topology: Sequence[Any], counts: Any) -> Supergraph:
    from dgbench.kernels_cuda.supergraph import build_supergraph

    spatial, temporal = counts.weights()
    return build_supergraph(
        topology, spatial=spatial, temporal=temporal, per_length=counts.all_steps
    )


def _placements(graph: Supergraph, shape: Any, workers: int) -> Iterator[tuple[str, Any]]:
    from dgbench.systems.dgc.partition import PAPER, ChunkSettings, partition_chunks
    from dgbench.systems.dgc.placement import by_both, by_sequences, by_snapshots

    yield OTHERS[0], by_snapshots(graph, workers)
    yield OTHERS[1], by_sequences(graph, workers)
    yield OTHERS[2], by_both(graph, workers)
    yield CONTIGUOUS, by_snapshots(graph, workers, contiguous=True)
    for name, settings in ((DESCRIBED, PAPER), (CHUNKS, ChunkSettings())):
        yield name, partition_chunks(graph, shape.counts(), workers, settings, None).placement


def _time(cell: Cell, context: RunContext) -> Measurement:
    """Epochs of the baselines and of the partition alone, in turns, at several levels."""
    from dgbench.systems.base.sequences import SequenceWorkload

    family = str(cell.params["dataset"]).removeprefix("synthetic-")
    chosen = contenders(*PLACED, PLAIN)
    levels = timed(context.preset, family)
    jobs = []
    for ends, level in levels:
        made = Synthetic(
            family=family,  # type: ignore[arg-type]
            level=level,
            ends=ends,  # type: ignore[arg-type]
            scale=TIMED[context.preset][0],
            steps=TIMED[context.preset][1],
        )
        task = SequenceWorkload(dataset=made.name, model=cell.params["model"])  # type: ignore[arg-type]
        part = {"ends": ends, "level": level}
        jobs.append(RaceJob(made.name, task, made.snapshots(), chosen, part))
    found = race(
        jobs,
        int(cell.params["ranks"]),  # type: ignore[arg-type]
        context,
        least=MIN_TURNS[context.preset],
        budget_s=BUDGETS_S[context.preset],
        timeout_s=cell.timeout_s,
        control=True,
    )
    found.data = made.described()
    return found


def traffic_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows of counted traffic."""
    return select(rows, experiment="fig14", kind="traffic")


@dataclass(frozen=True, slots=True)
class Timed:
    """Epochs timed on one synthetic graph.

    Attributes:
        race: what took turns. family, ends, level: of the graph.
    """

    race: RaceRecord
    family: str
    ends: str
    level: float


def timed_races(rows: Sequence[Any]) -> list[Timed]:
    """All timed graphs, by family, ends and level."""
    found = [
        Timed(one, family_of(one.row), one.part["ends"], one.part["level"])
        for one in running(races(rows, "fig14", kind="time"), PLAIN)
    ]
    return sorted(found, key=lambda one: (one.family, one.ends, one.level))


def family_of(row: Any) -> str:
    """`spatial` or `temporal`."""
    return str(row.params["dataset"]).removeprefix("synthetic-")


def levels_of(row: Any) -> list[float]:
    """Levels that a row of traffic holds, ascending."""
    return sorted(Table.of([row]).where("vertex_steps", ends=ENDS[0]).by("level"))


def traffic(row: Any, ends: str, level: float, partition: str) -> int:
    """Bytes of an epoch under a partition."""
    return number(row, "exchanged", ends=ends, level=level, method=partition)


def span(row: Any, ends: str, level: float, partition: str) -> float:
    """Vertex-steps that a recurrence runs one after another, in even shares of the workers."""
    return number(row, "span", ends=ends, level=level, method=partition)


def against_best(row: Any, ends: str, level: float, ours: str = DESCRIBED) -> float:
    """Traffic of chunks over that of the best other partition, contiguous snapshots among them."""
    best = min(traffic(row, ends, level, other) for other in (*OTHERS, CONTIGUOUS))
    return traffic(row, ends, level, ours) / best if best else 1.0


def uneven_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gini indices of edges per snapshot and of lengths of sequences at each level."""
    words = {"edges": "edges per snapshot", "lengths": "steps per sequence"}
    points = [
        {
            "panel": f"varied: {VARIED[family_of(row)]}",
            "series": title,
            "x": level,
            "y": number(row, "gini_index", of=kind, ends=ENDS[0], level=level),
            "counted": True,
            "row_ids": [row.id],
        }
        for row in traffic_rows(rows)
        for kind, title in words.items()
        for level in levels_of(row)
    ]
    return points + _failures(rows, "traffic", words.values(), _varied)


def traffic_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Megabytes of each partition at each level."""
    return _by_partition(rows, lambda row, *which: traffic(row, *which) / 1e6)


def span_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Vertex-steps that each partition's recurrence runs in a row, in even shares."""
    return _by_partition(rows, span)


def _by_partition(rows: Sequence[Any], value: Callable[..., float]) -> list[dict[str, Any]]:
    points = [
        {
            "panel": f"{VARIED[family_of(row)]}, {JOINED[ends]}",
            "series": title,
            "x": level,
            "y": value(row, ends, level, partition),
            "counted": True,
            "row_ids": [row.id],
        }
        for row in traffic_rows(rows)
        for ends in ENDS
        for partition, title in SHOWN.items()
        for level in levels_of(row)
    ]
    return points + _failures(
        rows, "traffic", SHOWN.values(), lambda row: f"{VARIED[family_of(row)]}, {JOINED[ENDS[0]]}"
    )


def time_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Milliseconds of an epoch of each contender: the median, the quickest and the slowest turn."""
    points = [
        {
            "panel": f"{VARIED[one.family]}, {JOINED[one.ends]}",
            "series": one.race.title_of(name),
            "x": one.level,
            "y": 1e3 * one.race.epoch(name),
            "low": 1e3 * min(one.race.turns(name)),
            "high": 1e3 * max(one.race.turns(name)),
            "row_ids": [row.id for row in one.race.rows],
            "deviation": one.race.deviation,
        }
        for one in timed_races(rows)
        for name in one.race.names
    ]
    return points + _failures(rows, "time", (*PLACED, SHOWN_FORMS[PLAIN]), _varied)


def _varied(row: Any) -> str:
    return f"varied: {VARIED[family_of(row)]}"


def _failures(rows, kind, series, panel) -> list[dict[str, Any]]:
    return [
        {"panel": panel(row), "series": name, "x": LEVELS[family_of(row)][0], "failed": failed(row)}
        for row in failures(rows, "fig14")
        if row.params["kind"] == kind
        for name in series
    ]

"""Figures 13 and 14: partitions over synthetic graphs of rising non-uniformity (section 7.3.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import select
from dgbench.systems.dgc.experiments.common import PARTITION_TITLES, failed, failures, one_thread
from dgbench.systems.dgc.experiments.lifetimes import gini
from dgbench.systems.dgc.experiments.synthetic import ENDS, FAMILIES, Synthetic

LEVELS = {"spatial": (0.0, 0.25, 0.5, 1.0), "temporal": (0.0, 0.02, 0.05, 0.1, 0.2)}
"""Standard deviation over mean; of vertices less is enough, as each change ends sequences."""
SCALES = {"smoke": 1 / 2500, "quick": 1 / 100, "full": 1 / 10, "paper": 1.0}
TIMED_SCALES = {"smoke": 1 / 2500, "quick": 1 / 200, "full": 1 / 20, "paper": 1.0}
RANKS = {"smoke": 2, "quick": 4, "full": 4, "paper": 8}
WORKERS = 8
MODEL = "tgcn_2layer"
PARTITIONS = ("snapshots", "sequences", "both", "chunks")
VARIED = {"spatial": "edges per snapshot", "temporal": "vertices per snapshot"}
JOINED = {"random": "random ends", "groups": "ends in groups"}
BASELINES = ("PyGT-PSS", "PyGT-PTS", "PyGT-PSS-TS")
OURS = "DGC w/o CF&SG"


class Fig14(Experiment):
    paper = "dgc"
    name = "fig14"
    title = "Figures 13, 14: synthetic graphs"
    question = "Does partition by chunks gain as snapshots and sequences get less even?"
    reading = (
        "Totals are the paper's, scaled: vertices and edges summed over 100 snapshots. It prints "
        "neither the model, nor what a normal draw below zero becomes, nor how edges find their "
        "ends. We take the T-GCN model, clip at zero, and let ends be random or meet in groups: "
        "random ends leave nothing for a partition to find. The partition stands alone, without "
        "fusion and without stale aggregation, as in the paper. Traffic is counted for 8 workers; "
        "epochs take turns on one group of ranks."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        cells = [
            self._cell(preset, family, kind="traffic", model=MODEL, ranks=WORKERS)
            for family in FAMILIES
        ]
        ranks = RANKS[preset]
        for family, level, ends in timed(preset):
            cells.append(
                self._cell(
                    preset, family, kind="time", model=MODEL, ranks=ranks, level=level, ends=ends
                )
            )
        return cells

    def _cell(self, preset: Preset, family: str, **params: Any) -> Cell:
        group = "-".join(str(v) for v in (family, *params.values()))
        return Cell(
            paper=self.paper,
            experiment=self.name,
            params={"dataset": f"synthetic-{family}", **params},
            group=group,
            timeout_s=3600 if preset == "paper" else 300 if preset == "full" else 60,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        run = _count if cell.params["kind"] == "traffic" else _time
        return run(cell, context)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig13",
                title="Non-uniformity of the synthetic graphs (Figure 13)",
                points=uneven_points,
                options={
                    "xlabel": "standard deviation over mean of what varies",
                    "ylabel": "Gini index",
                    "xlog": False,
                    "ylog": False,
                },
            ),
            FigureSpec(
                kind="sweep",
                name="fig14_traffic",
                title="Traffic of an epoch by partition, 8 workers",
                points=traffic_points,
                options={
                    "xlabel": "standard deviation over mean of what varies",
                    "ylabel": "MB per epoch",
                    "xlog": False,
                },
            ),
            FigureSpec(
                kind="sweep",
                name="fig14",
                title="Epoch time by partition (Figure 14)",
                points=time_points,
                options={
                    "xlabel": "standard deviation over mean of what varies",
                    "ylabel": "ms per epoch",
                    "xlog": False,
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        for row in traffic_rows(rows):
            family = row.params["dataset"].removeprefix("synthetic-")
            for ends in ENDS:
                first, last = (
                    against_best(row, ends, level)
                    for level in (LEVELS[family][0], LEVELS[family][-1])
                )
                parts.append(f"{VARIED[family]}, {JOINED[ends]}: {first:.2f}x to {last:.2f}x")
        if not parts:
            return ""
        return (
            "Traffic by chunks over that of the best other partition, from even to uneven: "
            f"{'; '.join(parts)}."
        )


def timed(preset: Preset) -> list[tuple[str, float, str]]:
    """Families, levels and ends whose epochs are timed."""
    if preset == "smoke":
        return [("spatial", 0.5, "groups")]
    if preset == "quick":
        return [("spatial", level, "groups") for level in (0.0, 1.0)]
    return [(f, level, ends) for f in FAMILIES for level in LEVELS[f] for ends in ENDS]


def _count(cell: Cell, context: RunContext) -> Measurement:
    """Traffic of every partition at every level."""
    from dgbench.models import build_model
    from dgbench.systems.dgc.volumes import hearing, shape_of, traffic_of

    family = str(cell.params["dataset"]).removeprefix("synthetic-")
    workers = int(cell.params["ranks"])  # type: ignore[arg-type]
    shape = shape_of(
        build_model(cell.params["model"], feature_dim=2, hidden_dim=32, task="class", classes=2)
    )
    values: dict[str, float] = {}
    counters: dict[str, int] = {}
    made = None
    for ends, level in product(ENDS, LEVELS[family]):
        made = Synthetic(
            family=family,  # type: ignore[arg-type]
            level=level,
            ends=ends,
            scale=SCALES[context.preset],
        )
        data = made.snapshots()
        graph = _graph(data.topology[:], shape.counts())
        key = f"{ends} {level:g}"
        lengths = np.diff(graph.start.numpy())
        edges = np.array(data.num_edges)
        counters[f"vertices {key}"] = graph.num_vertices
        counters[f"edges {key}"] = int(edges.sum())
        counters[f"snapshots {key}"] = len(data)
        values[f"gini lengths {key}"] = gini(lengths[lengths > 0])
        values[f"gini edges {key}"] = gini(edges)
        hears = hearing(data, graph)
        for placement in _placements(graph, shape, workers):
            found = traffic_of(graph, hears, placement, shape)
            counters[f"bytes {key} {placement.partition}"] = found.bytes()
            loads = placement.loads().double()
            values[f"load {key} {placement.partition}"] = float(
                (loads.amax(1) / loads.mean(1)).max()
            )
    return Measurement(
        values=values,
        units={k: "max over mean" for k in values if k.startswith("load")},
        counters=counters,
        data=made.described() if made else {},
        notes=[f"'load' counts vertex-steps of the fuller encoder of {workers} workers"],
    )


def _graph(topology: Sequence[Any], counts: Any) -> Supergraph:
    from dgbench.kernels_cuda.supergraph import build_supergraph

    spatial, temporal = counts.weights()
    return build_supergraph(
        topology, spatial=spatial, temporal=temporal, per_length=counts.all_steps
    )


def _placements(graph: Supergraph, shape: Any, workers: int) -> Iterator[Any]:
    from dgbench.systems.dgc.partition import ChunkSettings, partition_chunks
    from dgbench.systems.dgc.placement import by_both, by_sequences, by_snapshots

    yield by_snapshots(graph, workers)
    yield by_sequences(graph, workers)
    yield by_both(graph, workers)
    settings = ChunkSettings(workload="vertices")
    yield partition_chunks(graph, shape.counts(), workers, settings, None).placement


def _time(cell: Cell, context: RunContext) -> Measurement:
    """Epochs of the baselines and of the partition alone, in turns."""
    from dgbench.systems.base.sequences import SequenceWorkload
    from dgbench.systems.dgc.settings_run import BASELINES as PLAIN
    from dgbench.systems.dgc.settings_run import LADDER
    from dgbench.systems.dgc.turns import take_rank_turns

    family = str(cell.params["dataset"]).removeprefix("synthetic-")
    made = Synthetic(
        family=family,  # type: ignore[arg-type]
        level=float(cell.params["level"]),  # type: ignore[arg-type]
        ends=cell.params["ends"],  # type: ignore[arg-type]
        scale=TIMED_SCALES[context.preset],
    )
    workload = SequenceWorkload(dataset=made.name, model=cell.params["model"])  # type: ignore[arg-type]
    contenders = {**PLAIN, OURS: LADDER[OURS]}
    with one_thread():
        turns = take_rank_turns(
            workload,
            made.snapshots(),
            int(cell.params["ranks"]),  # type: ignore[arg-type]
            contenders,
            least=1 if context.preset == "smoke" else 5,
            budget_s=context.budget_s,
            timeout_s=cell.timeout_s,
            device=context.device,
        )
    values = {f"seconds {name}": median(seconds) for name, seconds in turns.seconds.items()}
    for name, seconds in turns.seconds.items():
        ordered = sorted(seconds)
        values |= {f"low {name}": ordered[0], f"high {name}": ordered[-1]}
    counters = {"turns": min(map(len, turns.seconds.values()))}
    return Measurement(values=values, counters=counters, data=made.described())


def traffic_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows of counted traffic."""
    return select(rows, experiment="fig14", kind="traffic")


def time_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows of timed epochs."""
    return select(rows, experiment="fig14", kind="time")


def family_of(row: Any) -> str:
    """`spatial` or `temporal`."""
    return str(row.params["dataset"]).removeprefix("synthetic-")


def traffic(row: Any, ends: str, level: float, partition: str) -> int:
    """Bytes of an epoch under a partition."""
    return row.counters[f"bytes {ends} {level:g} {partition}"]


def against_best(row: Any, ends: str, level: float) -> float:
    """Traffic of chunks over that of the best other partition."""
    best = min(traffic(row, ends, level, other) for other in PARTITIONS[:-1])
    return traffic(row, ends, level, PARTITIONS[-1]) / best if best else 1.0


def uneven_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gini indices of edges per snapshot and of lengths of sequences at each level."""
    words = {"edges": "edges per snapshot", "lengths": "steps per sequence"}
    points = [
        {
            "panel": f"varied: {VARIED[family_of(row)]}",
            "series": title,
            "x": level,
            "y": row.values[f"gini {kind} {ENDS[0]} {level:g}"],
            "counted": True,
            "row_ids": [row.id],
        }
        for row in traffic_rows(rows)
        for kind, title in words.items()
        for level in LEVELS[family_of(row)]
    ]
    return points + _failures(rows, "traffic", words.values(), _varied)


def traffic_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Megabytes of each partition at each level."""
    points = [
        {
            "panel": f"{VARIED[family_of(row)]}, {JOINED[ends]}",
            "series": PARTITION_TITLES[partition],
            "x": level,
            "y": traffic(row, ends, level, partition) / 1e6,
            "counted": True,
            "row_ids": [row.id],
        }
        for row in traffic_rows(rows)
        for ends in ENDS
        for partition in PARTITIONS
        for level in LEVELS[family_of(row)]
    ]
    names = [PARTITION_TITLES[partition] for partition in PARTITIONS]
    return points + _failures(
        rows, "traffic", names, lambda row: f"{VARIED[family_of(row)]}, {JOINED[ENDS[0]]}"
    )


def time_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Milliseconds of an epoch of each contender, where epochs were timed."""
    points = [
        {
            "panel": f"{VARIED[family_of(row)]}, {JOINED[row.params['ends']]}",
            "series": name,
            "x": row.params["level"],
            "y": 1e3 * row.values[f"seconds {name}"],
            "row_ids": [row.id],
            "deviation": max(row.deviation.values(), default=None),
        }
        for row in time_rows(rows)
        for name in (*BASELINES, OURS)
    ]
    return points + [
        {
            "panel": f"{VARIED[family_of(row)]}, {JOINED[row.params['ends']]}",
            "series": name,
            "x": row.params["level"],
            "failed": failed(row),
        }
        for row in failures(rows, "fig14")
        if row.params["kind"] == "time"
        for name in (*BASELINES, OURS)
    ]


def _varied(row: Any) -> str:
    return f"varied: {VARIED[family_of(row)]}"


def _failures(rows, kind, series, panel) -> list[dict[str, Any]]:
    return [
        {"panel": panel(row), "series": name, "x": LEVELS[family_of(row)][0], "failed": failed(row)}
        for row in failures(rows, "fig14")
        if row.params["kind"] == kind
        for name in series
    ]

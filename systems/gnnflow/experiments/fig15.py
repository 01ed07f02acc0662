"""Figure 15: training throughput on more and more GPUs, the graph on every one (section 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.compare import select
from dgbench.systems.base.turns import gains
from dgbench.systems.gnnflow.experiments.common import failed, failures, one_thread
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    SETTINGS,
    workload,
)

NAME: Final = "fig15"
DATASET: Final = "gdelt"
MODELS: Final = ("tgn", "tgat")
OURS, CACHED, TGL = "GNNFlow", "TGL with cache", "TGL"
CONTENDERS: Final = (OURS, CACHED, TGL)
BATCH: Final[dict[str, dict[str, int]]] = {
    "smoke": {"tgn": 60, "tgat": 12},
    "quick": {"tgn": 240, "tgat": 24},
    "full": {"tgn": SETTINGS["tgn"].batch, "tgat": SETTINGS["tgat"].batch},
}
"""Events of a batch of one rank; beyond `full` as in `full`, the paper's."""
RANKS: Final[dict[str, tuple[int, ...]]] = {"smoke": (1, 2), "quick": (1, 2), "full": (1, 2, 4)}
TURNS: Final = {"smoke": 2, "quick": 7, "full": 13}
"""Batches of each contender; the first one warms up."""
PROJECTED: Final = (1, 2, 4, 8, 16, 32)

Rows = Sequence[Any]


class Fig15(Experiment):
    paper = "gnnflow"
    name = NAME
    title = "Figure 15: throughput on more and more GPUs"
    question = "How does training scale with ranks, and is GNNFlow ahead at every number of them?"
    reading = (
        "Every rank has the whole graph and a batch of its own, the batches before the last event "
        "of the stream. TGL keeps sorted rows, with or without the cache, and differs in nothing "
        "else: its rebuild is not part of this figure. Ranks here are processes of one CPU. Their "
        "throughput is by processor time, as if each had a core; a cache before the same memory "
        "has little to save. 1 to 32 T4 are projected: computing scaled by a T4's bandwidth "
        "or arithmetic over those of one thread, rows and gradients counted."
    )
    claims = (
        "gnnflow-fig15-best-throughput",
        "gnnflow-fig15-near-linear",
        "gnnflow-fig15-32gpu-efficiency",
        "gnnflow-s44-sampling-cv",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": DATASET, "model": model, "ranks": ranks},
                group=model,
                timeout_s=90 if preset in ("smoke", "quick") else 1800,
            )
            for model in MODELS
            for ranks in RANKS.get(preset, RANKS["full"])
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import load_stream
        from dgbench.systems.gnnflow.cluster import ASSUMED
        from dgbench.systems.gnnflow.ranked import race_ranked

        model, ranks = str(cell.params["model"]), int(cell.params["ranks"])
        preset = context.preset
        graph = BY_NAME[DATASET]
        batch = BATCH.get(preset, BATCH["full"])[model]
        turns = TURNS.get(preset, TURNS["full"])
        task = workload(graph, model, preset, batch=batch * ranks, chunks=1)
        with one_thread():
            data = load_stream(task)
            last = len(data.events)
            runs = race_ranked(
                task,
                _contenders(graph, ranks),
                data=data,
                first=max(0, last - turns * batch * ranks),
                clocks=True,
                timeout_s=cell.timeout_s,
            )
            found = _measured(runs, ranks, batch)
            if ranks == 1:
                _project(found, runs, task, data, batch)
        found.counters |= {"batch": batch, "turns": len(runs[OURS].seconds)}
        found.data = data.describe()
        found.notes.append(ASSUMED)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="fig15",
                title="Training throughput of TGN and TGAT on GDELT, projected to T4 (Figure 15)",
                points=projected_points,
                options={"xlabel": "GPUs", "ylabel": "events/s", "base": 2, "together": True},
            ),
            FigureSpec(
                kind="sweep",
                name="fig15_ranks",
                title="Throughput by processor time, ranks of one CPU",
                points=measured_points,
                options={"xlabel": "model and ranks", "ylabel": "events/s"},
            ),
        ]

    def answer(self, rows: Rows) -> str:
        found = select(rows, experiment=NAME, ranks=1)
        if not found:
            return ""
        words = []
        for row in found:
            low, high = sorted(100 * efficiency(row, 32, reading) for reading in READINGS)
            words.append(f"{MODEL_TITLES[row.params['model']]} {low:.0f} to {high:.0f} %")
        return f"Projected to 32 T4, GNNFlow keeps of linear scaling: {', '.join(words)}."


READINGS: Final = ("bandwidth", "arithmetic")


def _contenders(graph: Any, ranks: int) -> dict[str, Any]:
    from dgbench.systems.gnnflow.owners import Layout
    from dgbench.systems.gnnflow.ranked import Contender
    from dgbench.systems.gnnflow.remote_access import RankSettings

    layout = Layout(1, ranks)
    cache = {"node_cache": graph.node_cache, "edge_cache": graph.edge_cache}
    return {
        OURS: Contender(RankSettings(layout, tau=graph.tau, **cache)),
        CACHED: Contender(RankSettings(layout, graph="rows", **cache)),
        TGL: Contender(RankSettings(layout, graph="rows")),
    }


def _measured(runs: dict[str, Any], ranks: int, batch: int) -> Measurement:
    """Throughput, gains over TGL, hit rates and how far losses are apart."""
    from dgbench.systems.gnnflow.owners import variation_of

    values: dict[str, float] = {}
    units: dict[str, str] = {}
    losses = runs[TGL].losses
    apart = max(
        abs(a - b) / abs(b)
        for run in runs.values()
        for a, b in zip(run.losses, losses, strict=True)
    )
    for name, run in runs.items():
        values[f"throughput {name}"] = run.throughput
        values[f"own throughput {name}"] = run.own_throughput
        units |= {f"throughput {name}": "events/s", f"own throughput {name}": "events/s"}
        values[f"sampling cv {name}"] = variation_of(run.sample_s)
        for part in ("sample", "fetch", "compute", "memory", "communicate", "update"):
            seconds = [phases.get(part, 0.0) for phases in run.phases]
            values[f"{part}_s {name}"] = max(seconds) / max(1, len(run.seconds))
        for kind in ("node", "edge"):
            asked = sum(c.get(f"{kind}_requests", 0) for c in run.counters)
            if asked:
                hits = sum(c.get(f"{kind}_hits", 0) for c in run.counters)
                values[f"{kind} hit rate {name}"] = hits / asked
        if name != OURS:
            slowest = [_slowest(r) for r in (run, runs[OURS])]
            values |= gains(name, slowest[0], slowest[1])
    return Measurement(values=values, units=units, deviation={"loss": apart})


def _slowest(run: Any) -> list[float]:
    """Processor seconds of each batch, of the rank with most."""
    return [max(batch) for batch in zip(*run.work_s, strict=True)]


def _project(found: Measurement, runs: dict[str, Any], task: Any, data: Any, batch: int) -> None:
    """Seconds of an iteration on 1 to 32 T4, from a run of one rank."""
    from dgbench.systems.gnnflow.cluster import Iteration, measure_machine, project

    machine = measure_machine()
    for name, run in runs.items():
        counts, turns = run.counters[0], len(run.seconds)
        phases = run.phases[0]
        seconds = {part: s / turns for part, s in phases.items()}
        bytes_of = {"node": 4 * task.node_dim, "edge": 4 * task.edge_dim}
        # With a cache what is fetched are its misses, else every different row once.
        fetched = sum(
            counts.get(f"{kind}_rows_local", 0) * width for kind, width in bytes_of.items()
        )
        parameters = sum(value.numel() for value in run.state.values())
        width = 0
        if "memory_rows" in counts:
            width = 3 * task.memory_dim + task.edge_dim + 4  # and two times of eight bytes
        one = Iteration(
            compute_s=sum(seconds.get(p, 0.0) for p in ("compute", "memory", "update")),
            sample_s=sum(run.sample_s[0]) / turns,
            on_gpu=name == OURS,
            fetched=fetched / turns,
            read=16 * counts["records_sampled"] / turns if name == OURS else 0,
            written=4.0 * width * min(2 * batch, data.events.num_nodes),
            gradient=4.0 * parameters,
        )
        found.values[f"compute_s one {name}"] = one.compute_s
        for reading in READINGS:
            speed = machine.speed(reading)
            found.values[f"speed {reading}"] = speed
            for ranks in PROJECTED:
                step = project(one, ranks, speed)
                found.values[f"projected {reading} {ranks} {name}"] = ranks * batch / step.seconds
            found.values[f"exchange_s {reading} 32 {name}"] = project(one, 32, speed).exchange_s


def efficiency(row: Any, ranks: int, reading: str, name: str = OURS) -> float:
    """Projected throughput of so many GPUs over that of one, by the number of GPUs."""
    key = f"projected {reading}"
    one = row.values[f"{key} 1 {name}"]
    return row.values[f"{key} {ranks} {name}"] / (ranks * one)


def scaling(rows: Rows, model: str, name: str = OURS) -> dict[int, float]:
    """By ranks: throughput by processor time over that of one rank, by their number."""
    found = {r.params["ranks"]: r for r in select(rows, experiment=NAME, model=model)}
    if 1 not in found:
        return {}
    one = found[1].values[f"own throughput {name}"]
    return {
        ranks: row.values[f"own throughput {name}"] / (ranks * one)
        for ranks, row in sorted(found.items())
    }


def projected_points(rows: Rows) -> list[dict[str, Any]]:
    """Projected throughput by GPUs; a panel for each model, computing scaled by bandwidth."""
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment=NAME, ranks=1):
        panel = f"{MODEL_TITLES[row.params['model']]}, GDELT (twin)"
        for name in CONTENDERS:
            for ranks in PROJECTED:
                points.append(
                    {
                        "panel": panel,
                        "series": name,
                        "x": ranks,
                        "y": row.values[f"projected bandwidth {ranks} {name}"],
                        "projected": True,
                        "row_ids": [row.id],
                    }
                )
    return points + _failed(rows)


def measured_points(rows: Rows) -> list[dict[str, Any]]:
    """Throughput by processor time."""
    points: list[dict[str, Any]] = []
    for row in select(rows, experiment=NAME):
        ranks = row.params["ranks"]
        for name in CONTENDERS:
            points.append(
                {
                    "series": name,
                    "x": f"{MODEL_TITLES[row.params['model']]}, {ranks}",
                    "y": row.values[f"own throughput {name}"],
                    "twin": bool(row.data.get("twin")),
                    "row_ids": [row.id],
                }
            )
    return points + _failed(rows)


def _failed(rows: Rows) -> list[dict[str, Any]]:
    return [
        {"series": OURS, "x": f"{MODEL_TITLES[r.params['model']]}, {r.params['ranks']}",
         "failed": failed(r)}
        for r in failures(rows, NAME)
    ]  # fmt: skip

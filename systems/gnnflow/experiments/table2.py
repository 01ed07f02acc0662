"""Table 2: building and partitioning a graph against training an epoch on it (section 2.2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failures, gap, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.result_checks import ResultCheck
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.stream import load_stream
from dgbench.systems.gnnflow.contenders.ours import records_of_rows
from dgbench.systems.gnnflow.experiments.baseline_runs import (
    BASELINE_TITLES,
    baseline_checks,
    baseline_task,
    open_baseline,
    size_notes,
    time_batches,
)
from dgbench.systems.gnnflow.experiments.partition_checks import assignment_check
from dgbench.systems.gnnflow.experiments.sample_checks import records_check
from dgbench.systems.gnnflow.experiments.settings import BY_NAME, PRESETS, graph_title, panel

TRAINED: Final = {"tgl": "tgn", "dgl": "graphsage"}
"""The model whose epoch stands in the table. TGL's is not named; TGN is its cheapest."""
PARTS: Final = 4
"""Partitions that DGL makes; the paper does not say how many."""
GRAPHS: Final = {
    "smoke": ("mag",),
    "quick": ("mag",),
    "full": ("mag", "sx-mathoverflow", "epinions-2011-ratings"),
    "paper": ("mag", "sx-mathoverflow", "epinions-2011-ratings"),
}
SECONDS: Final = (0.2, 0.2, 10.0, 60.0)
"""Seconds of batches that an epoch is told from, by preset."""
STAGES: Final = ("load", "build", "partition", "training")


class Table2(Grid):
    paper = "gnnflow"
    name = "table2"
    title = "Table 2: building a graph against training on it"
    question = "How long do building and partitioning take beside an epoch of training?"
    reading = (
        "Loading opens the prepared form of the events, memory-mapped, and takes no time worth "
        "naming. TGL builds sorted rows by counting on all threads; DGL makes its graph in the "
        "format that its sampler reads and partitions it by METIS. An epoch is told from the "
        "mean of some batches. Hours of the whole graph are these seconds over the scale, as "
        "building is linear in the edges: a projection."
    )
    claims = (
        "gnnflow-tab2-tgl",
        "gnnflow-tab2-dgl",
        "gnnflow-s22-build-share",
        "gnnflow-s22-build-range",
    )

    group = "{dataset} {baseline}"
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 1200, "paper": 14400}

    def points(self, preset: Preset, device: str) -> Iterable[dict[str, Any]]:
        for name, (baseline, model) in product(GRAPHS[preset], TRAINED.items()):
            yield {"dataset": name, "baseline": baseline, "model": model}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        baseline = str(cell.params["baseline"])
        task = baseline_task(graph, str(cell.params["model"]), context.preset)
        start = time.perf_counter()
        events = _open(task)
        load = time.perf_counter() - start
        data = load_stream(task)
        trainer = open_baseline(
            baseline, task, data, device=context.device, threads=context.threads
        )
        start = time.perf_counter()
        trainer.prepare()
        found = Measurement(data=data.describe(), notes=size_notes(context.preset))
        found.observe("preparation_time", load, phase="load")
        found.observe("preparation_time", time.perf_counter() - start, phase="build")
        checks: list[ResultCheck] = found.checks
        if baseline == "dgl":
            start = time.perf_counter()
            part = trainer.access.partition(PARTS)  # type: ignore[attr-defined]
            found.observe("preparation_time", time.perf_counter() - start, phase="partition")
            checks.append(assignment_check(part, data.events.num_nodes, PARTS))
        else:
            find = records_of_rows(trainer.access.rows)  # type: ignore[attr-defined]
            checks.append(records_check(find, data.events, task.undirected))
        times = time_batches(trainer, SECONDS[PRESETS.index(context.preset)])
        checks += baseline_checks(baseline, trainer, task, data)
        trainer.close()
        found.observe("epoch_time", times.total * times.epoch)
        found.observe("step_time", times.total)
        found.observe("counted_steps", times.batches)
        found.observe("events", events)
        found.observe("vertices", data.events.num_nodes)
        found.observe("batches", times.epoch)
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table2", "Building and partitioning against an epoch of training", stage_points,
                xlabel="", ylabel="time, s", sort=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = rows_of(rows, experiment=self.name)
        said = [
            f"{prepared(row):.1f} % of an epoch in {_baseline(row)} ({panel(row)})" for row in found
        ]
        return f"Building, and partitioning in DGL, take {' and '.join(said)}." if said else ""


def _open(task: Any) -> int:
    """Open the events and touch each; how many there are."""
    from dgbench import datasets

    events = datasets.open_events(task.dataset, task.source, task.scale, task.seed)
    int(events.src.sum() + events.dst.sum())
    return len(events)


def stages(row: Any) -> dict[str, float]:
    """Seconds of loading, building and partitioning, as far as a row has them, and an epoch's."""
    found = Table.of([row])
    return {
        **found.where("preparation_time").numbers("phase"),
        "training": found.where("epoch_time").one().value,
    }


def prepared(row: Any) -> float:
    """Loading, building and partitioning in percent of an epoch of training."""
    seconds = stages(row)
    training = seconds.pop("training")
    return 100 * sum(seconds.values()) / training


def full_hours(row: Any) -> float:
    """Hours that loading, building and partitioning the whole graph would take: linear in it."""
    ready = sum(Table.of([row]).where("preparation_time").values)
    return ready / float(row.data["scale"]) / 3600


def stage_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `sweep`: seconds of each stage, a series for each baseline."""
    points = [
        mark(row, panel=panel(row), series=_baseline(row), x=stage, y=stages(row)[stage])
        for stage in STAGES
        for row in rows_of(rows, experiment="table2")
        if stage in stages(row)
    ]
    return points + [
        gap(row, panel=graph_title(row.params["dataset"]), series=_baseline(row), x=stage)
        for row in failures(rows, "table2")
        for stage in STAGES
    ]


def _baseline(row: Any) -> str:
    return BASELINE_TITLES[row.params["baseline"]]

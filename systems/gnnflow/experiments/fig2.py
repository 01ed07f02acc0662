"""Figure 2: where a batch of TGL and DGL spends its time (section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap, mark
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.base.stream import load_stream
from dgbench.systems.gnnflow.experiments.baseline_runs import (
    BASELINE_TITLES,
    BASELINES,
    PARTS,
    baseline_checks,
    baseline_task,
    open_baseline,
    size_notes,
    time_batches,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    HELD_NAMES,
    MODEL_TITLES,
    PRESETS,
    graph_title,
    panel,
)

GRAPHS: Final = {
    "smoke": ("gdelt",),
    "quick": ("gdelt",),
    "full": ("gdelt", "netflix", *HELD_NAMES),
    "paper": ("gdelt", "netflix", *HELD_NAMES),
}
SECONDS: Final = (0.0, 0.1, 6.0, 60.0)
"""Seconds of batches for each model, by preset."""
SHOWN: Final = {
    "sample": "sample", "fetch": "transfer", "memory": "memory", "compute": "compute",
    "update": "update",
}  # fmt: skip
"""Colours of the parts: features are what a device is sent."""


class Fig2(Grid):
    paper = "gnnflow"
    name = "fig2"
    title = "Figure 2: where TGL and DGL spend their time"
    question = "How much of training goes to sampling neighbours and fetching features?"
    reading = (
        "TGL is written anew (rows rebuilt, sampled by threads, features from host memory), DGL "
        "is the released sampler; one trainer trains all models. Bars are means of a "
        "batch, instruments on. Reading and writing TGN's memory counts as fetching. On a CPU "
        "nothing is sent to a device and the model computes on the same cores, so that its share "
        "is larger than on a GPU."
    )
    claims = ("gnnflow-s1-sample-fetch-share",)

    axes: ClassVar[Any] = {"dataset": GRAPHS, "baseline": tuple(BASELINES)}
    group = "{dataset} {baseline}"
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, "full": 900, "paper": 7200}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        baseline = str(cell.params["baseline"])
        seconds = SECONDS[PRESETS.index(context.preset)]
        found = Measurement(notes=size_notes(context.preset))
        data = None
        models = BASELINES[baseline]
        for model in models[:1] if context.preset == "smoke" else models:
            task = baseline_task(graph, model, context.preset)
            data = load_stream(task) if data is None else data
            trainer = open_baseline(
                baseline, task, data, device=context.device, threads=context.threads
            )
            trainer.prepare()
            times = time_batches(trainer, seconds)
            found.checks += baseline_checks(baseline, trainer, task, data)
            trainer.close()
            found.observe("step_time", times.total, model=model)
            found.observe("time_share", times.share, model=model)
            found.observe("loss", times.loss, model=model)
            for part in PARTS:
                found.observe("phase_time", times.parts[part], model=model, phase=part)
            found.observe("counted_steps", times.batches, model=model)
        found.data = data.describe()
        return found

    def figures(self) -> list[FigureSpec]:
        return [
            chart(
                "time_split",
                "fig2",
                "A batch of TGL and DGL by its parts (Figure 2)",
                split_points,
                xlabel="time of a batch, ms",
                phases_from="parts and totals from one instrumented run; blue: sampling, "
                "yellow: fetching features, purple: reading and writing memories",
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = shares(rows)
        if not found:
            return ""
        low, high = min(found, key=lambda f: f[2]), max(found, key=lambda f: f[2])
        return (
            f"Sampling and fetching take {low[2]:.0f} % ({low[1]} on {low[0]}) to {high[2]:.0f} % "
            f"({high[1]} on {high[0]}) of a batch here."
        )


def shares(rows: Sequence[Any]) -> list[tuple[str, str, float]]:
    """(graph, model, percent of a batch) of every bar."""
    found = Table.of(rows, experiment="fig2").where("time_share")
    return [(panel(one.row), MODEL_TITLES[one["model"]], 100 * one.value) for one in found]


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `time_split`: a bar for each model, a panel for each graph."""
    found = Table.of(rows, experiment="fig2")
    totals = found.where("step_time").numbers("dataset", "baseline", "model")
    points = [
        mark(
            one.row, panel=panel(one.row), row=MODEL_TITLES[one["model"]], system=_system(one.row),
            phase=SHOWN[one["phase"]], seconds=one.value,
            total=totals[one.key(("dataset", "baseline", "model"))],
        )
        for one in found.where("phase_time")
    ]  # fmt: skip
    return points + [
        gap(
            row, panel=graph_title(row.params["dataset"]), row=MODEL_TITLES[model],
            system=_system(row),
        )
        for row in failures(rows, "fig2")
        for model in BASELINES[row.params["baseline"]]
    ]  # fmt: skip


def _system(row: Any) -> str:
    baseline = row.params["baseline"]
    return BASELINE_TITLES[baseline] if baseline == "dgl" else baseline

"""Cells and figures shared by the tables of stale aggregation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import failed, failures
from dgbench.lab.compare import select
from dgbench.lab.grid import by_preset
from dgbench.systems.base import Cell, Experiment, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.settings import BY_NAME, GRAPHS, HELD, MODEL_TITLES
from dgbench.systems.dgc.experiments.stale_points import (
    OverSeeds,
    StaleRunPoint,
    mean,
    over_seeds,
    points,
)
from dgbench.systems.dgc.experiments.stale_runs import (
    WORKERS,
    StaleJob,
    StaleJobResult,
    measured,
    run_jobs,
)

HELD_NAMES: Final = tuple(graph.name for graph in HELD)
TWIN_NAMES: Final = tuple(graph.name for graph in GRAPHS)
SEEDS: Final = (1, 2, 3, 4, 5)
"""Of parameters and of what is held out; what a model learned is told by several."""
SEEDED: Final = ("wikipedia",)
"""Graphs that quick trains with five seeds."""
WHOLE: Final = tuple(
    (name,) for name in ("email-eu-core", "sx-mathoverflow", "wikipedia", "amazon-magazine")
)
"""Graphs of each cell of whole trainings: without Epinions 2011, of which even two windows take
minutes."""
SAVED, LOST = "traffic saved (%)", "accuracy lost (points)"

COMMON_READING: Final = (
    f"{WORKERS} workers by chunks. Task, accuracy and learning rate are not printed: we "
    "ask whether a vertex has an edge in the next snapshot (chance is 0.5) and train by Adam at "
    "0.01. Saved are rows sent over rows of a run that sends all, as the paper counts embeddings, "
    "the first epoch included; saved bytes add gradients, which go back for sent rows alone, and "
    "ids of rows. Accuracy is the mean of the last five epochs on a fifth held out, with fresh "
    "rows. All workers live in one process, which gives what ranks give (see the ablation)."
)


class StaleTable(Experiment):
    """A table whose cells train several graphs in one go, each row holding all their runs."""

    paper = "dgc"
    device = "cpu"
    # How many rows are held back follows from what the model learned.
    sources: ClassVar = dict.fromkeys(
        ("rows_sent", "exchanged", "cumulative_share", "scored"), "learned"
    )
    seeds: ClassVar[dict[str, tuple[int, ...]]] = {"smoke": (1,), None: SEEDS}  # type: ignore[dict-item]
    models: ClassVar[tuple[str, ...]]
    settings: ClassVar[dict[str, tuple[str, ...]]]
    graphs: ClassVar[dict[str, tuple[tuple[str, ...], ...]]]
    """By preset, the graphs of each cell."""

    seeded: ClassVar[dict[str, tuple[tuple[str, ...], ...]]] = {}
    """By preset, the graphs of seeds beyond the first, where they are fewer."""

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            self.cell_of(
                {"graphs": " ".join(names), "seed": seed},
                "-".join((*names, str(seed))),
                timeout_s={"smoke": 60, "quick": 240, "full": 3600}.get(preset, 36000),
            )
            for number, seed in enumerate(by_preset(self.seeds, preset))
            for names in (self.seeded.get(preset) if number else None) or self.graphs[preset]
        ]

    def jobs(self, cell: Cell, preset: Preset) -> list[StaleJob]:
        """Training jobs of a cell, the costliest first."""
        return [
            StaleJob(
                dataset, model, self.settings[preset], preset, seed=int(cell.params.get("seed", 1))
            )
            for dataset in str(cell.params["graphs"]).split()
            for model in self.models
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return self.train(cell, context)[0]

    def train(
        self, cell: Cell, context: RunContext
    ) -> tuple[Measurement, list[tuple[StaleJob, StaleJobResult]]]:
        """All runs of a cell, as a measurement and one by one."""
        jobs = self.jobs(cell, context.preset)
        outcomes = run_jobs(jobs, timeout_s=cell.timeout_s)
        found = measured(jobs, outcomes)
        return found, list(zip(jobs, outcomes, strict=True))


def title(point: StaleRunPoint) -> str:
    """A graph's title as a figure shows it."""
    return BY_NAME[point.dataset].title


def trade_off(rows: Sequence[Any], experiment: str) -> list[dict[str, Any]]:
    """Points of `sweep`: accuracy lost against rows saved, a panel for each model and the mean."""
    found = []
    for setting in dict.fromkeys(p.setting for p in points(select(rows, experiment=experiment))):
        m = mean(of_held(rows, experiment, setting))
        if m.runs:
            found.append(
                {
                    "panel": "mean over models and held graphs",
                    "series": "held graphs",
                    "x": m.saved_rows,
                    "y": m.drop,
                    "setting": setting,
                    "row_ids": sorted({p.row.id for p in m.parts}),
                }
            )
    for p in over_seeds(points(select(rows, experiment=experiment))):
        found.append(
            {
                "panel": MODEL_TITLES[p.model],
                "series": graph_of(p),
                "x": p.saved_rows,
                "y": p.drop,
                "low": p.low,
                "high": p.high,
                "setting": p.setting,
                "row_ids": [run.row.id for run in p.parts],
            }
        )
    found.sort(key=lambda one: (one["panel"].islower(), one["panel"], one["series"], one["x"]))
    return found + missing_points(rows, experiment, "all models")


def graph_of(p: OverSeeds) -> str:
    """The graph's title, and whether it is a twin."""
    return title(p.parts[0]) + (" (twin)" if p.parts[0].twin else "")


def missing_points(rows: Sequence[Any], experiment: str, panel: str) -> list[dict[str, Any]]:
    """A point for each cell that did not run."""
    return [
        {"panel": panel, "series": row.params["graphs"], "x": 0.0, "failed": failed(row)}
        for row in failures(rows, experiment)
    ]


def of_held(rows: Sequence[Any], experiment: str, setting: str) -> list[StaleRunPoint]:
    """Runs of one setting on held data."""
    usable = select(rows, experiment=experiment)
    return points(usable, where=lambda d, m, s: d in HELD_NAMES and s == setting)


def said(rows: Sequence[Any], experiment: str, setting: str) -> str:
    """Savings and cost of a setting on available data, in words; "" without runs."""
    found = mean(of_held(rows, experiment, setting))
    if not found.runs:
        return ""
    return (
        f"{found.saved_rows:.1f} % of the rows and {found.saved_bytes:.1f} % of the bytes for "
        f"{found.drop:.2f} points of accuracy"
    )

"""Table 2: utilisation of the device by every method (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from dgbench.lab.charts import failed, gap, sweep, titled
from dgbench.lab.evidence import ids
from dgbench.lab.grid import Grid
from dgbench.lab.verbs import observed
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.fig10 import METHODS, SMOKE_GRAPHS
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
    workload,
)
from dgbench.systems.pipad.polling import PERIOD_S, readings

BUDGETS_S = {"smoke": 0.5, "quick": 1.0, "full": 5.0, "paper": 20.0}
NO_DEVICE = "utilisation is what NVML reads from a CUDA device"
BUSY = observed("table2", "utilisation")


class Table2(Grid):
    paper = "pipad"
    name = "table2"
    title = "Table 2: utilisation of the device"
    question = "How much of the time is a kernel resident on the device, by method?"
    reading = (
        "NVML's utilisation as nvidia-smi shows it: the share of time in which any kernel was "
        "resident, read while steady steps run. Higher is not better. Without a device there is "
        "nothing to read; the cells then stand in the run with that reason."
    )
    claims = (
        *(
            f"pipad-tab2-util-{model}-{method}"
            for model in ("evolvegcn", "mpnn-lstm", "t-gcn")
            for method in METHODS
        ),
        "pipad-tab2-order-pipad-over-pygtg",
        "pipad-tab2-order-ra-highest",
        "pipad-tab2-small-low",
    )
    axes = {
        "dataset": {
            "smoke": SMOKE_GRAPHS[-1:],
            "quick": ("flickr", "hepth", "pems08", "covid19-england"),
            None: [graph.name for graph in GRAPHS],
        },
        "model": MODELS,
        "system": METHODS,
    }
    group = "{dataset}/{model}"
    timeout_s = {"full": 600, "paper": 600, None: 60}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        why = "" if device == "cuda" else NO_DEVICE
        return [self.cell(one, preset, unavailable=why) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        context.budget_s = max(context.budget_s, BUDGETS_S[context.preset])
        from torch.cuda import utilization

        with readings(utilization) as found:
            measured = timed(str(cell.params["system"]), task, context)
        # Steady steps come last and take the budget; what was read before is preparation.
        steady = found.values[-max(1, round(context.budget_s / PERIOD_S)) :]
        if found.broken or not steady:
            raise UnsupportedError(
                f"NVML gave no utilisation: {found.broken or 'the process was over before it did'}"
            )
        measured.observe("utilisation", fmean(steady) / 100)
        measured.observe("readings", len(steady))
        return measured

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table2", "Share of time with a kernel on the device", busy_points,
                xlabel="utilisation by NVML, %", ylabel="utilisation by NVML, %", ylog=False),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        means = {
            system: 100 * fmean(found.values) for system, found in BUSY(rows).by("system").items()
        }
        shown = ", ".join(f"{s} {means[s]:.0f} %" for s in METHODS if s in means)
        return f"Mean utilisation by NVML over models and graphs: {shown}." if shown else ""


def busy_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Utilisation by model, graph and method; one mark per workload that has none."""
    mine = [r for r in rows if r.experiment == "table2"]
    workloads: dict[tuple[str, str], list[Any]] = {}
    for row in mine:
        workloads.setdefault((row.params["model"], row.params["dataset"]), []).append(row)
    points = []
    for (model, dataset), at in sorted(workloads.items(), key=lambda one: MODELS.index(one[0][0])):
        point = {"panel": MODEL_TITLES[model], "x": titled(BY_NAME[dataset].title, at)}
        ran, bad = BUSY(at), [r for r in at if r.status != "ok"]
        if not ran:  # one mark says it for all methods
            reason = failed(bad[0]) if bad else "not-supported: NVML is silent"
            points.append({**point, "series": "pygt", "failed": reason, "row_ids": ids(at)})
            continue
        points += [
            {**point, "series": one["system"], "y": 100 * one.value, "row_ids": [one.row.id]}
            for one in ran
        ]
        points += [gap(row, **point, series=row.params["system"]) for row in bad]
    return points

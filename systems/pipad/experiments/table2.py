"""Table 2: utilisation of the device by every method (section 5.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from dgbench.lab.compare import select
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.fig10 import METHODS, QUICK_GRAPHS, SMOKE_GRAPHS
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    GRAPHS,
    MODEL_TITLES,
    MODELS,
    workload,
)

BUSY = "gpu_util_percent"
PERIOD_S = 0.05
"""Between two readings; the driver renews its value every 20 to 170 ms."""
BUDGETS_S = {"smoke": 0.5, "quick": 1.0, "full": 5.0, "paper": 20.0}
NO_DEVICE = "utilisation is what NVML reads from a CUDA device"


@dataclass(slots=True)
class Readings:
    """What a meter said while a block ran, and why it stopped saying anything, or ""."""

    values: list[float] = field(default_factory=list)
    broken: str = ""


class Table2(Experiment):
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

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": dataset, "model": model, "system": system},
                group=f"{dataset}/{model}",
                timeout_s=600 if preset in ("full", "paper") else 60,
                unavailable="" if device == "cuda" else NO_DEVICE,
            )
            for dataset in _graphs(preset)
            for model in MODELS
            for system in METHODS
        ]

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
        measured.values[BUSY] = fmean(steady)
        measured.units[BUSY] = "%"
        measured.counters["readings"] = len(steady)
        return measured

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="table2",
                title="Share of time with a kernel on the device",
                points=busy_points,
                options={
                    "xlabel": "utilisation by NVML, %",
                    "ylabel": "utilisation by NVML, %",
                    "ylog": False,
                },
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [r for r in select(rows, experiment="table2") if BUSY in r.values]
        if not found:
            return ""
        means = {
            system: fmean(mine)
            for system in METHODS
            if (mine := [r.values[BUSY] for r in found if r.params["system"] == system])
        }
        shown = ", ".join(f"{system} {value:.0f} %" for system, value in means.items())
        return f"Mean utilisation by NVML over models and graphs: {shown}."


def _graphs(preset: Preset) -> list[str]:
    if preset in ("smoke", "quick"):
        return list(SMOKE_GRAPHS[-1:] if preset == "smoke" else QUICK_GRAPHS)
    return [graph.name for graph in GRAPHS]


@contextmanager
def readings(read: Callable[[], float], period_s: float = PERIOD_S) -> Iterator[Readings]:
    """Values of `read` taken by a thread while the block runs, until it raises."""
    found = Readings()
    stop = threading.Event()

    def loop() -> None:
        while not stop.wait(period_s):
            try:
                found.values.append(float(read()))
            except Exception as error:  # a driver or container without NVML fails in its own ways
                found.broken = f"{type(error).__name__}: {error}"
                return

    thread = threading.Thread(target=loop, name="dgbench-utilisation", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def busy_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Utilisation by model, graph and method; one mark per workload that has none."""
    mine = [r for r in rows if r.experiment == "table2"]
    points = []
    for model in MODELS:
        here = [r for r in mine if r.params["model"] == model]
        for dataset in dict.fromkeys(r.params["dataset"] for r in here):
            at = [r for r in here if r.params["dataset"] == dataset]
            twin = any(bool(r.data.get("twin")) for r in at)
            point = {"panel": MODEL_TITLES[model],
                     "x": BY_NAME[dataset].title + (" (twin)" if twin else "")}  # fmt: skip
            ran = [r for r in at if r.status == "ok" and BUSY in r.values]
            if not ran:  # one mark says it for all methods
                bad = next((r for r in at if r.status != "ok"), None)
                reason = f"{bad.status}: {bad.reason}" if bad else "not-supported: NVML is silent"
                ids = [r.id for r in at]
                points.append({**point, "series": "pygt", "failed": reason, "row_ids": ids})
            points += [
                {
                    **point,
                    "series": row.params["system"],
                    "y": row.values[BUSY],
                    "row_ids": [row.id],
                }
                for row in ran
            ]
            points += [
                {
                    **point,
                    "series": row.params["system"],
                    "failed": f"{row.status}: {row.reason}",
                    "row_ids": [row.id],
                }
                for row in at
                if ran and row.status != "ok"
            ]
    return points

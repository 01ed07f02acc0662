"""Cost of epochs after preparation (section 4.3): decisions are taken once and stay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from dgbench.lab.charts import interval, sweep, titled, why_not
from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.grid import Grid, by_preset
from dgbench.lab.verbs import observed
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import checked_after, open_trainer
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    MODEL_TITLES,
    MODELS,
    workload,
)

MIN_EPOCHS, MAX_EPOCHS = 6, 30
BUDGETS = 3.0
"""Budgets of a process that one process may take."""
PARTS = ("first", "middle", "last")
"""Thirds of the timed epochs that are compared."""
TRAINED = {
    "smoke": (("hepth", "tgcn_model"),),
    "quick": (("covid19-england", "tgcn_model"), ("covid19-england", "mpnn_lstm")),
    None: [(graph.name, model) for graph in ALL for model in MODELS],
}
ALL_EPOCHS = "all"
RELATIVE_COSTS = observed("epochs", "slowdown", baseline=ALL_EPOCHS)

Key = tuple[str, str, str]
"""Dataset, model and third."""


def thirds(times: Sequence[float]) -> dict[str, float]:
    """Median epoch of the first, middle and last third."""
    size = len(times) // len(PARTS)
    cut = [times[:size], times[size : len(times) - size], times[len(times) - size :]]
    return {name: median(each) for name, each in zip(PARTS, cut, strict=True) if each}


def relative_costs(rows: Sequence[Any]) -> dict[Key, Ratio]:
    """Median epoch of each third over that of all epochs, by workload; pairs are processes."""
    found = RELATIVE_COSTS(rows).by("dataset", "model", "setting")
    return {key: one for key, table in found.items() if (one := ratio_of(table)) is not None}


def cost_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Median epoch of each third over that of all, by workload."""
    mine = [row for row in rows if row.experiment == "epochs"]
    found, points = relative_costs(rows), []
    for dataset, model in dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine):
        here = [r for r in mine if (r.params["dataset"], r.params["model"]) == (dataset, model)]
        point = {"panel": MODEL_TITLES[model], "x": titled(BY_NAME[dataset].title, here)}
        for part in PARTS:
            if ratio := found.get((dataset, model, part)):
                points.append({**point, "series": part, **interval(ratio)})
            else:
                points.append({**point, "series": part, "failed": why_not(here)})
    return points


class Epochs(Grid):
    paper = "pipad"
    name = "epochs"
    title = "Section 4.3: cost of epochs"
    claims = ("pipad-s43-epochs-similar",)
    question = "Do epochs cost alike, so that a decision taken once stays valid?"
    reading = (
        "Whole epochs after preparation and one epoch of warm-up, frames in time order. The median "
        "epoch of the first, middle and last third is set against that of all epochs of the "
        "process: frames of one epoch may differ, since their snapshots do, and epochs may not."
    )
    group = "{dataset}/{model}"
    fixed = {"system": "pipad"}
    repeats = {"smoke": 1, None: 5}
    timeout_s = {"full": 300, "paper": 900, None: 60}

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        return [{"dataset": d, "model": m} for d, m in by_preset(TRAINED, preset)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        system = get_system("pipad")
        trainer = open_trainer(system, task, context, None)
        trainer.prepare()
        seconds: list[float] = []
        trainer.train_epoch()  # warm-up
        begin = time.perf_counter()
        while len(seconds) < MAX_EPOCHS:
            start = time.perf_counter()
            if len(seconds) >= MIN_EPOCHS and start - begin > BUDGETS * context.budget_s:
                break
            trainer.train_epoch()
            seconds.append(time.perf_counter() - start)
        measured = Measurement(
            warmup=1,
            data=describe(trainer.data),  # type: ignore[attr-defined]
            checks=checked_after(system, trainer, task, context),
        )
        measured.observe("epoch_time", median(seconds), samples=seconds)
        for part, third in thirds(seconds).items():
            cost = third / median(seconds)
            measured.observe("slowdown", cost, setting=part, baseline=ALL_EPOCHS)
        measured.observe("frames", trainer.num_frames)
        trainer.close()
        return measured

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("epochs", "Epochs of PiPAD by their place in training", cost_points,
                xlabel="median epoch over that of all", ylabel="median epoch over that of all",
                ylog=False, hline=1.0, hline_label="all epochs"),
        ]  # fmt: skip

    def answer(self, rows: Sequence[Any]) -> str:
        found = relative_costs(rows)
        if not found:
            return ""
        far = max(found, key=lambda key: abs(found[key].value - 1))
        dataset, model, part = far
        return (
            f"The {part} third of the epochs costs {found[far].value:.3g} times the median epoch "
            f"on {BY_NAME[dataset].title} with {MODEL_TITLES[model]}, the farthest of "
            f"{len({key[:2] for key in found})} workloads from 1."
        )

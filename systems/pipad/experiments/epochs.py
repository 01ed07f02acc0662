"""Cost of epochs after preparation (section 4.3): decisions are taken once and stay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.quantities import observed
from dgbench.lab.rules import all_within
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import checked_after, open_trainer
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.settings import ALL, FORMS, MODELS, task_of

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
ALIKE = 0.1
"""Distance from the median epoch, relative to it, up to which epochs count as similar."""
COST = observed("slowdown", per=("dataset", "model"), setting=PARTS, baseline=ALL_EPOCHS)
"""Median epoch of each third over that of all epochs."""


def thirds(times: Sequence[float]) -> dict[str, float]:
    """Median epoch of the first, middle and last third."""
    size = len(times) // len(PARTS)
    cut = [times[:size], times[size : len(times) - size], times[len(times) - size :]]
    return {name: median(each) for name, each in zip(PARTS, cut, strict=True) if each}


class Epochs(FormExperiment):
    forms, name = FORMS, "epochs"
    group = "{dataset}/{model}"
    fixed = {"system": "pipad"}
    repeats = {"smoke": 1, None: 5}
    timeout_s = {"full": 300, "paper": 900, None: 60}
    headline, unit = COST, "x"
    figure_forms = (
        Sweep(
            "epochs", "Epochs of PiPAD by their place in training", COST,
            panel="{model}", series="setting", x="{dataset}",
            xlabel="median epoch over that of all", ylabel="median epoch over that of all",
            ylog=False, hline=1.0, hline_label="all epochs",
        ),
    )  # fmt: skip
    claims = {"pipad-s43-epochs-similar": all_within(COST, 1 / (1 + ALIKE), 1 + ALIKE, unit="x")}

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        return [{"dataset": d, "model": m} for d, m in by_preset(TRAINED, preset)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        task = task_of(cell.params, context.preset)
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
        trainer.close()
        return measured

"""Section 6.5: sampling, partition and schedule, disabled and then enabled one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dgbench.lab import rule_combinations as combine
from dgbench.lab import rules
from dgbench.lab.compare import AGAIN, ROUND_INTERVAL, observe_ratio, take_control, with_control
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import FigureForm, SpeedupBars
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.interactions import load_interactions
from dgbench.systems.tgcn.races import (
    ALL_OFF,
    PROCESSES,
    TGCN,
    audits_of,
    compare_first,
    opened,
    take_turns,
    task_of,
)
from dgbench.systems.tgcn.settings import FORMS

STEPS = (ALL_OFF, "sampling", "sis", "partition", "schedule", "overlap")
"""Each adds its switch to those before it."""
OURS = "touched"
"""Switch that dgbench adds to the last step."""
SHOWN = {
    "smoke": ("wikipedia",),
    "quick": ("wikipedia",),
    None: ("lastfm", "reddit", "flickr", "wikipedia"),
}
TURNS = {"smoke": 1, "quick": 2, "full": 4, "paper": 6}
EVENTS = {"smoke": 1500, "quick": 5000, "full": 100_000, "paper": 400_000}
"""First events that are kept; a scan for every draw takes long on more."""
DEVICES = 4
BEFORE = "step before"
"""Baseline of the gain of a step over the one before it."""

GAIN = observed("speedup", per=("dataset", "setting"))
"""Speed-up by a step of the ladder over all off, or over the step before."""
EDGE_TIME = observed("edge_time", per=("dataset", "setting"))


def rate_of(context: EvaluationContext, dims: Mapping[str, Any], one: Estimate) -> dict[str, Any]:
    """Edges a second of a step, beside its memory; all off is the base."""
    step = dims["setting"]
    ((_, seconds),) = EDGE_TIME.where(**dims).estimates(context).items()
    return {"rate": 1 / seconds.value} | ({"setting": step, "base": True} if step == ALL_OFF else {
        "base": False})  # fmt: skip


class Ablation(FormExperiment):
    forms, name = FORMS, "ablation"
    control = {"dataset": "wikipedia"}
    axes = {"dataset": SHOWN}
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}
    headline, unit = GAIN.where(baseline=ALL_OFF), "x"
    figure_forms = (
        SpeedupBars(
            "tgcn_ablation", "One technique after the other, over none",
            GAIN.where(baseline=ALL_OFF), panel="{dataset}", row="+ {setting}", system=TGCN,
            baseline=ALL_OFF, gaps={"row": "all"}, baseline_label="all off",
            xlabel="speed-up over all off", interval=ROUND_INTERVAL,
        ),
        FigureForm(
            "frontier", "tgcn_memory", "What device memory buys, one technique after the other",
            observed("memory", per="dataset", of="device", setting=STEPS),
            {"panel": "{dataset}", "series": TGCN, "setting": "+ {setting}"}, value="memory",
            more=rate_of, gaps={"setting": "all"},
            options={"ylabel": "edges/s", "xlabel": "memory of the devices"},
        ),
    )  # fmt: skip
    claims = {
        "tgcn-s65-ablation-order": combine.shown_beside(
            rules.all_above(
                GAIN.where(baseline=BEFORE, setting=("sampling", "partition", "schedule")), 1.0,
                unit="x",
            ),  # those that the paper says it enables one at a time
            {"sis": GAIN.where(baseline=BEFORE, setting="sis"),
             "overlap": GAIN.where(baseline=BEFORE, setting="overlap")},
        )
    }  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), context, control=self.controls(cell))


def switches(step: str) -> dict[str, bool]:
    """Techniques at a step of the ladder."""
    on = STEPS.index(step)
    return {name: k + 1 <= on for k, name in enumerate(STEPS[1:])}


def measure(name: str, context: RunContext, *, control: bool) -> Measurement:
    """Every step of the ladder, in turns."""
    task = task_of(name, context.preset)
    if task.events is not None:
        task = task_of(name, context.preset, events=min(task.events, EVENTS[context.preset]))
    data = load_interactions(task)
    names: dict[str, dict[str, Any]] = {
        step: {"contender": TGCN, "switches": switches(step), "devices": DEVICES} for step in STEPS
    }
    names[OURS] = {
        "contender": TGCN, "switches": {**switches(STEPS[-1]), OURS: True}, "devices": DEVICES,
    }  # fmt: skip
    turns = TURNS[context.preset]
    sides = with_control(names, on=control, pair=STEPS[-1])
    sides = {name: dict(options) for name, options in sides.items()}
    with opened(sides, task, data, context.device) as runners:
        found = Measurement(data=data.describe())
        audits = audits_of(runners)
        seconds = take_turns(runners, turns, context.device, audits)
        take_control(found, seconds, pair=STEPS[-1])
        runners.pop(AGAIN, None)
        audits.pop(AGAIN, None)
        for step, runner in runners.items():
            found.observe(
                "edge_time", median(seconds[step]), samples=seconds[step], setting=step
            )  # fmt: skip
            held = int(runner.trainer.report()["device_bytes"])
            found.observe("memory", held, of="device", setting=step)
        compare_first(found, context, task, data, runners, audits)
    for step, before in zip((*STEPS[1:], OURS), STEPS, strict=True):
        for baseline, slow in ((STEPS[0], STEPS[0]), (BEFORE, before)):
            observe_ratio(
                found, "speedup", seconds[slow], seconds[step], setting=step, baseline=baseline
            )
    found.observe("turns", turns)
    return found

"""Table 2: copies and computation of DyGNN and T-GCN, and what overlaps (sections 4.3 and 6.5)."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from itertools import product
from typing import Any

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.compare import observe_control
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import StackedTime
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.interactions import load_interactions
from dgbench.systems.tgcn.races import (
    ADDED_STREAMED,
    DYGNN,
    PROCESSES,
    RELAXED,
    STREAMED,
    TGCN,
    Runner,
    compare_first,
    opened,
    or_former,
    task_of,
)
from dgbench.systems.tgcn.regions import overlapped
from dgbench.systems.tgcn.settings import BY_NAME, FORMS, SMALL_NAMES, TWIN_NAMES

SERIAL = "tgcn, one region"
STREAMED_SERIAL = f"{STREAMED}, one region"
EPOCHS = {"smoke": 1, "quick": 1, "full": 3, "paper": 3}
STEPS = {"smoke": 1, "quick": 2, "full": 20, "paper": 100}
"""Optimiser steps of DyGNN that are timed; its times are scaled to an epoch."""
WORK = ("refresh", "score", "backward", "interact", "update", "swap")
"""Phases that are computation on the device."""
TIMELINE = "timeline"
NO_EPOCHS = (
    "seconds of an unprinted number of epochs on a V100: no run here can be compared with them"
)
NEAR = 0.05
"""Relative distance up to which a share is the printed one."""
SOME = 0.05
"""Share of the time of copies from which they run beside training."""

TOTAL = observed("epoch_time", per="dataset")
PART = observed("part_time", per="dataset")
IO, COMPUTE, WAIT = (PART.where(phase=phase) for phase in ("io", "compute", "wait"))
BOTH = PART.where(phase=("io", "compute"), dataset=TWIN_NAMES)
SHARE = 100 * (COMPUTE / TOTAL).where(setting=(TGCN, DYGNN))
"""Percent of an epoch that is computation."""
REDUCED = (BOTH.where(setting=RELAXED) / BOTH.where(setting=TGCN)).pooled("workloads")
"""Copies and computation of DyGNN in the same relaxed order over T-GCN's."""
COPIES = {phase: PART.where(of=TIMELINE, phase=phase) for phase in ("copy", "both")}
BESIDE = (COPIES["both"] / COPIES["copy"].map(lambda s: max(1e-12, s))).pooled("min")
"""Share of the time of copies that lies beside training, by events of the device."""
DRAWN = (TGCN, STREAMED, ADDED_STREAMED, DYGNN)


def gpu_seconds(system: str, part: str) -> outcomes.Rule:
    """Seconds of an epoch on a GPU; of how many epochs the printed ones are is not said, so that
    they are shown beside and decide nothing."""
    of = TOTAL if part == "total" else PART.where(phase=part)
    spent = of.where(setting=system, device="cuda", dataset=TWIN_NAMES)

    def rule(context: EvaluationContext) -> outcomes.RuleOutcome:
        numbers = spent.estimates(context)
        return outcomes.outcome(context, numbers, "s") if numbers else outcomes.RuleOutcome(
            lacking=NO_EPOCHS
        )  # fmt: skip

    return rule


def in_printed_range(context: EvaluationContext) -> outcomes.RuleOutcome:
    """Rule: computation takes the printed share of the time, of both systems on each graph."""
    low, high = (context.claim.value[end] for end in ("low", "high"))
    share = SHARE.where(dataset=TWIN_NAMES)
    return rules.all_within(share, low * (1 - NEAR), high * (1 + NEAR), unit="%")(context)


def shorter(setting: str, *, whole: bool) -> outcomes.Rule:
    """Copies and computation take longer than the time of an epoch, on every graph.

    Args:
        whole: all of an epoch; else computation and what is waited for.
    """

    def rule(setting: str) -> outcomes.Rule:
        spent = ((COMPUTE + IO) / (TOTAL if whole else COMPUTE + WAIT)).where(setting=setting)
        ratio = spent.where(dataset=TWIN_NAMES).pooled("workloads")
        return rules.all_above(ratio, 1.0, unit="x")

    return or_former(rule, setting)


def hidden(setting: str) -> MeasuredQuantity:
    """Percent of the copies that nobody waits for."""
    share = (IO - WAIT) / IO.map(lambda seconds: seconds or math.inf)
    return 100 * share.map(lambda share: max(0.0, share)).where(setting=setting)


def hidden_more(three: str, one: str) -> outcomes.Rule:
    """A larger share of the copies is hidden with three regions than with one, on every graph."""
    gained = (hidden(three) - hidden(one)).pooled("seeds")
    return combine.shown_beside(
        rules.all_above(gained, 0.0, unit="points"), {"hidden": hidden(three)}, "%"
    )


def whole_epoch(
    context: EvaluationContext, dims: Mapping[str, Any], one: Estimate
) -> dict[str, Any]:
    """Seconds of the epoch of a bar, its system, and its panel, where a twin is told."""
    setting = dims["setting"]
    epochs = TOTAL.where(dataset=dims["dataset"], setting=setting).estimates(context)
    (total,) = (epoch.value for epoch in epochs.values())
    system = DYGNN if setting == DYGNN else TGCN
    return {"total": total, "system": system, "panel": BY_NAME.panel(one.rows[0]), "twin": False}


class Table2(FormExperiment):
    forms, name = FORMS, "table2"
    control = {"dataset": SMALL_NAMES[0]}
    axes = {
        "dataset": {
            "smoke": ("wikipedia",),
            "quick": SMALL_NAMES,
            None: (*SMALL_NAMES, "twitter", "wikipedia"),
        }
    }
    repeats, interleaved = PROCESSES, True
    timeout_s = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}
    headline, unit = SHARE, "%"
    figure_forms = (
        StackedTime(
            "table2", "Copies and computation of an epoch",
            PART.where(phase=("wait", "compute", "sample"), setting=DRAWN.__contains__).per(
                "setting"
            ),
            panel="{dataset}", row="{setting}", system=TGCN, phase="{phase}", more=whole_epoch,
            phases_from="phases and totals from runs with clocks on",
        ),
    )  # fmt: skip
    claims = {
        **{
            f"tgcn-tab2-{system}-{part}": gpu_seconds(system, part)
            for system, part in product((DYGNN, TGCN), ("io", "compute", "total"))
        },
        "tgcn-tab2-compute-share": in_printed_range,
        "tgcn-tab2-overlap": combine.interpretations(
            "where the state lies, and what the whole is of, is not said",
            {
                "state on the device": shorter(TGCN, whole=False),
                "state streamed": shorter(STREAMED, whole=False),
                "state streamed, with sampling and cutting": shorter(STREAMED, whole=True),
            },
        ),
        "tgcn-tab2-both-parts-reduced": rules.all_above(REDUCED, 1.0, unit="x"),
        "tgcn-s43-pingpong-no-conflict": combine.first_found(
            rules.all_above(BESIDE, SOME),
            combine.interpretations(
                "a copy thread stands in for the device's engine",
                {
                    "state streamed": or_former(hidden_more, STREAMED, STREAMED_SERIAL),
                    "state on the device": hidden_more(TGCN, SERIAL),
                },
            ),
        ),
    }

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        # The first one runs with phases too, for the figure over time.
        points = enumerate(self.points(preset, device))
        return [self.cell(one, preset, phases=number == 0) for number, one in points]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), context, control=self.controls(cell))


def measure(name: str, context: RunContext, *, control: bool) -> Measurement:
    """Both systems with clocks on, and T-GCN with its regions in other ways."""
    task = task_of(name, context.preset)
    data = load_interactions(task)
    serial = {"switches": {"overlap": False}}
    names: dict[str, dict[str, Any]] = {
        TGCN: {},
        SERIAL: {"contender": TGCN, **serial},
        STREAMED: {"contender": TGCN, "resident": False, "parts": 2},
        STREAMED_SERIAL: {"contender": TGCN, "resident": False, "parts": 2, **serial},
        ADDED_STREAMED: {
            "contender": TGCN,
            "resident": False,
            "parts": 2,
            "switches": {"touched": True},
        },
    }
    if name in SMALL_NAMES or name != "twitter":
        names |= {RELAXED: {}, DYGNN: {}}
    found = Measurement(data=data.describe())
    with opened({k: {**v, "timing": True} for k, v in names.items()}, task, data,
                context.device) as runners:  # fmt: skip
        for key, runner in runners.items():
            turns = STEPS[context.preset] if key == DYGNN else EPOCHS[context.preset]
            parts = timed(runner, key, turns, data, context)
            total = parts.pop("total")
            found.observe("epoch_time", total, setting=key)
            for phase, seconds in parts.items():
                found.observe("part_time", seconds, phase=phase, setting=key)
            if control and key == TGCN:  # the second side of an A/A pair
                again = timed(runner, key, turns, data, context)["total"]
                observe_control(found, [total], [again], setting=key)
        if context.device == "cuda":
            observe_timeline(found, runners[STREAMED])
        compare_first(found, context, task, data, runners)
    return found


def timed(runner: Runner, key: str, turns: int, data: Any, context: RunContext) -> dict[str, float]:
    """Seconds of copies, waits, computation and all, scaled to an epoch."""
    runner.turn()  # warms up
    meter = runner.trainer.meter
    meter.reset()
    begin, edges = time.perf_counter(), 0
    for _ in range(turns):
        edges += runner.turn()
    if context.device == "cuda":
        import torch

        torch.cuda.synchronize()
    factor = data.train_end / edges
    total = factor * (time.perf_counter() - begin)
    phases = {name: factor * seconds for name, seconds in meter.phases().items()}
    found = {
        "compute": sum(phases.get(name, 0.0) for name in WORK),
        "total": total,
        "sample": phases.get("sample", 0.0),
    }
    if key in (DYGNN, RELAXED):
        return found | {"io": phases.get("io", 0.0), "wait": phases.get("io", 0.0)}
    spent = {name: factor * seconds for name, seconds in meter.spent.items()}
    return found | {"io": spent.get("copy_busy", 0.0), "wait": spent.get("copy_wait", 0.0)}


def observe_timeline(found: Measurement, runner: Runner) -> None:
    """Observe seconds of copies beside training in an epoch on a GPU, by events of the device."""
    regions = runner.trainer.regions[0]
    regions.timeline.start()
    runner.turn()
    spans = regions.timeline.stop()
    for phase in ("copy", "train"):
        busy = sum(end - begin for what, begin, end in spans if what == phase)
        found.observe("part_time", busy, of=TIMELINE, phase=phase)
    found.observe("part_time", overlapped(spans, "copy", "train"), of=TIMELINE, phase="both")
    found.observe("parts", len(spans), of="spans")

"""Table 3: device memory of DyGNN, JODIE and T-GCN (section 6.6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from dgbench.lab import outcomes, rules
from dgbench.lab import rule_combinations as combine
from dgbench.lab.estimates import EvaluationContext
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import MeasuredQuantity, observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Entry
from dgbench.systems.base import Cell, Measurement, RunContext
from dgbench.systems.base.interactions import load_interactions
from dgbench.systems.tgcn.races import (
    ADDED_STREAMED,
    DYGNN,
    JODIE,
    SETTING_TITLES,
    STREAMED,
    TGCN,
    checks_of,
    loss_gap,
    open_runner,
    or_former,
    start_checks,
    task_of,
)
from dgbench.systems.tgcn.recounts import check_bytes
from dgbench.systems.tgcn.settings import FORMS, ON_SMALL, PRINTED_TITLE, SMALL_NAMES, table3

PRINTED = (DYGNN, JODIE, TGCN)
STEPS = {"smoke": 1, "quick": 2, "full": 20, "paper": 100}
"""Optimiser steps, or intervals, after the first in which the peak is looked for."""
FACTOR = 0.25
"""Relative distance up to which memory is the printed one."""
NEEDS_WHOLE = (
    "needs graphs of the printed size on a CUDA device: nox -s reproduce -- tgcn --device cuda "
    "--preset paper"
)
WHERE = "where T-GCN's state lies is not said; the baselines' lies on the device"
BASELINES = {**ON_SMALL, "system": (DYGNN, JODIE)}

MB = 1e-6 * observed("memory", per=("dataset", "system"))
HELD = MB.where(method="held")
"""Most that the device held."""


def of_printed_size(entries: list[Entry], context: EvaluationContext) -> list[Entry]:
    """Entries on graphs of the printed size."""
    return [one for one in entries if one.row.data.get("scale", 1) >= 1]


def printed_memory(system: str) -> outcomes.Rule:
    """MB of device memory by graph as either source says, on graphs of the printed size."""
    by = {"the allocator's peak": "held", "what the driver lacks": "driver"}

    def near(method: str) -> outcomes.Rule:
        held = MB.where(system=system, method=method, device="cuda", **ON_SMALL)
        held = held.keep(of_printed_size)
        rule = rules.all_equal(
            held, lambda value, at: value[PRINTED_TITLE[at["dataset"]]], within=FACTOR
        )
        return combine.needs_gpu(combine.complete(rule, held, ON_SMALL), NEEDS_WHOLE)

    return combine.interpretations(
        "which of them is printed is not said", {words: near(one) for words, one in by.items()}
    )


def saving(system: str) -> MeasuredQuantity:
    """Memory of each baseline over that of a form of T-GCN."""
    return HELD.where(**BASELINES).over(HELD.where(system=system, **ON_SMALL))


def savings(rule: Callable[[MeasuredQuantity], outcomes.Rule]) -> outcomes.Rule:
    """A rule of savings, with an interpretation for each place of T-GCN's state."""

    def of(system: str) -> outcomes.Rule:
        ratios = saving(system)
        whole = combine.complete(rule(ratios), ratios, BASELINES)
        return combine.by_model(whole, "sum of counted bytes", on_cpu_only=True)

    states = {"state on the device": TGCN, "state streamed": STREAMED}
    return combine.interpretations(
        WHERE, {words: or_former(of, system) for words, system in states.items()}
    )


class Table3(FormExperiment):
    forms, name = FORMS, "table3"
    axes = {
        "dataset": {
            "smoke": ("wikipedia",),
            "quick": SMALL_NAMES,
            None: (*SMALL_NAMES, "wikipedia"),
        },
        "system": (*PRINTED, STREAMED, ADDED_STREAMED),
    }
    timeout_s = {"full": 900, "paper": 7200, None: 60}
    headline, unit = saving(TGCN), "x"
    figure_forms = (
        Sweep(
            "table3", "Device memory while training",
            {
                "": HELD.per("device"),
                "Table 3": HELD.where(system=PRINTED, **ON_SMALL).printed(
                    lambda at: table3(at["system"]).get(at["dataset"])
                ),
            },
            panel="{dataset}", series="{device}{of}", x="{system}",
            more=lambda context, dims, one: {"counted": dims.get("device") == "cpu"},
            gaps={"series": "measured"}, xlabel="", ylabel="MB", y_from_zero=True,
        ),
    )  # fmt: skip
    claims = {
        **{f"tgcn-tab3-{system}-memory": printed_memory(system) for system in PRINTED},
        "tgcn-tab3-ordering": savings(
            lambda ratios: rules.all_above(
                ratios, 1.0, unit="x", report=lambda many: min(many, key=lambda one: one.value)
            )
        ),
        "tgcn-s66-max-space-saving": savings(
            lambda ratios: rules.near_claim(ratios, above=1.0, report=rules.largest)
        ),
    }

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), str(cell.params["system"]), context)


def measure(name: str, system: str, context: RunContext) -> Measurement:
    """Train a few steps and say what the device held at most."""
    task = task_of(name, context.preset)
    data = load_interactions(task)
    cuda = context.device == "cuda"
    free = 0
    if cuda:
        torch.zeros(1, device="cuda")
        torch.cuda.reset_peak_memory_stats()
        free, _ = torch.cuda.mem_get_info()
    options: dict[str, Any] = {}
    if system in SETTING_TITLES:
        options = {
            "resident": False, "parts": 4, "switches": {"touched": system == ADDED_STREAMED},
        }  # fmt: skip
    kind = TGCN if system in SETTING_TITLES else system
    runner = open_runner(kind, task, data, context.device, **options)
    trainer = runner.trainer
    trainer.prepare()
    trainer.reset_state()
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    for group in trainer.groups(0, data.train_end)[: STEPS[context.preset] + 1]:
        trainer.train_group(group)
    report = trainer.report()
    found = Measurement(data=data.describe())
    counted = round(report.get("device_bytes", report.get("planned_bytes", 0.0)))
    held = torch.cuda.max_memory_allocated() if cuda else counted
    found.observe("memory", held, method="held")
    if cuda:
        found.observe("memory", free - torch.cuda.mem_get_info()[0], method="driver")
    checks = checks_of({system: runner})
    checks.append(check_bytes(trainer))
    started = start_checks(task, data, context.device, [kind])
    trainer.close()
    found.checks, found.deviation = [*started, *checks], loss_gap(started)
    return found

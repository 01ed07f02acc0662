"""Table 3: device memory of DyGNN, JODIE and T-GCN (section 6.6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

import torch

from dgbench.lab.charts import failures, gap, mark, sweep
from dgbench.lab.grid import Grid
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, RunContext
from dgbench.systems.tgcn.printed import table3
from dgbench.systems.tgcn.races import (
    ADDED_STREAMED,
    DYGNN,
    FORMER,
    JODIE,
    MEMORY,
    SETTING_TITLES,
    STREAMED,
    TGCN,
    TITLES,
    checks_of,
    loss_gap,
    observe_report,
    open_runner,
    start_checks,
    task_of,
)
from dgbench.systems.tgcn.recounts import check_bytes
from dgbench.systems.tgcn.settings import SMALL_NAMES, graph_title, panel

NAME: Final = "table3"
SYSTEMS: Final = (DYGNN, JODIE, TGCN, STREAMED, ADDED_STREAMED)
SHOWN: Final = {
    "smoke": ("wikipedia",),
    "quick": SMALL_NAMES,
    "full": (*SMALL_NAMES, "wikipedia"),
    "paper": (*SMALL_NAMES, "wikipedia"),
}
STEPS: Final = {"smoke": 1, "quick": 2, "full": 20, "paper": 100}
"""Optimiser steps, or intervals, after the first in which the peak is looked for."""
MB: Final = 1e6

Rows = Sequence[Any]


class Table3(Grid):
    paper = "tgcn"
    name = NAME
    title = "Table 3: device memory"
    question = "Does T-GCN need less device memory than DyGNN and JODIE?"
    reading = (
        "On a GPU the allocator's peak while training, and what the driver says is gone beside "
        "it; the paper does not say which it read. Without a GPU bytes are added up: parameters "
        "with Adam's moments, state, buffers, and the vectors that a step keeps for its backward "
        "pass (as many per row for every system of one network). T-GCN's intervals are larger than "
        "t-batches, so that its steps keep more; what it can leave in host memory is the state."
    )
    claims = (
        "tgcn-tab3-dygnn-memory",
        "tgcn-tab3-jodie-memory",
        "tgcn-tab3-tgcn-memory",
        "tgcn-tab3-ordering",
        "tgcn-s66-max-space-saving",
    )
    axes: ClassVar = {"dataset": SHOWN, "system": SYSTEMS}
    timeout_s: ClassVar = {"full": 900, "paper": 7200, None: 60}

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), str(cell.params["system"]), context)

    def figures(self) -> list[FigureSpec]:
        return [
            sweep("table3", "Device memory while training", points, xlabel="", ylabel="MB",
                y_from_zero=True),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = by_graph(rows)
        if not found:
            return ""
        ratios = [ratio for of in found.values() for ratio in savings(of).values()]
        return f"The baselines need {min(ratios):.2f} to {max(ratios):.2f} times T-GCN's memory."


def measure(name: str, system: str, context: RunContext) -> Measurement:
    """Train a few steps and say what the device held at most."""
    from dgbench.systems.base.interactions import load_interactions

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
    found.observe("edges", data.train_end)
    found.observe("vertices", data.events.num_nodes)
    counted = round(report.get("device_bytes", report.get("planned_bytes", 0.0)))
    found.observe("memory", counted, method="counted")
    held = torch.cuda.max_memory_allocated() if cuda else counted
    found.observe("memory", held, method="held")
    if cuda:
        found.observe("memory", free - torch.cuda.mem_get_info()[0], method="driver")
    observe_report(found, report, MEMORY)
    if kind == TGCN:
        for region, nbytes in trainer.region_bytes.items():
            found.observe("memory", nbytes, of=region)
    checks = checks_of({system: runner})
    checks.append(check_bytes(trainer))
    started = start_checks(task, data, context.device, [kind])
    trainer.close()
    found.checks, found.deviation = [*started, *checks], loss_gap(started)
    return found


def by_graph(rows: Rows) -> dict[str, dict[str, Any]]:
    """Rows by dataset and system, of datasets that all three of the paper's systems ran on; rows
    from before the published form stand for it, see `FORMER`."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows_of(rows, experiment=NAME):
        found.setdefault(row.params["dataset"], {})[row.params["system"]] = row
    for of in found.values():
        if STREAMED not in of and FORMER[STREAMED] in of:
            of[STREAMED] = of[FORMER[STREAMED]]
    return {name: of for name, of in found.items() if {DYGNN, JODIE, TGCN} <= of.keys()}


def savings(of: dict[str, Any]) -> dict[str, float]:
    """Memory of each baseline over T-GCN's, on one graph."""
    return {name: memory(of[name]) / memory(of[TGCN]) for name in (DYGNN, JODIE)}


def memory(row: Any) -> int:
    """Bytes that the device held at most."""
    return number(row, "memory", method="held")


def points(rows: Rows) -> list[dict[str, Any]]:
    """MB by system, with those that are printed."""
    found: list[dict[str, Any]] = []
    for row in rows_of(rows, experiment=NAME):
        system, name = row.params["system"], row.params["dataset"]
        found.append(
            mark(
                row,
                panel=panel(row),
                series="measured" if row.device == "cuda" else "counted",
                x=TITLES.get(system) or SETTING_TITLES[system],
                y=memory(row) / MB,
                counted=row.device != "cuda",
            )
        )
        printed = {} if system in SETTING_TITLES else table3(system)
        if name in printed:
            found.append(
                {
                    "panel": panel(row),
                    "series": "Table 3",
                    "x": TITLES[system],
                    "y": printed[name],
                    "paper": True,
                }
            )
    return found + [
        gap(
            row,
            panel=graph_title(row.params["dataset"]),
            series="measured",
            x=TITLES.get(row.params["system"]) or SETTING_TITLES[row.params["system"]],
        )
        for row in failures(rows, NAME)
    ]

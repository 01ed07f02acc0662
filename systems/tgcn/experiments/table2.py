"""Table 2: copies and computation of DyGNN and T-GCN, and what overlaps (sections 4.3 and 6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failed, failures
from dgbench.lab.compare import observe_control
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.races import (
    ADDED_STREAMED,
    DYGNN,
    FORMER,
    FORMER_WORDS,
    PROCESSES,
    RELAXED,
    SETTING_TITLES,
    STREAMED,
    TGCN,
    TITLES,
    Runner,
    compare_first,
    opened,
    task_of,
)
from dgbench.systems.tgcn.settings import SMALL_NAMES, panel

NAME: Final = "table2"
SERIAL: Final = "tgcn, one region"
STREAMED_SERIAL: Final = f"{STREAMED}, one region"
SHOWN: Final = {
    "smoke": ("wikipedia",),
    "quick": SMALL_NAMES,
    "full": (*SMALL_NAMES, "twitter", "wikipedia"),
    "paper": (*SMALL_NAMES, "twitter", "wikipedia"),
}
EPOCHS: Final = {"smoke": 1, "quick": 1, "full": 3, "paper": 3}
STEPS: Final = {"smoke": 1, "quick": 2, "full": 20, "paper": 100}
"""Optimiser steps of DyGNN that are timed; its times are scaled to an epoch."""
WORK: Final = ("refresh", "score", "backward", "interact", "update", "swap")
"""Phases that are computation on the device."""
TIMELINE: Final = "timeline"

Rows = Sequence[Any]


class Table2(Grid):
    paper = "tgcn"
    name = NAME
    title = "Table 2: copies and computation"
    question = "How much of the time is copies, how much computation, and do they overlap?"
    reading = (
        "Seconds of an epoch with clocks on. T-GCN's copies are the seconds that the link to the "
        "device is busy, on a CPU those of the thread that stands in for it; DyGNN lays out and "
        "brings the edges of each step before it computes. T-GCN's total is an epoch with sampling "
        "and cutting. State that stays on the device leaves hardly anything to copy, so T-GCN is "
        "also run with state in host memory, with three regions and with one. Whether T-GCN "
        "shortens both parts is judged against DyGNN in the same relaxed order, as in Figure 6."
    )
    claims = (
        "tgcn-tab2-dygnn-io",
        "tgcn-tab2-dygnn-compute",
        "tgcn-tab2-dygnn-total",
        "tgcn-tab2-tgcn-io",
        "tgcn-tab2-tgcn-compute",
        "tgcn-tab2-tgcn-total",
        "tgcn-tab2-compute-share",
        "tgcn-tab2-overlap",
        "tgcn-tab2-both-parts-reduced",
        "tgcn-s43-pingpong-no-conflict",
    )
    control: ClassVar = {"dataset": SMALL_NAMES[0]}
    axes: ClassVar = {"dataset": SHOWN}
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        points = self.points(preset, device)
        # The first one runs with phases too, for the figure over time.
        return [
            self.cell(one, preset, phases=k == 0, interleaved=True) for k, one in enumerate(points)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), context, control=self.controls(cell))

    def figures(self) -> list[FigureSpec]:
        return [
            chart("time_split", "table2", "Copies and computation of an epoch", points,
                phases_from="phases and totals from runs with clocks on"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME)
        if not found:
            return ""
        row = found[-1]
        hidden = {key: hidden_share(row, key) for key in (TGCN, STREAMED)}
        return (
            f"On {panel(row)} T-GCN computes {share(row, TGCN):.0%} of an epoch; of its copies "
            f"{hidden[TGCN]:.0%} are hidden, of those of streamed state {hidden[STREAMED]:.0%}."
        )


def measure(name: str, context: RunContext, *, control: bool) -> Measurement:
    """Both systems with clocks on, and T-GCN with its regions in other ways."""
    from dgbench.systems.base.interactions import load_interactions

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
    found.observe("edges", data.train_end)
    found.observe("vertices", data.events.num_nodes)
    with opened({k: {**v, "timing": True} for k, v in names.items()}, task, data,
                context.device) as runners:  # fmt: skip
        for key, runner in runners.items():
            turns = STEPS[context.preset] if key == DYGNN else EPOCHS[context.preset]
            parts = timed(runner, key, turns, data, context)
            total = parts.pop("total")
            found.observe("epoch_time", total, setting=key)
            for phase, seconds in parts.items():
                found.observe("part_time", seconds, phase=phase, setting=key)
            sent = runner.trainer.meter.counters["bytes_h2d"] // turns
            found.observe("host_to_device", sent, setting=key)
            if control and key == TGCN:  # the second side of an A/A pair
                again = timed(runner, key, turns, data, context)["total"]
                observe_control(found, [total], [again], setting=key)
        if context.device == "cuda":
            observe_timeline(found, runners[STREAMED])
        compare_first(found, context, task, data, runners)
    return found


def timed(runner: Runner, key: str, turns: int, data: Any, context: RunContext) -> dict[str, float]:
    """Seconds of copies, waits, computation and all, scaled to an epoch."""
    import time

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
        "partition": phases.get("partition", 0.0),
        "swap": phases.get("swap", 0.0),
    }
    if key in (DYGNN, RELAXED):
        return found | {"io": phases.get("io", 0.0), "wait": phases.get("io", 0.0)}
    spent = {name: factor * seconds for name, seconds in meter.spent.items()}
    return found | {"io": spent.get("copy_busy", 0.0), "wait": spent.get("copy_wait", 0.0)}


def observe_timeline(found: Measurement, runner: Runner) -> None:
    """Observe seconds of copies beside training in an epoch on a GPU, by events of the device."""
    from dgbench.systems.tgcn.regions import overlapped

    regions = runner.trainer.regions[0]
    regions.timeline.start()
    runner.turn()
    spans = regions.timeline.stop()
    for phase in ("copy", "train"):
        busy = sum(end - begin for what, begin, end in spans if what == phase)
        found.observe("part_time", busy, of=TIMELINE, phase=phase)
    found.observe("part_time", overlapped(spans, "copy", "train"), of=TIMELINE, phase="both")
    found.observe("parts", len(spans), of="spans")


def parts_of(row: Any, key: str) -> dict[str, float]:
    """Seconds of an epoch of a contender by part, with the total; empty where it did not run. A row
    from before the published form has those of `FORMER` in its place."""
    table = Table.of([row])
    found = table.where(("part_time", "epoch_time"), setting=key)
    if not found and key in FORMER:
        found = table.where(("part_time", "epoch_time"), setting=FORMER[key])
    return {one["phase"] or "total": one.value for one in found}


def former_words(rows: Rows, key: str) -> str:
    """Words for rows that have a setting in its form from before T-GCN's published one."""
    if key not in FORMER or all(Table.of([row]).where("epoch_time", setting=key) for row in rows):
        return ""
    return f"; {FORMER_WORDS}"


def share(row: Any, key: str) -> float:
    """Computation as a share of the total."""
    parts = parts_of(row, key)
    return parts["compute"] / parts["total"]


def hidden_share(row: Any, key: str) -> float:
    """Share of the copies that nobody waits for."""
    parts = parts_of(row, key)
    return max(0.0, 1 - parts["wait"] / parts["io"]) if parts["io"] else 0.0


def points(rows: Rows) -> list[dict[str, Any]]:
    """Seconds of an epoch by part, a panel for each graph."""
    found = []
    for row in last_rows(rows, NAME):
        for key in (TGCN, STREAMED, ADDED_STREAMED, DYGNN):
            parts = parts_of(row, key)
            if not parts:
                continue
            for part, phase in (("wait", "transfer"), ("compute", "compute"), ("sample", "sample")):
                found.append(
                    {
                        "panel": panel(row),
                        "row": TITLES.get(key) or SETTING_TITLES[key],
                        "system": DYGNN if key == DYGNN else TGCN,
                        "phase": phase,
                        "seconds": parts[part],
                        "total": parts["total"],
                        "row_ids": [row.id],
                    }
                )
    return found + [
        {"panel": panel(row), "row": "all", "system": TGCN, "failed": failed(row),
         "row_ids": [row.id]}
        for row in failures(rows, NAME)
    ]  # fmt: skip

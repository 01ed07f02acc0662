"""Section 6.5: sampling, partition and schedule, disabled and then enabled one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap, mark
from dgbench.lab.compare import (
    AGAIN,
    ROUND_INTERVAL,
    Ratio,
    observe_ratio,
    take_control,
    with_control,
)
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.statistics import median
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.tgcn.common import cells_of, last_rows, mean_ratio
from dgbench.systems.tgcn.races import (
    ALL_OFF,
    PROCESSES,
    TGCN,
    audits_of,
    compare_first,
    observe_report,
    opened,
    take_turns,
    task_of,
)
from dgbench.systems.tgcn.settings import panel

NAME: Final = "ablation"
STEPS: Final = (ALL_OFF, "sampling", "sis", "partition", "schedule", "overlap")
"""Each adds its switch to those before it."""
OURS: Final = "touched"
"""Switch that dgbench adds to the last step."""
SHOWN: Final = {
    "smoke": ("wikipedia",),
    "quick": ("wikipedia",),
    "full": ("lastfm", "reddit", "flickr", "wikipedia"),
    "paper": ("lastfm", "reddit", "flickr", "wikipedia"),
}
TURNS: Final = {"smoke": 1, "quick": 2, "full": 4, "paper": 6}
EVENTS: Final = {"smoke": 1500, "quick": 5000, "full": 100_000, "paper": 400_000}
"""First events that are kept; a scan for every draw takes long on more."""
DEVICES: Final = 4
COUNTS: Final = {
    "bytes_h2d": "host_to_device",
    "bytes_d2h": "device_to_host",
    "bytes_swapped": "swapped",
}
"""Counters of a trainer's meter that are observed -> their metrics."""
BEFORE: Final = "step before"
"""Baseline of the gain of a step over the one before it."""

Rows = Sequence[Any]


class Ablation(Grid):
    paper = "tgcn"
    name = NAME
    title = "Section 6.5: one technique after the other"
    question = "What do sampling, partition and schedule bring, one after the other?"
    reading = (
        f"{DEVICES} virtual devices take turns on one processor or GPU, each with memory of its "
        "own: what a technique saves in work, bytes and memory shows, what it would save by "
        "letting devices work at the same time does not. Without sampling all edges are trained "
        "on; without Segment Its Search a scan finds each draw; without the partition edges lie in "
        "stream order and vectors in host memory; without the schedule every device gathers all "
        "destinations at once; without overlap every copy is waited for. What dgbench adds, to "
        "move only rows that edges name, comes last. A turn samples, cuts and "
        "trains an epoch. The paper announces this ablation and prints no number of it."
    )
    claims = ("tgcn-s65-ablation-order",)
    control: ClassVar = {"dataset": "wikipedia"}
    axes: ClassVar = {"dataset": SHOWN}
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = {"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [self.cell(one, preset, interleaved=True) for one in self.points(preset, device)]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        return measure(str(cell.params["dataset"]), context, control=self.controls(cell))

    def figures(self) -> list[FigureSpec]:
        return [
            chart("speedup", "tgcn_ablation", "One technique after the other, over none", points,
                baseline_label="all off", xlabel="speed-up over all off", interval=ROUND_INTERVAL),
            chart("frontier", "tgcn_memory",
                "What device memory buys, one technique after the other", memory_points,
                ylabel="edges/s", xlabel="memory of the devices"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = rows_of(rows, experiment=NAME)
        if not found:
            return ""
        row = found[-1]
        mine = rows_of(found, dataset=row.params["dataset"])
        words = [f"{step} {gain(mine, step).value:.2f}x" for step in STEPS[1:]]
        return f"Over all off, adding up on {panel(row)}: {', '.join(words)}."


def gain(rows: Rows, step: str, baseline: str = STEPS[0]) -> Ratio:
    """Geometric mean over graphs of the speedups of a step of the ladder."""
    found = mean_ratio(Table.of(rows).where("speedup", setting=step, baseline=baseline), "dataset")
    assert found is not None, step
    return found


def switches(step: str) -> dict[str, bool]:
    """Techniques at a step of the ladder."""
    on = STEPS.index(step)
    return {name: k + 1 <= on for k, name in enumerate(STEPS[1:])}


def with_ours(row: Any) -> bool:
    """True if a row has the step that dgbench adds. Rows from before it had that switch on in every
    step."""
    return bool(Table.of([row]).where("edge_time", setting=OURS))


def measure(name: str, context: RunContext, *, control: bool) -> Measurement:
    """Every step of the ladder, in turns."""
    from dgbench.systems.base.interactions import load_interactions

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
            observe_report(found, runner.trainer.report(), ["device_bytes"], setting=step)
            for counter, metric in COUNTS.items():
                each = runner.trainer.meter.counters[counter] // turns
                found.observe(metric, each, setting=step)
        compare_first(found, context, task, data, runners, audits)
    for step, before in zip((*STEPS[1:], OURS), STEPS, strict=True):
        for baseline, slow in ((STEPS[0], STEPS[0]), (BEFORE, before)):
            observe_ratio(
                found, "speedup", seconds[slow], seconds[step], setting=step, baseline=baseline
            )
    for metric, count in (("turns", turns), ("edges", data.train_end), ("devices", DEVICES)):
        found.observe(metric, count)
    return found


def points(rows: Rows) -> list[dict[str, Any]]:
    """Every step over all off, a panel for each graph."""
    found = []
    for cell in cells_of(rows_of(rows, experiment=NAME)):
        row = cell[-1]
        for step in (*STEPS[1:], *([OURS] if all(map(with_ours, cell)) else [])):
            ratio = gain(cell, step)
            found.append(
                {
                    "panel": panel(row),
                    "row": f"+ {step}{' (ours)' if step == OURS else ''}",
                    "system": TGCN,
                    "baseline": STEPS[0],
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": ratio.n,
                    "twin": ratio.twin,
                    "deviation": ratio.deviation,
                    "row_ids": ratio.rows,
                }
            )
    return found + [
        gap(row, panel=panel(row), row="all", system=TGCN, baseline=STEPS[0])
        for row in failures(rows, NAME)
    ]


def memory_points(rows: Rows) -> list[dict[str, Any]]:
    """Every step's device memory and edges a second; all off is the base."""
    found = [
        mark(
            row,
            panel=panel(row),
            series=TGCN,
            setting=step if step == STEPS[0] else f"+ {step}",
            memory=number(row, "memory", setting=step),
            rate=1 / number(row, "edge_time", setting=step),
            base=step == STEPS[0],
        )
        for row in last_rows(rows, NAME)
        for step in STEPS
    ]
    return found + [
        gap(row, panel=panel(row), series=TGCN, setting="all") for row in failures(rows, NAME)
    ]

"""The tuner against every fixed choice, on every workload of Figure 10 (section 4.4; ours)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

from dgbench.lab.charts import chart, interval, titled, why_not
from dgbench.lab.compare import Ratio, observe_ratio, ratio_of
from dgbench.lab.evidence import ids
from dgbench.lab.grid import Grid
from dgbench.lab.table import Table
from dgbench.lab.verbs import observed
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.system import Trainer
from dgbench.systems.pipad.experiments.fig10 import Fig10
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, workload
from dgbench.systems.pipad.ladders import PUBLISHED, stage

SIZES = (1, 2, 4, 8)
TUNED = "tuned"
PAPERS = stage(PUBLISHED)
"""The tuner chooses for steps of PiPAD as published, whose activations autograd keeps."""
FORMER_WORDS = "PiPAD with our products and recurrence, as measured before its published form"
SMOKE = (("hepth", "tgcn_model"), ("hepth", "evolvegcn"))
TURNS = (4, 10)
"""Turns that are kept at least, and those that slow steps may take more time for."""
BUDGETS = 3.0
"""Budgets of a process that one process may take, since five contenders share it."""
WITHIN = 1.05
"""Largest factor by which the tuner may be slower than the best fixed choice."""
TUNING = observed("tuning")


def choices(rows: Sequence[Any]) -> dict[tuple[str, str], Ratio]:
    """The tuner's step time over the best fixed one, by dataset and model."""
    found = TUNING(rows).where("slowdown").by("dataset", "model")
    return {key: ratio_of(one) for key, one in found.items()}


def former(row: Any) -> bool:
    """Return True if a row is from before the published form."""
    return row.params.get("system") != PUBLISHED


def over_best(row: Any) -> dict[int, float]:
    """Step time with each fixed S_per over that of the best one."""
    table = Table.of([row])
    steps = table.where("step_time").numbers("snapshots_together")
    best = steps[table.where("partition_size", setting="best").one().value]
    return {size: steps[size] / best for size in SIZES}


def choice_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Step time of each contender over that of the best fixed one, per workload.

    The tuned contender is PiPAD as published.
    """
    mine = [r for r in rows if r.experiment == "tuning" and "control" not in r.params]
    ratios, tables = choices(rows), TUNING(rows).by("dataset", "model")
    points: list[dict[str, Any]] = []
    for dataset, model in dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine):
        table = tables.get((dataset, model), Table())
        found = table.rows
        point = {"panel": MODEL_TITLES[model], "x": titled(BY_NAME[dataset].title, found)}
        if not found:
            reason = why_not(mine, dataset=dataset, model=model)
            points.append({**point, "series": "pipad", "failed": reason})
            continue
        point |= {"row_ids": ids(found)}
        shares = [over_best(row) for row in found]
        for size in SIZES:
            value = median(share[size] for share in shares)
            points.append({**point, "series": f"S_per {size}", "y": value})
        sizes = {one.value for one in table.where("partition_size", setting=None)}
        chosen = sorted(f"{size:g}" for size in sizes)
        marks = interval(ratios[dataset, model]) | {"s_per": ", ".join(chosen)}
        points.append({"series": "pipad", **marks, **point})
    return points


class Tuning(Grid):
    paper = "pipad"
    name = "tuning"
    title = "Section 4.4: the tuner against fixed partitions"
    claims = (
        "pipad-s43-sper-options",
        "pipad-s52-sper-large",
    )
    question = "Is the tuner's choice of S_per as good as the best fixed one?"
    reading = (
        "Training steps of PiPAD as published with S_per fixed to 1, 2, 4 and 8 and with the "
        "tuner, in turns inside one process and on the same frames. The best fixed choice is "
        "picked by every second turn and compared on the others, so that the pick gains nothing "
        "from noise. "
        "Memory is what autograd keeps of a frame, one snapshot at a time."
    )
    group = "{model}"
    fixed = {"system": PUBLISHED}
    repeats = {"full": 5, "paper": 5, None: 1}
    timeout_s = {"full": 900, "paper": 900, None: 90}
    charts = (
        chart(
            "sweep",
            "tuning",
            "Step time over the best fixed S_per; PiPAD tunes it",
            choice_points,
            xlabel="step time over the best fixed choice",
            ylabel="step time over the best fixed choice",
            hline=WITHIN,
            hline_label="5 % behind",
        ),
    )

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        if preset == "smoke":
            return [{"dataset": dataset, "model": model} for dataset, model in SMOKE]
        return list(Fig10().points(preset, device))

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.pipad.system import PipadSystem

        graph = BY_NAME[str(cell.params["dataset"])]
        task = workload(graph, str(cell.params["model"]), context.preset)
        if reasons := PipadSystem().unsupported(task, context.device):
            raise UnsupportedError(f"PiPAD: {'; '.join(reasons)}")
        opened: dict[str, Trainer] = {}
        try:
            for size in SIZES:
                system = PipadSystem(s_per=size)
                opened[str(size)] = system.open(
                    task, device=context.device, switches={"tuner": False, **PAPERS}
                )
            opened[TUNED] = PipadSystem().open(task, device=context.device, switches=PAPERS)
            for trainer in opened.values():
                trainer.prepare()
            kept = frame_bytes(opened["1"])
            found, losses = _turns(opened, context.budget_s * BUDGETS)
            tuned = opened[TUNED]
            oracle = oracle_of(task, context)
            checks = oracle.settings(opened, first=context.round == 1)
            report, notes = tuned.report(), list(getattr(tuned, "notes", []))
            data = describe(tuned.data)  # type: ignore[attr-defined]
            nodes = int(tuned.data.num_nodes)  # type: ignore[attr-defined]
            decisions = list(tuned.controller.decisions)  # type: ignore[attr-defined]
        finally:
            for trainer in opened.values():
                trainer.close()
        base = losses["1"] or 1.0
        measured = Measurement(
            checks=checks,
            deviation={"loss": max(abs(loss - base) / abs(base) for loss in losses.values())},
            data=data,
            notes=notes,
        )
        measured.observe("step_time", median(found[TUNED]), samples=found[TUNED])
        for size in SIZES:
            seconds = median(found[str(size)])
            measured.observe("step_time", seconds, snapshots_together=size)
        compare_with_best(measured, found)
        for metric, value in report.items():
            measured.observe(metric, value)
        measured.observe("memory", kept, of="frame")
        measured.observe("vertices", nodes)
        measured.observe("turns", len(found[TUNED]))
        measured.observe("frames", len(decisions), of="decided")
        weighed = Counter(option.s_per for one in decisions for option in one.options)
        for of, counts in (("option", weighed), ("chosen", Counter(d.s_per for d in decisions))):
            for size, count in counts.items():
                measured.observe("frames", count, of=of, snapshots_together=size)
        return measured

    def answer(self, rows: Sequence[Any]) -> str:
        found = choices(rows)
        if not found:
            return ""
        worst = max(found, key=lambda key: found[key].value)
        inside = sum(ratio.value <= WITHIN for ratio in found.values())
        return (
            f"The tuner's choice is within 5 % of the best fixed one on {inside} of {len(found)} "
            f"workloads; at worst {100 * (found[worst].value - 1):.2g} % behind "
            f"({BY_NAME[worst[0]].title}, {MODEL_TITLES[worst[1]]})."
        )


def _turns(
    trainers: Mapping[str, Trainer], budget_s: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each step by contender, in turns; and the loss of the last step of each."""
    found: dict[str, list[float]] = {name: [] for name in trainers}
    losses: dict[str, float] = {}
    frames = next(iter(trainers.values())).num_frames
    names = list(trainers)
    begin, turn = time.perf_counter(), -2  # two turns warm up
    least, most = TURNS
    while True:
        spent = time.perf_counter() - begin
        if turn >= least and (spent > 3 * budget_s or (turn >= most and spent > budget_s)):
            return found, losses
        for name in names if turn % 2 == 0 else reversed(names):
            start = time.perf_counter()
            losses[name] = trainers[name].step((turn + 2) % frames)
            if turn >= 0:
                found[name].append(time.perf_counter() - start)
        turn += 1


def compare_with_best(measured: Measurement, found: Mapping[str, Sequence[float]]) -> None:
    """Observe the best fixed S_per and the tuner's time over its time.

    Picked on every second turn and compared on the rest.
    """
    best = min(SIZES, key=lambda size: median(found[str(size)][::2]))
    observe_ratio(measured, "slowdown", found[TUNED][1::2], found[str(best)][1::2])
    measured.observe("partition_size", best, setting="best")


def frame_bytes(trainer: Trainer) -> int:
    """Bytes that autograd keeps of the forward pass of a frame, parameters left out."""
    own = {p.data_ptr() for p in trainer.trained().values()}  # type: ignore[attr-defined]
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.gradients(0)
    return sum(kept.values())

"""The tuner against every fixed choice, on every workload of Figure 10 (section 4.4; ours)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import torch

from dgbench.lab.compare import Ratio, select
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.statistics import paired_ratio, pooled_ratio
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import oracle_of
from dgbench.systems.base.system import Trainer
from dgbench.systems.pipad.experiments.fig10 import Fig10
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    MODEL_TITLES,
    Graph,
    workload,
)

SIZES = (1, 2, 4, 8)
TUNED = "tuned"
SMOKE = (("hepth", "tgcn_model"), ("hepth", "evolvegcn"))
ROUNDS = {"smoke": 1, "quick": 1, "full": 5, "paper": 5}
TURNS = (4, 10)
"""Turns that are kept at least, and those that slow steps may take more time for."""
BUDGETS = 3.0
"""Budgets of a process that one process may take, since five contenders share it."""
WITHIN = 1.05
"""How far the tuner may be behind the best fixed choice."""


class Tuning(Experiment):
    paper = "pipad"
    name = "tuning"
    title = "Section 4.4: the tuner against fixed partitions"
    claims = (
        "pipad-s43-sper-options",
        "pipad-s52-sper-large",
    )
    question = "Is the tuner's choice of S_per as good as the best fixed one?"
    reading = (
        "Training steps of PiPAD with S_per fixed to 1, 2, 4 and 8 and with the tuner, in turns "
        "inside one process and on the same frames. The best fixed choice is picked by every "
        "second turn and compared on the others, so that the pick gains nothing from noise. "
        "Memory is what autograd keeps of a frame, one snapshot at a time."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={"dataset": name, "model": model, "system": "pipad"},
                group=model,
                repeats=ROUNDS[preset],
                timeout_s=900 if preset in ("full", "paper") else 90,
            )
            for name, model in _workloads(preset, device)
        ]

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
                    task, device=context.device, switches={"tuner": False}
                )
            opened[TUNED] = PipadSystem().open(task, device=context.device)
            for trainer in opened.values():
                trainer.prepare()
            kept = frame_bytes(opened["1"])
            found, losses = _turns(opened, context.budget_s * BUDGETS)
            tuned = opened[TUNED]
            oracle = oracle_of(task, context)
            checks = [
                check
                for name, trainer in opened.items()
                for check in oracle.ask(name, trainer, "after the timed steps")
            ]
            report, notes = tuned.report(), list(getattr(tuned, "notes", []))
            data = describe(tuned.data)  # type: ignore[attr-defined]
            nodes = int(tuned.data.num_nodes)  # type: ignore[attr-defined]
            weighed = _weighed(tuned)
        finally:
            for trainer in opened.values():
                trainer.close()
        best, ratio = against_best(found)
        values = {f"step_{name}_s": median(seconds) for name, seconds in found.items()}
        values |= {"tuned_over_best": ratio.value, "best_s_per": float(best)}
        if ratio.low is not None and ratio.high is not None:
            values |= {"ratio_low": ratio.low, "ratio_high": ratio.high}
        values |= {name: float(value) for name, value in report.items()}
        base = losses["1"] or 1.0
        return Measurement(
            values=values,
            units=dict.fromkeys((f"step_{name}_s" for name in found), "s"),
            counters={
                "frame_bytes": kept,
                "vertices": nodes,
                "turns": len(found[TUNED]),
                **weighed,
            },
            samples=found[TUNED],
            checks=checks,
            deviation={"loss": max(abs(loss - base) / abs(base) for loss in losses.values())},
            data=data,
            notes=notes,
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="sweep",
                name="tuning",
                title="Step time over the best fixed S_per; PiPAD tunes it",
                points=choice_points,
                options={
                    "xlabel": "step time over the best fixed choice",
                    "ylabel": "step time over the best fixed choice",
                    "hline": WITHIN,
                    "hline_label": "5 % behind",
                },
            )
        ]

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


def _workloads(preset: Preset, device: str) -> list[tuple[str, str]]:
    if preset == "smoke":
        return list(SMOKE)
    return [(one["dataset"], one["model"]) for one in Fig10().points(preset, device)]


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


def _weighed(trainer: Any) -> dict[str, int]:
    """How many frames the tuner decided, and by S_per in how many it looked at it and took it."""
    decisions = trainer.controller.decisions
    found = {"decided_frames": len(decisions)}
    for decision in decisions:
        for option in decision.options:
            key = f"option_{option.s_per}"
            found[key] = found.get(key, 0) + 1
        key = f"chosen_{decision.s_per}"
        found[key] = found.get(key, 0) + 1
    return found


def against_best(found: Mapping[str, Sequence[float]]) -> tuple[int, Any]:
    """The best fixed S_per, and the tuner's time over its time.

    Picked on every second turn and compared on the rest. Turns are paired, and order statistics
    bound the median ratio, since single turns have outliers.
    """
    pick = {size: median(found[str(size)][::2]) for size in SIZES}
    best = min(pick, key=lambda size: pick[size])
    return best, paired_ratio(found[TUNED][1::2], found[str(best)][1::2], method="sign")


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


def choices(rows: Sequence[Any]) -> dict[tuple[str, str], Ratio]:
    """The tuner's step time over the best fixed one, by dataset and model."""
    cells: dict[tuple[str, str], list[Any]] = {}
    for row in select(rows, experiment="tuning"):
        cells.setdefault((row.params["dataset"], row.params["model"]), []).append(row)
    found = {}
    for key, mine in cells.items():
        values = [row.values["tuned_over_best"] for row in mine]
        ratio = pooled_ratio([(values, [1.0] * len(values))])
        low, high = ratio.low, ratio.high
        if len(mine) == 1:  # one process: the interval over its turns
            low, high = (mine[0].values.get(name) for name in ("ratio_low", "ratio_high"))
        found[key] = Ratio(
            value=ratio.value,
            low=low,
            high=high,
            n=ratio.n,
            rows=[row.id for row in mine],
            deviation=max(row.deviation["loss"] for row in mine),
            twin=any(bool(row.data.get("twin")) for row in mine),
        )
    return found


def choice_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Step time of each contender over that of the best fixed one, per workload.

    The tuned contender is `pipad` as everybody runs it.
    """
    mine = [r for r in rows if r.experiment == "tuning" and "control" not in r.params]
    ratios = choices(rows)
    points: list[dict[str, Any]] = []
    for dataset, model in dict.fromkeys((r.params["dataset"], r.params["model"]) for r in mine):
        where = {"dataset": dataset, "model": model}
        found = select(mine, **where)
        point = {"panel": MODEL_TITLES[model], "x": _label(BY_NAME[dataset], found)}
        if not found:
            bad = next(r for r in mine if all(r.params[k] == v for k, v in where.items()))
            points.append({**point, "series": "pipad", "failed": f"{bad.status}: {bad.reason}"})
            continue
        point |= {"row_ids": [r.id for r in found]}
        for size in SIZES:
            value = median(r.values[f"step_{size}_s"] / _best(r) for r in found)
            points.append({**point, "series": f"S_per {size}", "y": value})
        ratio = ratios[dataset, model]
        interval = {"y": ratio.value, "low": ratio.low, "high": ratio.high}
        chosen = sorted({f"{r.values['s_per']:g}" for r in found if "s_per" in r.values})
        points.append({**point, "series": "pipad", **interval, "s_per": ", ".join(chosen)})
    return points


def _best(row: Any) -> float:
    return row.values[f"step_{row.values['best_s_per']:g}_s"]


def _label(graph: Graph, rows: Sequence[Any]) -> str:
    return graph.title + (" (twin)" if any(r.data.get("twin") for r in rows) else "")

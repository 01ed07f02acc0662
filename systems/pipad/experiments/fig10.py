"""Figure 10: end-to-end training time of five methods, three models, seven graphs (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import paired, select
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.race import checked, timed
from dgbench.systems.pipad.experiments.main_races import TRAINING
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    EPOCHS,
    MODEL_TITLES,
    MODELS,
    workload,
)

METHODS = ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
COMPILED = "compiled"
"""Not in the paper: torch.compile over the reference, with CUDA graphs on a device."""
COMPILE_S = 600
"""Seconds that a cell of COMPILED may take at least; compiling is a part of its preparation."""
ROUNDS = {"smoke": 2, "quick": 5, "full": 7, "paper": 7}
QUICK_GRAPHS = ("flickr", "hepth", "pems08", "covid19-england")
SMOKE_GRAPHS = ("hepth", "pems08", "covid19-england")


def methods(device: str) -> tuple[str, ...]:
    """Contenders on a device. On a CPU nothing is copied, so PyGT-A would be PyGT run twice."""
    return METHODS if device == "cuda" else tuple(m for m in METHODS if m != "pygt-a")


def contenders(preset: Preset, device: str) -> tuple[str, ...]:
    """The paper's methods and, where compiling fits in the time of a preset, COMPILED."""
    compiles = preset in ("full", "paper") or (preset == "quick" and device == "cuda")
    return (*methods(device), COMPILED) if compiles else methods(device)


LEFT_OUT = {"quick": {("hepth", "mpnn_lstm")}}
"""The slowest cells of a preset that has others of their kind."""


WATCHED = ("flickr", "mpnn_lstm")
"""The workload whose methods also run with instruments, for the figure over time."""


def workloads(preset: Preset) -> list[tuple[str, str]]:
    """(graph, model) of a preset."""
    pairs = [(name, model) for name in graphs(preset) for model in MODELS]
    return [pair for pair in pairs if pair not in LEFT_OUT.get(preset, ())]


def graphs(preset: Preset) -> list[str]:
    """Graphs of a preset, in the order of Table 1."""
    if preset == "smoke":
        return list(SMOKE_GRAPHS)
    return list(QUICK_GRAPHS) if preset == "quick" else [g.name for g in ALL]


class Fig10(Experiment):
    paper = "pipad"
    name = "fig10"
    title = "Figure 10: end-to-end training"
    claims = (
        "pipad-abs-speedup-range",
        "pipad-s43-preprocessing-epochs",
        "pipad-s44-reuse-removes-topology-transfer",
        "pipad-s43-epochs-similar",
        "pipad-fig10-speedup-range-pygt",
        "pipad-fig10-avg-evolvegcn",
        "pipad-fig10-avg-mpnn-lstm",
        "pipad-fig10-avg-t-gcn",
        "pipad-fig10-pipad-best",
        "pipad-fig10-pygtg-second",
        "pipad-fig10-small-gain-more",
        "pipad-s52-csc-extra-transfer",
        "pipad-s52-evolvegcn-vs-pygtg",
        "pipad-s52-model-order-vs-pygtg",
        "pipad-s52-mpnn-lowest",
        "pipad-s52-mpnn-highest",
        "pipad-s52-tgcn-all-agg-removed",
        "pipad-tab2-util-evolvegcn-pygt",
        "pipad-tab2-util-evolvegcn-pygt-a",
        "pipad-tab2-util-evolvegcn-pygt-r",
        "pipad-tab2-util-evolvegcn-pygt-g",
        "pipad-tab2-util-evolvegcn-pipad",
        "pipad-tab2-util-mpnn-lstm-pygt",
        "pipad-tab2-util-mpnn-lstm-pygt-a",
        "pipad-tab2-util-mpnn-lstm-pygt-r",
        "pipad-tab2-util-mpnn-lstm-pygt-g",
        "pipad-tab2-util-mpnn-lstm-pipad",
        "pipad-tab2-util-t-gcn-pygt",
        "pipad-tab2-util-t-gcn-pygt-a",
        "pipad-tab2-util-t-gcn-pygt-r",
        "pipad-tab2-util-t-gcn-pygt-g",
        "pipad-tab2-util-t-gcn-pipad",
        "pipad-tab2-order-pipad-over-pygtg",
        "pipad-tab2-order-ra-highest",
        "pipad-tab2-small-low",
        "pipad-s51-protocol",
    )
    question = "How much faster does PiPAD train than the PyG-Temporal family?"
    main_race = TRAINING
    reading = (
        "The paper gives no task, loss or optimiser: here node regression with mean squared error "
        "and Adam. End-to-end time is preparation plus 200 epochs of the median step, measured "
        "apart, not 200 epochs run through. The preset `quick` leaves out MPNN-LSTM on HepTh, its "
        "slowest cell. PiPAD runs with the recurrence of a frame fused into one operator, which "
        "stands for the paper's CUDA graphs; the ablation shows the system without it. On a "
        "CPU nothing is copied, so PyGT-A is PyGT and is left out. "
        "The deviations of MPNN-LSTM are those of torch's float32 batch norm in the released "
        "cell, whose gradients lose digits where columns are nearly constant; PiPAD's own stand in "
        "its rows. torch.compile over the reference is no method of the paper: it keeps normalised "
        "edge lists on the device, and its end-to-end time contains compiling. It runs in the "
        "presets full and paper, and on a CUDA device in quick."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = []
        pairs = workloads(preset)
        watched = WATCHED if WATCHED in pairs else pairs[0]
        for dataset, model in pairs:
            group = f"{dataset}/{model}"
            params = {"dataset": dataset, "model": model}
            found += [
                Cell(
                    paper=self.paper,
                    experiment=self.name,
                    params={**params, "system": system, "check": True},
                    group=f"{group}/check",
                    timeout_s=COMPILE_S if system == COMPILED else 120,
                )
                for system in contenders(preset, device)
            ]
            found += [
                Cell(
                    paper=self.paper,
                    experiment=self.name,
                    params={**params, "system": system},
                    group=group,
                    repeats=ROUNDS[preset],
                    timeout_s=(
                        COMPILE_S if preset in ("full", "paper") or system == COMPILED else 60
                    ),
                    phases=(dataset, model) == watched,
                )
                for system in contenders(preset, device)
            ]
        return found

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params = cell.params
        graph = BY_NAME[str(params["dataset"])]
        task = workload(graph, str(params["model"]), context.preset)
        system = str(params["system"])
        if params.get("check"):
            return checked(system, task, context)
        return timed(system, task, context, epochs=EPOCHS)

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="speedup",
                name="fig10",
                title="End-to-end speed-up over PyGT",
                points=speedups,
                options={
                    "baseline_label": "PyGT (PyG-Temporal)",
                    "xlabel": "speed-up over PyGT, end to end",
                },
            ),
            FigureSpec(
                kind="failed_cells", name="fig10_cells", title="Seconds of a step", points=steps
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        found = [p for p in speedups(rows) if p["system"] == "pipad" and not p.get("failed")]
        planned = len(
            {(r.params["dataset"], r.params["model"]) for r in rows if "model" in r.params}
        )
        if not found:
            return ""
        faster = [p for p in found if (p["low"] or p["value"]) > 1]
        slower = [p for p in found if (p["high"] or p["value"]) < 1]
        low, high = (pick(found, key=lambda p: p["value"]) for pick in (min, max))
        return (
            f"PiPAD trains faster than PyGT on {len(faster)} of {planned} workloads and slower on "
            f"{len(slower)}; from {low['value']:.2g}x ({low['row']}, {low['panel']}) to "
            f"{high['value']:.3g}x ({high['row']}, {high['panel']}), preparation included."
        )


def deviation(rows: Sequence[Any], **params: Any) -> float | None:
    """Largest judged deviation from the reference that the check cell of these params found."""
    worst = [
        max(row.deviation[name] for name in ("output", "gradient", "loss"))
        for row in select(rows, check=True, **params)
        if row.deviation
    ]
    return max(worst, default=None)


def failed(rows: Sequence[Any], **params: Any) -> str:
    """Status and reason of the first failed row of these params, or ""."""
    for row in rows:
        if row.status != "ok" and all(row.params.get(k) == v for k, v in params.items()):
            return f"{row.status}: {row.reason}"
    return ""


def speedups(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of the speed-up figure: every method but PyGT, per model and graph."""
    rows = [r for r in rows if r.experiment == "fig10"]
    points = []
    seen = {(r.params["dataset"], r.params["model"]) for r in rows}
    for graph in BY_NAME.among([name for name, _ in seen]):
        for model in MODELS:
            if (graph.name, model) not in seen:
                continue
            where = {"dataset": graph.name, "model": model}
            for system in _raced(rows):
                points.append(_point(rows, graph.title, system, where))
    return points


def _raced(rows: Sequence[Any]) -> list[str]:
    """Methods but PyGT that this run planned, in the paper's order; COMPILED is the last."""
    found = {r.params["system"] for r in rows}
    return [m for m in (*METHODS[1:], COMPILED) if m in found]


def _point(rows: Sequence[Any], title: str, system: str, where: dict[str, str]) -> dict[str, Any]:
    point: dict[str, Any] = {
        "panel": MODEL_TITLES[where["model"]],
        "row": title,
        "system": system,
        "baseline": "pygt",
        "failed": "",
    }
    for who in (system, "pygt"):
        reason = failed(rows, system=who, **where)
        if reason:
            return {**point, "failed": reason, "failed_system": who}
    ratio = ratio_of(rows, "pygt", system, where)
    if ratio is None:
        return {**point, "failed": "skipped: not run"}
    return {
        **point,
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "twin": ratio.twin,
        "row_ids": ratio.rows,
        "deviation": deviation(rows, system=system, **where),
    }


def ratio_of(rows: Sequence[Any], slow: str, fast: str, where: dict[str, str]) -> Any:
    """End-to-end time of `slow` over that of `fast` on one workload, or None."""
    timed_rows = [r for r in rows if r.experiment == "fig10" and not r.params.get("check")]
    return paired(
        timed_rows, {"system": slow, **where}, {"system": fast, **where}, value="end_to_end_s"
    )


def steps(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of the matrix of steady step times, failed cells included."""
    from statistics import median

    rows = [r for r in rows if r.experiment == "fig10" and not r.params.get("check")]
    points = []
    keys = dict.fromkeys((r.params["model"], r.params["dataset"], r.params["system"]) for r in rows)
    for model, dataset, system in keys:
        mine = [r for r in select(rows, model=model, dataset=dataset, system=system) if r.time]
        reason = failed(rows, model=model, dataset=dataset, system=system)
        point = {"model": MODEL_TITLES[model], "dataset": BY_NAME[dataset].title, "system": system}
        if mine:
            point["seconds"] = median(r.time for r in mine)
            point["twin"] = any(r.data.get("twin") for r in mine)
            point["row_ids"] = [r.id for r in mine]
        else:
            point["failed"] = reason or "skipped: not run"
        points.append(point)
    return points

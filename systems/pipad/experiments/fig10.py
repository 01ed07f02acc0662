"""Figure 10: end-to-end training time of five methods, three models, seven graphs (section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dgbench.lab.charts import chart, failed, first_failed, interval, step_times, sweep, titled
from dgbench.lab.charts import speedups as speedups_of
from dgbench.lab.contests import Race
from dgbench.lab.grid import TrainingRace
from dgbench.runtime.statistics import side
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.race import timed
from dgbench.systems.pipad.experiments.main_races import TRAINING
from dgbench.systems.pipad.experiments.settings import (
    ALL,
    BY_NAME,
    EPOCHS,
    MODEL_TITLES,
    MODELS,
    workload,
)
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, STAGES, stage

METHODS = ("pygt", "pygt-a", "pygt-r", "pygt-g", "pipad")
COMPILED = "compiled"
"""Not in the paper: torch.compile over the reference, with CUDA graphs on a device."""
COMPILE_S = 600
"""Seconds that a cell of COMPILED may take at least; compiling is a part of its preparation."""
QUICK_GRAPHS = ("flickr", "pems08", "covid19-england")
QUICK_WHOLE = "covid19-england"
"""Graph that quick has on a CPU with all models."""
SMOKE_GRAPHS = ("hepth", "pems08", "covid19-england")
NEVER_MOVED = ("aggregations", "topology_sent")
"""Counts that claims expect to be 0."""
FACTORS = {
    "re-implementation": ("pygt", BARE),
    "the paper's techniques": (BARE, PUBLISHED),
    "ours (not the paper's)": (PUBLISHED, "pipad"),
}
"""Factors whose product is PiPAD's speed-up over the released baseline: (slower, faster)."""

RACE = Race(
    "fig10",
    by=("dataset", "model"),
    metric="end_to_end_time",
    judged=PUBLISHED,
    none="no end-to-end race of this run covers it",
    facts=lambda dataset, model: {"small": BY_NAME[dataset].small},
    label=lambda dataset, model: f"{BY_NAME[dataset].title}, {model}",
)


def order(dataset: str, model: str) -> tuple[int, int]:
    """Place of a workload: graphs as in Table 1, those of users behind them."""
    names = [*BY_NAME]
    return names.index(dataset) if dataset in BY_NAME else len(names), MODELS.index(model)


speedups = speedups_of(
    RACE,
    "pygt",
    (*METHODS[1:-1], PUBLISHED, METHODS[-1], COMPILED),
    lambda dataset, model: {"panel": MODEL_TITLES[model], "row": BY_NAME[dataset].title},
    order,
)


def factor_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Each factor of every workload, and their product, which is PyGT's time over PiPAD's."""
    contests = {**FACTORS, "product": ("pygt", "pipad")}
    each = {name: RACE(*sides).each(rows) for name, sides in contests.items()}
    points = []
    for where in sorted(RACE.workloads(rows), key=lambda where: order(**where)):
        key = tuple(where.values())
        here = [r for r in RACE.timed(rows) if where.items() <= r.params.items()]
        title = titled(BY_NAME[where["dataset"]].title, here)
        point = {"panel": MODEL_TITLES[where["model"]], "x": title}
        for name, sides in contests.items():
            if ratio := each[name].get(key):
                points.append({**point, "series": name, **interval(ratio)})
                continue
            bad = first_failed(here, system=sides)
            reason = failed(bad) if bad else "skipped: not run"
            points.append({**point, "series": name, "failed": reason})
    return points


steps = step_times(
    RACE,
    lambda dataset, model, system: {
        "model": MODEL_TITLES[model],
        "dataset": BY_NAME[dataset].title,
    },
)


class Fig10(TrainingRace):
    paper = "pipad"
    name = "fig10"
    title = "Figure 10: end-to-end training"
    claims = (
        "pipad-abs-speedup-range",
        "pipad-s43-preprocessing-epochs",
        "pipad-s44-reuse-removes-topology-transfer",
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
        "apart, not 200 epochs run through. PiPAD runs with the recurrence of a frame fused into "
        "one operator, which is ours. Its factor over PyGT is a product of three, raced in the "
        "same rounds: the same model on our engine with every technique off, with the paper's "
        "techniques, and with ours too. Claims about PiPAD are judged by the paper's techniques "
        "over our engine without them (with reuse alone where the paper's baseline is PyGT-G), "
        "since the paper compares techniques and not implementations. On a "
        "CPU nothing is copied, so PyGT-A is PyGT and is left out. "
        "The deviations of MPNN-LSTM are those of torch's float32 batch norm in the released "
        "cell, whose gradients lose digits where columns are nearly constant; PiPAD's own stand in "
        "its rows. torch.compile over the reference is no method of the paper: it keeps normalised "
        "edge lists on the device, and its end-to-end time contains compiling. It runs in the "
        "presets full and paper, and on a CUDA device in quick."
    )
    axes = {
        "dataset": {"smoke": SMOKE_GRAPHS, "quick": QUICK_GRAPHS, None: [g.name for g in ALL]},
        "model": MODELS,
    }
    repeats = {"smoke": 1, "quick": 5, None: 7}
    timeout_s = {"full": COMPILE_S, "paper": COMPILE_S, None: 60}
    watched = {"dataset": "flickr", "model": "mpnn_lstm"}
    charts = (
        chart(
            "speedup",
            "fig10",
            "End-to-end speed-up over PyGT",
            speedups,
            baseline_label="PyGT (PyG-Temporal)",
            xlabel="speed-up over PyGT, end to end",
        ),
        sweep(
            "fig10_factors",
            "PiPAD's speed-up over PyGT as a product of three factors",
            factor_points,
            xlabel="factor, end to end",
            ylabel="factor, end to end",
            hline=1.0,
            hline_label="no gain",
        ),
        chart(
            "failed_cells",
            "fig10_cells",
            "Seconds of a step",
            steps,
        ),
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        """All of the race; smoke, and quick on a CPU, have all models for one graph and one for the
        others."""
        every = super().cells(preset, device)
        if preset != "smoke" and (preset, device) != ("quick", "cpu"):
            return every
        few = [
            cell
            for cell in every
            if cell.params["dataset"] == QUICK_WHOLE
            or cell.params["model"] == self.watched["model"]
        ]
        shown = ("pygt", "pipad")
        return [
            msgspec.structs.replace(cell, phases=cell.phases and cell.params["system"] in shown)
            for cell in few
        ]

    def contenders(self, preset: Preset, device: str) -> tuple[str, ...]:
        """On a CPU nothing is copied, so PyGT-A would be PyGT run twice. COMPILED needs time."""
        methods = METHODS if device == "cuda" else tuple(m for m in METHODS if m != "pygt-a")
        compiles = preset in ("full", "paper") or (preset == "quick" and device == "cuda")
        raced = (*methods[:-1], *STAGES, methods[-1])
        return (*raced, COMPILED) if compiles else raced

    def limit_s(self, system: str, preset: Preset) -> float:
        return COMPILE_S if system == COMPILED else super().limit_s(system, preset)

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        graph, system = BY_NAME[str(cell.params["dataset"])], str(cell.params["system"])
        task = workload(graph, str(cell.params["model"]), context.preset)
        switches = stage(system) if system in STAGES else None
        name = "pipad" if system in STAGES else system
        measured = timed(name, task, context, epochs=EPOCHS, switches=switches)
        if name == "pipad":  # a counter of its meter that never moved is 0, and says so
            counted = {one.metric for one in measured.observations}
            for metric in NEVER_MOVED:
                if metric not in counted:
                    measured.observe(metric, 0)
        return measured

    def answer(self, rows: Sequence[Any]) -> str:
        found = [p for p in speedups(rows) if p["system"] == PUBLISHED and not p.get("failed")]
        if not found:
            return ""
        sides = [side(p["low"], p["high"]) for p in found]
        faster, slower = sides.count(1), sides.count(-1)
        low, high = (pick(found, key=lambda p: p["value"]) for pick in (min, max))
        said = (
            f"PiPAD trains faster than PyGT on {faster} of {len(found)} workloads "
            f"and slower on {slower}; from {low['value']:.2g}x ({low['row']}, {low['panel']}) to "
            f"{high['value']:.3g}x ({high['row']}, {high['panel']}), preparation included."
        )
        pooled = {name: RACE(*sides).pooled(rows) for name, sides in FACTORS.items()}
        if any(one is None for one in pooled.values()):
            return said
        *published, ours = [f"{one.value:.2g}x {name}" for name, one in pooled.items() if one]
        return f"{said} On average the product of {', '.join(published)}; beyond it, {ours}."

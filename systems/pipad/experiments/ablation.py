"""Ablation of the techniques: added one by one, alone, and left out of everything (ours).

The settings of a cell take turns inside one process, step by step on the same frames, so that what
disturbs the machine disturbs all of them; ratios are formed turn by turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import sqrt
from statistics import median
from typing import Any

from dgbench.lab.charts import chart, failed, titled
from dgbench.lab.compare import Ratio, observe_speedup, ratio_of
from dgbench.lab.evidence import ids, uses_twin
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.grid import by_preset
from dgbench.lab.main_race import MainRace, RaceComparison, observed_ratio
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.pipad.experiments.fig10 import QUALITY, TRAINING
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    FORMS,
    MODEL_TITLES,
    MODELS,
    race_settings,
    task_of,
)
from dgbench.systems.pipad.ladders import (
    AGAIN,
    DEPENDENT,
    KINDS,
    LADDERS,
    OFF,
    ON,
    PAPER_ORDER,
    REASONS,
    ratios_of,
    settings,
)

LINKS = {"plain": "", "arena": ", arena (CPU proxy)", "device": "", "paper": ", the paper's kernel"}

BUDGETS = {"smoke": 1.0, "quick": 3.0, None: 2.0}
"""Budgets of a process that one process may take: all its settings share it."""
SMOKE = (("hepth", "tgcn_model", "plain", "ladder"), ("hepth", "tgcn_model", "arena", "removed"))
QUICK = (
    ("flickr", "evolvegcn", "arena", "ladder"),
    ("covid19-england", "evolvegcn", "plain", "removed"),
    ("pems08", "mpnn_lstm", "plain", "removed"),
)
GRAPHS = {
    "full": ("flickr", "hepth", "pems08", "covid19-england"),
    "paper": ("epinions", "hepth", "pems08", "covid19-england"),
}

RECURRENCE = MainRace(
    verb="takes a step",
    where={"kind": "removed", "link": ("plain", "device")},
    titles=TRAINING.titles,
    comparisons=(
        RaceComparison(
            subject="PiPAD + dgbench without compiled steps",
            rival="the same without its fused recurrence, which is our addition",
            ratio=observed_ratio(setting="fused_gates"),
            quality=QUALITY,
            fairer=True,
        ),
        RaceComparison(
            subject="PiPAD + dgbench",
            rival="the same without its compiled steps, which are our addition",
            ratio=observed_ratio(setting="compiled_step"),
            quality=QUALITY,
            fairer=True,
        ),
    ),
)
"""Parts of the main race's factors that are ours and not the paper's."""

Key = tuple[str, str, str]
"""Dataset, model and link."""
KEY = ("dataset", "model", "link")


def gain(table: Table, setting: str) -> Ratio | None:
    """Gain of a setting, pooled over the processes of a cell; None where it was not measured."""
    return ratio_of(table.where("speedup", setting=setting))


def _panel(key: Key, rows: Sequence[Any]) -> str:
    dataset, model, link = key
    return f"{MODEL_TITLES[model]}, {titled(BY_NAME[dataset].title, rows)}{LINKS[link]}"


def _planned(rows: Sequence[Any], kind: str) -> dict[Key, Any]:
    """The first row of each cell of a kind, whatever became of it."""
    found: dict[Key, Any] = {}
    for row in rows:
        if row.experiment == "ablation" and row.params["kind"] == kind:
            found.setdefault(tuple(row.params[name] for name in KEY), row)
    return found


def step_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Seconds after each step, its gain in order, alone, and when left out of everything."""
    ran, alone, without = (
        Table.of(rows, experiment="ablation", kind=kind).by(*KEY) for kind in KINDS
    )
    points = []
    for key, first in _planned(rows, "ladder").items():
        table = ran.get(key)
        if table is None:
            points.append({"panel": _panel(key, []), "step": 0, "technique": "",
                           "failed": failed(first)})  # fmt: skip
            continue
        base = {"panel": _panel(key, table.rows), "exact": True,
                "twin": uses_twin(table.rows), "row_ids": ids(table.rows)}  # fmt: skip
        order = PAPER_ORDER if key[2] == "plain" else LADDERS[key[2]]
        for step, name in enumerate(order, 1):
            point = {**base, "step": step, "technique": name}
            if name not in LADDERS[key[2]]:
                points.append({**point, "failed": f"not-supported: {REASONS[name]}"})
                continue
            added = gain(table, name)
            if added is None:
                continue
            point["seconds"] = median(table.where("step_time", setting=name).values)
            point |= {"gain": added.value, "gain_low": added.low, "gain_high": added.high,
                      "same": added.low is not None and added.side == 0}  # fmt: skip
            itself = gain(alone.get(key, Table()), name)
            if itself is not None and name not in DEPENDENT:
                point |= {"alone": itself.value, "alone_low": itself.low, "alone_high": itself.high}
                point["row_ids"] = [*point["row_ids"], *itself.rows]
            if (gone := gain(without.get(key, Table()), name)) is not None:
                point["removed"] = gone.value
                point["row_ids"] = [*point["row_ids"], *gone.rows]
            points.append(point)
    return points


WITHOUT = observed("speedup", per=(*KEY, "setting"), kind="removed").where(
    setting=lambda name: name != AGAIN
)
"""Step time without a technique over that of everything on."""


class Ablation(FormExperiment):
    forms, name = FORMS, "ablation"
    main_race = RECURRENCE
    group = "{dataset}/{model}"
    repeats = {"full": 5, "paper": 5, None: 1}
    timeout_s = {"full": 900, "paper": 900, None: 120}
    charts = (
        chart(
            "ablation", "ablation", "Time of a training step, techniques added one by one",
            step_points, system="pipad",
        ),
    )  # fmt: skip
    headline, unit = WITHOUT, "x"
    figure_forms = (
        Sweep(
            "ablation_removed", "Step time without one technique over the time of everything on",
            {"all on, again": WITHOUT.where(setting=(AGAIN,)), "without": WITHOUT},
            panel="{model}, {dataset}{link}", series="of", x="{setting}",
            gaps={"series": "without", "x": AGAIN},
            xlabel="time without it over time of all on",
            ylabel="time without it over time of all on", hline=1.0, hline_label="all on",
        ),
    )  # fmt: skip

    def points(self, preset: Preset, device: str) -> list[dict[str, Any]]:
        points = {"smoke": SMOKE, "quick": QUICK}.get(preset) or product(
            GRAPHS[preset], MODELS, ("plain", "arena"), KINDS
        )
        # On a device copies are real: what an arena stands for is the paper's own ladder.
        names = {"plain": "device", "arena": "paper"} if device == "cuda" else {}
        return [
            {"dataset": dataset, "model": model, "system": "pipad",
             "link": names.get(link, link), "kind": kind}
            for dataset, model, link, kind in points
        ]  # fmt: skip

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params: Mapping[str, Any] = cell.params
        kind, link = params["kind"], params["link"]
        contenders = settings(link, kind)
        main = ON if ON in contenders else OFF
        measured, seconds = race_settings(
            contenders, task_of(params, context.preset), context,
            main=main, budgets=by_preset(BUDGETS, context.preset),
        )  # fmt: skip
        measured.observe("turns", len(seconds[main]))
        for name, (slow, fast) in ratios_of(kind, list(contenders), link).items():
            base = seconds[fast]
            if fast == ON and name != AGAIN:  # both of the equal settings stand for it
                base = [sqrt(a * b) for a, b in zip(seconds[ON], seconds[AGAIN], strict=True)]
            observe_speedup(measured, seconds[slow], base, setting=name)
        return measured

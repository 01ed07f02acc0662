"""Ablation of the techniques: added one by one, alone, and left out of everything (ours).

The settings of a cell take turns inside one process, step by step on the same frames, so that what
disturbs the machine disturbs all of them; ratios are formed turn by turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import sqrt
from statistics import median
from typing import Any

from dgbench.lab.charts import chart, failed, titled
from dgbench.lab.compare import Ratio, observe_speedup, ratio_of
from dgbench.lab.evidence import ids, uses_twin
from dgbench.lab.figure_forms import Sweep
from dgbench.lab.quantities import observed
from dgbench.lab.study import FormExperiment
from dgbench.lab.table import Table
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import open_trainer, oracle_of
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.turns import turns_of
from dgbench.systems.pipad.experiments.main_races import RECURRENCE
from dgbench.systems.pipad.experiments.settings import (
    BY_NAME,
    FORMS,
    MODEL_TITLES,
    MODELS,
    workload,
)
from dgbench.systems.pipad.ladders import (
    AGAIN,
    DEPENDENT,
    FORMER,
    KINDS,
    LADDERS,
    OFF,
    ON,
    PAPER_ORDER,
    REASONS,
    left_out,
    ratios_of,
    settings,
)

LINKS = {
    "plain": "",
    "arena": ", arena (CPU proxy)",
    "device": "",
    "paper": ", the paper's kernel",
}

TURNS = {"smoke": 3, "quick": 6, "full": 10, "paper": 10}
"""Turns at least; six are the fewest whose extremes bound a median with 95 %."""
BUDGETS = {"smoke": 1.0, "quick": 3.0, "full": 2.0, "paper": 2.0}
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

Key = tuple[str, str, str]
"""Dataset, model and link."""
KEY = ("dataset", "model", "link")


def speedups(rows: Sequence[Any], kind: str) -> dict[Key, Table]:
    """Observations of a kind of cells by dataset, model and link."""
    return Table.of(rows, experiment="ablation", kind=kind).by(*KEY)


def gain(table: Table, setting: str) -> Ratio:
    """Gain of a setting, pooled over the processes of a cell."""
    found = ratio_of(table.where("speedup", setting=names_of(setting)))
    assert found is not None
    return found


def measured(table: Table, names: Iterable[str]) -> list[str]:
    """Those settings that a cell has; one that was run before a technique came has not all."""
    return [name for name in names if table.where("speedup", setting=names_of(name))]


def names_of(setting: str) -> tuple[str, ...]:
    """Name of a setting in rows, and the one that older rows have for it."""
    return (setting, FORMER[setting]) if setting in FORMER else (setting,)


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
    ran, alone, without = (speedups(rows, kind) for kind in KINDS)
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
        for step, name in enumerate((OFF, *order)):
            point = {**base, "step": step, "technique": name if step else ""}
            if name not in (OFF, *LADDERS[key[2]]):
                points.append({**point, "failed": f"not-supported: {REASONS[name]}"})
                continue
            if not measured(table, [name]):
                continue
            point["seconds"] = median(table.where("step_time", setting=names_of(name)).values)
            if step:
                added = gain(table, name)
                point |= {"gain": added.value, "gain_low": added.low, "gain_high": added.high}
                point["same"] = added.low is not None and added.side == 0
                if key in alone and name not in DEPENDENT:
                    itself = gain(alone[key], name)
                    point |= {"alone": itself.value, "alone_low": itself.low,
                              "alone_high": itself.high}  # fmt: skip
                    point["row_ids"] = [*point["row_ids"], *itself.rows]
                if key in without and name in measured(without[key], left_out(key[2])):
                    gone = gain(without[key], name)
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
            "ablation",
            "ablation",
            "Time of a training step, techniques added one by one",
            step_points,
            system="pipad",
        ),
    )
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
        found: Sequence[tuple[str, str, str, str]] = {"smoke": SMOKE, "quick": QUICK}.get(
            preset
        ) or list(product(GRAPHS[preset], MODELS, ("plain", "arena"), KINDS))
        # On a device copies are real: what an arena stands for is the paper's own ladder.
        names = {"plain": "device", "arena": "paper"} if device == "cuda" else {}
        return [
            {
                "dataset": dataset,
                "model": model,
                "system": "pipad",
                "link": names.get(link, link),
                "kind": kind,
            }
            for dataset, model, link, kind in found
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params = cell.params
        graph = BY_NAME[str(params["dataset"])]
        task = workload(graph, str(params["model"]), context.preset)
        chosen = settings(str(params["link"]), str(params["kind"]))
        oracle = oracle_of(task, context)
        opened: dict[str, Trainer] = {}
        try:
            for name, switches in chosen.items():
                own = RunContext(context.device, context.preset, context.threads)
                own.meter = Meter(device=context.device)
                trainer = open_trainer(get_system("pipad"), task, own, switches)
                opened[name] = trainer
                trainer.prepare()
            budget_s = context.budget_s * BUDGETS[context.preset]
            turns = turns_of(opened, TURNS[context.preset], budget_s)
            found, sent = turns.seconds, turns.sent
            first = context.round == 1
            checks = turns.audited(oracle, first=first)
            checks += oracle.settings(opened, first=first, starts=turns.starts)
            notes = list(getattr(opened[ON], "notes", [])) if ON in opened else []
        finally:
            for trainer in opened.values():
                trainer.close()
        main = ON if ON in found else OFF
        measured = Measurement(
            deviation={"output": max(check.gap for check in checks if check.of == "outputs")},
            checks=checks,
            data=describe(oracle.trainer.data),
            notes=notes,
        )
        measured.observe("step_time", median(found[main]), samples=found[main])
        measured.observe("turns", len(found[main]))
        for name, seconds in found.items():
            measured.observe("step_time", median(seconds), setting=name)
            measured.observe("host_to_device", sent[name], setting=name)
        for name, (slow, fast) in ratios_of(
            str(params["kind"]), list(chosen), str(params["link"])
        ).items():
            base: Sequence[float] = found[fast]
            if fast == ON and name != AGAIN:  # both of the equal settings stand for it
                base = [sqrt(a * b) for a, b in zip(found[ON], found[AGAIN], strict=True)]
            observe_speedup(measured, found[slow], base, setting=name)
        return measured

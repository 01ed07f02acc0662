"""What each technique brings: added one by one, alone, and left out of everything (ours).

The settings of a cell take turns inside one process, step by step on the same frames, so that what
disturbs the machine disturbs all of them; ratios are formed turn by turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt
from statistics import median
from typing import Any

from dgbench.lab.compare import Ratio, gain_of, gains, select
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Cell, Experiment, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.data import describe
from dgbench.systems.base.race import open_trainer, oracle_of
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.turns import take_turns
from dgbench.systems.pipad.experiments.main_races import RECURRENCE
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, workload

LADDERS = {
    "plain": ("reuse", "parallel_aggregation", "dimension_aware", "weight_reuse", "fused_gates",
              "tuner"),
    "arena": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
              "parallel_aggregation", "dimension_aware", "weight_reuse", "fused_gates", "tuner"),
    "device": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
               "parallel_aggregation", "dimension_aware", "weight_reuse", "fused_gates",
               "cuda_graphs", "tuner"),
    "paper": ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
              "parallel_aggregation", "slice_coalescing", "vector_loads", "weight_reuse",
              "cuda_graphs", "tuner"),
}  # fmt: skip
"""Techniques by where they run, in the order they are added. `plain`: a CPU that copies nothing;
`arena`: a CPU that copies into memory of its own; `device`: CUDA; `paper`: CUDA with the paper's
own kernel and without our fused recurrences."""

LINKS = {
    "plain": "",
    "arena": ", arena (CPU analogue)",
    "device": "",
    "paper": ", the paper's kernel",
}

REASONS = {
    "pipeline": "nothing is copied on a CPU",
    "device_buffer": "a CPU has no device memory",
    "overlap": "nothing is copied on a CPU",
    "sliced_csr": "nothing is copied on a CPU",
    "slice_coalescing": "a kernel for warps",
    "vector_loads": "a kernel for warps",
    "cuda_graphs": "CUDA only",
}
"""Why a technique of the paper has no step on a plain CPU."""

PAPER_ORDER = ("pipeline", "reuse", "device_buffer", "overlap", "sliced_csr",
               "parallel_aggregation", "dimension_aware", "slice_coalescing", "vector_loads",
               "weight_reuse", "fused_gates", "cuda_graphs", "tuner")  # fmt: skip

DEPENDENT = {"dimension_aware", "tuner", "device_buffer", "vector_loads"}
"""Techniques that change how another one works, and so nothing alone."""

KINDS = ("ladder", "alone", "removed")
OFF, ON, AGAIN = "all off", "all on", "all on, again"
TURNS = {"smoke": 3, "quick": 6, "full": 10, "paper": 10}
"""Turns at least; six are the fewest whose extremes bound a median with 95 %."""
BUDGETS = {"smoke": 1.0, "quick": 3.0, "full": 2.0, "paper": 2.0}
"""Budgets of a process that one process may take: all its settings share it."""
ROUNDS = {"smoke": 1, "quick": 1, "full": 5, "paper": 5}
SMOKE = (("hepth", "tgcn_model", "plain", "ladder"), ("hepth", "tgcn_model", "arena", "removed"))
QUICK = (
    *(("hepth", "tgcn_model", "plain", kind) for kind in KINDS),
    ("flickr", "evolvegcn", "arena", "ladder"),
    ("covid19-england", "evolvegcn", "arena", "removed"),
    ("hepth", "evolvegcn", "plain", "removed"),
    ("flickr", "evolvegcn", "plain", "removed"),
    ("covid19-england", "evolvegcn", "plain", "removed"),
    ("covid19-england", "tgcn_model", "plain", "removed"),
    ("pems08", "mpnn_lstm", "plain", "removed"),
)
GRAPHS = {
    "full": ("flickr", "hepth", "pems08", "covid19-england"),
    "paper": ("epinions", "hepth", "pems08", "covid19-england"),
}


class Ablation(Experiment):
    paper = "pipad"
    name = "ablation"
    title = "Ablation: what each technique brings"
    question = "Which technique earns the speed-up, and does any of them cost time?"
    main_race = RECURRENCE
    reading = (
        "The paper separates only asynchronous copies, reuse and the CSR variant. Techniques are "
        "added one after another, switched on alone, and left out of everything. A CPU copies "
        "nothing, so techniques of the link have no step there; with the switch `arena` a CPU "
        "copies what a device would be sent into memory of its own, an analogue. Everything on "
        "runs twice beside itself, which says how far equal things come out apart. "
        "Each setting is exact and compared with the reference before it is timed."
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=self.name,
                params={
                    "dataset": dataset,
                    "model": model,
                    "system": "pipad",
                    "link": link,
                    "kind": kind,
                },
                group=f"{dataset}/{model}",
                repeats=ROUNDS[preset],
                timeout_s=900 if preset in ("full", "paper") else 120,
            )
            for dataset, model, link, kind in _points(preset, device)
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params = cell.params
        graph = BY_NAME[str(params["dataset"])]
        task = workload(graph, str(params["model"]), context.preset)
        chosen = settings(str(params["link"]), str(params["kind"]))
        oracle = oracle_of(task, context)
        opened: dict[str, Trainer] = {}
        gaps, checks = {}, []
        try:
            for name, switches in chosen.items():
                own = RunContext(context.device, context.preset, context.threads)
                own.meter = Meter(device=context.device)
                trainer = open_trainer(get_system("pipad"), task, own, switches)
                opened[name] = trainer
                trainer.prepare()
                checks += oracle.ask(name, trainer)
                gaps[name] = checks[-2].gap
            budget_s = context.budget_s * BUDGETS[context.preset]
            found, sent = take_turns(opened, TURNS[context.preset], budget_s)
            if context.round == 1:
                for name, trainer in opened.items():
                    checks += oracle.ask(name, trainer, "after the timed steps")
            notes = list(getattr(opened[ON], "notes", [])) if ON in opened else []
        finally:
            for trainer in opened.values():
                trainer.close()
        values = {f"step {name}": median(seconds) for name, seconds in found.items()}
        for name, (slow, fast) in ratios_of(str(params["kind"]), list(chosen)).items():
            base: Sequence[float] = found[fast]
            if fast == ON and name != AGAIN:  # both of the equal settings stand for it
                base = [sqrt(a * b) for a, b in zip(found[ON], found[AGAIN], strict=True)]
            values |= gains(name, found[slow], base)
        main = ON if ON in found else OFF
        return Measurement(
            values=values,
            units={f"step {name}": "s" for name in found},
            counters={
                "turns": len(found[main]),
                **{f"bytes {name}": count for name, count in sent.items()},
            },
            samples=found[main],
            deviation={"output": max(gaps.values())},
            checks=checks,
            data=describe(oracle.trainer.data),
            notes=notes,
        )

    def figures(self) -> list[FigureSpec]:
        return [
            FigureSpec(
                kind="ablation",
                name="ablation",
                title="Time of a training step, techniques added one by one",
                points=step_points,
                options={"system": "pipad"},
            ),
            FigureSpec(
                kind="sweep",
                name="ablation_removed",
                title="Step time without one technique over the time of everything on",
                points=removed_points,
                options={
                    "xlabel": "time without it over time of all on",
                    "ylabel": "time without it over time of all on",
                    "hline": 1.0,
                    "hline_label": "all on",
                },
            ),
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        parts = []
        points = [p for p in step_points(rows) if p.get("gain")]
        if points:
            best = max(points, key=lambda p: p["gain"])
            parts.append(
                f"the largest single step is {best['technique']}: {best['gain']:.2g}x "
                f"({best['panel']})"
            )
        found = removed(rows)
        if found:
            floor = noise(rows)
            slower = costs(rows)
            shown = "; ".join(
                f"{technique} ({_where(key)}: {100 * (1 / ratio.value - 1):.2g} %)"
                for (*key, technique), ratio in slower.items()
            )
            parts.append(
                f"everything on is slower than without one technique in {len(slower)} of "
                f"{len(found)} cases" + (f": {shown}" if shown else "")
                + (f"; equal settings came out up to {100 * floor:.2g} % apart" if floor else "")
            )  # fmt: skip
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}." if text else ""


def _points(preset: Preset, device: str) -> list[tuple[str, str, str, str]]:
    """(dataset, model, link, kind) of a preset's cells."""
    found: Sequence[tuple[str, str, str, str]]
    if preset == "smoke":
        found = SMOKE
    elif preset == "quick":
        found = QUICK
    else:
        found = [
            (dataset, model, link, kind)
            for dataset in GRAPHS[preset]
            for model in MODELS
            for link in ("plain", "arena")
            for kind in KINDS
        ]
    if device == "cpu":
        return list(found)
    # On a device the copies are real: what an arena stands for is the paper's own ladder.
    names = {"plain": "device", "arena": "paper"}
    return [(dataset, model, names[link], kind) for dataset, model, link, kind in found]


def settings(link: str, kind: str) -> dict[str, dict[str, bool]]:
    """Switches of every setting of a cell, by name, in the order in which they take turns.

    ladder: `all off`, then with each technique added, by its name. alone: `all off` and each
    technique by itself. removed: `all on`, the same again, and `all on` without each.
    """
    order = LADDERS[link]
    off = dict.fromkeys(PAPER_ORDER, False)
    if link == "arena":
        off["arena"] = True
    if kind == "ladder":
        steps = [off | dict.fromkeys(order[: i + 1], True) for i in range(len(order))]
        return {OFF: off, **dict(zip(order, steps, strict=True))}
    if kind == "alone":
        return {OFF: off, **{t: off | {t: True} for t in order if t not in DEPENDENT}}
    on = everything(link)
    return {ON: on, AGAIN: dict(on), **{t: on | {t: False} for t in left_out(link)}}


def everything(link: str) -> dict[str, bool]:
    """All techniques on as the system has them, with what the link asks for."""
    on = get_system("pipad").switches(None)
    if link == "arena":
        on["arena"] = True
    if link == "paper":
        on |= {"slice_coalescing": True, "fused_gates": False}
    return on


def left_out(link: str) -> list[str]:
    """Techniques that `removed` leaves out one at a time: those that are on and do something.

    On a plain CPU those of the link change counters only; they must cost nothing.
    """
    on = everything(link)
    nothing = {"cuda_graphs", "vector_loads"} if link in ("plain", "arena") else set()
    if link == "device":
        nothing = {"vector_loads"}  # works on the paper's kernel only
    return [t for t in PAPER_ORDER if on[t] and t not in nothing]


def ratios_of(kind: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Technique -> (numerator, denominator) of the times whose ratio is its gain."""
    if kind == "ladder":
        return {after: (before, after) for before, after in pairwise(names)}
    if kind == "alone":
        return {name: (OFF, name) for name in names if name != OFF}
    return {name: (name, ON) for name in names if name != ON}


Key = tuple[str, str, str]
"""Dataset, model and link."""


def _rows(rows: Sequence[Any], kind: str) -> dict[Key, list[Any]]:
    """Rows of a kind that ran, by dataset, model and link."""
    found: dict[Key, list[Any]] = {}
    for row in select(rows, experiment="ablation", kind=kind):
        key = row.params["dataset"], row.params["model"], row.params["link"]
        found.setdefault(key, []).append(row)
    return found


def removed(rows: Sequence[Any]) -> dict[tuple[str, str, str, str], Ratio]:
    """Step time without a technique over everything on, by dataset, model, link, technique."""
    return {
        (*key, name): gain_of(mine, name)
        for key, mine in _rows(rows, "removed").items()
        for name in left_out(key[2])
    }


def noise(rows: Sequence[Any]) -> float | None:
    """How far apart everything on and itself came out at most, as a fraction; None without."""
    found = [gain_of(mine, AGAIN).value for mine in _rows(rows, "removed").values()]
    return max((max(v, 1 / v) - 1 for v in found), default=None)


def costs(rows: Sequence[Any]) -> dict[tuple[str, str, str, str], Ratio]:
    """Techniques without which a step is faster: outside its interval and the noise."""
    floor = noise(rows) or 0.0
    return {
        key: ratio
        for key, ratio in removed(rows).items()
        if ratio.side < 0 and ratio.value * (1 + floor) < 1
    }


def _where(key: Sequence[str]) -> str:
    dataset, model, link = key
    return f"{MODEL_TITLES[model]}, {BY_NAME[dataset].title}{LINKS[link]}"


def _panel(key: Key, twin: bool) -> str:
    dataset, model, link = key
    title = BY_NAME[dataset].title + (" (twin)" if twin else "")
    return f"{MODEL_TITLES[model]}, {title}{LINKS[link]}"


def step_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Seconds after each step, its gain in order, alone, and when left out of everything."""
    mine = [r for r in rows if r.experiment == "ablation" and r.params["kind"] == "ladder"]
    ran, alone, without = (_rows(rows, kind) for kind in KINDS)
    points = []
    for key in dict.fromkeys((r.params["dataset"], r.params["model"], r.params["link"])
                             for r in mine):  # fmt: skip
        found = ran.get(key)
        if found is None:
            bad = next(r for r in mine if (r.params["dataset"], r.params["model"],
                                           r.params["link"]) == key)  # fmt: skip
            points.append({"panel": _panel(key, False), "step": 0, "technique": "",
                           "failed": f"{bad.status}: {bad.reason}"})  # fmt: skip
            continue
        twin = any(bool(row.data.get("twin")) for row in found)
        base = {"panel": _panel(key, twin), "exact": True, "twin": twin,
                "row_ids": [row.id for row in found]}  # fmt: skip
        order = PAPER_ORDER if key[2] == "plain" else LADDERS[key[2]]
        for step, name in enumerate((OFF, *order)):
            point = {**base, "step": step, "technique": name if step else ""}
            if name not in (OFF, *LADDERS[key[2]]):
                points.append({**point, "failed": f"not-supported: {REASONS[name]}"})
                continue
            point["seconds"] = median(row.values[f"step {name}"] for row in found)
            if step:
                gain = gain_of(found, name)
                point |= {"gain": gain.value, "gain_low": gain.low, "gain_high": gain.high}
                point["same"] = gain.low is not None and gain.side == 0
                if key in alone and name not in DEPENDENT:
                    by_itself = gain_of(alone[key], name)
                    point |= {"alone": by_itself.value, "alone_low": by_itself.low,
                              "alone_high": by_itself.high}  # fmt: skip
                    point["row_ids"] = [*point["row_ids"], *by_itself.rows]
                if key in without and name in left_out(key[2]):
                    gone = gain_of(without[key], name)
                    point["removed"] = gone.value
                    point["row_ids"] = [*point["row_ids"], *gone.rows]
            points.append(point)
    return points


def removed_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Step time without a technique over everything on; the same setting again comes first."""
    points = []
    mine = [r for r in rows if r.experiment == "ablation" and r.params["kind"] == "removed"]
    ran = _rows(rows, "removed")
    for key in dict.fromkeys((r.params["dataset"], r.params["model"], r.params["link"])
                             for r in mine):  # fmt: skip
        found = ran.get(key)
        if found is None:
            bad = next(r for r in mine if (r.params["dataset"], r.params["model"],
                                           r.params["link"]) == key)  # fmt: skip
            points.append({"panel": LINKS[key[2]].strip(", ") or "no copies",
                           "series": MODEL_TITLES[key[1]], "x": BY_NAME[key[0]].title,
                           "failed": f"{bad.status}: {bad.reason}"})  # fmt: skip
            continue
        for name in (AGAIN, *left_out(key[2])):
            ratio = gain_of(found, name)
            points.append(
                {
                    "panel": _panel(key, ratio.twin),
                    "series": "all on, again" if name == AGAIN else "without",
                    "x": name,
                    "y": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "row_ids": ratio.rows,
                }
            )
    return points

"""Figure 12: DGC, its modules one by one, and three baselines, in turns (sections 7.2 and 7.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from dgbench.lab.charts import chart, failures, gap
from dgbench.lab.compare import ROUND_INTERVAL, Ratio
from dgbench.lab.printed import ledger
from dgbench.lab.ranks import devices_lacking
from dgbench.systems.base import (
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
)
from dgbench.systems.dgc.experiments.fig4 import CLOCKS
from dgbench.systems.dgc.experiments.fig12_rows import (
    NAME,
    RACE,
    STAGES,
    compared,
    decisive,
    factors,
    mean_gain,
    projected,
    projected_gain,
    projected_ids,
)
from dgbench.systems.dgc.experiments.projection_runs import GROUPS, project_all
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title, races, real
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    CONTIGUOUS,
    DGC,
    EVERY,
    EXACT,
    FAIR,
    HELD_NAMES,
    LINK_TITLES,
    PAPER_NAMES,
    PHASES,
    PHASES_FROM,
    PLACED,
    PLAIN,
    SHOWN,
    TWINS,
    Link,
    contenders,
    jobs_of,
    race,
)
from dgbench.systems.dgc.experiments.settings import LEDGER, MODEL_TITLES, MODELS
from dgbench.systems.dgc.projection import WORKERS

BAR: Final = ledger(LEDGER)["abs-speedup-range"]["low"]
"""Least gain of DGC over a baseline that the paper prints."""

QUICK: Final = "sx-mathoverflow"
WIRED: Final = (QUICK, "email-eu-core")
"""Graphs that are raced over emulated links, too."""
PROCESSES: Final = {"smoke": 1, "quick": 5, "full": 5, "paper": 5}
"""Processes of a race; where vertices and blocks come to lie in memory is settled once in each."""
TURNS: Final = {"smoke": 1, "quick": 2, "full": 6, "paper": 20}
BUDGETS_S: Final = {"smoke": 0.05, "quick": 0.1, "full": 2.0, "paper": 60.0}
TOTALS_S: Final = {"smoke": 0.0, "quick": 0.0, "full": 40.0, "paper": 600.0}
"""Seconds of a cell that turns beyond the fewest may fill."""
TIMEOUTS_S: Final = {"smoke": 30, "quick": 240, "full": 900, "paper": 3600}
SLOW: Final = PLAIN
"""Contender that races from `full` on and on real graphs: the bare partition, whose thousands of
chunks cost a call each, takes some fifty times as long an epoch as with fusion."""
STEPS: Final = ((PLAIN, "chunks (PGC)"), (EXACT, "chunk fusion (CF)"), (DGC, "stale rows (SG)"))
"""Feature that each contender adds to the one before it."""
TOGETHER: Final = ((EXACT, "chunks (PGC) and fusion (CF)"), STEPS[-1])
"""The same where the bare partition did not race."""
MODULES: Final = {
    words: Contender("dgc", switch=switch)
    for (_, words), switch in zip((*STEPS, TOGETHER[0]), ("pgc", "", "stale", "pgc"), strict=True)
}

Rows = Sequence[Any]


class Fig12(Experiment):
    paper = "dgc"
    name = NAME
    title = "Figure 12: epoch time of six systems"
    question = "How much faster does DGC train than three baselines, and which module gains what?"
    main_race = RACE
    reading = (
        "All systems are ours, on one engine: a baseline differs by its placement, works snapshot "
        "by snapshot and pads sequences. They take turns, epoch by epoch, on one group of "
        "processes over Gloo's sockets; these share the cores of one machine, so that computing "
        "costs more and sending less than between GPUs. All but the stale rows train the very "
        "same model. Where links are emulated, a row is held back as long as a link of 1 Gb/s "
        "would take, so that sending costs as much beside computing as it does between GPUs. "
        "Preparation (partition, plans) is left out, as in the paper. Beside the "
        "paper's six, the baselines are given our chunk fusion, too: what DGC without stale rows "
        "then gains is the partition's. PSS runs with its snapshots dealt out in turn and in "
        "contiguous runs, as ESDG has them, and the faster one is the baseline. DGC is as "
        "published: labels are propagated once. DGC + dgbench, with our refinement of the "
        "partition, stands behind it. So DGC's lead is a product: fusion for the best baseline, "
        "and its chunks and stale rows. The paper's graphs are twins here, and a twin has no real "
        "communities: real graphs decide. For eight V100 epochs are projected from counted "
        "traffic and measured work, with NVLink and with PCIe, for the paper names neither; "
        "fusion is taken at its most there, all chunks of a worker as one."
    )
    claims = (
        "dgc-abs-speedup-range",
        "dgc-fig12-avg-t-gcn",
        "dgc-fig12-avg-dysat",
        "dgc-fig12-avg-mpnn-lstm",
        "dgc-fig12-dgc-best",
        "dgc-s71-protocol",
        "dgc-fig12-amazon-order",
        "dgc-fig12-epinion-order",
        "dgc-s72-tgcn-movie",
        "dgc-s72-dysat-epinion",
        "dgc-s72-mpnn-movie",
        "dgc-s72-mpnn-epinion",
        "dgc-s731-pgc-only",
        "dgc-s731-amazon-pts-close",
        "dgc-s732-cf-speedup",
        "dgc-s732-cf-stack-best",
        "dgc-s733-sg-speedup",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        found = []
        for group in groups(preset):
            params = {
                "part": "race",
                "dataset": group.dataset,
                "models": " ".join(group.models),
                "ranks": group.ranks,
                "link": group.link,
            }
            lacking = devices_lacking(group.ranks, device)
            if group.link == "wire" and device == "cuda":
                lacking = lacking or "a wire is emulated between host memories"
            name = f"{group.dataset}/{group.ranks}/{group.link}"
            # For the figure over time, the first race runs once more with instruments.
            phases = not found and preset != "quick"
            found.append(self._cell(params, name, preset, lacking, phases=phases))
        for name, datasets in GROUPS[preset].items():
            one = {"dataset": name} if name in datasets else {"graphs": name}
            params = {"part": "projected", **one, "workers": WORKERS}
            found.append(self._cell(params, f"projected/{name}", preset, device="cpu"))
        return found

    def _cell(
        self,
        params: dict[str, Any],
        group: str,
        preset: Preset,
        unavailable: str = "",
        *,
        phases: bool = False,
        device: Literal["", "cpu"] = "",
    ) -> Cell:
        return self.cell_of(
            params,
            group,
            repeats=PROCESSES[preset] if params["part"] == "race" else 1,
            interleaved=params["part"] == "race",
            timeout_s=TIMEOUTS_S[preset],
            unavailable=unavailable,
            phases=phases,
            device=device,
        )

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        params, preset = cell.params, context.preset
        if params["part"] == "projected":
            name = str(params.get("dataset", params.get("graphs")))
            return project_all(GROUPS[preset][name], preset)
        dataset, link = str(params["dataset"]), params["link"]
        models = str(params["models"]).split()
        if context.instrumented:  # no ratio uses it, so one model and the fewest turns will do
            models = models[:1]
        names = racing(dataset, "smoke" if context.instrumented else preset)
        jobs = [
            replace(job, contenders=contenders(*names, link=link))  # type: ignore[arg-type]
            for job in jobs_of((dataset,), models, preset, {})
        ]
        found = race(
            jobs,
            int(params["ranks"]),  # type: ignore[arg-type]
            context,
            least=2 if context.instrumented else TURNS[preset],
            budget_s=BUDGETS_S[preset],
            total_s=0.0 if context.instrumented else TOTALS_S[preset],
            timeout_s=TIMEOUTS_S[preset],
            control=not context.instrumented,
            clocked=CLOCKS[preset] if context.round == 1 else 0,  # a figure shows them, no claim
        )
        if context.instrumented:
            found.data["workload"] = f"{dataset}, {models[0]}, {link}"
        return found

    def figures(self) -> list[FigureSpec]:
        interval = {"interval": ROUND_INTERVAL}
        return [
            chart("speedup", "fig12",
                "DGC and its modules over the best baseline, time of an epoch", best_points,
                **interval, baseline_label="best of PyGT-PSS, -PTS and -PSS-TS",
                xlabel="speed-up over the best baseline", main=True),
            chart("speedup", "fig12_each", "DGC over each baseline",
                lambda rows: over_points(rows, DGC, {n: n for n in PLACED}), **interval,
                baseline_label="the baseline named", xlabel="speed-up of DGC"),
            chart("speedup", "fig12_fair",
                "DGC without stale rows over baselines that have chunk fusion, too",
                lambda rows: over_points(rows, EXACT, {n: n for n in FAIR}), **interval,
                baseline_label="the baseline named, with our chunk fusion",
                xlabel="speed-up of DGC w/o SG"),
            chart("speedup", "fig12_printed", "DGC + dgbench over DGC",
                lambda rows: over_points(rows, ADDED, {DGC: SHOWN[DGC]}),
                **interval, baseline_label="DGC, labels propagated once",
                xlabel="speed-up of our refinement"),
            chart("time_split", "fig12_split", "What an epoch is spent on", split_points,
                xlabel="time of one epoch, ms", phases_from=PHASES_FROM),
            chart("ablation", "fig12_modules", "From the best baseline to DGC, module by module",
                module_points, system=DGC, contenders=MODULES),
            chart("speedup", "fig12_projected", "Eight V100: DGC over the best baseline, projected",
                projected_points, baseline_label="best of PyGT-PSS, -PTS and -PSS-TS, projected",
                xlabel="speed-up over the best baseline"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = [one for one in compared(decisive(races(rows, NAME))) if DGC in one.names]
        if not found:
            return ""
        over = mean_gain(found, DGC)
        words = [
            f"On real graphs DGC is {over.value:.2f}x as fast as the best baseline (mean of "
            f"{len(found)} pairs of model and graph, {found[0].ranks} ranks over "
            f"Gloo; asked for are {BAR}x)"
        ]
        if stepwise := _with_steps(found):
            words[0] += f", {mean_gain(stepwise, EXACT).value:.2f}x without stale rows"
            alone = [one for one in stepwise if PLAIN in one.names]
            if alone:
                words[0] += (
                    f", {mean_gain(alone, PLAIN).value:.2f}x by the partition alone, whose ranks "
                    "then work chunk by chunk"
                )
        words[0] += "."
        fair = [one for one in stepwise if set(FAIR) <= set(one.names)]
        if fair:
            ratio = mean_gain(fair, EXACT, FAIR)
            told = [MODEL_TITLES[one.model] for one in fair]
            words.append(
                "Against the best baseline that has our chunk fusion, too, DGC without stale rows "
                f"comes to {ratio.value:.2f}x ({', '.join(dict.fromkeys(told))})."
            )
        parts = factors(found)
        if parts:
            said = ", ".join(f"{parts[key].value:.2f}x by {words}" for words, key in STAGES)
            words.append(
                f"The lead of {over.value:.2f}x is a product: {said}. With our refinement (DGC + "
                f"dgbench) an epoch is {parts['ours'].value:.2f}x as fast as DGC's."
            )
        wired = _with_steps(
            [one for one in compared(real(races(rows, NAME))) if one.link == "wire"]
        )
        if wired:
            ratio, other = (mean_gain(wired, name) for name in (DGC, EXACT))
            words.append(
                f"Over {LINK_TITLES['wire']} links DGC is {ratio.value:.2f}x as fast as the best "
                f"baseline, {other.value:.2f}x without stale rows."
            )
        return " ".join(words)


def _with_steps(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races in which DGC ran with and without stale rows."""
    return [one for one in found if {EXACT, DGC} <= set(one.names)]


@dataclass(frozen=True, slots=True)
class RaceGroup:
    """The races of a cell: models of one graph on one group of ranks."""

    dataset: str
    models: tuple[str, ...]
    ranks: int = 4
    link: Link = "gloo"


def racing(dataset: str, preset: Preset) -> tuple[str, ...]:
    """Contenders on a graph.

    The paper's six with both orders of PSS, and on real graphs all baselines with chunk fusion, and
    DGC with our refinement. What is left out for its time runs from `full` on, see `SLOW`.
    """
    short = dataset not in HELD_NAMES or preset == "smoke"
    names = (*PAPER_NAMES, CONTIGUOUS) if short else EVERY
    return tuple(name for name in names if name != SLOW or not (short or preset == "quick"))


def groups(preset: Preset) -> list[RaceGroup]:
    """Cells of a preset; in quick one real graph, which is trained by all models."""
    if preset == "smoke":
        return [RaceGroup("email-eu-core", ("mpnn_lstm_bare",), 2)]
    if preset == "quick":
        return [RaceGroup(QUICK, MODELS)]
    return [
        *(RaceGroup(name, MODELS) for name in (*HELD_NAMES, *TWINS)),
        *(RaceGroup(name, MODELS, link="wire") for name in WIRED),
        *(RaceGroup(name, MODELS, 8) for name in HELD_NAMES[:1]),
    ]


def _base(one: RaceRecord) -> dict[str, Any]:
    return {
        "panel": MODEL_TITLES[one.model],
        "row": _row(one.dataset, one.ranks, one.link),
        "twin": one.twin,
        "row_ids": [row.id for row in one.rows],
    }


def _row(dataset: str, ranks: int, link: str) -> str:
    wire = "" if link == "gloo" else f", {LINK_TITLES[link]}"
    return f"{dataset_title(dataset)}, {ranks} ranks{wire}"


def _point(ratio: Ratio, **fields: Any) -> dict[str, Any]:
    return {
        **fields,
        "value": ratio.value,
        "low": ratio.low,
        "high": ratio.high,
        "n": ratio.n,
        "deviation": ratio.deviation,
    }


def _failed(rows: Rows, systems: Sequence[str], **fields: Any) -> list[dict[str, Any]]:
    """Points of races that did not run, in every panel that their cell would have filled."""
    points = []
    for row in failures(rows, NAME):
        if row.params["part"] != "race":
            continue
        params = row.params
        points += [
            gap(
                row,
                panel=MODEL_TITLES[model],
                row=_row(params["dataset"], params["ranks"], params["link"]),
                system=system,
                **fields,
            )
            for model in params["models"].split()
            for system in systems
        ]
    return points


FORMS: Final = (PLAIN, EXACT, DGC, ADDED)
"""Steps of DGC, and what dgbench adds to the last."""


def best_points(rows: Rows) -> list[dict[str, Any]]:
    """The three steps of DGC over the best baseline, DGC + dgbench behind them, and their means
    over real graphs."""
    points = []
    found = compared(races(rows, NAME))
    for one in found:
        first = one.best()
        points += [
            _point(one.gain(first, name), **_base(one), system=_system(name), baseline=first)
            for name in FORMS
            if name in one.names
        ]
    for model in MODELS:
        mine = [one for one in decisive(found) if one.model == model]
        if len(mine) < 2:
            continue
        for name in FORMS:
            if any(name not in one.names for one in mine):
                continue
            ratio = mean_gain(mine, name)
            points.append(
                _point(
                    ratio,
                    panel=MODEL_TITLES[model],
                    row=f"geometric mean of {len(mine)} real, Gloo",
                    system=_system(name),
                    baseline="best baseline",
                    rest=True,
                    row_ids=ratio.rows,
                )
            )
    return points + _failed(rows, [_system(n) for n in FORMS], baseline="")


def _system(name: str) -> str:
    return "dgc" if name == DGC else SHOWN.get(name, name)


def over_points(rows: Rows, fast: str, slow: Mapping[str, str]) -> list[dict[str, Any]]:
    """One contender over several, a dot each; `slow`: name -> words."""
    return [
        _point(one.gain(name, fast), **_base(one), system=f"over {words}", baseline=words)
        for one in races(rows, NAME)
        for name, words in slow.items()
        if name in one.names and fast in one.names
    ]


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Phases of the paper's six, a row per graph, a panel per model."""
    return [
        {
            **_base(one),
            "system": _system(name),
            "phase": phase,
            "seconds": one.spent(phase, name),
            "total": one.epoch(name),
        }
        for one in races(rows, NAME)
        for name in PAPER_NAMES
        if name in one.names
        for phase in PHASES
    ]


def module_points(rows: Rows) -> list[dict[str, Any]]:
    """From the best baseline to everything on, a panel per race on real data."""
    points = []
    for one in _with_steps(compared(real(races(rows, NAME)))):
        first = one.best()
        panel = {"panel": one.title, "row_ids": [one.row.id], "exact": True}
        points.append({**panel, "step": 0, "technique": first, "seconds": one.epoch(first)})
        before = first
        steps = STEPS if PLAIN in one.names else TOGETHER
        for step, (name, words) in enumerate(steps, 1):
            ratio = one.gain(before, name)
            points.append(
                {
                    **panel,
                    "step": step,
                    "technique": words,
                    "seconds": one.epoch(name),
                    "gain": ratio.value,
                    "gain_low": ratio.low,
                    "gain_high": ratio.high,
                    "same": ratio.side == 0 and ratio.low is not None,
                    "exact": name != DGC,
                    "deviation": ratio.deviation,
                    **({"quality": _points_of(one, before, name)} if name == DGC else {}),
                }
            )
            before = name
    return points


def _points_of(one: RaceRecord, before: str, name: str) -> str:
    """Test accuracy of the last turn against the contender before, in words."""
    gained = 100 * (one.number("accuracy", name) - one.number("accuracy", before))
    return f"{gained + 0.0:+.1f} points of accuracy"


# Projections.


def projected_points(rows: Rows) -> list[dict[str, Any]]:
    """DGC's steps over the best baseline by model and graph, for both links."""
    ids = projected_ids(rows)
    points = []
    for (dataset, model, links), epochs in projected(rows).items():
        for name in (PLAIN, EXACT, DGC):
            gain = projected_gain(epochs, name)
            if gain is None:
                continue
            points.append(
                {
                    "panel": MODEL_TITLES[model],
                    "row": f"{dataset_title(dataset)}, {link_title(links)}",
                    "system": _system(name),
                    "baseline": "best baseline",
                    "value": gain,
                    "projected": True,
                    "twin": True,
                    "row_ids": [ids[dataset]] if dataset in ids else [],
                }
            )
    return points


def link_title(links: str) -> str:
    return {"nvlink": "NVLink", "pcie": "PCIe"}[links]

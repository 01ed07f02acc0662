"""Figure 8: a round of continuous training, GNNFlow against TGL (section 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dgbench.lab.charts import chart, failures, gap, mark, ratio_mark
from dgbench.lab.compare import TURN_INTERVAL, Ratio, ratio_of
from dgbench.lab.main_race import MainRace, RaceComparison
from dgbench.lab.quality import observed_quality
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import (
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Measurement,
    Preset,
    RunContext,
)
from dgbench.systems.gnnflow.experiments.quality import whole_task
from dgbench.systems.gnnflow.experiments.round_race import (
    BARE,
    CACHED,
    GNNFLOW,
    PUBLISHED,
    REBUILT,
    RECORDED,
    SHOWN,
    TGL,
    Length,
    former,
    race,
    setting_of,
)
from dgbench.systems.gnnflow.experiments.settings import (
    BY_NAME,
    HELD_NAMES,
    MODEL_TITLES,
    MODELS,
    graph_title,
    model_title,
    workload,
)

NAME: Final = "fig8"
PAPERS: Final = ("gdelt", "netflix")
SMALL: Final = 1 / 4096
"""Twins of quick where a network takes seconds a round; both sides of a ratio shrink alike."""
ALL: Final = (TGL, CACHED, REBUILT, BARE, PUBLISHED, GNNFLOW)
SOME: Final = (TGL, BARE, PUBLISHED, GNNFLOW)
FEW: Final = (TGL, PUBLISHED, GNNFLOW)
WHOLE_TRAINING: Final = "whole training"
"""Value of the param `workload` for that of the whole trainings; the arena's task has it."""
FEATURELESS: Final = (TGL, REBUILT, PUBLISHED, GNNFLOW)
"""Contenders on streams without features, where a cache has nothing to hold."""
QUICK: Final = {
    ("gdelt", "tgn"): (1 / 1024, ALL),
    ("gdelt", "tgat"): (SMALL, FEW),
    ("gdelt", "dysat"): (SMALL, FEW),
    ("netflix", "tgn"): (1 / 1024, FEW),
    ("sx-mathoverflow", "tgn"): (1.0, SOME),
}
"""Scale and contenders by graph and model."""
LENGTHS: Final = {
    "smoke": Length(1, 1, 0.0),
    "quick": Length(6, 6, 0.0),
    "full": Length(8, 30, 30.0),
    "paper": Length(10, 100, 600.0),
}
TITLES: Final = {
    TGL: "TGL",
    CACHED: "TGL with cache",
    REBUILT: "our sampler, rebuilt graph",
    BARE: "no cache",
    PUBLISHED: "GNNFlow",
    GNNFLOW: SHOWN[GNNFLOW],
}
NO_CACHE: Final = "GNNFlow, no cache"
OVER_CACHE: Final = "GNNFlow over TGL with cache"
CONTENDERS: Final = {
    TITLES[TGL]: Contender("tgl"),
    TITLES[CACHED]: Contender("tgl"),
    NO_CACHE: Contender("gnnflow"),
    OVER_CACHE: Contender("gnnflow"),
    TITLES[GNNFLOW]: Contender("gnnflow"),
}
STEPS: Final = (
    (REBUILT, "its sampler"),
    (BARE, "in-place updates"),
    (PUBLISHED, "caches, reused and restored"),
    (GNNFLOW, "ours: grown blocks and fences"),
)
"""Feature that each contender adds to the one before it, from TGL on; the last one is ours."""


def over(baseline: str, **which: str) -> Callable[..., Ratio | None]:
    """Reader of how many times as fast as a baseline GNNFlow is in the rows of a workload."""

    def read(rows: Sequence[Any], workload: Mapping[str, str]) -> Ratio | None:
        return speedup(rows, baseline, **which)

    return read


def speedup(
    rows: Sequence[Any], baseline: str = TGL, setting: str = PUBLISHED, phase: str | None = None
) -> Ratio | None:
    """Speedup of a setting, of the whole round or of a phase."""
    sides = {"baseline": setting_of(baseline, rows), "setting": setting_of(setting, rows)}
    return ratio_of(Table.of(rows).where("speedup", phase=phase, **sides))


RACE: Final = MainRace(
    verb="trains a round of new edges",
    titles={name: graph.title for name, graph in BY_NAME.items()} | MODEL_TITLES,
    comparisons=(
        RaceComparison(
            subject="GNNFlow",
            rival="a re-implemented TGL-style baseline",
            ratio=over(TGL),
            quality=observed_quality(contender={}),
        ),
        RaceComparison(
            subject="GNNFlow",
            rival="the TGL-style baseline",
            ratio=over(TGL, phase="update"),
            verb="takes in the new edges alone",
        ),
        RaceComparison(
            subject="GNNFlow",
            rival="its own sampler on a graph that is rebuilt every round",
            ratio=over(REBUILT),
            fairer=True,
        ),
        RaceComparison(
            subject="GNNFlow",
            rival="the TGL-style baseline with the same cache",
            ratio=over(CACHED),
            fairer=True,
        ),
    ),
)

Rows = Sequence[Any]


class Fig8(Experiment):
    paper = "gnnflow"
    name = NAME
    title = "Figure 8: time of a round of continuous training"
    question = "How much faster does GNNFlow follow a day of new edges than TGL?"
    main_race = RACE
    reading = (
        "A round is a day (an hour on Wikipedia): the graph takes its edges in, then the model is "
        "trained on them for three epochs. TGL is ours: a temporal CSR rebuilt from all edges, "
        "its sampler, and no cache. Both train the same model on the same samples in turns in one "
        "process; their losses are compared in every epoch, and once with the plain reference. "
        "Rounds lie where 65 % of the stream is there. On a CPU the network takes most of a "
        "round, and it is the same code on both sides; the second figure leaves it out. Features "
        "lie in the memory of the same CPU, so a cache saves no transfer here and only costs: "
        "GNNFlow without caches runs along. GNNFlow is the published form; what dgbench adds to "
        "its store (blocks that grow, search over fences) is a contender of its own."
    )
    claims = (
        "gnnflow-abs-max-retrain-speedup",
        "gnnflow-fig8-gdelt",
        "gnnflow-fig8-netflix",
        "gnnflow-s61-tgl-rebuild-share",
        "gnnflow-s61-rebuild-dominates",
        "gnnflow-s61-half-minute",
    )

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            Cell(
                paper=self.paper,
                experiment=NAME,
                params={"dataset": name, "model": model},
                group=f"{name}/{model}",
                timeout_s={"smoke": 60, "quick": 120, "full": 1800, "paper": 36000}[preset],
                phases=number == 0,  # for the figure over time
            )
            for number, (name, model) in enumerate(runs(preset))
        ]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from dgbench.systems.base.stream import load_stream

        params, preset = cell.params, context.preset
        graph, model = BY_NAME[str(params["dataset"])], str(params["model"])
        scale, names = runs(preset).get((graph.name, model), (graph.scale(preset), ALL))
        task = workload(graph, model, preset, scale=scale)
        if params.get("workload") == WHOLE_TRAINING:
            task, names = whole_task(graph.name, model), FEATURELESS
            if context.device.startswith("cuda"):
                names = (*names, RECORDED)
        return race(
            names, task, load_stream(task), graph, LENGTHS[preset], device=context.device,
            control=self.controls(cell, context), first=context.round == 1,
        )  # fmt: skip

    def figures(self) -> list[FigureSpec]:
        interval = {"interval": TURN_INTERVAL, "baseline_label": "TGL, re-implemented"}
        return [
            chart("speedup", "fig8", "GNNFlow over TGL, time of a round", over_points, **interval,
                xlabel="speed-up of a round", main=True, contenders=CONTENDERS),
            chart("speedup", "fig8_without_network",
                "The same without the network: update, sampling, fetching",
                lambda rows: over_points(rows, "without network"), **interval,
                xlabel="speed-up of all but the network", contenders=CONTENDERS),
            chart("time_split", "fig8_split", "What a round is spent on", split_points,
                xlabel="time of one round, ms",
                phases_from="every round timed; update: of the graph; transfer: features"),
            chart("ablation", "fig8_steps", "From TGL to GNNFlow, technique by technique",
                step_points, system="gnnflow",
                contenders={"in-place updates": Contender("gnnflow", switch="in_place")}),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = races(rows)
        if not found:
            return ""
        words = []
        for row in found:
            all_of, rest = (speedup([row], phase=phase) for phase in (None, "without network"))
            words.append(
                f"{graph_title(row.params['dataset'])}{' (twin)' if all_of.twin else ''}, "
                f"{model_title(row)}: {all_of.value:.2f}x ({rest.value:.1f}x without the network)"
            )
        return "A round of GNNFlow over one of TGL: " + "; ".join(words) + "."


def runs(preset: Preset) -> Mapping[tuple[str, str], tuple[float, Sequence[str]]]:
    """Scale and contenders by graph and model."""
    if preset == "smoke":
        return {("gdelt", "tgn"): (SMALL, ALL)}
    if preset == "quick":
        return QUICK
    return {
        (name, model): (BY_NAME[name].scale(preset), ALL)
        for name in (*PAPERS, *HELD_NAMES)
        for model in MODELS
    }


def races(rows: Rows) -> list[Any]:
    """Usable rows of this experiment."""
    return rows_of(rows, experiment=NAME)


def round_times(row: Any) -> dict[str, float]:
    """Seconds of a round by who took part in a race."""
    return Table.of([row]).where("round_time").numbers("setting")


def over_points(rows: Rows, phase: str | None = None) -> list[dict[str, Any]]:
    """GNNFlow, with caches and without, over TGL, and over TGL with cache; a panel per model."""
    shown = ((TGL, PUBLISHED, "gnnflow"), (TGL, BARE, NO_CACHE), (CACHED, PUBLISHED, OVER_CACHE),
             (TGL, GNNFLOW, TITLES[GNNFLOW]))  # fmt: skip
    points = []
    for row in races(rows):
        for baseline, setting, system in shown:
            if former([row]) and setting == PUBLISHED and baseline == TGL:
                continue  # it is drawn as what it was: with our additions
            gain = speedup([row], baseline, setting, phase)
            if gain is not None:
                points.append(
                    ratio_mark(
                        gain, **_where(row), system=system, baseline=TITLES[baseline],
                        n=number(row, "turns"), deviation=gain.deviation,
                    )
                )  # fmt: skip
    return points + [
        gap(row, **_where(row), system="gnnflow", baseline=TITLES[TGL])
        for row in failures(rows, NAME)
    ]


def _where(row: Any) -> dict[str, str]:
    return {"panel": model_title(row), "row": graph_title(row.params["dataset"])}


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Phases of TGL and GNNFlow, a panel per model."""
    return [
        mark(
            one.row, **_where(one.row), system=SHOWN[one["setting"]], phase=one["phase"],
            seconds=one.value, total=round_times(one.row)[one["setting"]],
            deviation=max(one.row.deviation.values()),
        )
        for one in Table.of(rows, experiment=NAME).where("phase_time", setting=tuple(SHOWN))
    ]  # fmt: skip


def step_points(rows: Rows) -> list[dict[str, Any]]:
    """From TGL to everything on, a panel for each race with all contenders."""
    points: list[dict[str, Any]] = []
    for row in races(rows):
        spent = round_times(row)
        names = {name: setting_of(name, [row]) for name in ALL}
        if set(spent) != set(names.values()):
            continue
        twin = " (twin)" if row.data.get("twin") else ""
        panel = f"{graph_title(row.params['dataset'])}{twin}, {model_title(row)}"
        common = {"panel": panel, "row_ids": [row.id], "exact": True}
        points.append({**common, "step": 0, "technique": "TGL", "seconds": spent[TGL]})
        before = TGL
        steps = STEPS[:-1] if former([row]) else STEPS
        for step, (name, words) in enumerate(((names[of], words) for of, words in steps), 1):
            more = {"seconds": spent[name], "gain": spent[before] / spent[name]}
            more["deviation"] = max(row.deviation.values())
            points.append({**common, "step": step, "technique": words, **more})
            before = name
    return points

"""Figure 4: how PSS, PTS and PSS-TS train DySAT on different graphs, on 4 ranks (section 2.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap, sweep
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title, races
from dgbench.systems.dgc.experiments.race_runs import (
    PHASES_FROM,
    PLACED,
    TITLES,
    contenders,
    jobs_of,
    race,
)
from dgbench.systems.dgc.experiments.rank_grid import RankGrid
from dgbench.systems.dgc.experiments.settings import GRAPHS, HELD, PRESETS
from dgbench.systems.dgc.turns import CLOCKED

NAME: Final = "fig4"
MODEL: Final = "dysat"
SETS: Final[dict[Preset, dict[str, tuple[str, ...]]]] = {
    "smoke": {"held": ("email-eu-core",)},
    "quick": {"sx-mathoverflow": ("sx-mathoverflow",)},
}
RANKS: Final = {"smoke": 2, "quick": 4, "full": 4, "paper": 4}
PROCESSES: Final = {"smoke": 1, "quick": 5, "full": 5, "paper": 5}
TURNS: Final = {"smoke": 1, "quick": 2, "full": 6, "paper": 20}
CLOCKS: Final = {"smoke": 1, "quick": 1, "full": CLOCKED, "paper": CLOCKED}
"""Epochs that phases are taken from."""
BUDGETS_S: Final = {"smoke": 0.05, "quick": 0.1, "full": 2.0, "paper": 30.0}
TIMEOUTS_S: Final = {"smoke": 30, "quick": 120, "full": 900, "paper": 3600}

Rows = Sequence[Any]


def sets(preset: Preset) -> dict[str, tuple[str, ...]]:
    """Graphs of each cell: several in one where a process costs more than a race."""
    if preset in SETS:
        return SETS[preset]
    return {graph.name: (graph.name,) for graph in (*GRAPHS, *HELD)}


class Fig4(RankGrid):
    name = NAME
    title = "Figure 4: three partitions on different graphs"
    question = "Which of PSS, PTS and PSS-TS trains DySAT fastest, and how even is their work?"
    reading = (
        "Four processes of this machine stand for four GPUs; they share its cores, so waiting for "
        "a core is part of what is shown as communication. The three partitions take turns on one "
        "group of processes; none of the three has chunk fusion. Snapshots are dealt out in turn "
        "and, as in ESDG, in contiguous runs; the faster one is PSS. Sequences go round in turn. "
        "Divergence is the longest own work of a rank over the shortest, waiting "
        "left out. The paper's four graphs are twins here, whose real communities and lifetimes "
        "are not known: they decide nothing about which partition wins. Real graphs that are held "
        "stand beside them."
    )
    claims = (
        "dgc-fig4a-pts-best-three",
        "dgc-fig4a-epinion-pss-comm",
        "dgc-fig4a-movie-pts-comm",
        "dgc-fig4a-psst-reassign",
        "dgc-fig4-no-single-winner",
        "dgc-fig4b-pts-stack-balance",
        "dgc-fig4b-balance-order",
    )

    axes: ClassVar = {
        "graphs": {preset: tuple(sets(preset)) for preset in PRESETS},
        "model": (MODEL,),
        "ranks": {preset: (ranks,) for preset, ranks in RANKS.items()},
    }
    group = "{graphs}"
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = TIMEOUTS_S

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset, graphs = context.preset, str(cell.params["graphs"])
        return race(
            jobs_of(sets(preset).get(graphs, (graphs,)), (MODEL,), preset, contenders(*PLACED)),
            int(cell.params["ranks"]),  # type: ignore[arg-type]
            context,
            least=TURNS[preset],
            budget_s=BUDGETS_S[preset],
            timeout_s=TIMEOUTS_S[preset],
            control=True,
            clocked=CLOCKS[preset],
        )

    def figures(self) -> list[FigureSpec]:
        return [
            chart("time_split", "fig4a", "An epoch of DySAT under three partitions", split_points,
                xlabel="time of one epoch, ms", phases_from=PHASES_FROM),
            sweep("fig4b", "Work of the rank that has most over that of the one that has least",
                divergence_points, xlabel="graph", ylabel="Tmax / Tmin", ylog=False, hline=1.0,
                hline_label="even"),
            sweep("fig4_bytes", "Bytes that an epoch sends between ranks", byte_points,
                xlabel="graph", ylabel="MB an epoch"),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        found = races(rows, NAME)
        words = []
        for twin, what in ((False, "On real graphs"), (True, "On twins of the paper's")):
            mine = [one for one in found if one.twin == twin]
            if not mine:
                continue
            said = [
                f"{TITLES[winner(one)]} on {dataset_title(one.dataset)}"
                if decided(one)
                else f"{' or '.join(TITLES[n] for n in contending(one))} (not decided) on "
                f"{dataset_title(one.dataset)}"
                for one in mine
            ]
            words.append(f"{what}, the fastest is " + ", ".join(said) + ".")
        return " ".join(words)


def winner(one: RaceRecord) -> str:
    """The baseline with the shortest epoch."""
    return one.best(PLACED)


def decided(one: RaceRecord) -> bool:
    """Return True if the interval of its lead over each other baseline lies above 1x."""
    first = winner(one)
    return all(one.gain(n, first).side > 0 for n in one.baselines if n != first)


def contending(one: RaceRecord) -> list[str]:
    """Baselines that are not clearly slower than the fastest, that one among them."""
    first = winner(one)
    return [n for n in one.baselines if n == first or one.gain(n, first).side <= 0]


def _points(rows: Rows) -> list[tuple[RaceRecord, dict[str, Any]]]:
    return [
        (
            one,
            {
                "row": dataset_title(one.dataset),
                "twin": one.twin,
                "row_ids": [r.id for r in one.rows],
            },
        )
        for one in races(rows, NAME)
    ]


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Computing and communicating of each partition, a row per graph."""
    points = [
        {**point, "system": name, "phase": phase, "seconds": seconds, "total": one.epoch(name)}
        for one, point in _points(rows)
        for name in PLACED
        if name in one.names
        for phase, seconds in (
            ("compute", one.computing(name)),
            ("communicate", one.spent("communicate", name)),
        )
    ]
    points += [
        gap(row, row=row.params["graphs"], system=name)
        for row in failures(rows, NAME)
        for name in PLACED
    ]
    return points


def _categories(rows: Rows, value: Any, **extra: Any) -> list[dict[str, Any]]:
    return [
        {
            "x": point["row"] + (" (twin)" if one.twin else ""),
            "series": TITLES[name],
            "y": value(one, name),
            "row_ids": point["row_ids"],
            **extra,
        }
        for one, point in _points(rows)
        for name in PLACED
        if name in one.names
    ]


def divergence_points(rows: Rows) -> list[dict[str, Any]]:
    """Tmax / Tmin by graph."""
    return _categories(rows, lambda one, name: one.number("divergence", name))


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """Counted megabytes by graph."""
    return _categories(rows, lambda one, name: one.number("exchanged", name) / 1e6, counted=True)

"""Figure 5(c): how PSS, PTS and PSS-TS train the quarters of one graph (section 2.2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from dgbench.lab.charts import chart, failures, gap, sweep
from dgbench.systems.base import Cell, FigureSpec, Measurement, Preset, RunContext
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments.fig4 import BUDGETS_S, CLOCKS, MODEL, TIMEOUTS_S, TURNS
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, dataset_title, races
from dgbench.systems.dgc.experiments.race_runs import (
    PHASES_FROM,
    PLACED,
    TITLES,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.experiments.rank_grid import RankGrid
from dgbench.systems.dgc.experiments.settings import BY_NAME, workload

NAME: Final = "fig5c"
PARTS: Final = 4
TWIN: Final = "movie"
BINS: Final[dict[Preset, dict[str, int | None]]] = {
    # As many snapshots of each quarter as an epoch of tens of milliseconds has time for.
    # A twin decides nothing, so it needs time.
    # The last quarter of email-Eu is empty but for one snapshot.
    "smoke": {"wikipedia": 5},
    "quick": {"wikipedia": 9},
    "full": dict.fromkeys((TWIN, "sx-mathoverflow", "wikipedia", "email-eu-core")),
    "paper": dict.fromkeys((TWIN, "sx-mathoverflow", "wikipedia", "email-eu-core")),
}
"""Windows that the whole time of a graph is cut into; None: the usual number."""
BINS_OF_OTHERS: Final[dict[Preset, int]] = {"smoke": 5, "quick": 17}
PROCESSES: Final = {"smoke": 1, "quick": 1, "full": 5, "paper": 5}
RANKS: Final = {"smoke": 1, "quick": 4, "full": 4, "paper": 4}

Rows = Sequence[Any]


class Fig5c(RankGrid):
    name = NAME
    title = "Figure 5(c): three partitions on the quarters of one graph"
    question = "Does the fastest of PSS, PTS and PSS-TS change inside one graph?"
    reading = (
        "The whole time of a graph is cut into four parts with equally many snapshots, and each is "
        "trained alone, with the first snapshot of the next as its target. The paper names no "
        "model here; ours is DySAT, as in its Figure 4. Movie is a twin, whose drift over the "
        "years is not the real one; real graphs stand beside it."
    )
    claims = ("dgc-fig5c-part-order", "dgc-fig5c-trends")

    axes: ClassVar = {
        "dataset": {preset: tuple(names) for preset, names in BINS.items()},
        "model": (MODEL,),
        "ranks": {preset: (ranks,) for preset, ranks in RANKS.items()},
    }
    repeats: ClassVar = PROCESSES
    timeout_s: ClassVar = TIMEOUTS_S

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        preset = context.preset
        return race(
            quarters(str(cell.params["dataset"]), preset),
            int(cell.params["ranks"]),  # type: ignore[arg-type]
            context,
            least=TURNS[preset],
            budget_s=BUDGETS_S[preset],
            timeout_s=TIMEOUTS_S[preset],
            clocked=CLOCKS[preset],
        )

    def figures(self) -> list[FigureSpec]:
        return [
            chart("time_split", "fig5c", "An epoch of DySAT on each quarter", split_points,
                xlabel="time of one epoch, ms", phases_from=PHASES_FROM),
            sweep("fig5c_bytes", "Bytes that an epoch on each quarter sends", byte_points,
                xlabel="quarter", ylabel="MB an epoch", xlog=False),
        ]  # fmt: skip

    def answer(self, rows: Rows) -> str:
        words = []
        for dataset, found in by_graph(rows).items():
            order = ", ".join(TITLES[q.race.best(PLACED)] for q in found)
            words.append(f"{dataset_title(dataset, found[0].race.twin)}: {order}")
        return f"Fastest by quarter: {'; '.join(words)}." if words else ""


def quarters(dataset: str, preset: Preset) -> Iterator[RaceJob]:
    """The four parts of a graph, each with its target."""
    bins = BINS[preset].get(dataset, BINS_OF_OTHERS.get(preset))
    graph = BY_NAME[dataset]
    fields: dict[str, Any] = {"snapshots": None, "bins": bins or graph.bins}
    task = workload(graph, MODEL, preset, **fields)
    data = load_sequences(task)
    steps = len(data) - 1
    chosen = contenders(*PLACED)
    for part in range(PARTS):
        begin, end = part * steps // PARTS, (part + 1) * steps // PARTS
        yield RaceJob(dataset, task, data.slice(begin, end + 1), chosen, {"quarter": part + 1})


@dataclass(frozen=True, slots=True)
class Quarter:
    """A quarter of a graph: its number from 1 and its race."""

    number: int
    race: RaceRecord

    @property
    def row(self) -> Any:
        """The row of its race's first process."""
        return self.race.row

    @property
    def rows(self) -> tuple[Any, ...]:
        """The rows of its race."""
        return self.race.rows


def by_graph(rows: Rows) -> dict[str, list[Quarter]]:
    """Quarters of each graph in their order; graphs that lack one are left out."""
    found: dict[str, list[Quarter]] = {}
    for one in races(rows, NAME):
        found.setdefault(one.dataset, []).append(Quarter(one.part["quarter"], one))
    return {
        name: sorted(parts, key=lambda q: q.number)
        for name, parts in found.items()
        if len(parts) == PARTS
    }


def split_points(rows: Rows) -> list[dict[str, Any]]:
    """Computing and communicating of each partition, a panel per graph and a row per quarter."""
    points = [
        {
            "panel": dataset_title(dataset),
            "twin": quarter.race.twin,
            "row": f"quarter {quarter.number}",
            "system": name,
            "phase": phase,
            "seconds": seconds,
            "total": quarter.race.epoch(name),
            "row_ids": [row.id for row in quarter.rows],
        }
        for dataset, parts in by_graph(rows).items()
        for quarter in parts
        for name in PLACED
        if name in quarter.race.names
        for phase, seconds in (
            ("compute", quarter.race.computing(name)),
            ("communicate", quarter.race.spent("communicate", name)),
        )
    ]
    points += [
        gap(row, panel=dataset_title(row.params["dataset"]), row="quarters", system=name)
        for row in failures(rows, NAME)
        for name in PLACED
    ]
    return points


def byte_points(rows: Rows) -> list[dict[str, Any]]:
    """Counted megabytes by quarter."""
    return [
        {
            "panel": dataset_title(dataset, parts[0].race.twin),
            "series": TITLES[name],
            "x": quarter.number,
            "y": quarter.race.number("exchanged", name) / 1e6,
            "counted": True,
            "row_ids": [row.id for row in quarter.rows],
        }
        for dataset, parts in by_graph(rows).items()
        for quarter in parts
        for name in PLACED
        if name in quarter.race.names
    ]

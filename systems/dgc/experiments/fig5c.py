"""Figure 5(c): how PSS, PTS and PSS-TS train the quarters of one graph (section 2.2.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Final

from dgbench.lab import rules
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.figure_forms import StackedTime, Sweep
from dgbench.lab.quantities import computed
from dgbench.lab.study import FormExperiment
from dgbench.systems.base import Cell, Measurement, Preset, RunContext
from dgbench.systems.base.sequences import load_sequences
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.common import RankGrid
from dgbench.systems.dgc.experiments.fig4 import MODEL, RACE_FORMS, SIZES, TIMEOUTS_S
from dgbench.systems.dgc.experiments.fig5 import QUARTERS
from dgbench.systems.dgc.experiments.race_rows import (
    Numbers,
    RaceRecord,
    epoch_total,
    gain,
    of_placements,
    phase_times,
    races,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, workload

NAME: Final = "fig5c"
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


def by_graph(context: EvaluationContext) -> dict[str, list[RaceRecord]]:
    """Quarters of each graph in their order; graphs that lack one are left out."""
    found: dict[str, list[RaceRecord]] = {}
    for one in races(context.rows, NAME):
        found.setdefault(one.dataset, []).append(one)
    return {
        name: sorted(parts, key=lambda one: one.part["quarter"])
        for name, parts in found.items()
        if len(parts) == len(QUARTERS)
    }


def others_lead(context: EvaluationContext) -> Numbers:
    """Epochs of PTS over those of PSS and PSS-TS; turned on the quarters where the paper has PTS
    ahead."""
    for dataset, parts in by_graph(context).items():
        for one in parts:
            for name in (one.named(runs.PSS), runs.PSS_TS):
                slow, fast = (runs.PTS, name) if one.part["quarter"] <= 2 else (name, runs.PTS)
                yield {"dataset": dataset, **one.part, "setting": name}, gain(one, slow, fast)


def best_of_others(context: EvaluationContext) -> Numbers:
    """Epochs of PTS over those of the faster of PSS and PSS-TS."""
    for dataset, parts in by_graph(context).items():
        for one in parts:
            best = one.best([name for name in runs.PLACED if name != runs.PTS])
            yield {"dataset": dataset, **one.part, "setting": best}, gain(one, runs.PTS, best)


def trends(context: EvaluationContext) -> Numbers:
    """Rank correlations over the quarters of a real graph: of bytes of PSS and PSS-TS with
    vertex-steps, and of epochs of PTS with edges, whose ends are of the least and the largest
    process."""
    for dataset, parts in by_graph(context).items():
        if parts[0].twin:
            continue
        pss = runs.CONTIGUOUS if all(runs.CONTIGUOUS in one.names for one in parts) else runs.PSS
        sizes, edges = ([one.number(of) for one in parts] for of in ("vertex_steps", "edges"))
        rows = tuple(row for one in parts for row in one.rows)
        for name in (pss, runs.PSS_TS):
            tau = rank_correlation(sizes, [one.number("exchanged", name) for one in parts])
            yield {"dataset": dataset, "setting": name}, Estimate(tau, rows=rows)
        each = [
            rank_correlation(edges, times)
            for times in zip(*(one.seconds(runs.PTS) for one in parts), strict=True)
        ]
        whole = rank_correlation(edges, [one.epoch(runs.PTS) for one in parts])
        yield (
            {"dataset": dataset, "setting": runs.PTS},
            Estimate(whole, min(each), max(each), rows, "timed" if max(each) > 0 else "exact"),
        )


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Kendall's tau: pairs in one order less pairs in opposite order, over all pairs."""
    pairs = [(i, j) for i in range(len(a)) for j in range(i)]
    signs = [(a[i] - a[j]) * (b[i] - b[j]) for i, j in pairs]
    return sum((s > 0) - (s < 0) for s in signs) / max(1, len(pairs))


BY_QUARTER: Final = ("dataset", "quarter", "setting")


class Fig5c(RankGrid, FormExperiment):
    forms, name = RACE_FORMS, NAME
    headline, unit = computed(best_of_others, per=BY_QUARTER), "x"
    figure_forms = (
        StackedTime(
            "fig5c", "An epoch of DySAT on each quarter",
            phase_times(quarter=QUARTERS), panel="{dataset}", row="{quarter}", system="setting",
            phase="of", more=epoch_total, xlabel="time of one epoch, ms",
            phases_from=runs.PHASES_FROM,
        ),
        Sweep(
            "fig5c_bytes", "Bytes that an epoch on each quarter sends",
            of_placements("exchanged", {"quarter": QUARTERS}), scale=1e-6, panel="{dataset}",
            series="{setting}", x="quarter", xlabel="quarter", ylabel="MB an epoch", xlog=False,
        ),
    )  # fmt: skip
    claims = {
        "dgc-fig5c-part-order": rules.all_above(
            computed(others_lead, per=BY_QUARTER).where(dataset="movie"), 1.0, unit="x"
        ),
        "dgc-fig5c-trends": rules.all_above(computed(trends, per=("dataset", "setting")), 0.0),
    }

    axes: ClassVar = {
        "dataset": {preset: tuple(names) for preset, names in BINS.items()},
        "model": (MODEL,),
        "ranks": {"smoke": (1,), None: (4,)},
    }
    repeats: ClassVar = {"smoke": 1, "quick": 1, None: 5}
    timeout_s: ClassVar = TIMEOUTS_S

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        parts = quarters(str(cell.params["dataset"]), context.preset)
        sizes = {name: of[context.preset] for name, of in SIZES.items()}
        return runs.race(parts, int(cell.params["ranks"]), context, **sizes)  # type: ignore[arg-type]


def quarters(dataset: str, preset: Preset) -> Iterator[runs.RaceJob]:
    """The four parts of a graph, each with its target."""
    bins = BINS[preset].get(dataset, BINS_OF_OTHERS.get(preset))
    graph = BY_NAME[dataset]
    fields: dict[str, Any] = {"snapshots": None, "bins": bins or graph.bins}
    task = workload(graph, MODEL, preset, **fields)
    data = load_sequences(task)
    steps = len(data) - 1
    chosen = runs.contenders(*runs.PLACED)
    for quarter in QUARTERS:
        begin, end = ((quarter - past) * steps // len(QUARTERS) for past in (1, 0))
        yield runs.RaceJob(dataset, task, data.slice(begin, end + 1), chosen, {"quarter": quarter})

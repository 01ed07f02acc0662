"""Races of Figure 12 and what is asked of them: gains, their means, and projected epochs.

Claims about all graphs, or about what one module gains, take races on real graphs. Claims about one
graph take that graph, or a held graph of the same site; a factor printed for a graph of which none
is held takes all real ones. A claim about DGC is judged for its published form; races in which only
DGC with our refinement ran are taken for it (`race_rows.running`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.estimates import Estimate, EvaluationContext
from dgbench.lab.main_race import MainRace, RaceComparison, RatioReader
from dgbench.lab.quantities import MeasuredQuantity, computed
from dgbench.lab.table import Table
from dgbench.systems.dgc.experiments import race_runs as runs
from dgbench.systems.dgc.experiments.fig4 import NAME as FIG4
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, races, ratio_over, real, running
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES, standing_in
from dgbench.systems.dgc.projection import PROJECTED, ProjectedChunkEpoch, with_share

NAME: Final = "fig12"
STEPS: Final = (runs.PLAIN, runs.EXACT, runs.DGC, runs.ADDED)
"""Steps of DGC, and what dgbench adds to the last."""

Rows = Sequence[Any]
Pairs = Callable[[RaceRecord], Iterable[tuple[str, str]]]
"""Race -> contenders that are compared, (slow, fast)."""
Races = Callable[[Rows], Sequence[RaceRecord]]
Numbers = Iterator[tuple[Mapping[str, Any], Estimate]]


def over_best(baselines: Sequence[str], name: str) -> RatioReader:
    """Reader of the gain of a contender over the fastest of baselines that all must have run."""

    def read(rows: Rows, workload: Mapping[str, str]) -> Ratio | None:
        for one in races(rows, NAME):
            if one.model == workload["model"] and {name, *baselines} <= set(one.names):
                return one.gain(one.best(baselines), name)
        return None

    return read


RACE: Final = MainRace(
    verb="trains an epoch",
    dims=("dataset", "model", "ranks", "link"),
    where={"part": "race"},
    titles={name: graph.title for name, graph in BY_NAME.items()}
    | MODEL_TITLES
    | runs.LINK_TITLES
    | {"tgcn_2layer": "the T-GCN model"}
    | {str(ranks): f"{ranks} ranks" for ranks in (2, 4, 8)},
    comparisons=(
        RaceComparison(
            subject="DGC",
            rival="the best of PyGT-PSS, -PTS and -PSS-TS (re-implemented)",
            ratio=over_best(runs.PLACED, runs.DGC),
        ),
        RaceComparison(
            subject="DGC",
            rival="the best baseline that has DGC's chunk fusion, too",
            ratio=over_best(runs.FAIR, runs.DGC),
            fairer=True,
        ),
        RaceComparison(
            subject="DGC without stale rows",
            rival="the best baseline that has DGC's chunk fusion, too",
            ratio=over_best(runs.FAIR, runs.EXACT),
            fairer=True,
        ),
    ),
)


# Which races


def raced(rows: Rows) -> list[RaceRecord]:
    """All races of Figure 12."""
    return races(rows, NAME, part="race")


def on_four(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races over Gloo on 4 ranks, as the bar asks for; on fewer where a run had no 4."""
    mine = [one for one in found if one.link == "gloo"]
    size = max((one.ranks for one in mine if one.ranks <= 4), default=0)
    return [one for one in mine if one.ranks == size]


def decisive(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races that the bar and claims on all graphs rest on: real graphs, no twin decides these."""
    return on_four(real(found))


def on_real(*names: str, model: str = "") -> Races:
    """Races on real graphs in which these contenders ran."""

    def select(rows: Rows) -> list[RaceRecord]:
        found = running(decisive(raced(rows)), *names)
        return [one for one in found if model in ("", one.model)]

    return select


def on_graph(
    dataset: str, *names: str, model: str = "", any_graph: bool = False, fallback: bool = False
) -> Races:
    """Races on one of the paper's graphs, or on what stands in for it (`standing_in`), in which
    these contenders ran; `fallback`: Figure 4's where Figure 12 has none."""

    def select(rows: Rows) -> list[RaceRecord]:
        for found in (on_four(raced(rows)), races(rows, FIG4) if fallback else []):
            mine = running([one for one in found if model in ("", one.model)], *names)
            if chosen := standing(dataset, mine, any_graph=any_graph):
                return chosen
        return []

    return select


def standing(dataset: str, found: Sequence[RaceRecord], **more: bool) -> list[RaceRecord]:
    """Races on a graph of the paper, or on what stands in for it, see `standing_in`."""
    return standing_in(dataset, found, lambda o: o.dataset, lambda o: o.twin, **more)


# Gains

PLACE: Final = ("model", "dataset", "ranks", "link")
SIDES: Final = ("setting", "baseline")


def gains(select: Races, pairs: Pairs) -> MeasuredQuantity:
    """Speedups of contenders of races over others of the same race."""

    def numbers(context: EvaluationContext) -> Numbers:
        for one in select(context.rows):
            for slow, fast in pairs(one):
                dims = {"part": "race", "setting": fast, "baseline": slow}
                dims |= {name: getattr(one, name) for name in PLACE}
                yield dims, Estimate.of_ratio(one.gain(slow, fast), one.rows)

    return computed(numbers, per=(*PLACE, *SIDES)).where(part="race")


def mean_gain(select: Races, pairs: Pairs, *, arithmetic: bool = False) -> MeasuredQuantity:
    """Mean of such gains, the geometric by default; the races are fixed."""

    def numbers(context: EvaluationContext) -> Numbers:
        every = [(one, *pair) for one in select(context.rows) for pair in pairs(one)]
        if every:
            rows = {row.id: row for one, *_ in every for row in one.rows}
            yield {}, Estimate.of_ratio(ratio_over(every, arithmetic=arithmetic), rows.values())

    return computed(numbers, per=())


def over(*slow: str) -> Callable[[str], Pairs]:
    """Pairs of a contender over each of others; PSS by the order with the shorter epoch."""
    return lambda fast: lambda one: [(one.named(name), fast) for name in slow]


def best_of(slow: Sequence[str], fast: Sequence[str]) -> Pairs:
    """The quickest of some contenders over the quickest of others."""
    return lambda one: [(one.best(slow), one.best(fast))]


def all_steps(context: EvaluationContext) -> Numbers:
    """Gains of DGC's steps over the best baseline: in each race, and their means over real graphs
    by model."""
    found = running(raced(context.rows), *runs.PLACED)
    for one in found:
        for name in STEPS:
            if name in one.names:
                dims = {"part": "race", "setting": name, "baseline": one.best()}
                dims |= {dim: getattr(one, dim) for dim in PLACE}
                yield dims, Estimate.of_ratio(one.gain(one.best(), name), one.rows)
    for model in dict.fromkeys(one.model for one in found):
        mine = [one for one in decisive(found) if one.model == model]
        for name, mean in step_means(mine) if len(mine) > 1 else ():
            dims = {"part": "race", "setting": name, "baseline": MEAN, "model": model}
            dims |= {"dataset": f"geometric mean of {len(mine)} real", "link": "gloo"}
            yield {**dims, "ranks": mine[0].ranks}, mean


def step_means(found: Sequence[RaceRecord]) -> Iterator[tuple[str, Estimate]]:
    """DGC's steps that ran in all races, and their mean gain over the best baseline of each."""
    for name in STEPS if found else ():
        if all(name in one.names for one in found):
            ratio = ratio_over([(one, one.best(), name) for one in found])
            yield name, Estimate.of_ratio(ratio, [row for one in found for row in one.rows])


def means_on_real(context: EvaluationContext) -> Numbers:
    """The same over all models on real graphs."""
    for name, mean in step_means(running(decisive(raced(context.rows)), *runs.PLACED)):
        yield {"method": runs.SHOWN[name]}, mean


MEAN: Final = "best baseline"
"""Baseline of a mean over races."""


# Projections


def projected(rows: Rows) -> dict[tuple[str, str, str], dict[str, ProjectedChunkEpoch]]:
    """(dataset, model, links) -> epochs of the baselines and of DGC; projections all of them.

    DGC with stale rows is there where a race of the model on real data says what share of the bytes
    still travels.
    """
    found: dict[tuple[str, str, str], dict[str, ProjectedChunkEpoch]] = {}
    shares = sent_shares(rows)
    parts = Table.of(rows, experiment=NAME, part="projected").where("projected_time")
    for (*key, name), mine in parts.by("dataset", "model", "link", "setting").items():
        seconds = mine.numbers("phase")
        found.setdefault(tuple(key), {})[name] = ProjectedChunkEpoch(
            *(seconds[phase] for phase in PROJECTED)
        )
    for (_, model, _), epochs in found.items():
        if model in shares and runs.EXACT in epochs:
            epochs[runs.DGC] = with_share(epochs[runs.EXACT], shares[model])
    return found


def sent_shares(rows: Rows) -> dict[str, float]:
    """By model: mean share of rows that travel with stale rows, over races on real data."""
    shares: dict[str, list[float]] = {}
    for one in real(raced(rows)):
        if one.has("row_share", runs.DGC):
            shares.setdefault(one.model, []).append(one.number("row_share", runs.DGC))
    return {model: fmean(values) for model, values in shares.items()}


def projected_gains(*baselines: str) -> MeasuredQuantity:
    """Projected seconds of the fastest of some baselines over those of DGC's steps, to 8 V100."""
    slow = dict.fromkeys(n for b in baselines for n in (runs.PSS_ORDERS if b == runs.PSS else (b,)))

    def numbers(context: EvaluationContext) -> Numbers:
        counted = Table.of(context.rows, experiment=NAME, part="projected").where("vertex_steps")
        rows = {one["dataset"]: (one.row,) for one in counted}
        for (dataset, model, link), epochs in projected(context.rows).items():
            for name in STEPS[:-1]:
                if {*slow, name} <= set(epochs):
                    gain = min(epochs[n].seconds for n in slow) / epochs[name].seconds
                    dims = {"model": model, "dataset": dataset, "link": link, "setting": name}
                    yield {"part": "projected", **dims}, Estimate(gain, rows=rows.get(dataset, ()))

    return computed(numbers, per=("model", "dataset", "link", "setting")).where(part="projected")

"""Rows of Figure 12: the main race, means over races, and projected epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.main_race import MainRace, RaceComparison, RatioReader
from dgbench.lab.table import Table
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, races, ratio_over, real
from dgbench.systems.dgc.experiments.race_runs import (
    ADDED,
    DGC,
    EXACT,
    FAIR,
    LINK_TITLES,
    PLACED,
    PSS,
    PSS_ORDERS,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.dgc.projection import PROJECTED, ProjectedChunkEpoch, with_share

NAME: Final = "fig12"

Rows = Sequence[Any]


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
    | LINK_TITLES
    | {"tgcn_2layer": "the T-GCN model"}
    | {str(ranks): f"{ranks} ranks" for ranks in (2, 4, 8)},
    comparisons=(
        RaceComparison(
            subject="DGC",
            rival="the best of PyGT-PSS, -PTS and -PSS-TS (re-implemented)",
            ratio=over_best(PLACED, DGC),
        ),
        RaceComparison(
            subject="DGC",
            rival="the best baseline that has DGC's chunk fusion, too",
            ratio=over_best(FAIR, DGC),
            fairer=True,
        ),
        RaceComparison(
            subject="DGC without stale rows",
            rival="the best baseline that has DGC's chunk fusion, too",
            ratio=over_best(FAIR, EXACT),
            fairer=True,
        ),
    ),
)


def decisive(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races that the bar and the claims rest on: real graphs, over Gloo, on 4 ranks (on fewer where
    a run had no 4)."""
    mine = [one for one in real(found) if one.link == "gloo"]
    size = max((one.ranks for one in mine if one.ranks <= 4), default=0)
    return [one for one in mine if one.ranks == size]


def compared(found: Sequence[RaceRecord]) -> list[RaceRecord]:
    """Races in which all baselines ran, PSS in both orders of snapshots."""
    return [one for one in found if set(PLACED) <= set(one.names)]


def mean_gain(found: Sequence[RaceRecord], name: str, baselines: Sequence[str] = PLACED) -> Ratio:
    """Geometric mean over races of the gain over the race's best baseline; the races are fixed."""
    return ratio_over([(one, one.best(baselines), name) for one in found])


STAGES: Final = (
    ("chunk fusion for the best baseline", "fusion"),
    ("its chunks and stale rows", "techniques"),
)
"""Factors of DGC over the best baseline, in words and by name; their product is the whole."""


def factors(found: Sequence[RaceRecord]) -> dict[str, Ratio]:
    """The lead over the best baseline as a product: what chunk fusion, a technique of the paper,
    gains for the best baseline, and what its chunks and stale rows add to it; beside it, as `ours`,
    what our refinement of the partition gains. Empty where a race lacks a contender."""
    if not found or not all({*PLACED, *FAIR, DGC, ADDED} <= set(one.names) for one in found):
        return {}
    return {
        "fusion": ratio_over([(one, one.best(), one.best(FAIR)) for one in found]),
        "techniques": ratio_over([(one, one.best(FAIR), DGC) for one in found]),
        "ours": ratio_over([(one, DGC, ADDED) for one in found]),
    }


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
        if model in shares and EXACT in epochs:
            epochs[DGC] = with_share(epochs[EXACT], shares[model])
    return found


def sent_shares(rows: Rows) -> dict[str, float]:
    """By model: mean share of rows that travel with stale rows, over races on real data."""
    shares: dict[str, list[float]] = {}
    for one in real(races(rows, NAME)):
        if one.has("row_share", DGC):
            shares.setdefault(one.model, []).append(one.number("row_share", DGC))
    return {model: fmean(values) for model, values in shares.items()}


def projected_gain(epochs: Mapping[str, ProjectedChunkEpoch], name: str) -> float | None:
    """Seconds of the best baseline over those of one of DGC's steps; None where one of them is not
    there."""
    return projected_over(PLACED, epochs, name)


def projected_over(
    baselines: Sequence[str], epochs: Mapping[str, ProjectedChunkEpoch], name: str
) -> float | None:
    """Seconds of the fastest of some contenders over those of another; None where one is not there.

    `PSS` among them stands for both orders of snapshots.
    """
    slow = dict.fromkeys(n for b in baselines for n in (PSS_ORDERS if b == PSS else (b,)))
    if not {*slow, name} <= set(epochs):
        return None
    return min(epochs[n].seconds for n in slow) / epochs[name].seconds


def projected_ids(rows: Rows) -> dict[str, str]:
    """Dataset -> id of the row that projects it."""
    counted = Table.of(rows, experiment=NAME, part="projected").where("vertex_steps")
    return {one["dataset"]: one.row.id for one in counted}

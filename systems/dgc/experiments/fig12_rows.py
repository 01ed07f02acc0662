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
    BASELINE_NAMES,
    DGC,
    EXACT,
    FAIR,
    FUSED,
    LABELS_ONCE,
    LINK_TITLES,
)
from dgbench.systems.dgc.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.dgc.projection import PROJECTED, ProjectedChunkEpoch, with_share

NAME: Final = "fig12"

Rows = Sequence[Any]


def over_best(baselines: Sequence[str], name: str) -> RatioReader:
    """Reader of the gain of a contender over the fastest of the baselines that ran."""

    def read(rows: Rows, workload: Mapping[str, str]) -> Ratio | None:
        for one in races(rows, NAME):
            if (
                one.model == workload["model"]
                and name in one.names
                and set(baselines) & set(one.names)
            ):
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
            ratio=over_best(BASELINE_NAMES, DGC),
        ),
        RaceComparison(
            subject="DGC as printed (labels once)",
            rival="the best baseline that has DGC's chunk fusion, too",
            ratio=over_best([FUSED[name] for name in BASELINE_NAMES], LABELS_ONCE[DGC]),
            fairer=True,
        ),
        RaceComparison(
            subject="DGC without stale rows",
            rival="the best placement, contiguous too, that has DGC's chunk fusion",
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


def mean_gain(
    found: Sequence[RaceRecord], name: str, baselines: Sequence[str] = BASELINE_NAMES
) -> Ratio:
    """Geometric mean over races of the gain over the race's best baseline; the races are fixed."""
    return ratio_over([(one, one.best(baselines), name) for one in found])


STAGES: Final = (
    ("chunk fusion for the best baseline", "fusion"),
    ("chunks and stale rows as printed", "techniques"),
    ("our refinement of the chunks", "ours"),
)
"""Factors of DGC over the best baseline, in words and by name; their product is the whole."""


def factors(found: Sequence[RaceRecord]) -> dict[str, Ratio]:
    """The lead over the best baseline as a product: what chunk fusion, a technique of the paper,
    gains for the best baseline; what the paper's chunks and stale rows add to it; and what our
    refinement adds. Empty where a race lacks a contender."""
    once = LABELS_ONCE[DGC]
    if not found or not all({*FUSED.values(), once, DGC} <= set(one.names) for one in found):
        return {}
    fair = [FUSED[name] for name in BASELINE_NAMES]
    return {
        "fusion": ratio_over([(one, one.best(), one.best(fair)) for one in found]),
        "techniques": ratio_over([(one, one.best(fair), once) for one in found]),
        "ours": ratio_over([(one, once, DGC) for one in found]),
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
    """Seconds of the best baseline over those of one of DGC's steps; None where it is not there."""
    if name not in epochs:
        return None
    return min(epochs[n].seconds for n in BASELINE_NAMES) / epochs[name].seconds


def projected_ids(rows: Rows) -> dict[str, str]:
    """Dataset -> id of the row that projects it."""
    counted = Table.of(rows, experiment=NAME, part="projected").where("vertex_steps")
    return {one["dataset"]: one.row.id for one in counted}

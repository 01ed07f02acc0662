"""Claims of Table 1, Figures 3 and 5(a, b), and the settings of section 7.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.printed import same_printed
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim, Finding
from dgbench.systems.dgc.checks.race_words import rows_of as races_of
from dgbench.systems.dgc.experiments.fig5 import EDGES, SPAN, TAIL, of_quarters, spans
from dgbench.systems.dgc.experiments.race_rows import RaceRecord, races
from dgbench.systems.dgc.experiments.settings import BY_NAME, DATASET_OF, PAPERS_GRAPHS
from dgbench.systems.dgc.experiments.table1 import DAY, RULE_TITLES, agrees

Rows = Sequence[Any]
Said = dict[str, Any]

WIDE = 2.0
"""Largest over smallest from which on we call numbers widely different."""
SPREAD = 0.2
"""Gini index from which on: that of numbers spread evenly between half and twice some number."""


def _last(experiment: str, dataset: str) -> Callable[[Rows], list[Any]]:
    return lambda rows: rows_of(rows, experiment=experiment, dataset=dataset)[-1:]


def _real_first(rows: list[Any]) -> list[Any]:
    """The paper's graphs where they are real, else the real ones held here, else twins."""
    real = [row for row in rows if not row.data.get("twin")]
    return [row for row in real if row in PAPERS_GRAPHS] or real or rows


def _graphs(rows: Rows) -> str:
    names = ", ".join(BY_NAME[row.params["dataset"]].title for row in rows)
    return (
        names
        if all(row in PAPERS_GRAPHS for row in rows)
        else f"{names} stand for the paper's graphs"
    )


def table1(claim: Claim, rows: Rows) -> Finding:
    """Every printed number of one graph, at its printed digits, by some rule of presence."""
    found = _last("table1", DATASET_OF[claim.workload["datasets"][0]])(rows)
    if not found:
        return missing("the graph was not opened in this run")
    (row,) = found
    differ = [key for key, same in agrees(row).items() if not same]
    words = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
    printed = BY_NAME[row.params["dataset"]].printed["vertices"]
    vertices = Table.of([row]).where("vertex_steps").numbers("presence")
    rules = [r for r in RULE_TITLES if same_printed(vertices[r], printed)]
    rule = f", vertices present {RULE_TITLES[rules[0]]}" if rules else ""
    return finding(
        [row],
        measured={
            "snapshots": number(row, "snapshots"),
            "events": number(row, "edges", of="events"),
            "edges": number(row, "edges"),
            **{f"vertices {rule}": vertices[rule] for rule in RULE_TITLES},
        },
        holds=not differ,
        reason=words + rule,
    )


@asking(
    lambda rows: Table.of(PAPERS_GRAPHS.of(rows), experiment="table1").where("window"),
    "no graph of the paper was opened in this run",
)
def windows(claim: Claim, found: Table) -> Said:
    """Lengths of windows, where the data has real time stamps."""
    lengths = {BY_NAME[one["dataset"]].title: one.value / DAY for one in found}
    # Half a day around a printed whole number of days, 2 % around a month: T is rounded as well.
    alike = [
        abs(length - claim.value[name]) <= max(0.5, 0.02 * claim.value[name])
        for name, length in lengths.items()
    ]
    return {
        "measured": {name: round(length, 2) for name, length in lengths.items()},
        "holds": all(alike) and len(lengths) == len(DATASET_OF),
        "reason": "a timeline over its number of snapshots, days",
    }


@asking(lambda rows: races(rows, "fig12"), "no epoch of Figure 12 was timed in this run")
def protocol(claim: Claim, found: Sequence[RaceRecord]) -> Said:
    """Check the timing protocol of the main race: epochs, workers, and the timed parts."""
    epochs = min(len(one.turns(name)) for one in found for name in one.names)
    ranks, device = max(one.ranks for one in found), found[0].row.device
    return {
        "measured": {"epochs": epochs, "gpus": ranks if device == "cuda" else 0},
        "holds": epochs >= claim.value["epochs"] and ranks >= 8 and device == "cuda",
        "rows": races_of(found),
        "reason": f"medians of at least {some(epochs, 'epoch')} on up to {some(ranks, 'rank')} "
        f"({device}); loading, communication and update lie in the time, partitioning does not",
    }


@asking(
    lambda rows: _real_first(rows_of(rows, experiment="fig3")),
    "no graph was counted in this run",
)
def nonuniform(claim: Claim, found: list[Any]) -> Said:
    """Both distributions are wide on every graph: Gini index and largest over median."""
    narrow = [
        BY_NAME[row.params["dataset"]].title
        for row in found
        if min(Table.of([row]).where("gini_index").values) < SPREAD
        or number(row, "quantile_ratio", of="edges", quantile=1.0) < WIDE
    ]
    said = f"not wide: {', '.join(narrow)}" if narrow else f"Gini index at least {SPREAD} in both"
    indices = Table.of(found).where("gini_index").by("of")
    return {
        "measured": {
            f"Gini of {kind}, smallest": round(min(indices[kind].values), 3)
            for kind in ("edges", "lengths")
        },
        "holds": not narrow,
        "reason": f"{said}; {_graphs(found)}",
    }


NO_MOVIE = "Movie was not counted in this run"


def quarters_vertices(claim: Claim, rows: Rows) -> Finding:
    """Figure 5(a): vertices of Movie's last quarter over its first."""
    found = _last("fig5", "movie")(rows)
    if not found:
        return missing(NO_MOVIE)
    first, *_, last = of_quarters(found[0], SPAN)
    if not first:
        return missing("no vertex is present in the first quarter")
    tail = of_quarters(found[0], TAIL)
    return finding(
        found,
        measured=last / first,
        direction=last > first,
        target=float(claim.value),
        reason=f"from first to last edge; {tail[-1] / tail[0]:.2f} where vertices stay to the end",
    )


@asking(_last("fig5", "movie"), NO_MOVIE)
def quarters_edges(claim: Claim, found: Rows) -> Said:
    """Figure 5(b): the first quarter of Movie has most edges, and half the last one's vertices."""
    edges = of_quarters(found[0], EDGES)
    first, *_, last = of_quarters(found[0], SPAN)
    ratio = first / last if last else 0.0
    return {
        "measured": {"quarter with most edges": 1 + edges.index(max(edges)), "vertices": ratio},
        "holds": edges[0] == max(edges) and 0.4 <= ratio <= 0.6,
        "reason": "vertices of the first quarter over those of the last, from first to last edge",
    }


@asking(
    lambda rows: _real_first(rows_of(rows, experiment="fig5", dataset=lambda n: n != "movie")),
    "no graph but Movie was counted in this run",
)
def others_alike(claim: Claim, found: list[Any]) -> Said:
    """The quarters of every other graph differ as well."""
    apart = {
        BY_NAME[row.params["dataset"]].title: max(spans(row, SPAN), spans(row, EDGES))
        for row in found
    }
    alike = [name for name, factor in apart.items() if factor < WIDE]
    said = f"hardly differs: {', '.join(alike)}" if alike else f"at least {WIDE:g}x on every graph"
    return {
        "measured": {name: round(factor, 2) for name, factor in apart.items()},
        "holds": not alike,
        "reason": f"fullest over emptiest quarter, {said}; {_graphs(found)}",
    }

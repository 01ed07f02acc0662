"""Claims of Table 1, Figures 3 and 5(a, b), and the settings of section 7.1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.compare import select
from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.common import (
    any_graph,
    finding,
    missing,
    of_the_paper,
    some,
    strength,
)
from dgbench.systems.dgc.experiments.common import number
from dgbench.systems.dgc.experiments.fig5 import EDGES, SPAN, TAIL, of_quarters, spans
from dgbench.systems.dgc.experiments.race_runs import races
from dgbench.systems.dgc.experiments.settings import BY_NAME, DATASET_OF
from dgbench.systems.dgc.experiments.table1 import DAY, RULE_TITLES, agrees, same_printed

WIDE = 2.0
"""Largest over smallest from which on we call numbers widely different."""
SPREAD = 0.2
"""Gini index from which on: that of numbers spread evenly between half and twice some number."""


def table1(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Every printed number of one graph, at its printed digits, by some rule of presence."""
    found = select(rows, experiment="table1", dataset=DATASET_OF[claim.workload["datasets"][0]])
    if not found:
        return missing("the graph was not opened in this run")
    row = found[-1]
    same = agrees(row)
    differ = [key for key, value in same.items() if not value]
    words = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
    printed = BY_NAME[row.params["dataset"]].printed["vertices"]
    vertices = Table.of([row]).where("vertex_steps").numbers("presence")
    rules = [r for r in RULE_TITLES if same_printed(vertices[r], printed)]
    rule = f", vertices present {RULE_TITLES[rules[0]]}" if rules else ""
    return finding(
        [row],
        evidence="counted",
        measured={
            "snapshots": number(row, "snapshots"),
            "events": number(row, "edges", of="events"),
            "edges": number(row, "edges"),
            **{f"vertices {rule}": vertices[rule] for rule in RULE_TITLES},
        },
        holds=not differ,
        reason=words + rule,
    )


def windows(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Lengths of windows, where the data has real time stamps."""
    found = Table.of(rows, experiment="table1").where("window")
    if not found:
        return missing("no graph of the paper was opened in this run")
    lengths = {BY_NAME[one["dataset"]].title: one.value / DAY for one in found}
    # Half a day around a printed whole number of days, 2 % around a month: T is rounded as well.
    holds = all(
        abs(lengths[name] - claim.value[name]) <= max(0.5, 0.02 * claim.value[name])
        for name in lengths
    ) and len(lengths) == len(DATASET_OF)
    return finding(
        found.rows,
        evidence="counted",
        measured={name: round(length, 2) for name, length in lengths.items()},
        holds=holds,
        reason="a timeline over its number of snapshots, days",
    )


def protocol(claim: Claim, rows: Sequence[Any]) -> Finding:
    """How the main race is timed: epochs, workers, and what lies inside the time."""
    timed = races(rows, "fig12")
    if not timed:
        return missing("no epoch of Figure 12 was timed in this run")
    used = list({one.row.id: one.row for one in timed}.values())
    epochs = min(len(one.turns(name)) for one in timed for name in one.names)
    ranks = max(int(row.params.get("ranks", 1)) for row in used)
    device = used[0].device
    return finding(
        used,
        evidence=strength(used),
        measured={"epochs": epochs, "gpus": ranks if device == "cuda" else 0},
        holds=epochs >= claim.value["epochs"] and ranks >= 8 and device == "cuda",
        reason=(
            f"medians of at least {some(epochs, 'epoch')} on up to {some(ranks, 'rank')} "
            f"({device}); loading, communication and update lie in the time, partitioning does not"
        ),
    )


@any_graph
def nonuniform(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Both distributions are wide on every graph: Gini index and largest over median."""
    found = _real_first(select(rows, experiment="fig3"))
    if not found:
        return missing("no graph was counted in this run")
    table = Table.of(found)
    indices = {kind: table.where("gini_index", of=kind) for kind in ("edges", "lengths")}
    narrow = [
        BY_NAME[r.params["dataset"]].title
        for r in found
        if min(Table.of([r]).where("gini_index").values) < SPREAD
        or number(r, "quantile_ratio", of="edges", quantile=1.0) < WIDE
    ]
    measured = {f"Gini of {kind}, smallest": min(of.values) for kind, of in indices.items()}
    said = f"not wide: {', '.join(narrow)}" if narrow else f"Gini index at least {SPREAD} in both"
    return finding(
        found,
        evidence=_evidence(found),
        measured={key: round(value, 3) for key, value in measured.items()},
        holds=not narrow,
        reason=f"{said}; {_graphs(found)}",
    )


def quarters_vertices(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Figure 5(a): vertices of Movie's last quarter over its first."""
    found = select(rows, experiment="fig5", dataset="movie")
    if not found:
        return missing("Movie was not counted in this run")
    first, *_, last = of_quarters(found[-1], SPAN)
    if not first:
        return missing("no vertex is present in the first quarter")
    tail = of_quarters(found[-1], TAIL)
    return finding(
        found[-1:],
        evidence="counted",
        measured=last / first,
        direction=last > first,
        target=float(claim.value),
        reason=f"from first to last edge; {tail[-1] / tail[0]:.2f} where vertices stay to the end",
    )


def quarters_edges(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Figure 5(b): the first quarter of Movie has most edges, and half the last one's vertices."""
    found = select(rows, experiment="fig5", dataset="movie")
    if not found:
        return missing("Movie was not counted in this run")
    edges = of_quarters(found[-1], EDGES)
    first, *_, last = of_quarters(found[-1], SPAN)
    ratio = first / last if last else 0.0
    return finding(
        found[-1:],
        evidence="counted",
        measured={"quarter with most edges": 1 + edges.index(max(edges)), "vertices": ratio},
        holds=edges[0] == max(edges) and 0.4 <= ratio <= 0.6,
        reason="vertices of the first quarter over those of the last, from first to last edge",
    )


@any_graph
def others_alike(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The quarters of every other graph differ as well."""
    found = _real_first(
        [r for r in select(rows, experiment="fig5") if r.params["dataset"] != "movie"]
    )
    if not found:
        return missing("no graph but Movie was counted in this run")
    apart = {
        BY_NAME[r.params["dataset"]].title: max(spans(r, SPAN), spans(r, EDGES)) for r in found
    }
    alike = [name for name, factor in apart.items() if factor < WIDE]
    said = f"hardly differs: {', '.join(alike)}" if alike else f"at least {WIDE:g}x on every graph"
    return finding(
        found,
        evidence=_evidence(found),
        measured={name: round(factor, 2) for name, factor in apart.items()},
        holds=not alike,
        reason=f"fullest over emptiest quarter, {said}; {_graphs(found)}",
    )


def _real_first(rows: list[Any]) -> list[Any]:
    """The paper's graphs where they are real, else the real ones held here, else twins."""
    real = [row for row in rows if not row.data.get("twin")]
    return [row for row in real if of_the_paper(row)] or real or rows


def _evidence(rows: Sequence[Any]) -> str:
    """Counts of other graphs stand for the paper's as an analogue."""
    return "counted" if all(map(of_the_paper, rows)) else "analogue"


def _graphs(rows: Sequence[Any]) -> str:
    names = ", ".join(BY_NAME[row.params["dataset"]].title for row in rows)
    return names if all(map(of_the_paper, rows)) else f"{names} stand for the paper's graphs"


CHECKS: dict[str, Check] = {
    **{f"dgc-tab1-{title.lower()}": table1 for title in DATASET_OF},
    "dgc-s71-windows": windows,
    "dgc-s71-protocol": protocol,
    "dgc-fig3-nonuniform": nonuniform,
    "dgc-fig5a-vertices-parts": quarters_vertices,
    "dgc-fig5b-edges-parts": quarters_edges,
    "dgc-s22-others-same": others_alike,
}

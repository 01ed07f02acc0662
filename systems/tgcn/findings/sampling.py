"""Findings on sampling a graph: sections 1, 2.3 and 6.3, Figure 7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import missing
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import Judge, last, rows_with, says
from dgbench.systems.tgcn.experiments import cited, depth, fig7
from dgbench.systems.tgcn.experiments.fig7 import gain as sampling_gain
from dgbench.systems.tgcn.findings.common import Fields, Rows, geometric_mean, multiple
from dgbench.systems.tgcn.methods import BASE, ITS
from dgbench.systems.tgcn.sampling_tasks import (
    BATCH,
    FRONTIER,
    FRONTIERS,
    LARGE,
    NAMES,
    POOLED,
    TASKS,
)
from dgbench.systems.tgcn.settings import PAPERS_GRAPHS, panel

NEEDS_FIG7: Final = "needs the experiment fig7"
SAMPLED = rows_with(fig7.NAME, NEEDS_FIG7, PAPERS_GRAPHS.of)
ON_TWITTER = rows_with(fig7.NAME, f"{NEEDS_FIG7} on Twitter", last, dataset="twitter")
BY_DEPTH = rows_with(depth.NAME, "needs the experiment depth")
SUBGRAPH: Final = "subgraph 10^4"
GROWTH: Final = 2.0
"""Factor of each layer from which growth with depth is exponential."""
MULTIPLIED: Final = 1.5
"""Smallest factor of the drawn edges per layer: some vertices have few neighbours, some are met
twice."""
FLAT: Final = 0.1
"""Difference of layers up to which they are alike."""
FOURFOLD: Final = (
    f"up to {depth.FANOUT} of every vertex: each layer at least {MULTIPLIED:g} times the last"
)
LINEAR: Final = f"{depth.WIDTH} a layer: the whole grows in proportion to layers"
OTHERS: Final = tuple(way for way in POOLED[1:] if way not in ITS)
"""Ways to draw that no form of ITS is."""


def raced_over(rows: Rows, task: str, way: str) -> list[Ratio]:
    """The gain over a way to draw of each row that raced it."""
    return [ratio for row in rows if (ratio := sampling_gain(row, task, way)) is not None]


def ranges(rows: Rows, task: str, ways: Sequence[str]) -> dict[str, str]:
    """Range of the gains over each way to draw, and where it was left out."""
    said: dict[str, str] = {}
    for way in ways:
        gains = [ratio.value for ratio in raced_over(rows, task, way)]
        absent = sum(bool(fig7.left_out(row, task, way)) for row in rows)
        words = []
        if gains:
            low, high = f"{min(gains):.2g}", f"{max(gains):.2g}"
            words.append(f"{low}x" if low == high else f"{low} to {high}x")
        if absent:
            words.append(f"left out on {absent}, too slow")
        if words:
            said[NAMES[way]] = ", ".join(words)
    return said


def gains_over(task: str, ways: Sequence[str], others: Sequence[str]) -> Check:
    """A printed range of gains, on the paper's graphs.

    Args:
        task: a key of `TASKS`.
        ways: forms that the paper's baseline may have had; they give the direction.
        others: other ways, told beside.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        held = [row for row in rows_of(rows, experiment=fig7.NAME) if row not in PAPERS_GRAPHS]

        def judge(claim: Claim, found: Rows) -> Fields:
            sides = {way: [one.side for one in raced_over(found, task, way)] for way in ways}
            ahead = [way for way, known in sides.items() if known and min(known) > 0]
            beside = ranges(held, task, ways)
            means = Table.of(found).where("edges", setting=task, of="pool", method="mean").values
            pools = sorted(set(means) - {0})
            words = [f"ahead of {', '.join(NAMES[w] for w in ahead) or 'none'} on every graph"]
            if pools:
                words.append(f"pools hold {pools[0]:,} to {pools[-1]:,} edges on average")
            if beside:
                words.append("real graphs: " + ", ".join(f"{k} {v}" for k, v in beside.items()))
            level = not ahead and any(0 in side for side in sides.values())
            return {
                "measured": ranges(found, task, (*ways, *others)),
                "direction": bool(ahead),
                "undecided": level or not any(sides.values()),
                "reason": f"{TASKS[task]}: {'; '.join(words)}",
            }

        return says(SAMPLED, judge)(claim, rows)

    return check


def largest_sampling_gain(claim: Claim, rows: Rows) -> Fields | None:
    """The largest gain over BRS that sums up its whole table, by either reading of the frontier."""
    known = [
        (ratio, task, row)
        for task in (SUBGRAPH, "subgraph 10%")
        for row in rows
        if (ratio := sampling_gain(row, task, "brs")) is not None
    ]
    if not known:
        return None
    best, task, row = max(known, key=lambda one: one[0].value)
    others = {way: sampling_gain(row, task, way) for way in FRONTIERS if way not in (BASE, "brs")}
    words = ", ".join(f"{NAMES[w]} {r.value:.2g}x" for w, r in others.items() if r is not None)
    slots = number(row, "vertices", setting=task, of="frontier")
    return {
        "rows": [row],
        "measured": best.value,
        "low": best.low,
        "high": best.high,
        "direction": best.value > 1,
        "target": claim.value,
        "reason": f"{TASKS[task]} on {panel(row)}, {slots:,} slots; against others there: {words}",
    }


def twitter_hours(claim: Claim, rows: Rows) -> Fields:
    """Hours of as many steps of BRS on a frontier of 10^4 as Twitter has edges."""
    steps = number(rows[0], "draw_work", setting=SUBGRAPH, of="draws")
    spent = Table.of(rows).where("sampling_time", setting=SUBGRAPH).numbers("method")
    draws = cited.twitter_edges()  # one for every edge that the text counts
    ways = ("brs", "brs rest", BASE)
    hours = {way: spent[way] / steps * draws / 3600 for way in ways}
    others = ", ".join(f"{NAMES[w]} {h:.2g} hours" for w, h in hours.items() if w != "brs")
    return {
        "measured": hours["brs"],
        "target": claim.value,
        "reason": f"{steps:,} steps of one thread on a frontier of {FRONTIER:,}, times "
        f"{draws / 1e9:g} billion edges; {others}",
    }


def degree_trend(claim: Claim, rows: Rows) -> Fields | Finding | None:
    """Gains on the graphs of larger mean degree against the others, for each form of ITS."""
    if len(rows) < 2:
        return None

    def degree(row: Any) -> float:
        return 2 * number(row, "edges", of=None) / number(row, "vertices", of=None)

    ordered = sorted(rows, key=degree, reverse=True)
    measured: dict[str, str] = {}
    votes: list[bool] = []
    for way in ITS:
        gains = [one.value for one in raced_over(ordered, "node 2", way)]
        if len(gains) < 2:
            continue
        half = len(gains) // 2
        above, below = geometric_mean(gains[:half]), geometric_mean(gains[-half:])
        votes.append(above > below)
        measured[NAMES[way]] = f"{above:.2g}x on larger, {below:.2g}x on smaller degrees"
    if not votes:
        return missing(f"{NEEDS_FIG7}; no form of ITS ran on two graphs")
    order = ", ".join(f"{panel(row)} {degree(row):.0f}" for row in ordered)
    return {
        "measured": measured,
        "holds": all(votes),
        "direction": all(votes),
        "undecided": any(votes) and not all(votes),
        "reason": f"mean degrees of these graphs, 2 E/V: {order}",
    }


def whole_graph(row: Any) -> dict[str, float]:
    """Seconds of sampling all of a graph by SIS, in proportion to roots and draws."""
    spent = Table.of([row]).where("sampling_time", method=BASE).numbers("setting")
    roots = Table.of([row]).where("vertices", of="roots").numbers("setting")
    vertices, edges = number(row, "vertices", of="met"), number(row, "edges", of=None)
    seconds = {task: spent[task] / roots[task] * vertices for task in ("node 2", "node 3", LARGE)}
    draws = number(row, "draw_work", setting=SUBGRAPH, of="draws")
    return seconds | {"subgraph": spent[SUBGRAPH] / draws * edges}


def cost_order(claim: Claim, rows: Rows) -> Fields:
    """Seconds for all roots, and for as many draws as edges, in order."""
    every = {panel(row): whole_graph(row) for row in rows}
    holds = all(s["node 2"] > s["subgraph"] > s[LARGE] for s in every.values())
    return {
        "measured": {
            name: " < ".join(sorted(s, key=lambda task: s[task])).replace(LARGE, "layer")
            for name, s in every.items()
        },
        "holds": holds,
        "direction": holds,
        "reason": "seconds for every vertex as a root, and for |E| draws of subgraphs, in "
        f"proportion to what was timed; up to {BATCH} roots share the pools of a layer-wise call",
    }


def third_layer(claim: Claim, rows: Rows) -> Fields:
    """Check the factor by which a third layer multiplies the time of a root."""
    grown = {panel(row): whole_graph(row)["node 3"] / whole_graph(row)["node 2"] for row in rows}
    return {
        "measured": {name: multiple(factor, ".1f") for name, factor in grown.items()},
        "holds": min(grown.values()) >= GROWTH,
        "direction": min(grown.values()) > 1,
        "reason": "time of a root with three layers over two, SIS; small graphs are soon exhausted",
    }


def by_layer(way: str, holds: Callable[[list[float]], bool], words: str) -> Judge:
    """Edges that a sample draws in each layer."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        drawn = {panel(row): depth.drawn(row, way) for row in rows}
        return {
            "measured": {
                name: ", ".join(f"{edges:.0f}" for edges in each) for name, each in drawn.items()
            },
            "holds": all(map(holds, drawn.values())),
            "reason": f"edges drawn in layers 1 to {depth.LAYERS}; {words}",
        }

    return judge


def multiplies(layers: list[float]) -> bool:
    """Return True if each layer draws several times the edges of the one before."""
    return min(after / before for before, after in pairwise(layers)) >= MULTIPLIED


def alike(layers: list[float]) -> bool:
    """Return True if all layers draw about as many edges."""
    return max(layers) <= (1 + FLAT) * min(layers)

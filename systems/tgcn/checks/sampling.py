"""Claims on sampling a graph: sections 1, 2.3 and 6.3, Figure 7."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import (
    CPU_EVIDENCE,
    finding,
    missing,
    of_the_paper,
    papers_graphs,
)
from dgbench.systems.tgcn.experiments import depth
from dgbench.systems.tgcn.experiments.common import number, panel
from dgbench.systems.tgcn.experiments.fig7 import NAME, gain, left_out
from dgbench.systems.tgcn.experiments.methods import BASE, ITS
from dgbench.systems.tgcn.experiments.sampling_tasks import (
    BATCH,
    FRONTIER,
    FRONTIERS,
    LARGE,
    NAMES,
    POOLED,
    TASKS,
)

NEEDED: Final = "needs the experiment fig7"
TWITTER_DRAWS: Final = 1.46e9
"""One for every edge that the text counts."""
GROWTH: Final = 2.0
"""Factor of each layer from which growth with depth is exponential."""
MULTIPLIED: Final = 1.5
"""What each layer must multiply the edges drawn by: some vertices have few neighbours, some are met
twice."""
FLAT: Final = 0.1
"""Difference of layers up to which they are alike."""

Rows = Sequence[Any]


def _known(rows: Sequence[Any], task: str, way: str) -> list[Ratio]:
    return [ratio for row in rows if (ratio := gain(row, task, way)) is not None]


def _range(ratios: Sequence[Ratio]) -> str:
    low, high = (f"{end(r.value for r in ratios):.2g}" for end in (min, max))
    return f"{low}x" if low == high else f"{low} to {high}x"


def _told(rows: Sequence[Any], task: str, ways: Sequence[str]) -> dict[str, str]:
    """Range of the gains over each way to draw, and where it was left out."""
    said: dict[str, str] = {}
    for way in ways:
        known = _known(rows, task, way)
        absent = sum(bool(left_out(row, task, way)) for row in rows)
        words = [_range(known)] if known else []
        if absent:
            words.append(f"left out on {absent}, too slow")
        if words:
            said[NAMES[way]] = ", ".join(words)
    return said


def gains_over(task: str, ways: Sequence[str], others: Sequence[str]) -> Check:
    """A check of a printed range of gains, on the paper's graphs.

    Args:
        task: a key of `TASKS`.
        ways: forms that the paper's baseline may have had; they give the direction.
        others: other ways, told beside.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        every = rows_of(rows, experiment=NAME)
        found = papers_graphs(every)
        if not found:
            return missing(NEEDED)
        sides = {way: [r.side for r in _known(found, task, way)] for way in ways}
        ahead = [way for way, known in sides.items() if known and min(known) > 0]
        some = any(known for known in sides.values())
        held = [row for row in every if not of_the_paper(row)]
        beside = _told(held, task, ways)
        means = Table.of(found).where("edges", setting=task, of="pool", method="mean").values
        pools = sorted(set(means) - {0})
        words = [f"ahead of {', '.join(NAMES[w] for w in ahead) or 'none'} on every graph"]
        if pools:
            words.append(f"pools hold {pools[0]:,} to {pools[-1]:,} edges on average")
        if beside:
            words.append("real graphs: " + ", ".join(f"{k} {v}" for k, v in beside.items()))
        return finding(
            found,
            evidence=CPU_EVIDENCE,
            measured=_told(found, task, (*ways, *others)),
            direction=bool(ahead),
            undecided=not some or (not ahead and any(0 in s for s in sides.values())),
            reason=f"{TASKS[task]}: {'; '.join(words)}",
        )

    return check


def largest_gain(claim: Claim, rows: Rows) -> Finding:
    """The largest gain over BRS that sums up its whole table, by either reading of the frontier."""
    found = papers_graphs(rows_of(rows, experiment=NAME))
    known = {
        (task, row.id): ratio
        for task in ("subgraph 10^4", "subgraph 10%")
        for row in found
        if (ratio := gain(row, task, "brs")) is not None
    }
    if not known:
        return missing(NEEDED)
    (task, name), best = max(known.items(), key=lambda item: item[1].value)
    row = next(r for r in found if r.id == name)
    others = {way: gain(row, task, way) for way in FRONTIERS if way not in (BASE, "brs")}
    words = ", ".join(f"{NAMES[w]} {r.value:.2g}x" for w, r in others.items() if r is not None)
    slots = number(row, "vertices", setting=task, of="frontier")
    made = finding(
        [row],
        evidence=CPU_EVIDENCE,
        measured=best.value,
        direction=best.value > 1,
        target=38.8,
        reason=(f"{TASKS[task]} on {panel(row)}, {slots:,} slots; against others there: {words}"),
    )
    made.low, made.high = best.low, best.high
    return made


def twitter_hours(claim: Claim, rows: Rows) -> Finding:
    """Hours of as many steps of BRS on a frontier of 10^4 as Twitter has edges."""
    found = rows_of(rows, experiment=NAME, dataset="twitter")
    if not found:
        return missing(f"{NEEDED} on Twitter")
    row, task = found[-1], "subgraph 10^4"
    steps = number(row, "draw_work", setting=task, of="draws")
    hours = {
        way: number(row, "sampling_time", setting=task, method=way) / steps * TWITTER_DRAWS / 3600
        for way in ("brs", "brs rest", BASE)
    }
    others = ", ".join(f"{NAMES[w]} {h:.2g} hours" for w, h in hours.items() if w != "brs")
    return finding(
        [row],
        evidence="projected",
        measured=hours["brs"],
        target=1.5,
        reason=(
            f"{steps:,} steps of one thread on a frontier of {FRONTIER:,}, times 1.46 billion "
            f"edges; {others}"
        ),
    )


def degree_trend(claim: Claim, rows: Rows) -> Finding:
    """Gains on the graphs of larger mean degree against the others, for each form of ITS."""
    found = papers_graphs(rows_of(rows, experiment=NAME))
    if len(found) < 2:
        return missing(NEEDED)
    task = "node 2"

    def degree(row: Any) -> float:
        return 2 * number(row, "edges", of=None) / number(row, "vertices", of=None)

    measured: dict[str, str] = {}
    votes: list[bool] = []
    for way in ITS:
        raced = sorted((row for row in found if gain(row, task, way)), key=degree, reverse=True)
        if len(raced) < 2:
            continue
        gains = [r.value for row in raced if (r := gain(row, task, way)) is not None]
        half = len(gains) // 2
        above, below = (_mean(part) for part in (gains[:half], gains[-half:]))
        votes.append(above > below)
        measured[NAMES[way]] = f"{above:.2g}x on larger, {below:.2g}x on smaller degrees"
    if not votes:
        return missing(f"{NEEDED}; no form of ITS ran on two graphs")
    order = ", ".join(
        f"{panel(row)} {degree(row):.0f}" for row in sorted(found, key=degree, reverse=True)
    )
    return finding(
        found,
        evidence=CPU_EVIDENCE,
        measured=measured,
        holds=all(votes),
        direction=all(votes),
        undecided=any(votes) and not all(votes),
        reason=f"mean degrees of these graphs, 2 E/V: {order}",
    )


def _mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(v) for v in values) / len(values))


def _whole(row: Any) -> dict[str, float]:
    """Seconds of sampling all of a graph by SIS, in proportion to roots and draws."""
    spent = Table.of([row]).where("sampling_time", method=BASE).numbers("setting")
    roots = Table.of([row]).where("vertices", of="roots").numbers("setting")
    vertices, edges = number(row, "vertices", of="met"), number(row, "edges", of=None)
    seconds = {task: spent[task] / roots[task] * vertices for task in ("node 2", "node 3", LARGE)}
    task = "subgraph 10^4"
    draws = number(row, "draw_work", setting=task, of="draws")
    return seconds | {"subgraph": spent[task] / draws * edges}


def cost_order(claim: Claim, rows: Rows) -> Finding:
    """Seconds for all roots, and for as many draws as edges, in order."""
    found = papers_graphs(rows_of(rows, experiment=NAME))
    if not found:
        return missing(NEEDED)
    all_of = {panel(row): _whole(row) for row in found}
    holds = [s["node 2"] > s["subgraph"] > s[LARGE] for s in all_of.values()]
    return finding(
        found,
        evidence="projected",
        measured={
            name: " < ".join(sorted(s, key=lambda task: s[task])).replace(LARGE, "layer")
            for name, s in all_of.items()
        },
        holds=all(holds),
        direction=all(holds),
        reason=(
            "seconds for every vertex as a root, and for |E| draws of subgraphs, in proportion to "
            f"what was timed; up to {BATCH} roots share the pools of a layer-wise call"
        ),
    )


def third_layer(claim: Claim, rows: Rows) -> Finding:
    """What a third layer multiplies the time of a root by."""
    found = papers_graphs(rows_of(rows, experiment=NAME))
    if not found:
        return missing(NEEDED)
    grown = {panel(row): _whole(row)["node 3"] / _whole(row)["node 2"] for row in found}
    return finding(
        found,
        evidence=CPU_EVIDENCE,
        measured={name: f"{factor:.1f}x" for name, factor in grown.items()},
        holds=min(grown.values()) >= GROWTH,
        direction=min(grown.values()) > 1,
        reason="time of a root with three layers over two, SIS; small graphs are soon exhausted",
    )


def _layers(way: str, judge: Callable[[list[float]], bool], words: str) -> Check:
    def check(claim: Claim, rows: Rows) -> Finding:
        found = rows_of(rows, experiment=depth.NAME)
        if not found:
            return missing("needs the experiment depth")
        drawn = {panel(row): depth.drawn(row, way) for row in found}
        return finding(
            found,
            evidence="counted",
            measured={
                name: ", ".join(f"{edges:.0f}" for edges in counts)
                for name, counts in drawn.items()
            },
            holds=all(judge(counts) for counts in drawn.values()),
            reason=f"edges drawn in layers 1 to {depth.LAYERS}; {words}",
        )

    return check


def _multiplies(counts: list[float]) -> bool:
    steps = [b / a for a, b in pairwise(counts)]
    return min(steps) >= MULTIPLIED


def _alike(counts: list[float]) -> bool:
    return max(counts) <= (1 + FLAT) * min(counts)


CHECKS: dict[str, Check] = {
    "tgcn-abs-sampling-max-speedup": largest_gain,
    "tgcn-s1-brs-twitter-time": twitter_hours,
    "tgcn-fig7-nodewise-2layer": gains_over("node 2", ITS, [w for w in POOLED[1:] if w not in ITS]),
    "tgcn-fig7-nodewise-3layer": gains_over("node 3", ITS, [w for w in POOLED[1:] if w not in ITS]),
    "tgcn-fig7-layerwise": gains_over("layer", ITS, [w for w in POOLED[1:] if w not in ITS]),
    "tgcn-fig7-subgraph": gains_over(
        "subgraph 10^4", ("brs", "brs rest"), [w for w in FRONTIERS[1:] if "brs" not in w]
    ),
    "tgcn-fig7-degree-trend": degree_trend,
    "tgcn-fig7-cost-order": cost_order,
    "tgcn-fig7-3layer-exponential": third_layer,
    "tgcn-s2-nodewise-exponential": _layers(
        "node",
        _multiplies,
        f"up to {depth.FANOUT} of every vertex: each layer at least {MULTIPLIED:g} times the last",
    ),
    "tgcn-s2-layerwise-linear": _layers(
        "layer", _alike, f"{depth.WIDTH} a layer: the whole grows in proportion to layers"
    ),
}

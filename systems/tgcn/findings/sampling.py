"""Findings on sampling a graph: sections 1, 2.3 and 6.3, Figure 7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import from_ratio
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, readings, rows_with, says
from dgbench.systems.tgcn.common import cells_of, pooled
from dgbench.systems.tgcn.experiments import cited, depth, fig7
from dgbench.systems.tgcn.experiments.fig7 import gain as sampling_gain
from dgbench.systems.tgcn.findings.common import Fields, Rows, beyond, decided, multiple, shown
from dgbench.systems.tgcn.methods import BASE, ITS
from dgbench.systems.tgcn.sampling_tasks import (
    BATCH,
    FRONTIER,
    NAMES,
    POOLED,
    SUBGRAPHS,
    TASKS,
    WHOLE_BATCHES,
    WHOLE_NODE,
    WHOLE_ONCE,
    WHOLE_SUBGRAPHS,
)
from dgbench.systems.tgcn.settings import PAPERS_GRAPHS, TWIN_NAMES, panel

NEEDS_FIG7: Final = "needs the experiment fig7"
SAMPLED = rows_with(fig7.NAME, NEEDS_FIG7, PAPERS_GRAPHS.of)
ON_TWITTER = rows_with(fig7.NAME, f"{NEEDS_FIG7} on Twitter", dataset="twitter")
BY_DEPTH = rows_with(depth.NAME, "needs the experiment depth")
SUBGRAPH: Final = "subgraph 10^4"
QUADRATIC: Final = 2.25
"""Factor of a third layer by which time grows with the square of layers; exponential is more."""
FRONTIER_SIZES: Final = {SUBGRAPH: "a frontier of 10^4", "subgraph 10%": "a tenth of the vertices"}
"""Task -> reading of the garbled size of a frontier."""
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


def by_graph(rows: Rows, task: str, way: str) -> dict[str, Ratio]:
    """Gain over a way to draw, by graph that raced it, over all processes."""
    found = {panel(cell[0]): sampling_gain(cell, task, way) for cell in cells_of(rows)}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def gain_over(task: str, way: str, *, printed: Sequence[str] = ()) -> Judge:
    """A printed range of gains over one way to draw, on the paper's graphs.

    Args:
        task: a key of `TASKS`.
        way: form that the paper's baseline may have had.
        printed: other ways, told beside.
    """

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        gains = by_graph(rows, task, way)
        if not gains:
            return None
        sides = [one.side for one in gains.values()]
        low, high = (f(one.value for one in gains.values()) for f in (min, max))
        absent = [panel(c[0]) for c in cells_of(rows) if fig7.left_out(c[0], task, way)]
        words = [f"{name} {one.value:.2g}x" for name, one in gains.items()]
        words += [f"left out on {name}, too slow" for name in absent]
        for other in printed:
            values = [one.value for one in by_graph(rows, task, other).values()]
            if values:
                words.append(f"over {NAMES[other]} {min(values):.2g} to {max(values):.2g}x")
        every = len(gains) == len(TWIN_NAMES)
        return {
            # A range is that of all four graphs.
            "measured": {"low": low, "high": high} if every else f"{low:.2g} to {high:.2g}x",
            "direction": min(sides) > 0,
            "undecided": 0 in sides and -1 not in sides,
            "processes": min(one.processes for one in gains.values()),
            "reason": f"{TASKS[task]}: {', '.join(words)}",
        }

    return judge


def gains_over(task: str, ways: Sequence[str], others: Sequence[str]) -> Check:
    """A printed range of gains under each form that the paper's baseline may have had."""
    return readings(
        **{NAMES[way]: says(SAMPLED, gain_over(task, way, printed=others)) for way in ways}
    )


def over_frontiers(judge: Callable[[str, str], Judge]) -> Check:
    """A check under each size of the frontier and each form of BRS."""
    return readings(
        **{
            f"{words}, {NAMES[way]}": says(SAMPLED, judge(task, way))
            for task, words in FRONTIER_SIZES.items()
            for way in ("brs", "brs rest")
        }
    )


def largest_gain(task: str, way: str) -> Judge:
    """The largest gain over a form of BRS on the paper's graphs."""

    def judge(claim: Claim, rows: Rows) -> Finding | None:
        gains = by_graph(rows, task, way)
        if not gains:
            return None
        name = max(gains, key=lambda graph: gains[graph].value)
        return from_ratio(gains[name], target=claim.value, reason=f"{TASKS[task]} on {name}")

    return judge


subgraph_gains: Final[Check] = over_frontiers(gain_over)
largest_sampling_gain: Final[Check] = over_frontiers(largest_gain)


def hours_by(way: str) -> Judge:
    """Hours of as many steps of a form of BRS on a frontier of 10^4 as Twitter has edges."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        draws = cited.twitter_edges()  # one for every edge that the text counts
        steps = number(rows[0], "draw_work", setting=SUBGRAPH, of="draws")
        spent = Table.of(rows).where("sampling_time", setting=SUBGRAPH, method=way)
        found = pooled([[(one.row, one.value / steps * draws / 3600) for one in spent]])
        if found is None:
            return None
        return {
            **shown(found),
            "target": claim.value,
            "model": "rate of one thread, multiplied up",
            "reason": f"{steps:,} steps on a frontier of {FRONTIER:,}, times "
            f"{draws / 1e9:g} billion edges",
        }

    return judge


twitter_hours: Final[Check] = readings(
    **{NAMES[way]: says(ON_TWITTER, hours_by(way)) for way in ("brs", "brs rest")}
)


def mean_degree(row: Any) -> float:
    """Ends of edges over vertices of a graph."""
    return 2 * number(row, "edges", of=None) / number(row, "vertices", of=None)


def degree_trend_by(way: str) -> Judge:
    """Gains on the graphs of larger mean degree against the others, for a form of ITS."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        cells = [cell for cell in cells_of(rows) if sampling_gain(cell, "node 2", way)]
        if len(cells) < 2:
            return None
        cells.sort(key=lambda cell: mean_degree(cell[0]), reverse=True)
        half = len(cells) // 2
        above, below = (
            sampling_gain([row for cell in some for row in cell], "node 2", way)
            for some in (cells[:half], cells[-half:])
        )
        assert above is not None
        assert below is not None
        order = ", ".join(f"{panel(cell[0])} {mean_degree(cell[0]):.0f}" for cell in cells)
        return {
            "measured": f"{above.value:.2g}x on larger, {below.value:.2g}x on smaller degrees",
            "processes": min(above.processes, below.processes),
            "reason": f"mean degrees of these graphs, 2 E/V: {order}",
            **decided([above.against(below)]),
        }

    return judge


degree_trend: Final[Check] = readings(
    **{NAMES[way]: says(SAMPLED, degree_trend_by(way)) for way in ITS}
)


def whole_time(row: Any, setting: str) -> float:
    """Seconds of sampling all of a graph by SIS."""
    return number(row, "sampling_time", setting=setting, method=BASE)


def costs(layer: str) -> Judge:
    """Time of sampling whole graphs: node-wise over subgraphs, and these over layer-wise."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        cells = [c for c in cells_of(rows) if Table.of(c).where("sampling_time", setting=layer)]
        if not cells:
            return None
        pairs = ((WHOLE_NODE, WHOLE_SUBGRAPHS), (WHOLE_SUBGRAPHS, layer))
        said, sides = {}, []
        for cell in cells:
            ratios = [
                pooled([[(row, whole_time(row, slow) / whole_time(row, fast)) for row in cell]])
                for slow, fast in pairs
            ]
            sides += [one.side for one in ratios if one is not None]
            over, under = (one.value for one in ratios if one is not None)
            said[panel(cell[0])] = f"{over:.2g}x and {under:.2g}x"
        return {
            "measured": said,
            "rows": [row for cell in cells for row in cell],
            "reason": "node-wise over subgraphs, these over layer-wise: every vertex as a root, "
            f"and {SUBGRAPHS} subgraphs of |E| / {SUBGRAPHS} draws"
            + "".join(
                f"; {panel(c[0])} is too large for it" for c in cells_of(rows) if c not in cells
            ),
            **decided(sides),
        }

    return judge


cost_order: Final[Check] = readings(
    **{
        f"{BATCH} roots share a pool": says(SAMPLED, costs(WHOLE_BATCHES)),
        "all roots share a pool": says(SAMPLED, costs(WHOLE_ONCE)),
    }
)


def third_layer(claim: Claim, rows: Rows) -> Fields:
    """Check the factor by which a third layer multiplies the time of a root."""

    def grown(row: Any) -> float:
        spent = Table.of([row]).where("sampling_time", method=BASE).numbers("setting")
        roots = Table.of([row]).where("vertices", of="roots").numbers("setting")
        two, three = (spent[task] / roots[task] for task in ("node 2", "node 3"))
        return three / two

    ratios = {panel(c[0]): pooled([[(row, grown(row)) for row in c]]) for c in cells_of(rows)}
    known = {name: one for name, one in ratios.items() if one is not None}
    return {
        "measured": {name: multiple(one.value, ".1f") for name, one in known.items()},
        "reason": "time of a root with three layers over two, SIS; quadratic growth would be "
        f"{QUADRATIC:g}x",
        **decided(beyond(one, QUADRATIC) for one in known.values()),
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

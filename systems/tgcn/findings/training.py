"""Findings on training: Figure 6, Table 2 and the ablation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import from_ratio
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.probes import probe
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import Judge, readings, rows_with, says
from dgbench.systems.tgcn.common import cells_of, pooled
from dgbench.systems.tgcn.experiments import ablation, fig6, fig9, table2
from dgbench.systems.tgcn.findings.common import (
    NEEDS_CUDA,
    Fields,
    Rows,
    decided,
    geometric_mean,
)
from dgbench.systems.tgcn.printed import PRINTED_TITLE
from dgbench.systems.tgcn.races import (
    DYGNN,
    FORMER_WORDS,
    JODIE,
    RELAXED,
    SAME_ORDER,
    TGCN,
    TITLES,
)
from dgbench.systems.tgcn.settings import (
    BY_NAME,
    PAPERS_GRAPHS,
    SMALL_NAMES,
    graph_title,
)

# End-to-end training: Figure 6, section 6.2.

NO_FIG6: Final = "needs a row of fig6"
RACES = rows_with(fig6.NAME, NO_FIG6, PAPERS_GRAPHS.of, what="race")
GPU_RACES = rows_with(fig6.NAME, NEEDS_CUDA, PAPERS_GRAPHS.of, what="race", device="cuda")
GPU_RATE = rows_with(fig6.NAME, NEEDS_CUDA, what="rate", device="cuda")
RESIDENT = probe("gpu_kernel_resident_percent")
"""Probe of NVML's utilisation."""
BUSY: Final = 90
"""Percent of the time from which a GPU is fully used."""


def thousands(printed: str) -> float:
    """A number that is printed in thousands, as `34K`."""
    return 1000 * float(printed.rstrip("K"))


def all_raced(rows: Rows) -> bool:
    """Return True if each graph that both baselines train on was raced."""
    return {row.params["dataset"] for row in rows} >= set(SMALL_NAMES)


def factors(rows: Rows, base: str) -> str:
    """The factor over a baseline in strict order as a product of what it is made of."""
    strict, same = fig6.gain(rows, base), fig6.gain(rows, SAME_ORDER[base])
    if strict is None or same is None:
        return ""
    return (
        f"; over {TITLES[base]} re-implemented in strict order T-GCN is {strict.value:.3g}x as "
        f"fast: {strict.value / same.value:.3g}x by the relaxed order, which a baseline may have, "
        f"{same.value:.2f}x by the paper's techniques"
    )


def faster_than(base: str) -> Check:
    """Geometric mean of the gains over a baseline in the same order on the paper's graphs."""

    def judge(claim: Claim, rows: Rows) -> Finding | None:
        ratio = fig6.gain(rows, SAME_ORDER[base])
        if ratio is None or not all_raced(rows):
            return None
        each = ", ".join(
            f"{graph_title(name)} {one.value:.2f}x"
            for name, one in each_graph(rows, SAME_ORDER[base]).items()
        )
        said = f"in the same relaxed order: {each}{factors(rows, base)}"
        return from_ratio(ratio, target=float(claim.value["mean"]), reason=said)

    return says(RACES, judge)


def each_graph(rows: Rows, over: str) -> dict[str, Ratio]:
    """Gain of T-GCN over a contender, by graph."""
    found = {c[0].params["dataset"]: fig6.gain(c, over) for c in cells_of(rows)}
    return {name: ratio for name, ratio in found.items() if ratio is not None}


def fastest_everywhere(claim: Claim, rows: Rows) -> Fields | None:
    """T-GCN is faster than both in the same order on every graph, by intervals."""
    gains = {base: each_graph(rows, same) for base, same in SAME_ORDER.items()}
    every = [one for each in gains.values() for one in each.values()]
    if not all_raced(rows) or len(every) < len(SAME_ORDER) * len(SMALL_NAMES):
        return None
    strict = [one.value for base in SAME_ORDER for one in each_graph(rows, base).values()]
    return {
        "measured": min(one.value for one in every),
        "processes": min(one.processes for one in every),
        "reason": "over either in the same relaxed order; over the strict ones at least "
        f"{min(strict):.3g}x",
        **decided(one.side for one in every),
    }


def largest_of(claim: Claim, rows: Rows) -> Finding | None:
    """The largest gain over either baseline in the same order."""
    known = [
        (ratio, base, name)
        for base, same in SAME_ORDER.items()
        for name, ratio in each_graph(rows, same).items()
    ]
    if not known or not all_raced(rows):
        return None
    ratio, base, name = max(known, key=lambda one: one[0].value)
    said = f"over {TITLES[SAME_ORDER[base]]} on {graph_title(name)}{factors(rows, base)}"
    return from_ratio(ratio, target=claim.value, reason=said)


beats_both: Final[Check] = says(RACES, fastest_everywhere)
largest_gain: Final[Check] = says(RACES, largest_of)


def underused(claim: Claim, rows: Rows) -> Fields | None:
    """The GPU is not saturated by the small graphs."""
    known = [busy for row in rows if (busy := RESIDENT.read(row)) is not None]
    if not known:
        return None
    return {
        "measured": max(known),
        "holds": max(known) < BUSY,
        "reason": "mean utilisation of a process that trains all contenders, in percent",
    }


def twitter_time(claim: Claim, rows: Rows) -> Fields:
    """Time on Twitter, from the rate on a twin of a part of it."""
    row = rows[-1]
    return {
        "measured": BY_NAME[fig6.LARGE].printed.edges * number(row, "edge_time", setting=TGCN),
        "target": claim.value,
        "model": "rate on a part, multiplied up",
        "reason": f"one epoch at the rate of {number(row, 'edges', of=None):,} edges of a twin; "
        "the paper does not say how many epochs it trained",
    }


def rate_on(name: str, graph: str, claimed: Callable[[Any], str] = str) -> Judge:
    """Edges a second of a contender on one graph."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        mine = [row for row in rows if row.params["dataset"] == graph]
        rates = Table.of(mine).where("throughput", setting=name).values
        if not rates:
            return None
        return {
            "rows": mine,
            "measured": geometric_mean(rates),
            "target": thousands(claimed(claim.value)),
            "reason": "edges/s of the whole graph; none is named",
        }

    return judge


def throughput(name: str) -> Check:
    """Edges a second of a contender, on each graph that the number may be of."""
    return readings(
        **{BY_NAME[graph].title: says(RACES, rate_on(name, graph)) for graph in SMALL_NAMES}
    )


def largest_throughput(claim: Claim, rows: Rows) -> Fields | None:
    """The largest of T-GCN's rates on the paper's graphs."""
    rates = Table.of(rows).where("throughput", setting=TGCN).by("dataset")
    if not rates:
        return None
    printed = claim.value["T-GCN"] if isinstance(claim.value, dict) else claim.value
    return {
        "measured": max(geometric_mean(each.values) for each in rates.values()),
        "target": thousands(printed),
        "reason": "edges/s of the whole graph",
    }


throughput_floor: Final[Check] = readings(
    **{
        f"{TITLES[name]} on {BY_NAME[graph].title}": says(
            RACES, rate_on(name, graph, lambda printed: printed["prior"])
        )
        for name in (DYGNN, JODIE)
        for graph in SMALL_NAMES
    },
    **{"T-GCN": says(RACES, largest_throughput)},
)


# Copies, computation and their overlap: Table 2, section 4.3.

NO_TABLE2: Final = "needs a row of table2"
TIMES = rows_with(table2.NAME, NO_TABLE2, PAPERS_GRAPHS.of)
ALL_TIMES = rows_with(table2.NAME, NO_TABLE2)
NO_EPOCHS: Final = (
    "seconds of an unprinted number of epochs on a V100: no run here can be compared with them"
)
NEAR: Final = 0.05
"""Relative distance up to which a share is the printed one."""
SOME: Final = 0.05
"""Share of the time of copies from which they run beside training."""


def gpu_seconds(system: str, part: str) -> Check:
    """Seconds of an epoch on a GPU, by graph; of how many epochs the printed ones are is not
    said, so that they are shown beside and decide nothing."""

    def with_it(rows: list[Any]) -> list[Any]:
        return [row for row in PAPERS_GRAPHS.of(rows) if table2.parts_of(row, system)]

    def judge(claim: Claim, rows: Rows) -> Fields:
        return {
            "measured": {
                PRINTED_TITLE[row.params["dataset"]]: table2.parts_of(row, system)[part]
                for row in rows
            },
            "reason": "seconds of one epoch; the paper does not say of how many its are",
        }

    return says(rows_with(table2.NAME, NO_EPOCHS, with_it, device="cuda"), judge)


def compute_share(claim: Claim, rows: Rows) -> Fields:
    """Computation as a share of the time, of both systems on each graph."""
    shares = {
        f"{graph_title(cell[0].params['dataset'])} {name}": 100
        * sum(table2.share(row, key) for row in cell)
        / len(cell)
        for cell in cells_of(rows)
        for key, name in ((TGCN, "T-GCN"), (DYGNN, "DyGNN"))
        if table2.parts_of(cell[0], key)
    }
    low, high = (claim.value[end] for end in ("low", "high"))
    return {
        "measured": {name: f"{share:.0f} %" for name, share in shares.items()},
        "holds": all(low * (1 - NEAR) <= one <= high * (1 + NEAR) for one in shares.values()),
        "reason": f"the same is within {NEAR:.0%} of the printed range",
    }


def shorter(key: str, total: str) -> Judge:
    """Copies and computation over the time of an epoch, on every graph.

    Args:
        key: form of T-GCN. total: `whole`, or `device`: computation and what is waited for.
    """

    def parts_over_whole(row: Any) -> float:
        parts = table2.parts_of(row, key)
        whole = parts["total"] if total == "whole" else parts["compute"] + parts["wait"]
        return (parts["compute"] + parts["io"]) / whole

    def judge(claim: Claim, rows: Rows) -> Fields:
        ratios = {
            graph_title(cell[0].params["dataset"]): pooled(
                [[(row, parts_over_whole(row)) for row in cell]]
            )
            for cell in cells_of(rows)
        }
        known = {name: one for name, one in ratios.items() if one is not None}
        return {
            "measured": {name: f"{one.value:.2f}x" for name, one in known.items()},
            "processes": min(one.processes for one in known.values()),
            "reason": f"copies and computation over the whole{table2.former_words(rows, key)}",
            **decided(one.side for one in known.values()),
        }

    return judge


overlap: Final[Check] = readings(
    **{
        "state on the device": says(TIMES, shorter(TGCN, "device")),
        "state streamed": says(TIMES, shorter(table2.STREAMED, "device")),
        "state streamed, with sampling and cutting": says(TIMES, shorter(table2.STREAMED, "whole")),
    }
)


def both_reduced(claim: Claim, rows: Rows) -> Fields | None:
    """T-GCN copies and computes less than DyGNN in the same order, on every graph."""
    cells = [cell for cell in cells_of(rows) if table2.parts_of(cell[0], RELAXED)]
    if not cells:
        return None
    words, sides = [], []
    for cell in cells:
        title = graph_title(cell[0].params["dataset"])
        for part in ("io", "compute"):
            groups = [
                [
                    (row, table2.parts_of(row, over)[part] / table2.parts_of(row, TGCN)[part])
                    for row in cell
                    if table2.parts_of(row, TGCN)[part] > 0
                ]
                for over in (RELAXED, DYGNN)
                if table2.parts_of(cell[0], over)
            ]
            ratios = [one for group in groups if (one := pooled([group])) is not None]
            if not ratios:
                continue
            sides.append(ratios[0].side)
            words.append(f"{title} {part} " + " and ".join(f"{one.value:.3g}x" for one in ratios))
    if not sides:
        return None
    return {
        "rows": [row for cell in cells for row in cell],
        "measured": f"{sides.count(1)} of {len(sides)} parts are shorter",
        "reason": "DyGNN in the same relaxed order over T-GCN, and in strict order: "
        + ", ".join(words),
        **decided(sides),
    }


def hidden_more(three: str, one: str) -> Judge:
    """Share of the copies that is hidden with three regions less that with one, on every graph."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        said, sides = {}, []
        for cell in cells_of(rows):
            shares = [table2.hidden_share(row, three) for row in cell]
            lead = fig9.lead(
                {
                    ("", place): [share - table2.hidden_share(row, one)]
                    for place, (row, share) in enumerate(zip(cell, shares, strict=True))
                }
            )
            assert lead is not None
            sides.append(lead.side)
            said[graph_title(cell[0].params["dataset"])] = f"{sum(shares) / len(shares):.0%}"
        return {
            "measured": said,
            "reason": "of the copies are hidden with three regions, judged against one region; a "
            f"copy thread stands in for the device's engine{table2.former_words(rows, three)}",
            **decided(sides),
        }

    return judge


def beside_training(claim: Claim, rows: Rows) -> Fields | None:
    """Share of the time of copies that lies beside training, by events of the device."""
    timelines = Table.of(rows).where("part_time", of=table2.TIMELINE)
    if not timelines:
        return None
    spent = [
        Table.of([row]).where("part_time", of=table2.TIMELINE).numbers("phase")
        for row in timelines.rows
    ]
    both = [one["both"] / max(1e-12, one["copy"]) for one in spent]
    return {
        "rows": timelines.rows,
        "measured": f"{min(both):.0%} to {max(both):.0%} of copy time beside training",
        "holds": min(both) > SOME,
        "reason": "by events of the device, state streamed from host memory"
        + table2.former_words(timelines.rows, table2.STREAMED),
    }


def pingpong(claim: Claim, rows: Rows) -> Finding:
    """Copies run beside training with three regions and not with one."""
    found = says(ALL_TIMES, beside_training)(claim, rows)
    if not found.empty:
        return found
    return readings(
        **{
            "state streamed": says(ALL_TIMES, hidden_more(table2.STREAMED, table2.STREAMED_SERIAL)),
            "state on the device": says(ALL_TIMES, hidden_more(TGCN, table2.SERIAL)),
        }
    )(claim, rows)


# One technique after the other: section 6.5.

LADDER = rows_with(ablation.NAME, "needs a row of ablation")
ENABLED: Final = ("sampling", "partition", "schedule")
"""Techniques that the paper says it enables one at a time."""


def every_step_gains(claim: Claim, rows: Rows) -> Fields:
    """Every technique of the paper's ladder gains."""

    def over_before(rows: Rows, step: str) -> Ratio:
        return ablation.gain(rows, step, ablation.BEFORE)

    cells = cells_of(rows)
    ratios = [over_before(cell, step) for cell in cells for step in ENABLED]
    words = []
    for cell in cells:
        steps = ", ".join(f"{s} {over_before(cell, s).value:.2f}x" for s in ablation.STEPS[1:])
        words.append(f"{graph_title(cell[0].params['dataset'])}: {steps}")
    return {
        "measured": {step: over_before(rows, step).value for step in ablation.STEPS[1:]},
        "processes": min(one.processes for one in ratios),
        "reason": "each over the step before; "
        + "; ".join(words)
        + ("" if all(map(ablation.with_ours, rows)) else f"; {FORMER_WORDS}"),
        **decided(one.side for one in ratios),
    }

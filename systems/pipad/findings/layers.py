"""Findings on one graph layer and on sliced CSR (sections 5.3, 5.4, Figures 11 and 12)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dgbench.lab.compare import Ratio, ratio
from dgbench.lab.contests import Contest
from dgbench.lab.evidence import missing, on_gpu
from dgbench.lab.table import Entry, Table, observation
from dgbench.lab.verbs import factor, larger, mean
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.fig11 import RACE as LAYER
from dgbench.systems.pipad.experiments.fig12 import CAP, WORKERS, balances, gains, gap
from dgbench.systems.pipad.experiments.memory import KNEES
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.pipad.findings.common import Rows, resting
from dgbench.systems.pipad.findings.training import AVERAGE, shown
from dgbench.systems.pipad.ladders import BARE, PUBLISHED

FORWARD = AVERAGE + "; forward pass"
TWO_KINDS = replace(LAYER, none="a denser and another graph are needed; " + LAYER.none)


def released(check: Check, slow: str, **only: Any) -> Check:
    """A check over our engine's own layer, with the factor over a released one in its reason."""

    def checked(claim: Claim, rows: Rows) -> Finding:
        found = check(claim, rows)
        whole = LAYER(slow, PUBLISHED, **only).pooled(rows)
        if whole is None:
            return found
        again = LAYER(slow, BARE, **only).pooled(rows)
        said = f"over {get_system(slow).title}'s layer {shown(whole)}"
        if slow == "pygt-g" and not on_gpu([r for r in rows if r.id in set(whole.rows)]):
            said = f"over torch's CSR product {shown(whole)}"
        if again is not None and again.n == whole.n:
            said += f", of which re-implementation {shown(again)}"
        return replace(found, reason="; ".join(filter(None, (found.reason, said))))

    return checked


def over_engine(**only: Any) -> Contest:
    """PiPAD's layer as published against one snapshot at a time on our engine."""
    return LAYER(BARE, PUBLISHED, **only)


layer_gain = mean(over_engine(printed=True), FORWARD)
"""Average speed-up of one graph layer."""
denser_better = larger(
    "denser",
    {
        name: TWO_KINDS(BARE, PUBLISHED, printed=True, denser=name == "denser")
        for name in ("denser", "others")
    },
)
"""Denser graphs gain more."""


def dim_sensitivity(claim: Claim, rows: Rows) -> Finding:
    """Lowest speed-up over all lengths on the small graphs; the bound must hold at each."""
    contest = over_engine(small=True)
    found = dict(sorted(contest.each(rows).items()))
    key = min(found, key=lambda one: found[one].value, default=None)
    if key is None:
        return missing(LAYER.none)
    one = factor(found[key], contest, rows, {}, target=claim.value["low"])
    lows, highs = ([getattr(r, end) for r in found.values()] for end in ("low", "high"))
    known = None not in lows
    one.low, one.high = (min(lows), min(highs)) if known else (None, None)
    one.undecided = not known
    one.rows = list(dict.fromkeys(name for ratio in found.values() for name in ratio.rows))
    one.reason = f"lowest of {len(found)}: {BY_NAME[key[0]].title} at length {key[1]}"
    return one


def small_dim_better(claim: Claim, rows: Rows) -> Finding:
    """On every small graph the shortest length gains more than the longest."""
    found = dict(sorted(over_engine(small=True).each(rows).items()))
    graphs: dict[str, list[int]] = {}
    for name, dim in found:
        graphs.setdefault(name, []).append(dim)
    pairs = {
        name: {dim: found[name, dim] for dim in (min(dims), max(dims))}
        for name, dims in graphs.items()
        if len(dims) > 1
    }
    if not pairs:
        return missing(LAYER.none)
    side = min(short.against(long) for short, long in (pair.values() for pair in pairs.values()))
    return LAYER.finding(
        rows,
        found.values(),
        measured={
            BY_NAME[name].title: ", ".join(f"{r.value:.2g}x at {dim}" for dim, r in pair.items())
            for name, pair in pairs.items()
        },
        holds=side > 0,
        undecided=side == 0,
    )


TOP = ("youtube", "evolvegcn")


def counted_balance(claim: Claim, rows: Rows) -> Finding:
    """Largest over mean work: slices against rows, on every graph."""
    found = Table.of(rows, experiment="memory").where("imbalance")
    if not found:
        return KNEES.missing
    each = {name: table.numbers("of") for name, table in found.by("dataset").items()}
    falls = [one["rows"] / max(1.0, one["slices"]) for one in each.values()]
    worse = [name for name, one in each.items() if one["slices"] > one["rows"]]
    return resting(
        found.rows,
        measured=f"imbalance falls by {min(falls):.2g}x to {max(falls):.3g}x",
        holds=not worse,
        proxy="largest over mean work in place of times",
        reason=f"not on {', '.join(worse)}" if worse else "largest over mean work of a warp",
    )


def shrink(rows: Rows) -> Ratio | None:
    """Gap of CSR over that of slices, pooled over the graphs of these rows."""
    gaps = [
        Table(Entry(row, observation("imbalance", gap(row, cap), format=kind)) for row in rows)
        for cap, kind in ((None, "csr"), (CAP, "sliced"))
    ]
    return ratio(*gaps)


def load_balance(claim: Claim, rows: Rows) -> Finding:
    """Busiest worker over balanced time: nearer to 1 with slices on every graph, least on small.

    Where nothing was timed, the counted stand-in (largest over mean work) answers.
    """
    timed = balances(rows)
    if not timed:
        return counted_balance(claim, rows)
    graphs = dict.fromkeys(row.params["dataset"] for row in timed)
    found = {
        name: one
        for name in graphs
        if (one := shrink([r for r in timed if r.params["dataset"] == name])) is not None
    }
    sides = {name: one.side for name, one in found.items()}
    worse = sorted(BY_NAME[name].title for name, side in sides.items() if side < 0)
    small, large = (
        shrink([r for r in timed if BY_NAME[r.params["dataset"]].small == size])
        for size in (True, False)
    )
    order = large.against(small) if small is not None and large is not None else 0
    remark = f"not on {', '.join(worse)}" if worse else "actual over balanced time, CSR over slices"
    if small is not None and large is not None:
        remark += f"; mean {shown(small)} on small and {shown(large)} on large graphs"
    values = [one.value for one in found.values()]
    broken = bool(worse) or order < 0
    whole = min(sides.values()) > 0 and order > 0
    return resting(
        timed,
        measured=f"the gap shrinks {min(values):.2g}x to {max(values):.2g}x",
        holds=whole,
        direction=min(sides.values()) > 0,
        undecided=not broken and not whole,
        model="" if on_gpu(timed) else f"{WORKERS} workers that take timed items in turn",
        processes=min(one.processes for one in found.values()),
        reason=remark,
    )


def speedup_trend(claim: Claim, rows: Rows) -> Finding:
    """EvolveGCN on Youtube gains most in training; its interval must lie above all others."""
    found = gains(rows)
    if TOP not in found or len(found) < 2:
        return missing("EvolveGCN on Youtube and another workload are needed")
    mine = found.pop(TOP)
    sides = [mine.against(ratio) for ratio in found.values()]
    remark = f"{mine.value:.2f}x; others " + ", ".join(
        f"{ratio.value:.2f}x ({BY_NAME[dataset].title}, {MODEL_TITLES[model]})"
        for (dataset, model), ratio in found.items()
    )
    used = {name for ratio in (mine, *found.values()) for name in ratio.rows}
    return resting(
        [row for row in rows if row.id in used],
        measured=f"above {sum(side > 0 for side in sides)} of {len(sides)} other workloads",
        holds=min(sides) > 0,
        undecided=min(sides) == 0,
        processes=min(ratio.processes for ratio in (mine, *found.values())),
        reason=remark,
    )

"""Findings on one graph layer and on sliced CSR (sections 5.3, 5.4, Figures 11 and 12)."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean

from dgbench.lab.evidence import missing
from dgbench.lab.table import Table
from dgbench.lab.verbs import factor
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.experiments.fig11 import RACE as LAYER
from dgbench.systems.pipad.experiments.fig12 import CAP, balances, gains, gap
from dgbench.systems.pipad.experiments.memory import KNEES
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.pipad.findings.common import Rows, resting
from dgbench.systems.pipad.findings.training import AVERAGE

FORWARD = AVERAGE + "; forward pass"
TWO_KINDS = replace(LAYER, none="a denser and another graph are needed; " + LAYER.none)


def dim_sensitivity(claim: Claim, rows: Rows) -> Finding:
    """Lowest speed-up over all lengths on the small graphs."""
    contest = LAYER("pygt", "pipad", small=True)
    found = dict(sorted(contest.each(rows).items()))
    key = min(found, key=lambda one: found[one].value, default=None)
    reason = f"lowest of {len(found)}: {BY_NAME[key[0]].title} at length {key[1]}" if key else ""
    target = claim.value["low"]
    return factor(found.get(key), contest, rows, {}, target=target, reason=reason)


def small_dim_better(claim: Claim, rows: Rows) -> Finding:
    """On every small graph the shortest length gains more than the longest."""
    found = dict(sorted(LAYER("pygt", "pipad", small=True).each(rows).items()))
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
        reason=f"not on {', '.join(worse)}" if worse else "largest over mean work of a warp",
    )


def load_balance(claim: Claim, rows: Rows) -> Finding:
    """Busiest worker over balanced time: nearer to 1 with slices on every graph, least on small.

    Where nothing was timed, the counted stand-in (largest over mean work) answers.
    """
    found = balances(rows)
    if not found:
        return counted_balance(claim, rows)
    better = {r.params["dataset"]: gap(r, None) / gap(r, CAP) for r in found}
    worse = sorted(BY_NAME[name].title for name, shrinks in better.items() if shrinks <= 1)
    by_size = {
        size_: [v for name, v in better.items() if BY_NAME[name].small == (size_ == "small")]
        for size_ in ("small", "large")
    }
    holds = not worse
    remark = f"not on {', '.join(worse)}" if worse else "actual over balanced time, CSR over slices"
    if all(by_size.values()):
        small, large = fmean(by_size["small"]), fmean(by_size["large"])
        holds = holds and small < large
        remark += f"; mean {small:.2g}x on small and {large:.2g}x on large graphs"
    return resting(
        found,
        measured=f"the gap shrinks {min(better.values()):.2g}x to {max(better.values()):.2g}x",
        holds=holds,
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
        reason=remark,
    )

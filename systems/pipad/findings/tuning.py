"""Findings on the tuner and on what a partition gains (sections 4.3, 4.4, 5.2, Figure 9)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from math import exp, log
from statistics import fmean
from typing import Any

from dgbench.lab.compare import Ratio
from dgbench.lab.evidence import missing
from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.fig9 import AT_DIM, SIZES, Key, ratios
from dgbench.systems.pipad.experiments.fig9 import RACE as GAINS
from dgbench.systems.pipad.experiments.preparation import PREPARED
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.pipad.experiments.tuning import TUNING
from dgbench.systems.pipad.findings.common import Rows, resting
from dgbench.systems.pipad.tuner import OPTIONS

CAPACITY = 16 << 30
"""Bytes of the paper's device."""


def below(one: Ratio, other: Ratio) -> bool:
    """Return True if a gain lies below another, outside both intervals where there are any."""
    if one.high is None or other.low is None:
        return one.value < other.value
    return one.high < other.low


def geometric_mean(found: Iterable[Ratio]) -> float:
    """Of the values of ratios."""
    return exp(fmean(log(ratio.value) for ratio in found))


def size_order(where: Mapping[str, Any], place: Callable[[Key], str]) -> Check:
    """8 > 4 > 2 on every graph; only differences outside both intervals break it at a point."""

    def check(claim: Claim, rows: Rows) -> Finding:
        names = (*GAINS.by, GAINS.contender)
        found = {
            key: ratio
            for key, ratio in ratios(rows).items()
            if where.items() <= dict(zip(names, key, strict=True)).items()
        }
        if not found:
            return missing(GAINS.none)
        places = list(dict.fromkeys(key[:3] for key in found))
        broken = []
        for one in places:
            gains_ = [found[(*one, size)] for size in SIZES]
            if any(below(more, fewer) for fewer, more in pairwise(gains_)):
                broken.append(f"{BY_NAME[one[0]].title}, {place((*one, 0))}")
        means = {s: geometric_mean(r for key, r in found.items() if key[3] == s) for s in SIZES}
        ordered = means[2] < means[4] < means[8]
        reason = f"{len(places) - len(broken)} of {len(places)} points keep the order"
        return GAINS.finding(
            rows,
            found.values(),
            measured={f"S_per {size}": f"{mean_:.2g}x" for size, mean_ in means.items()},
            holds=ordered and not broken,
            direction=ordered,
            reason=reason + (f"; not {'; '.join(broken)}" if broken else ""),
        )

    return check


def rises_with_rate(claim: Claim, rows: Rows) -> Finding:
    """Speed-up at the highest overlap rate over that at the lowest, by graph and S_per."""
    found = {key: ratio for key, ratio in ratios(rows).items() if key[2] == AT_DIM}
    rates = sorted({key[1] for key in found})
    if len(rates) < 2:
        return missing(GAINS.none)
    low, high = rates[0], rates[-1]
    pairs = {
        key: (found[(key[0], low, *key[2:])], found[key])
        for key in found
        if key[1] == high and (key[0], low, *key[2:]) in found
    }
    fallen = [
        f"{BY_NAME[key[0]].title}, S_per {key[3]}"
        for key, (least, most) in pairs.items()
        if below(most, least)
    ]
    change = exp(fmean(log(most.value / least.value) for least, most in pairs.values()))
    reason = f"from overlap rate {low:g} to {high:g}, mean of {len(pairs)} lines"
    return GAINS.finding(
        rows,
        [ratio for pair in pairs.values() for ratio in pair],
        measured=f"{change:.2g}x",
        holds=change > 1 and not fallen,
        direction=change > 1,
        reason=reason + (f"; falls on {'; '.join(fallen)}" if fallen else ""),
    )


def s_per_options(claim: Claim, rows: Rows) -> Finding:
    """The sizes that the tuner weighed; 1, where nothing is merged, is our fall-back.

    Where no tuner decided, the options whose partitions were really extracted.
    """
    frames = TUNING(rows).where("frames")
    decided = [one.row for one in frames.where(of="decided") if one.value]
    if decided:
        options = Table.of(decided).where("frames", of="option").by("snapshots_together")
        weighed = sorted(set(options) - {1})
        reason = "options that the tuner weighed, besides 1"
        holds = weighed == list(claim.value)
        return resting(decided, holds=holds, measured=weighed, reason=reason)
    found = PREPARED(rows).where("memory", of="aggregation")
    if not found:
        return PREPARED.missing
    built = sorted(set(found.by("snapshots_together")) - {1})
    return resting(found.rows, holds=built == list(claim.value), measured=built)


def sper_large(claim: Claim, rows: Rows) -> Finding:
    """The largest option that 16 GB hold for certain, at the printed number of vertices.

    What a frame keeps one snapshot at a time grows with the vertices; a partition of S takes at
    most S times that (4.4), which is the tuner's own bound. The T-GCN model has no partitions left
    to choose, so it says nothing.
    """
    found = [
        one.row
        for one in TUNING(rows).where("frames", of="decided")
        if one.value and not BY_NAME[one["dataset"]].small
    ]
    if not found:
        return missing("no large graph was trained with the tuner in this run")
    largest: dict[str, int] = {}
    for row in found:
        graph, table = BY_NAME[row.params["dataset"]], Table.of([row])
        kept, vertices = (table.where(*one).one().value for one in (("memory",), ("vertices",)))
        fits = [s for s in OPTIONS if s * kept * graph.printed["N"] / vertices <= CAPACITY]
        largest[f"{graph.title}, {MODEL_TITLES[row.params['model']]}"] = max(fits, default=0)
    return resting(
        found,
        measured=largest,
        holds=max(largest.values()) == claim.value,
        direction=max(largest.values()) < max(OPTIONS),
        reason="what autograd keeps of a frame, scaled to the printed vertices; 0 does not fit",
    )

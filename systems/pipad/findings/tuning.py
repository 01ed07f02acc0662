"""Findings on the tuner and on what a partition gains (sections 4.3, 4.4, 5.2, Figure 9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from math import exp, log
from statistics import fmean
from typing import Any

from dgbench.lab.evidence import missing
from dgbench.lab.table import Table, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.pipad.experiments.fig9 import AT_DIM, SIZES, Key, ratios
from dgbench.systems.pipad.experiments.fig9 import RACE as GAINS
from dgbench.systems.pipad.experiments.preparation import PREPARED
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.pipad.experiments.tuning import FORMER_WORDS, TUNING, former
from dgbench.systems.pipad.findings.common import Rows, resting
from dgbench.systems.pipad.tuner import OPTIONS

CAPACITY = 16 << 30
"""Bytes of the paper's device."""


def size_order(where: Mapping[str, Any], place: Callable[[Key], str]) -> Check:
    """8 > 4 > 2 at every point, by the ratio of neighbouring sizes in the same processes.

    The statement is broken by one clear reversal; a sign is left where the average over all points
    keeps the order clearly.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        ran = rows_of(rows, experiment="fig9", **where)
        each = {pair: GAINS(*pair).each(ran) for pair in pairwise(SIZES)}
        pooled = {pair: GAINS(*pair).pooled(ran) for pair in each}
        if not all(pooled.values()):
            return missing(GAINS.none)
        sides: dict[tuple[Any, ...], int] = {}
        for found in each.values():
            for key, one in found.items():
                sides[key] = min(sides.get(key, 1), one.side)
        broken = [key for key, side in sides.items() if side < 0]
        kept = sum(side > 0 for side in sides.values())
        reason = f"{kept} of {len(sides)} points keep the order clearly"
        lost = "; ".join(f"{BY_NAME[key[0]].title}, {place((*key, 0))}" for key in broken)
        return GAINS.finding(
            rows,
            [one for found in each.values() for one in found.values()],
            measured={f"S_per {b} over {a}": f"{one.value:.2g}x" for (a, b), one in pooled.items()},
            holds=kept == len(sides),
            direction=all(one.side > 0 for one in pooled.values()),
            undecided=not broken and kept < len(sides),
            reason=reason + (f"; not {lost}" if lost else ""),
        )

    return check


def rises_with_rate(claim: Claim, rows: Rows) -> Finding:
    """Speed-up at the highest overlap rate over that at the lowest, by graph and S_per.

    One line that clearly falls breaks the statement; a sign is left where the average rises.
    """
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
    sides = {key: most.against(least) for key, (least, most) in pairs.items()}
    fallen = [f"{BY_NAME[k[0]].title}, S_per {k[3]}" for k, side in sides.items() if side < 0]
    ran = rows_of(rows, experiment="fig9", dim=AT_DIM)
    ends = [
        [GAINS(None, size).pooled([r for r in ran if r.params["overlap_rate"] == rate])
         for size in SIZES]
        for rate in (low, high)
    ]  # fmt: skip
    rising = all(b is not None and a is not None and b.against(a) > 0
                 for a, b in zip(*ends, strict=True))  # fmt: skip
    change = exp(fmean(log(most.value / least.value) for least, most in pairs.values()))
    risen = sum(side > 0 for side in sides.values())
    reason = f"from overlap rate {low:g} to {high:g}, {risen} of {len(pairs)} lines rise clearly"
    return GAINS.finding(
        rows,
        [ratio for pair in pairs.values() for ratio in pair],
        measured=f"{change:.2g}x",
        holds=risen == len(pairs),
        direction=rising,
        undecided=not fallen and risen < len(pairs) and not rising,
        reason=reason + (f"; falls on {'; '.join(fallen)}" if fallen else ""),
    )


def _published(rows: Rows) -> Rows:
    """Rows of PiPAD as published; where there are none, those from before it."""
    return [row for row in rows if not former(row)] or list(rows)


def _former_words(rows: Rows) -> str:
    """Words for rows from before the published form."""
    return f"; {FORMER_WORDS}" if any(map(former, rows)) else ""


def s_per_options(claim: Claim, rows: Rows) -> Finding:
    """The sizes that the tuner weighed; 1, where nothing is merged, is our fall-back.

    Where no tuner decided, the options whose partitions were really extracted.
    """
    frames = TUNING(rows).where("frames")
    decided = _published([one.row for one in frames.where(of="decided") if one.value])
    if decided:
        options = Table.of(decided).where("frames", of="option").by("snapshots_together")
        weighed = sorted(set(options) - {1})
        reason = f"options that the tuner weighed, besides 1{_former_words(decided)}"
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
    found = _published(
        [
            one.row
            for one in TUNING(rows).where("frames", of="decided")
            if one.value and not BY_NAME[one["dataset"]].small
        ]
    )
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
        holds=set(largest.values()) == {claim.value},
        direction=max(largest.values()) < max(OPTIONS),
        model="formula of a frame's memory",
        reason="what autograd keeps of a frame, scaled to the printed vertices; 0 does not fit"
        + _former_words(found),
    )

"""Claims on the tuner and on what a partition gains (4.3, 4.4, 5.2, Figure 9)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, log
from statistics import fmean
from typing import Any

from dgbench.lab.compare import Ratio, select
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.checks import mechanisms
from dgbench.systems.pipad.checks.common import counted, ids, missing_finding, strength, uses_twin
from dgbench.systems.pipad.experiments.fig9 import AT_DIM, AT_RATE, SIZES, Key, ratios
from dgbench.systems.pipad.experiments.settings import BY_NAME, MODEL_TITLES
from dgbench.systems.pipad.tuner import OPTIONS

NONE = "the experiment 'fig9' did not run"
NO_TUNING = "no large graph was trained with the tuner in this run"
CAPACITY = 16 << 30
"""Bytes of the paper's device."""


def order_by_rate(claim: Claim, rows: Sequence[Any]) -> Finding:
    """8 > 4 > 2 at equal overlap rate, on every graph."""
    return _order(rows, lambda key: key[2] == AT_DIM, lambda key: f"overlap rate {key[1]:g}")


def order_by_dim(claim: Claim, rows: Sequence[Any]) -> Finding:
    """8 > 4 > 2 at equal feature length, on every graph."""
    return _order(rows, lambda key: key[1] == AT_RATE, lambda key: f"length {key[2]}")


def _order(
    rows: Sequence[Any], wanted: Callable[[Key], bool], words: Callable[[Key], str]
) -> Finding:
    """Only differences outside both intervals break the order at a point."""
    found = {key: ratio for key, ratio in ratios(rows).items() if wanted(key)}
    if not found:
        return missing_finding(NONE)
    places = list(dict.fromkeys(key[:3] for key in found))
    broken = []
    for place in places:
        gains = [found[(*place, size)] for size in SIZES]
        if any(_below(more, fewer) for fewer, more in pairwise(gains)):
            broken.append(f"{BY_NAME[place[0]].title}, {words((*place, 0))}")
    means = {s: _mean([r for key, r in found.items() if key[3] == s]) for s in SIZES}
    ordered = means[2] < means[4] < means[8]
    reason = f"{len(places) - len(broken)} of {len(places)} points keep the order"
    return _finding(
        rows,
        list(found.values()),
        measured={f"S_per {size}": f"{mean:.2g}x" for size, mean in means.items()},
        holds=ordered and not broken,
        direction=ordered,
        reason=reason + (f"; not {'; '.join(broken)}" if broken else ""),
    )


def rises_with_rate(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Speed-up at the highest overlap rate over that at the lowest, by graph and S_per."""
    found = {key: ratio for key, ratio in ratios(rows).items() if key[2] == AT_DIM}
    rates = sorted({key[1] for key in found})
    if len(rates) < 2:
        return missing_finding(NONE)
    low, high = rates[0], rates[-1]
    lines = [key for key in found if key[1] == high and (key[0], low, *key[2:]) in found]
    pairs = {key: (found[(key[0], low, *key[2:])], found[key]) for key in lines}
    fallen = [
        f"{BY_NAME[key[0]].title}, S_per {key[3]}"
        for key, (below, above) in pairs.items()
        if _below(above, below)
    ]
    change = exp(fmean(log(above.value / below.value) for below, above in pairs.values()))
    reason = f"from overlap rate {low:g} to {high:g}, mean of {len(pairs)} lines"
    return _finding(
        rows,
        [ratio for pair in pairs.values() for ratio in pair],
        measured=f"{change:.2g}x",
        holds=change > 1 and not fallen,
        direction=change > 1,
        reason=reason + (f"; falls on {'; '.join(fallen)}" if fallen else ""),
    )


def s_per_options(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The sizes that the tuner weighed; 1, where nothing is merged, is our fall-back."""
    found = [r for r in select(rows, experiment="tuning") if r.counters.get("decided_frames")]
    if not found:
        return mechanisms.s_per_options(claim, rows)
    weighed = sorted({s for r in found for s in OPTIONS if r.counters.get(f"option_{s}")} - {1})
    return counted(
        found,
        holds=weighed == list(claim.value),
        measured=weighed,
        reason="options that the tuner weighed, besides 1",
    )


def sper_large(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The largest option that 16 GB hold for certain, at the printed number of vertices.

    What a frame keeps one snapshot at a time grows with the vertices; a partition of S takes at
    most S times that (4.4), which is the tuner's own bound. The T-GCN model has no partitions left
    to choose, so it says nothing.
    """
    found = [
        r
        for r in select(rows, experiment="tuning")
        if not BY_NAME[r.params["dataset"]].small and r.counters.get("decided_frames")
    ]
    if not found:
        return missing_finding(NO_TUNING)
    largest: dict[str, int] = {}
    for row in found:
        graph = BY_NAME[row.params["dataset"]]
        peak = row.counters["frame_bytes"] * graph.printed["N"] / row.counters["vertices"]
        fits = [s for s in OPTIONS if s * peak <= CAPACITY]
        model = MODEL_TITLES[row.params["model"]]
        largest[f"{graph.title}, {model}"] = max(fits, default=0)
    return Finding(
        measured=largest,
        holds=max(largest.values()) == claim.value,
        direction=max(largest.values()) < max(OPTIONS),
        evidence="projected",
        twin=uses_twin(found),
        rows=ids(found),
        reason="what autograd keeps of a frame, scaled to the printed vertices; 0 does not fit",
    )


def _below(one: Ratio, other: Ratio) -> bool:
    """Whether a gain lies below another, outside both intervals where there are any."""
    if one.high is None or other.low is None:
        return one.value < other.value
    return one.high < other.low


def _mean(found: Sequence[Ratio]) -> float:
    return exp(fmean(log(ratio.value) for ratio in found))


def _finding(rows: Sequence[Any], used: Sequence[Ratio], **fields: Any) -> Finding:
    names = list(dict.fromkeys(i for ratio in used for i in ratio.rows))
    return Finding(
        evidence=strength([row for row in rows if row.id in set(names)]),
        twin=any(ratio.twin for ratio in used),
        rows=names,
        deviation=max((r.deviation for r in used if r.deviation is not None), default=None),
        **fields,
    )

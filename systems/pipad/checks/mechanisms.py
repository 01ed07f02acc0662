"""Claims on reuse, preparation, memory and tuning (2.2, 3.3, 4.3, 4.4)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from dgbench.lab.compare import select
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Claim, Finding
from dgbench.systems.base.race import TOLERANCE
from dgbench.systems.pipad.checks.common import (
    counted,
    ids,
    missing_finding,
    strength,
    uses_twin,
)
from dgbench.systems.pipad.experiments.preparation import S_OPTIONS, prepared
from dgbench.systems.pipad.experiments.settings import BY_NAME

NONE = "the experiment 'preparation' did not run"
ALIKE = 0.1
"""Spread of a step, relative to its median, up to which epochs count as similar."""


def _race(rows: Sequence[Any], **params: Any) -> list[Any]:
    return [r for r in select(rows, experiment="fig10", **params) if not r.params.get("check")]


def reuse_is_exact(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Kept against fresh aggregation, largest relative gap."""
    found = prepared(rows)
    if not found:
        return missing_finding(NONE)
    worst = max(row.deviation["output"] for row in found)
    return counted(
        found,
        holds=worst <= TOLERANCE,
        measured=f"largest relative gap {worst:.1e}",
        reason=f"on {len(found)} graphs",
    )


def stride(claim: Claim, rows: Sequence[Any]) -> Finding:
    found = prepared(rows)
    if not found:
        return missing_finding(NONE)
    steps = {row.counters["stride"] for row in found}
    return counted(found, holds=steps == {claim.value}, measured=max(steps))


def s_per_options(claim: Claim, rows: Sequence[Any]) -> Finding:
    """The options whose partitions were really extracted."""
    found = prepared(rows)
    if not found:
        return missing_finding(NONE)
    built = [s for s in S_OPTIONS if all(f"bytes_{s}" in row.counters for row in found)]
    return counted(found, holds=built == list(claim.value), measured=built)


def topology_not_sent_again(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Adjacency bytes of steady steps of the T-GCN model in PiPAD."""
    found = _race(rows, system="pipad", model="tgcn_model")
    if not found:
        return missing_finding("no T-GCN model was trained in this run")
    sent = max(row.counters.get("adjacency_bytes_counted", 0) for row in found)
    steps = sum(row.counters["counted_steps"] for row in found)
    return counted(found, holds=sent == claim.value, measured=sent, reason=f"in {steps} steps")


def preparation_cost(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Preparation of PiPAD in epochs of PyGT, the largest over workloads."""
    worst, used = 0.0, []
    for row in _race(rows, system="pipad"):
        where = {key: row.params[key] for key in ("dataset", "model")}
        slow = [r for r in _race(rows, system="pygt", **where) if r.round == row.round]
        if slow:
            worst = max(worst, row.values["prepare_s"] / slow[0].values["epoch_s"])
            used += [row, slow[0]]
    if not used:
        return missing_finding("no end-to-end race of this run covers it")
    return Finding(
        measured=worst,
        holds=worst <= claim.value,
        evidence=strength(used),
        twin=uses_twin(used),
        rows=ids(used),
        reason="largest preparation over the workloads, in epochs of PyGT",
    )


def epochs_alike(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Spread of steady steps inside a process: interquartile range over median."""
    spreads, used = [], []
    for row in _race(rows, system="pipad"):
        if len(row.samples) >= 4:
            q1, _, q3 = quantiles(row.samples, n=4)
            spreads.append((q3 - q1) / median(row.samples))
            used.append(row)
    if not spreads:
        return missing_finding("no process of this run has enough steps")
    # The median process with its distribution-free interval: a borderline spread decides nothing.
    typical = paired_ratio([max(s, 1e-9) for s in spreads], [1.0] * len(spreads), method="sign")
    low, high = typical.low, typical.high
    shown = "" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return Finding(
        measured=f"{100 * typical.value:.1f} %{shown} interquartile range (median process)",
        holds=typical.value < ALIKE,
        undecided=low is None or low < ALIKE <= high,
        evidence=strength(used),
        twin=uses_twin(used),
        rows=ids(used),
        reason=f"alike is read as below {ALIKE:.0%}",
    )


def partition_memory(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Bytes of S snapshots at once over S times the bytes of one, largest over graphs."""
    found = prepared(rows)
    if not found:
        return missing_finding(NONE)
    shares = [
        row.counters[f"bytes_{s}"] / (s * row.counters["bytes_1"])
        for row in found
        for s in S_OPTIONS
    ]
    return Finding(
        measured=f"{100 * max(shares):.3g} % of N times one snapshot",
        holds=max(shares) <= 1,
        evidence="analogue",
        twin=uses_twin(found),
        rows=ids(found),
        reason="tensors of one aggregation are counted, not the peak of a device",
    )


def reordering(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Seconds of one reordering pass; only a graph of full size can answer."""
    found = select(rows, experiment="preparation")
    if not found:
        return missing_finding(NONE)
    whole = [row for row in found if row.data.get("scale", 1.0) >= 1]
    slowest = max(whole or found, key=lambda row: row.values["reorder_s"])
    seconds = slowest.values["reorder_s"]
    if "part" not in slowest.params and any(row.data.get("scale", 1.0) < 1 for row in found):
        return missing_finding(f"needs the graphs at full size: {seconds:.2g} s a snapshot here")
    title = BY_NAME[slowest.params["dataset"]].title
    kind = f"a random graph of {title}'s size" if "part" in slowest.params else title
    return Finding(
        measured=f"{seconds:.2g} s",
        holds=1 <= seconds < 100,
        evidence="measured",
        twin=uses_twin([slowest]),
        rows=ids([slowest]),
        reason=f"one reverse Cuthill-McKee pass on {kind}",
    )

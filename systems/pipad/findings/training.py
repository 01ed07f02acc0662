"""Findings on whole trainings (sections 5.1, 5.2, Figure 10)."""

from __future__ import annotations

from itertools import product
from statistics import median, quantiles
from typing import Any

from dgbench.lab.evidence import missing, on_gpu
from dgbench.lab.table import Table, rows_of
from dgbench.runtime.statistics import paired_ratio
from dgbench.systems.base import Claim, Finding
from dgbench.systems.pipad.experiments.fig10 import RACE
from dgbench.systems.pipad.experiments.settings import BY_NAME, EPOCHS, FRAME
from dgbench.systems.pipad.findings.common import Rows, resting

ALIKE = 0.1
"""Spread of a step, relative to its median, up to which epochs count as similar."""
AVERAGE = "geometric mean of {n} graphs"


def on(key: tuple[Any, ...]) -> str:
    """A workload's graph in words."""
    return f"on {BY_NAME[key[0]].title}"


def small_gain_more(claim: Claim, rows: Rows) -> Finding:
    """PiPAD's half everywhere, PyGT-A's half only where there is a link to hide."""
    small, large, a_small, a_large = (
        RACE("pygt", who, small=s).pooled(rows)
        for who in ("pipad", "pygt-a")
        for s in (True, False)
    )
    if small is None or large is None:
        return missing("a small and a large graph are needed; " + RACE.none)
    order, used = small.against(large), [small, large]
    reason = "PyGT-A hides copies over a link, which a CPU does not have"
    linked = on_gpu([r for r in rows if r.id in set(small.rows)])
    if linked and a_small is not None and a_large is not None:
        order, used = min(order, a_large.against(a_small)), [*used, a_small, a_large]
        reason = f"PyGT-A: {a_small.value:.2g}x small, {a_large.value:.2g}x large"
    return RACE.finding(
        rows,
        used,
        measured={"small": f"{small.value:.2g}x", "large": f"{large.value:.2g}x"},
        holds=order > 0,
        undecided=order == 0,
        reason=reason,
    )


def aggregation_removed(claim: Claim, rows: Rows) -> Finding:
    """No aggregation in steady steps of the T-GCN model, and the order that follows."""
    mine = rows_of(RACE.timed(rows), model="tgcn_model", system="pipad")
    over_r, r_to_g = (
        RACE("pygt-r", who, model="tgcn_model").pooled(rows) for who in ("pipad", "pygt-g")
    )
    if not mine or over_r is None or r_to_g is None:
        return missing(RACE.none)
    left = max(Table.of(mine).where("aggregations").values, default=0)
    alike = left == 0 and 0.8 < r_to_g.value < 1.25
    # The middle alone decides what is alike; which of the two is faster needs its interval.
    return RACE.finding(
        rows,
        [over_r, r_to_g],
        measured=f"{left} aggregations; PyGT-R over PyGT-G {r_to_g.value:.2g}x, "
        f"over PiPAD {over_r.value:.2g}x",
        holds=alike and over_r.side > 0,
        undecided=alike and over_r.side == 0,
        reason="alike is read as within 25 %",
    )


def topology_not_sent_again(claim: Claim, rows: Rows) -> Finding:
    """Adjacency bytes of steady steps of the T-GCN model in PiPAD."""
    found = Table.of(rows_of(RACE.timed(rows), system="pipad", model="tgcn_model"))
    if not found:
        return missing("no T-GCN model was trained in this run")
    sent = max(found.where("topology_sent").values, default=0)
    steps = sum(found.where("counted_steps").values)
    return resting(found.rows, holds=sent == claim.value, measured=sent, reason=f"in {steps} steps")


def preparation_cost(claim: Claim, rows: Rows) -> Finding:
    """Preparation of PiPAD in epochs of PyGT, the largest over workloads."""
    table = Table.of(RACE.timed(rows))
    where = ("dataset", "model", "round")
    epochs = table.where("epoch_time", system="pygt").by(*where)
    pairs = [
        (one, epochs[key][0])
        for one in table.where("preparation_time", system="pipad")
        if (key := one.key(where)) in epochs
    ]
    if not pairs:
        return missing(RACE.none)
    worst = max(one.value / epoch.value for one, epoch in pairs)
    used = [one.row for pair in pairs for one in pair]
    return resting(
        used,
        measured=worst,
        holds=worst <= claim.value,
        reason="largest preparation over the workloads, in epochs of PyGT",
    )


def epochs_alike(claim: Claim, rows: Rows) -> Finding:
    """Spread of steady steps inside a process: interquartile range over median."""
    steps = Table.of(RACE.timed(rows)).where("step_time", system="pipad")
    used = Table(one for one in steps if len(one.samples) >= 4)
    if not used:
        return missing("no process of this run has enough steps")
    spreads = []
    for one in used:
        q1, _, q3 = quantiles(one.samples, n=4)
        spreads.append((q3 - q1) / median(one.samples))
    # The median process with its distribution-free interval: a borderline spread decides nothing.
    typical = paired_ratio([max(s, 1e-9) for s in spreads], [1.0] * len(spreads), method="sign")
    low, high = typical.low, typical.high
    shown = "" if low is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return resting(
        used.rows,
        measured=f"{100 * typical.value:.1f} %{shown} interquartile range (median process)",
        holds=typical.value < ALIKE,
        undecided=low is None or low < ALIKE <= high,
        reason=f"alike is read as below {ALIKE:.0%}",
    )


def csc_transfer(claim: Claim, rows: Rows) -> Finding:
    """Topology bytes that a two-layer model moves in PyGT-G against PyGT-R, counted per step."""
    table = Table.of(RACE.timed(rows))
    found, ratios = [], []
    for dataset, model in product(("youtube", "flickr"), ("evolvegcn", "mpnn_lstm")):
        each = {}
        for system in ("pygt-r", "pygt-g"):
            where = {"dataset": dataset, "model": model, "system": system}
            sent = [one for one in table.where("topology_sent", **where) if one.value]
            if sent:
                row = sent[0].row
                each[system] = sent[0].value / Table.of([row]).where("counted_steps").one().value
                found.append(row)
        if len(each) == 2:
            ratios.append(each["pygt-g"] / each["pygt-r"])
    if not ratios:
        return missing("no two-layer model ran on a large graph in this run")
    return resting(
        found,
        holds=min(ratios) > 1,
        measured=f"{min(ratios):.2g}x to {max(ratios):.2g}x the bytes of PyGT-R",
        reason="CSR and CSC with int32 ids and values against an int64 coordinate list",
    )


def protocol(claim: Claim, rows: Rows) -> Finding:
    """Frames and epochs; the 200 epochs are computed from steady steps, so this is a projection."""
    found = Table.of(rows, experiment="fig10").where("end_to_end_time")
    if not found:
        return missing("no end-to-end time was measured in this run")
    measured = {"frame_size": FRAME, "epochs": EPOCHS}
    return Finding(
        measured=measured,
        holds=claim.value == measured,
        model="alpha-beta model",
        rows=[found[0].row.id],
        reason="end-to-end time is preparation plus 200 times the median step times frames",
    )

"""Findings on whole trainings (sections 4.3, 5.1, 5.2, Figure 10).

Claims about PiPAD's speed are judged by the paper's techniques over the same engine without them;
the factor over the released baseline stands beside, as a product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product as product_of
from math import inf
from typing import Any

from dgbench.lab.compare import Ratio, ratio
from dgbench.lab.contests import Contest
from dgbench.lab.evidence import ids, missing, on_gpu
from dgbench.lab.table import Table, number, rows_of
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.base.registry import get_system
from dgbench.systems.pipad.experiments.epochs import relative_costs
from dgbench.systems.pipad.experiments.fig10 import RACE
from dgbench.systems.pipad.experiments.settings import BY_NAME, EPOCHS, FRAME
from dgbench.systems.pipad.findings.common import Rows, resting
from dgbench.systems.pipad.ladders import BARE, PUBLISHED, REUSED, STAGE_TITLES

FACTOR = 0.25
"""Tolerance of a factor, as for printed ones."""
ALIKE = 0.1
"""Distance from the median epoch, relative to it, up to which epochs count as similar."""
AVERAGE = "geometric mean of {n} graphs"
STAGE_OF = {"pygt": BARE, "pygt-g": REUSED}
"""Baseline of the paper -> what stands for it on our engine."""


def on(key: tuple[Any, ...]) -> str:
    """A workload's graph in words."""
    return f"on {BY_NAME[key[0]].title}"


def shown(ratio: Ratio) -> str:
    """A factor with its interval in words."""
    ends = "" if ratio.low is None else f" [{ratio.low:.2g}, {ratio.high:.2g}]"
    return f"{ratio.value:.3g}x{ends}"


def product(rows: Rows, slow: str, **only: Any) -> str:
    """PiPAD + dgbench over a released baseline in words; a product where all its factors ran."""
    stage = STAGE_OF[slow]
    contests = {
        "re-implementation": RACE(slow, stage, **only),
        "the paper's techniques": RACE(stage, PUBLISHED, **only),
        "ours": RACE(PUBLISHED, "pipad", **only),
    }
    released = RACE(slow, "pipad", **only)
    whole = released.pooled(rows)
    if whole is None:
        return ""
    said = f"{STAGE_TITLES['pipad']} over {get_system(slow).title}: {shown(whole)}"
    if any(set(one.each(rows)) != set(released.each(rows)) for one in contests.values()):
        return said
    parts = {name: contest.pooled(rows) for name, contest in contests.items()}
    return f"{said} = " + " * ".join(f"{shown(one)} {name}" for name, one in parts.items() if one)


def beside(check: Check, slow: str, **only: Any) -> Check:
    """A check of the paper's techniques on our engine, with the factor over the released baseline
    in its reason."""

    def checked(claim: Claim, rows: Rows) -> Finding:
        found = check(claim, rows)
        said = product(rows, slow, **only)
        alone = f"no contender of this run tells the paper's techniques apart; {said}"
        if found.empty:
            return replace(found, reason=alone) if said else found
        return replace(found, reason="; ".join(filter(None, (found.reason, said))))

    return checked


def end_of_range(contest: Contest, pick: Callable, end: str, model: str, *, small: bool) -> Check:
    """The least (`pick=min`) or largest factor of all, which must be one of a model on small or
    large graphs.

    Where another workload lies beyond all of these, the statement is broken; it is open where
    that is not clear of the noise.
    """

    def check(claim: Claim, rows: Rows) -> Finding:
        each = contest.each(rows)
        mine = [k for k in each if k[1] == model and BY_NAME[k[0]].small == small]
        if not mine or len(mine) == len(each):
            return missing(contest.race.none)
        key, far = (pick(keys, key=lambda one: each[one].value) for keys in (mine, each))
        sides = [each[far].against(each[one]) for one in mine]
        beyond = max(sides) < 0 if pick is min else min(sides) > 0
        value = each[key]
        reason = on(key)
        if far not in mine:
            reason += f"; {shown(each[far])} on {contest.label(far)}"
        return contest.race.finding(
            rows,
            each.values(),
            measured=value.value,
            low=value.low,
            high=value.high,
            target=float(claim.value[end]),
            direction=value.value > 1 and not beyond,
            undecided=far not in mine and not beyond,
            reason=reason,
        )

    return check


def small_gain_more(claim: Claim, rows: Rows) -> Finding:
    """PiPAD's half everywhere, PyGT-A's half only where there is a link to hide.

    Without the other half PiPAD's may break the statement and cannot carry the whole of it.
    """
    small, large = (RACE(BARE, PUBLISHED, small=s).pooled(rows) for s in (True, False))
    a_small, a_large = (RACE("pygt", "pygt-a", small=s).pooled(rows) for s in (True, False))
    if small is None or large is None:
        return missing("a small and a large graph are needed; " + RACE.none)
    order, used = small.against(large), [small, large]
    reason = "PyGT-A hides copies over a link, which a CPU does not have: half of the statement"
    linked = on_gpu([r for r in rows if r.id in set(small.rows)])
    whole = linked and a_small is not None and a_large is not None
    if whole:
        order, used = min(order, a_large.against(a_small)), [*used, a_small, a_large]
        reason = f"PyGT-A: {a_small.value:.2g}x small, {a_large.value:.2g}x large"
    return RACE.finding(
        rows,
        used,
        measured={"small": f"{small.value:.2g}x", "large": f"{large.value:.2g}x"},
        holds=bool(whole) and order > 0,
        direction=order > 0,
        undecided=order == 0,
        reason=reason,
    )


def steady_counts(rows: Rows, metric: str, **where: Any) -> tuple[int, list[Any]]:
    """Most that steady steps of PiPAD count, and the rows; a counter that never moved is 0.

    Empty where no baseline of the same workloads moved the counter: then nobody counted.
    """
    timed = rows_of(RACE.timed(rows), **where)
    pipad = [row for row in timed if row.params["system"] in (PUBLISHED, "pipad")]
    workloads = {(row.params["dataset"], row.params["model"]) for row in pipad}
    others = [
        row
        for row in timed
        if row.params["system"] in (BARE, "pygt")
        and (row.params["dataset"], row.params["model"]) in workloads
        and number(row, metric, 0) > 0
    ]
    if not pipad or not others:
        return 0, []
    return max(number(row, metric, 0) for row in pipad), [*pipad, *others]


def aggregation_removed(claim: Claim, rows: Rows) -> Finding:
    """No aggregation in steady steps of the T-GCN model, and the order that follows."""
    left, counted = steady_counts(rows, "aggregations", model="tgcn_model")
    over = RACE(REUSED, PUBLISHED, model="tgcn_model").pooled(rows)
    alike = RACE("pygt-r", "pygt-g", model="tgcn_model").pooled(rows)
    if not counted or over is None or alike is None:
        return missing(RACE.none)
    low, high = 1 / (1 + FACTOR), 1 + FACTOR
    ends = (alike.low or 0.0, alike.high or inf)
    same = left == 0 and low <= ends[0] and ends[1] <= high
    apart = left > 0 or ends[1] < low or ends[0] > high or over.side < 0
    found = RACE.finding(
        rows,
        [over, alike],
        measured=f"{left} aggregations; PyGT-R over PyGT-G {shown(alike)}, "
        f"reuse alone over PiPAD {shown(over)}",
        holds=same and over.side > 0,
        undecided=not apart and not (same and over.side > 0),
        reason=f"alike is read as within {FACTOR:.0%}",
    )
    found.rows = list(dict.fromkeys([*found.rows, *ids(counted)]))
    return found


def topology_not_sent_again(claim: Claim, rows: Rows) -> Finding:
    """Adjacency bytes of steady steps of the T-GCN model in PiPAD."""
    sent, found = steady_counts(rows, "topology_sent", model="tgcn_model")
    if not found:
        return missing("no T-GCN model was trained beside a baseline that sends topology")
    steps = sum(
        number(r, "counted_steps") for r in found if r.params["system"] in (PUBLISHED, "pipad")
    )
    return resting(found, holds=sent == claim.value, measured=sent, reason=f"in {steps} steps")


def preparation_in_epochs(system: str) -> Check:
    """Preparation of PiPAD in epochs of a contender; the bound must hold on every workload."""

    def check(claim: Claim, rows: Rows) -> Finding:
        each = []
        for where in RACE.workloads(rows):
            sides = (
                Table.of(RACE.timed(rows)).where(metric, system=who, **where)
                for metric, who in (("preparation_time", PUBLISHED), ("epoch_time", system))
            )
            if (one := ratio(*sides)) is not None:
                each.append((one, where))
        if not each:
            return missing(RACE.none)
        worst, where = max(each, key=lambda pair: pair[0].value)
        known = all(one.low is not None for one, _ in each)
        return RACE.finding(
            rows,
            [one for one, _ in each],
            measured=worst.value,
            low=max(one.low for one, _ in each) if known else None,
            high=max(one.high for one, _ in each) if known else None,
            undecided=not known,
            reason=f"largest of {len(each)} workloads: {RACE.label(**where)}",
        )

    return check


def epochs_alike(claim: Claim, rows: Rows) -> Finding:
    """First, middle and last third of the epochs against all of them, on every workload."""
    found = relative_costs(rows)
    if not found:
        return missing("no process of this run timed whole epochs")
    low, high = 1 / (1 + ALIKE), 1 + ALIKE
    known = {k: r for k, r in found.items() if r.low is not None and r.high is not None}
    apart = [key for key, one in known.items() if one.low > high or one.high < low]
    inside = [key for key, one in known.items() if low <= one.low and one.high <= high]
    far = max(found, key=lambda key: max(found[key].value, 1 / found[key].value))
    workloads = {key[:2] for key in found}
    return RACE.finding(
        rows,
        found.values(),
        measured=f"{shown(found[far])} of the median epoch at most, of {len(workloads)} workloads",
        holds=len(inside) == len(found),
        undecided=not apart and len(inside) < len(found),
        deviation=None,
        reason=f"the {far[2]} third on {RACE.label(far[0], far[1])}; alike is read as {ALIKE:.0%}",
    )


def csc_transfer(claim: Claim, rows: Rows) -> Finding:
    """Topology bytes that a two-layer model moves in PyGT-G against PyGT-R, counted per step."""
    table = Table.of(RACE.timed(rows))
    found, ratios = [], []
    for dataset, model in product_of(("youtube", "flickr"), ("evolvegcn", "mpnn_lstm")):
        each = {}
        for system in ("pygt-r", "pygt-g"):
            where = {"dataset": dataset, "model": model, "system": system}
            sent = table.where("topology_sent", **where)
            steps = [number(one.row, "counted_steps") for one in sent]
            if sum(steps):
                each[system] = sum(sent.values) / sum(steps)
                found += sent.rows
        if each.get("pygt-r") and "pygt-g" in each:
            ratios.append(each["pygt-g"] / each["pygt-r"])
    if not ratios:
        return missing("no two-layer model ran on a large graph in this run")
    low, high = min(ratios), max(ratios)
    span = f"{low:.2g}x" if f"{low:.2g}" == f"{high:.2g}" else f"{low:.2g}x to {high:.2g}x"
    return resting(
        found,
        holds=low > 1,
        measured=f"{span} the bytes of PyGT-R",
        reason="CSR and CSC with int32 ids and values against an int64 coordinate list",
    )


def protocol(claim: Claim, rows: Rows) -> Finding:
    """Frames and epochs, which are settings."""
    found = Table.of(rows, experiment="fig10").where("end_to_end_time")
    if not found:
        return missing("no end-to-end time was measured in this run")
    measured = {"frame_size": FRAME, "epochs": EPOCHS}
    return resting(
        found.rows,
        measured=measured,
        holds=claim.value == measured,
        reason="end-to-end time is preparation plus 200 times the median step times frames",
    )

"""Claims on accuracy (section 6.4, Figure 9).

Decided by 95 % intervals over pieces of time that both contenders were scored on; the classes are
ours, so that nothing here is more than an analogue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.experiments.common import graph_title, number
from dgbench.systems.tgcn.experiments.fig9 import (
    DYGNN,
    JODIE,
    LARGE,
    MAJORITY,
    OURS,
    TASKS,
    TITLES,
    WHOLE,
)

Rows = Sequence[Any]

NONE: Final = "no accuracy over time: the experiment 'fig9' did not run"
DROP: Final = 5.0
"""Points by which the late pieces may lie below the early ones and still be as good."""


def _small(rows: Rows) -> list[Any]:
    """Rows on which the baselines ran too."""
    return [row for row in fig9.ran(rows) if row.params["dataset"] != LARGE]


def _where(rows: Rows) -> str:
    graphs = ", ".join(dict.fromkeys(graph_title(row.params["dataset"]) for row in rows))
    return f"{graphs}; {number(rows[0], 'parts', of='pieces') - 1} pieces each"


def no_loss(claim: Claim, rows: Rows) -> Finding:
    """T-GCN's mean accuracy over all pieces is not below DyGNN's by more than a point."""
    found = _small(rows)
    if not found:
        return missing(NONE)
    leads = {kind: fig9.over(found, kind, OURS, DYGNN) for kind in TASKS}
    one = leads["classify"]
    told = {TITLES[kind]: f"T-GCN leads by {lead} points" for kind, lead in leads.items()}
    if any(fig9.learned(row, "link", WHOLE) for row in found):
        lead = fig9.over(found, "link", WHOLE, DYGNN)
        told[f"{TITLES['link']}, with states of all edges"] = f"T-GCN leads by {lead} points"
    worst = min(
        (fig9.over([row], "classify", OURS, DYGNN).value, graph_title(row.params["dataset"]))
        for row in found
        if fig9.mean(row, "classify", OURS) == fig9.mean(row, "classify", OURS)
    )
    return finding(
        found,
        evidence="analogue",
        measured=told,
        holds=one.value >= -fig9.TOLERANCE,
        undecided=one.low < -fig9.TOLERANCE <= one.high,
        reason=f"{_where(found)}; furthest behind {worst[0]:+.1f} points on {worst[1]}",
    )


def twitter(claim: Claim, rows: Rows) -> Finding:
    """T-GCN is above the largest class on Twitter, and DyGNN's state does not fit."""
    found = [row for row in fig9.ran(rows) if row.params["dataset"] == LARGE]
    if not found:
        return missing("Twitter did not run")
    gaps = [
        value - number(row, "accuracy", setting=MAJORITY)
        for row in found
        for value in fig9.learned(row, "classify", OURS).values()
    ]
    if not gaps:
        return missing("no vertex of Twitter that is held out occurred")
    lead = fig9.lead(gaps)
    needed = number(found[0], "memory", of="state", setting=DYGNN)
    there = number(found[0], "memory", of="device")
    events = number(found[0], "edges", task="classify")
    accuracy = sum(fig9.mean(row, "classify", OURS) for row in found) / len(found)
    return finding(
        found,
        evidence="analogue",
        measured={
            "accuracy of classes": round(accuracy, 3),
            "over always saying the largest class": f"{lead} points",
            "state of DyGNN": f"{needed / 2**30:.0f} GiB of {there / 2**30:.0f}",
        },
        holds=lead.value > 0 and needed > there,
        undecided=lead.low <= 0 <= lead.high,
        reason=f"{events} events; DyGNN's memory is counted at printed size",
    )


def stable(claim: Claim, rows: Rows) -> Finding:
    """The last third of the pieces is not below the first third that came after training began."""
    found = fig9.ran(rows)
    gaps = []
    for row in found:
        scores = list(fig9.learned(row, "classify", OURS).values())
        third = len(scores) // 3
        if third:
            gaps += [late - early for early, late in zip(scores[:third], scores[-third:],
                                                         strict=True)]  # fmt: skip
    if not gaps:
        return missing(NONE)
    change = fig9.lead(gaps)
    spans = {}
    for row in found:
        scores = list(fig9.learned(row, "classify", OURS).values())
        if scores:
            spans.setdefault(graph_title(row.params["dataset"]), []).extend(scores)
    return finding(
        found,
        evidence="analogue",
        measured={
            "late over early pieces": f"{change} points",
            **{name: f"{min(v):.2f} to {max(v):.2f}" for name, v in spans.items()},
        },
        holds=change.value >= -DROP,
        undecided=change.low < -DROP <= change.high,
        reason=_where(found),
    )


def dygnn_over_jodie(claim: Claim, rows: Rows) -> Finding:
    """DyGNN's mean accuracy of classes is above JODIE's."""
    found = _small(rows)
    if not found:
        return missing(NONE)
    both = [kind for kind in TASKS if fig9.series(found[0], kind, JODIE)]
    leads = {kind: fig9.over(found, kind, DYGNN, JODIE) for kind in both}
    one = leads["classify"]
    return finding(
        found,
        evidence="analogue",
        measured={TITLES[kind]: f"DyGNN leads by {lead} points" for kind, lead in leads.items()},
        holds=one.value > 0,
        direction=one.value > 0,
        undecided=one.low <= 0 <= one.high,
        reason=_where(found),
    )


CHECKS: Final[dict[str, Check]] = {
    "tgcn-s64-dygnn-over-jodie": dygnn_over_jodie,
    "tgcn-fig9-no-accuracy-loss": no_loss,
    "tgcn-fig9-twitter": twitter,
    "tgcn-fig9-stable-over-time": stable,
}

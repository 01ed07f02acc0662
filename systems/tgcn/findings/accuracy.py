"""Findings on accuracy over time: section 6.4, Figure 9.

Decided by 95 % intervals over pieces of time that both contenders were scored on; the classes are
ours, so that nothing here is more than an analogue.
"""

from __future__ import annotations

from typing import Any, Final

from dgbench.lab.evidence import missing
from dgbench.lab.paper import Claim, Finding
from dgbench.lab.table import number
from dgbench.lab.verbs import rows_with
from dgbench.systems.tgcn import accuracy_runs
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.findings.common import Fields, Rows
from dgbench.systems.tgcn.settings import graph_title


def small_graphs(rows: list[Any]) -> list[Any]:
    """Rows on which the baselines ran too."""
    return [row for row in rows if row.params["dataset"] != fig9.LARGE]


NO_ACCURACY: Final = "no accuracy over time: the experiment 'fig9' did not run"
SCORED = rows_with(fig9.NAME, NO_ACCURACY)
SCORED_BY_ALL = rows_with(fig9.NAME, NO_ACCURACY, small_graphs)
SCORED_LARGE = rows_with(fig9.NAME, "Twitter did not run", dataset=fig9.LARGE)
DROP: Final = 5.0
"""Points by which the late pieces may lie below the early ones and still be as good."""


def scored_on(rows: Rows) -> str:
    """The graphs and the pieces of a finding."""
    graphs = ", ".join(dict.fromkeys(graph_title(row.params["dataset"]) for row in rows))
    return f"{graphs}; {number(rows[0], 'parts', of='pieces') - 1} pieces each"


def no_loss(claim: Claim, rows: Rows) -> Fields:
    """T-GCN's mean accuracy over all pieces is not below DyGNN's by more than a point."""
    leads = {fig9.TITLES[kind]: fig9.over(rows, kind, fig9.OURS, fig9.DYGNN) for kind in fig9.TASKS}
    one = leads[fig9.TITLES["classify"]]
    if any(fig9.learned(row, "link", fig9.WHOLE) for row in rows):
        name = f"{fig9.TITLES['link']}, with states of all edges"
        leads[name] = fig9.over(rows, "link", fig9.WHOLE, fig9.DYGNN)
    behind, graph = min(
        (
            fig9.over([row], "classify", fig9.OURS, fig9.DYGNN).value,
            graph_title(row.params["dataset"]),
        )
        for row in rows
        if fig9.learned(row, "classify", fig9.OURS)
    )
    return {
        "measured": {name: f"T-GCN leads by {lead} points" for name, lead in leads.items()},
        "holds": one.value >= -fig9.TOLERANCE,
        "undecided": one.low < -fig9.TOLERANCE <= one.high,
        "reason": f"{scored_on(rows)}; furthest behind {behind:+.1f} points on {graph}",
    }


def twitter_accuracy(claim: Claim, rows: Rows) -> Fields | Finding:
    """T-GCN is above the largest class on Twitter, and DyGNN's state does not fit."""
    gaps = [
        value - number(row, "accuracy", setting=accuracy_runs.MAJORITY)
        for row in rows
        for value in fig9.learned(row, "classify", fig9.OURS).values()
    ]
    if not gaps:
        return missing("no vertex of Twitter that is held out occurred")
    lead, row = fig9.lead(gaps), rows[0]
    needed = number(row, "memory", of="state", setting=fig9.DYGNN)
    there = number(row, "memory", of="device")
    accuracy = sum(fig9.mean(row, "classify", fig9.OURS) for row in rows) / len(rows)
    return {
        "measured": {
            "accuracy of classes": round(accuracy, 3),
            "over always saying the largest class": f"{lead} points",
            "state of DyGNN": f"{needed / 2**30:.0f} GiB of {there / 2**30:.0f}",
        },
        "holds": lead.value > 0 and needed > there,
        "undecided": lead.low <= 0 <= lead.high,
        "reason": f"{number(row, 'edges', task='classify')} events; DyGNN's memory is counted at "
        "printed size",
    }


def stable(claim: Claim, rows: Rows) -> Fields | None:
    """The last third of the pieces is not below the first third that came after training began."""
    gaps: list[float] = []
    spans: dict[str, list[float]] = {}
    for row in rows:
        scores = list(fig9.learned(row, "classify", fig9.OURS).values())
        if third := len(scores) // 3:
            early, late = scores[:third], scores[-third:]
            gaps += [after - before for before, after in zip(early, late, strict=True)]
        if scores:
            spans.setdefault(graph_title(row.params["dataset"]), []).extend(scores)
    if not gaps:
        return None
    change = fig9.lead(gaps)
    return {
        "measured": {
            "late over early pieces": f"{change} points",
            **{name: f"{min(v):.2f} to {max(v):.2f}" for name, v in spans.items()},
        },
        "holds": change.value >= -DROP,
        "undecided": change.low < -DROP <= change.high,
        "reason": scored_on(rows),
    }


def dygnn_over_jodie(claim: Claim, rows: Rows) -> Fields:
    """DyGNN's mean accuracy of classes is above JODIE's."""
    both = [kind for kind in fig9.TASKS if fig9.series(rows[0], kind, accuracy_runs.JODIE)]
    leads = {kind: fig9.over(rows, kind, fig9.DYGNN, accuracy_runs.JODIE) for kind in both}
    one = leads["classify"]
    return {
        "measured": {fig9.TITLES[k]: f"DyGNN leads by {lead} points" for k, lead in leads.items()},
        "holds": one.value > 0,
        "direction": one.value > 0,
        "undecided": one.low <= 0 <= one.high,
        "reason": scored_on(rows),
    }

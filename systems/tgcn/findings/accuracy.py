"""Findings on accuracy over time: section 6.4, Figure 9.

A seed is one observation: pieces of time are averaged inside it, and 95 % intervals are over seeds.
Twins say nothing of accuracy, so that real graphs alone are asked.
"""

from __future__ import annotations

from typing import Any, Final

from dgbench.lab.evidence import missing
from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import number
from dgbench.lab.verbs import Judge, readings, rows_with, says
from dgbench.systems.tgcn import accuracy_runs
from dgbench.systems.tgcn.experiments import fig9
from dgbench.systems.tgcn.experiments.fig9 import Lead
from dgbench.systems.tgcn.findings.common import Fields, Rows
from dgbench.systems.tgcn.settings import graph_title


def real_graphs(rows: list[Any]) -> list[Any]:
    """Rows on real graphs."""
    return [row for row in rows if not row.data.get("twin")]


NO_ACCURACY: Final = "no accuracy over time on a real graph: the experiment 'fig9' did not run"
SCORED = rows_with(fig9.NAME, NO_ACCURACY, real_graphs)
SCORED_LARGE = rows_with(fig9.NAME, "Twitter did not run", dataset=fig9.LARGE)


def led(lead: Lead, what: str) -> Fields:
    """Fields of a statement that a lead is no loss: by its interval over seeds."""
    each = ", ".join(f"{graph_title(name)} {mean:+.1f}" for name, mean in lead.by_graph.items())
    return {
        "measured": f"{what} {lead} points",
        "holds": lead.low >= 0,
        "undecided": lead.low < 0 <= lead.high,
        "reason": f"{each}; {lead.seeds} seeds of each graph",
    }


def no_loss_of(form: str) -> Judge:
    """T-GCN's mean accuracy over all pieces against DyGNN's, by what its states see."""

    def judge(claim: Claim, rows: Rows) -> Fields | None:
        lead = fig9.over(rows, "classify", form, fig9.DYGNN)
        return None if lead is None else led(lead, "T-GCN over DyGNN:")

    return judge


no_loss: Final[Check] = readings(
    **{
        "states see sampled edges": says(SCORED, no_loss_of(fig9.OURS)),
        "states see all edges": says(SCORED, no_loss_of(fig9.WHOLE)),
    }
)


def twitter_accuracy(claim: Claim, rows: Rows) -> Fields | Finding:
    """T-GCN is above the largest class on Twitter, and DyGNN's state does not fit."""
    gaps = {
        fig9.run_of(row): [
            value - number(row, "accuracy", setting=accuracy_runs.MAJORITY)
            for value in fig9.learned(row, "classify", fig9.OURS).values()
        ]
        for row in rows
    }
    lead, row = fig9.lead(gaps), rows[0]
    if lead is None:
        return missing("no vertex of Twitter that is held out occurred")
    needed = number(row, "memory", of="state", setting=fig9.DYGNN)
    there = number(row, "memory", of="device")
    return {
        "measured": {
            "over always saying the largest class": f"{lead} points",
            "state of DyGNN": f"{needed / 2**30:.0f} GiB of {there / 2**30:.0f}",
        },
        "holds": lead.low > 0 and needed > there,
        "undecided": lead.low <= 0 <= lead.high and needed > there,
        "model": "size of a state by formula",
        "reason": f"{number(row, 'edges', task='classify')} events",
    }


def stable(claim: Claim, rows: Rows) -> Fields | None:
    """The last third of the pieces against the first third that came after training began."""
    gaps: dict[tuple[str, Any], list[float]] = {}
    for row in rows:
        scores = list(fig9.learned(row, "classify", fig9.OURS).values())
        if third := len(scores) // 3:
            early, late = sum(scores[:third]) / third, sum(scores[-third:]) / third
            gaps[fig9.run_of(row)] = [late - early]
    lead = fig9.lead(gaps)
    return None if lead is None else led(lead, "late over early pieces:")


def dygnn_over_jodie(claim: Claim, rows: Rows) -> Fields | None:
    """DyGNN's mean accuracy of classes against JODIE's."""
    lead = fig9.over(rows, "classify", fig9.DYGNN, accuracy_runs.JODIE)
    if lead is None:
        return None
    return led(lead, "DyGNN over JODIE:") | {
        "holds": lead.side > 0,
        "undecided": lead.side == 0,
    }

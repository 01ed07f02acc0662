"""Claims of Table 1 and of the experimental settings (6.1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.printed import same_printed
from dgbench.lab.table import number, rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments.fig4_rows import timed_rows
from dgbench.systems.esdg.experiments.table1 import counted, printed

TABLE1 = {
    "esdg-tab1-epinions": "epinions",
    "esdg-tab1-flickr": "flickr",
    "esdg-tab1-youtube": "youtube",
    "esdg-tab1-amlsim": "amlsim",
}


def table1(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Every printed number of one graph, at its printed digits."""
    found = rows_of(rows, experiment="table1", dataset=TABLE1[claim.id])
    if not found:
        return missing("the graph was not opened in this run")
    row = found[-1]
    sizes, said = counted(row), printed(row)
    differ = [key for key in sizes if not same_printed(sizes[key], said[key])]
    words = f"differs in {', '.join(differ)}" if differ else "equal at the printed digits"
    l, w = (number(row, "smoothing_length", smoothing=s) for s in ("edge_life", "m_transform"))  # noqa: E741
    return finding(
        [row],
        measured=sizes,
        holds=not differ,
        reason=f"{words}; with l = {l} and w = {w}, fitted to the ratios",
    )


def settings(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Feature length, classes, and epochs behind each time of Figure 4."""
    found = timed_rows(rows)
    if not found:
        return missing("no epoch of Figure 4 was timed in this run")
    found = [row for row in found if not row.data.get("twin")] or found
    asked = {
        "intermediate_features": ("columns", {"of": "hidden"}),
        "classes": ("columns", {"of": "classes"}),
        "epochs_averaged": ("turns", {}),
    }
    measured = {
        key: {number(row, metric, **dims) for row in found} for key, (metric, dims) in asked.items()
    }
    epochs = min(measured["epochs_averaged"])
    holds = epochs >= claim.value["epochs_averaged"] and all(
        measured[key] == {claim.value[key]} for key in ("intermediate_features", "classes")
    )
    return finding(
        found,
        measured={key: min(value) for key, value in measured.items()},
        holds=holds,
        reason="medians of at least as many epochs, where the paper takes means",
    )

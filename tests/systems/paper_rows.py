"""Rows of a paper's experiments without a run, and what its claims' checks make of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.verdict import Verdict, decide
from dgbench.harness.store.row import Row
from dgbench.lab.evidence import conditions
from dgbench.lab.judging import judging
from dgbench.lab.paper import Claim, Finding, Paper


def row_of(cell, number: int = 0, **fields) -> Row:
    """A row of `cell`; `fields` replace what it would hold."""
    common = {
        "id": f"{cell.experiment}-{number}", "run": "test", "cell_hash": f"{cell.group}-{number}",
        "paper": cell.paper, "experiment": cell.experiment, "params": dict(cell.params),
        "group": cell.group,
    }  # fmt: skip
    return Row(**{**common, **fields})


def failed_rows(experiment) -> list[Row]:
    """One row per smoke cell, all out of memory."""
    cells = experiment.cells("smoke", "cpu")
    return [
        row_of(cell, number, status="oom", reason="21.9 of 24.0 GiB")
        for number, cell in enumerate(cells)
    ]


def judged(
    paper: Paper, claim: Claim, rows: Sequence[Row], floor: float | None
) -> tuple[Finding, Verdict]:
    """The finding and the verdict of a claim from these rows, as the harness reaches them."""
    usable = [row for row in rows if row.status == "ok"]
    with judging(floor) as context:
        found = paper.checks[claim.id](claim, rows)
    return found, decided(paper, claim, found, usable, context.reads, floor=floor)


def decided(
    paper: Paper, claim: Claim, found: Finding, rows: Sequence[Row], reads: Any = (), **more: Any
) -> Verdict:
    """The verdict on a finding, under the conditions of these rows and the twins' rules."""
    each = found.readings or {"": found}
    under: Any = {name: conditions(claim, one, rows, reads, paper) for name, one in each.items()}
    under = under if found.readings else under[""]
    return decide(claim, found, under, twin_rule=twin_rule(claim.id), **more)

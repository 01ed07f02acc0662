"""Rows of a paper's experiments without a run, and what its claims' checks make of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from msgspec import structs

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.verdict import Verdict, decide
from dgbench.harness.store.row import Row
from dgbench.lab.evidence import conditions
from dgbench.lab.judging import judging
from dgbench.lab.paper import Claim, Finding, Paper
from dgbench.runtime.errors import MissingDataError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import RunContext


def answered_by(checks: Mapping, *modules: ModuleType) -> dict:
    """Those of a table of checks that are functions of these modules, or were made there."""
    names = {module.__name__ for module in modules}
    made = {id(one) for module in modules for one in vars(module).values()}
    return {
        claim: check
        for claim, check in checks.items()
        if check.__module__ in names or id(check) in made
    }


def entries_of(module: ModuleType, table: str) -> int:
    """Number of claims in a table's source; a dictionary drops a second entry silently."""
    tree = ast.parse(inspect.getsource(module))
    named = (n for n in tree.body if isinstance(n, ast.AnnAssign) and n.target.id == table)
    found = next(named).value
    return sum(
        1 if key else len(eval(ast.unparse(value), vars(module)))
        for key, value in zip(found.keys, found.values, strict=True)
    )


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


def small_rows(experiment, most: int) -> list[Row]:
    """Rows of the first `most` smoke cells, each run once; those whose data is not held are left
    out."""
    rows: list[Row] = []
    for number, cell in enumerate(experiment.cells("smoke", "cpu")[:most]):
        if cell.unavailable:
            reason = cell.unavailable
            rows.append(row_of(cell, number, preset="smoke", status="no-gpu", reason=reason))
            continue
        meter = Meter(timing=False)
        context = RunContext("cpu", "smoke", 1, instrumented=False, meter=meter, budget_s=0.02)
        try:
            found = experiment.run(cell, context)
        except MissingDataError:
            continue
        measured = structs.asdict(found)
        measured["observed"] = measured.pop("observations")
        rows.append(row_of(cell, number, preset="smoke", **measured))
    return rows


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

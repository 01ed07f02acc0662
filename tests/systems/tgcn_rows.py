"""Rows of T-GCN's experiments, made by hand or by a small run, and what its checks say of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs
from paper_rows import row_of

from dgbench.datasets.twins.limits import twin_rule
from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict, decide
from dgbench.harness.store.row import Row
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Cell, Finding, RunContext
from dgbench.systems.tgcn import PAPER

CLAIMS = {claim.id.removeprefix("tgcn-"): claim for claim in load_ledger(PAPER.ledger)}
EXPERIMENTS = {one.name: one for one in PAPER.experiments}

__all__ = ["CLAIMS", "EXPERIMENTS", "asked", "judged", "made", "observation", "ran", "smoke_rows"]


def made(experiment: str, params: dict[str, Any], found: Iterable[Observation], **fields) -> Row:
    """A row that observed this."""
    cell = Cell(paper="tgcn", experiment=experiment, params=params, group="x")
    name = f"{experiment}-{'-'.join(map(str, params.values()))}"
    return row_of(cell, **{"id": name, "observed": list(found), **fields})


def ran(experiment: str, params: dict[str, Any]) -> Row:
    """The row of a smoke cell, run here."""
    cells = EXPERIMENTS[experiment].cells("smoke", "cpu")
    return _run(next(cell for cell in cells if cell.params == params))


def smoke_rows(experiment: str) -> list[Row]:
    """Rows of all smoke cells that can run here."""
    cells = EXPERIMENTS[experiment].cells("smoke", "cpu")
    return [_run(cell) for cell in cells if not cell.unavailable]


def _run(cell: Cell) -> Row:
    found = EXPERIMENTS[cell.experiment].run(cell, RunContext("cpu", "smoke", 1))
    assert all(math.isfinite(one.value) for one in found.observations)
    measured = structs.asdict(found)
    return made(cell.experiment, dict(cell.params), measured.pop("observations"), **measured)


def asked(name: str, rows: Sequence[Row]) -> Finding:
    """The finding of a claim."""
    return PAPER.checks[f"tgcn-{name}"](CLAIMS[name], rows)


def judged(name: str, rows: Sequence[Row]) -> tuple[Finding, Verdict]:
    """The finding and the verdict of a claim."""
    found = asked(name, rows)
    return found, decide(CLAIMS[name], found, twin_rule=twin_rule(f"tgcn-{name}"))

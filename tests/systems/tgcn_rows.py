"""Rows of T-GCN's experiments, made by hand or by a small run, and what its checks say of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import paper_rows
from msgspec import structs
from paper_rows import row_of

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import GLYPHS, Verdict
from dgbench.harness.store.row import Row
from dgbench.lab import metrics
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Cell, Finding, RunContext
from dgbench.systems.tgcn import PAPER

CLAIMS = {claim.id.removeprefix("tgcn-"): claim for claim in load_ledger(PAPER.ledger)}
EXPERIMENTS = {one.name: one for one in PAPER.experiments}

__all__ = [
    "CLAIMS",
    "EXPERIMENTS",
    "asked",
    "five",
    "glyphs",
    "judged",
    "made",
    "observation",
    "ran",
    "smoke_rows",
]


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


def judged(name: str, rows: Sequence[Row], floor: float = 0.02) -> tuple[Finding, Verdict]:
    """The finding and the verdict of a claim, under the conditions of these rows."""
    return paper_rows.judged(PAPER, CLAIMS[name], rows, floor)


def glyphs(name: str, rows: Sequence[Row], floor: float = 0.02) -> str:
    """The glyph of a claim's verdict, and in brackets those of its readings, in their order."""
    verdict = judged(name, rows, floor)[1]
    of = {word: glyph for glyph, word in GLYPHS.items()}
    each = "".join(of[word] for word in verdict.readings.values())
    return f"{verdict.glyph}({each})" if each else verdict.glyph


def five(
    experiment: str,
    params: dict[str, Any],
    found: Sequence[Observation],
    *,
    spread: float = 0.01,
    count: int = 5,
    **fields,
) -> list[Row]:
    """Rows of processes that differ by `spread` in what a clock gave, in their middle `found`."""
    rows = []
    for number in range(count):
        by = 1 + spread * (number - (count - 1) / 2)
        own = [
            structs.replace(one, value=one.value * by)
            if metrics.metric(one.metric).kind in ("time", "ratio", "rate")
            else one
            for one in found
        ]
        row = made(experiment, params, own, round=number + 1, **fields)
        rows.append(structs.replace(row, id=f"{row.id}-{number}"))
    return rows

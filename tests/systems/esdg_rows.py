"""Rows of ESDG's experiments: made up from observations, or of cells that ran here."""

from __future__ import annotations

from functools import partial
from typing import Any

import paper_rows
from msgspec.structs import replace

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.claims.verdict import Verdict
from dgbench.harness.store.row import Row
from dgbench.lab.result_checks import equal
from dgbench.lab.table import (
    Observation,
    number,  # noqa: F401 - what tests read a row by
    observation,
)
from dgbench.systems.base import Cell, Measurement
from dgbench.systems.esdg import PAPER

seen = observation
"""An observation: `seen("epoch_time", 0.1, setting="GD")`."""


def gain(value: float, low: float | None, high: float | None, **dims: Any) -> Observation:
    """A speed-up with its interval."""
    return observation("speedup", value, low=low, high=high, **dims)


def row(experiment: str, params: dict[str, Any], *observed: Observation, **fields: Any) -> Row:
    """A made-up row; `fields` replace what it would hold."""
    plain = {
        "id": f"{experiment}-{'-'.join(map(str, params.values()))}",
        "paper": "esdg",
        "experiment": experiment,
        "group": "g",
        "checks": [equal("counters", 1, 1, against="made up")],
    }
    return Row(**{**plain, "params": params, "observed": list(observed), **fields})


def row_of(cell: Cell, found: Measurement, **fields: Any) -> Row:
    """The row of a cell that ran."""
    kept = ("deviation", "data", "notes", "checks")
    measured = {name: getattr(found, name) for name in kept} | {"group": cell.group}
    return row(cell.experiment, dict(cell.params), *found.observations, **{**measured, **fields})


def edited(old: Row, *observed: Observation, **fields: Any) -> Row:
    """The same row with these observations in place of those of equal metric and dimensions."""
    changed = {(one.metric, str(sorted(one.dims.items()))): one for one in observed}
    kept = {(one.metric, str(sorted(one.dims.items()))): one for one in old.observations}
    return replace(old, observed=list((kept | changed).values()), **fields)


CLAIMS = {claim.id: claim for claim in load_ledger(PAPER.ledger)}


def judge(name: str, rows: list[Row], *, floor: float | None = 0.0) -> Verdict:
    """The verdict on a claim from these rows, in a run of this noise floor."""
    return paper_rows.judged(PAPER, CLAIMS[f"esdg-{name}"], rows, floor)[1]


decided = partial(paper_rows.decided, PAPER)


def processes(one: Row, count: int = 5) -> list[Row]:
    """Rows of so many processes of a cell, that found the same."""
    return [replace(one, id=f"{one.id}-{turn}", round=turn) for turn in range(1, count + 1)]

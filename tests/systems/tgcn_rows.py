"""Made rows of T-GCN's experiments, and what the paper's checks say of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs
from paper_rows import row_of

from dgbench.harness.store.row import Row
from dgbench.lab import metrics
from dgbench.lab.table import Observation, observation
from dgbench.systems.base import Cell

__all__ = ["five", "made", "observation"]


def made(experiment: str, params: dict[str, Any], found: Iterable[Observation], **fields) -> Row:
    """A row that observed this."""
    cell = Cell(paper="tgcn", experiment=experiment, params=params, group="x")
    name = f"{experiment}-{'-'.join(map(str, params.values()))}"
    return row_of(cell, **{"id": name, "observed": list(found), **fields})


def five(
    experiment: str, params: dict[str, Any], found: Sequence[Observation], *,
    spread: float = 0.01, count: int = 5, **fields,
) -> list[Row]:  # fmt: skip
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

"""Cells without a result, as pages show them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.report.run import FAILED, STATUS_MEANING
from dgbench.harness.terminal.progress import describe


def once_a_cell(rows: Sequence[Any]) -> list[Any]:
    """The first row that is not ok of each cell."""
    found: dict[str, Any] = {}
    for row in rows:
        if not row.ok:
            found.setdefault(row.cell_hash or row.id, row)
    return list(found.values())


def without_result(rows: Sequence[Any]) -> list[dict[str, str]]:
    """Cells without a result; those that cannot run here for one reason share a line."""
    alike: dict[tuple, list[Any]] = {}
    for row in once_a_cell(rows):
        alone = row.id if row.status in FAILED else ""
        alike.setdefault((row.paper, row.experiment, row.status, row.reason, alone), []).append(row)
    shown = []
    for group in alike.values():
        cell = failed_cell(group[0])
        if len(group) > 1:
            cell["what"] = f"{len(group)} cells, such as {cell['what']}"
        shown.append(cell)
    return shown


def failed_cell(row: Any) -> dict[str, str]:
    """A row without a result as a page shows it."""
    return {
        "id": row.id,
        "experiment": row.experiment,
        "paper": row.paper,
        "what": describe(row),
        "status": STATUS_MEANING.get(row.status, row.status),
        "failed": row.status in FAILED,
        "reason": row.reason,
        "log": row.log,
    }

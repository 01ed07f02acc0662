"""The result store: rows as checked JSON lines, with the provenance they rest on."""

from dgbench.harness.store.row import FAILED, LACKING, SCHEMA, STATUSES, Row
from dgbench.harness.store.store import (
    Store,
    Torn,
    find_run,
    find_runs,
    last_first,
    list_runs,
    runs_root,
)

__all__ = [
    "FAILED",
    "LACKING",
    "SCHEMA",
    "STATUSES",
    "Row",
    "Store",
    "Torn",
    "find_run",
    "find_runs",
    "last_first",
    "list_runs",
    "runs_root",
]

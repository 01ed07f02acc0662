"""Helpers of T-GCN's experiments: words for rows, rows that failed, ratios, data and threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dgbench.lab.compare import Ratio, ratio
from dgbench.lab.table import Entry, Observation, Table, rows_of
from dgbench.lab.verbs import last_of_each
from dgbench.systems.base import Preset
from dgbench.systems.tgcn.settings import BY_NAME

if TYPE_CHECKING:
    from dgbench.datasets import EventStream


def last_rows(rows: Sequence[Any], experiment: str, **params: Any) -> list[Any]:
    """Usable rows of an experiment with these params: the last one of each cell."""
    return last_of_each(rows_of(rows, experiment=experiment, **params))


def open_graph(name: str, preset: Preset, scale: float | None = None) -> EventStream:
    """The events of one of `ALL`, the twin at the preset's scale or at this one."""
    from dgbench import datasets

    graph = BY_NAME[name]
    return datasets.open_events(name, "auto", graph.scale(preset) if scale is None else scale)


def synthetic_data(words: str) -> dict[str, Any]:
    """The `data` field of a measurement on numbers that no graph is behind.

    Claims about these name no dataset, so that this is not a twin of one.
    """
    return {"dataset": "none", "twin": False, "scale": 1.0, "note": words}


def cells_of(rows: Sequence[Any]) -> list[list[Any]]:
    """Rows by cell: the processes of each, in order of first appearance."""
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(f"{row.experiment} {sorted(row.params.items())}", []).append(row)
    return list(found.values())


def mean_ratio(found: Table, *by: str) -> Ratio | None:
    """Geometric mean over fixed workloads of ratios that processes formed over their turns.

    Args:
        found: ratios, one for each process and workload.
        by: dimensions that name a workload.
    """
    tables = found.by(*by).values() if by else [found]
    return pooled([[(one.row, one.value) for one in table] for table in tables if table])


def pooled(groups: Sequence[Sequence[tuple[Any, float]]]) -> Ratio | None:
    """Geometric mean over fixed workloads of a ratio of each process.

    The interval holds what differs between processes of one workload; workloads are those named,
    so that their differences are no noise. A workload with one process has no interval.

    Args:
        groups: of each workload, the row of a process and its ratio.
    """
    if not groups or not all(groups):
        return None
    above, below = (
        Table(
            Entry(row, Observation(metric="speedup", value=number, dims=dims))
            for place, group in enumerate(groups)
            for row, value in group
            for number in [value if side == "measured" else 1.0]
            for dims in [{"part": str(place), "setting": side}]
        )
        for side in ("measured", "one")
    )
    return ratio(above, below)

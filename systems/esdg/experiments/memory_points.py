"""Figures of memory by blocks: peaks, times, and what memory buys."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from dgbench.lab.charts import joined, mark
from dgbench.lab.table import Table, number, rows_of
from dgbench.lab.verbs import cells_of, turns_gain
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES

WAYS = (("the paper's way", "paper"), ("ours", "ours"))


def block_counts(row: Any) -> list[int]:
    """Numbers of blocks that a sweep's row has."""
    told = Table.of([row]).where(("memory", "epoch_time"), setting="ours")
    return sorted({one["blocks"] for one in told})


def weighed(rows: Sequence[Any]) -> list[Any]:
    """Rows of a sweep that have peaks: a cell's first process."""
    return [
        row
        for row in rows_of(rows, experiment="memory", part="sweep")
        if Table.of([row]).where("memory", of="peak")
    ]


def _panel(row: Any) -> str:
    graph = BY_NAME[row.params["dataset"]]
    twin = " (twin)" if row.data.get("twin") else ""
    return f"{MODEL_TITLES[row.params['model']]}, {graph.title}{twin}"


def _failed(rows: Sequence[Any], part: str) -> list[dict[str, Any]]:
    return [
        {"series": "measured", "panel": _panel(row), "failed": f"{row.status}: {row.reason}"}
        for row in rows
        if row.experiment == "memory" and row.params["part"] == part and row.status != "ok"
    ]


def peak_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Peak, plan and formula by the number of blocks; without checkpoint it is one block's."""
    points = _failed(rows, "sweep")
    memory = {"of": "memory", "setting": "ours"}
    series: dict[str, tuple[str, dict[str, str]]] = {
        "measured": ("memory", {"of": "peak", "setting": "ours"}),
        "planned": ("estimate", {**memory, "method": "planned"}),
        "measured, the paper's way": ("memory", {"of": "peak", "setting": "paper"}),
        "20 nnz + 4 N (widths)": ("estimate", {**memory, "method": "formula"}),
    }
    for row in weighed(rows):
        for name, (metric, where) in series.items():
            points += [
                {
                    "series": name,
                    "panel": _panel(row),
                    "x": n,
                    "y": number(row, metric, **where, blocks=n),
                    "counted": True,
                    "row_ids": [row.id],
                }
                for n in block_counts(row)
            ]
    return joined(points, "y")


def time_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Epoch by the number of blocks over that with one, turn by turn."""
    points = _failed(rows, "sweep")
    for cell in cells_of(rows_of(rows, experiment="memory", part="sweep")):
        for series, way in WAYS:
            for n in block_counts(cell[0])[1:]:
                ratio = turns_gain(cell, baseline=way, blocks=n)
                points.append(
                    {
                        "series": series,
                        "panel": _panel(cell[0]),
                        "x": n,
                        "y": ratio.value,
                        "low": ratio.low,
                        "high": ratio.high,
                        "row_ids": ratio.rows,
                    }
                )
    return points


def rate_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Peak memory and snapshots a second by the number of blocks; one block is the base."""
    points = [{**point, "series": "esdg", "setting": "blocks"} for point in _failed(rows, "sweep")]
    swept = rows_of(rows, experiment="memory", part="sweep")
    for row in weighed(rows):
        mine = Table.of([one for one in swept if one.params == row.params])
        points += [
            mark(
                row,
                series="esdg" if series == "ours" else series,
                panel=_panel(row),
                setting="1 block" if n == 1 else f"{n} blocks",
                memory=number(row, "memory", of="peak", setting=way, blocks=n),
                rate=number(row, "snapshots")
                / median(mine.where("epoch_time", setting=way, blocks=n).values),
                base=n == 1,
            )
            for series, way in WAYS
            for n in block_counts(row)
        ]
    return joined(points, "memory", "rate")

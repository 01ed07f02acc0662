"""Points of Figure 5's pictures, measured and projected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dgbench.lab.compare import ratio_of
from dgbench.lab.table import Table, number
from dgbench.systems.esdg.experiments.fig5_curves import (
    NAME,
    curves,
    job_of,
    link_errors,
    ranked,
    share_rows,
    speeds,
)
from dgbench.systems.esdg.experiments.parts import costs_of
from dgbench.systems.esdg.experiments.projection import (
    ProjectedSnapshotEpoch,
    h200,
    scaled_points,
    snapshot_epoch,
    speedups,
    v100_cluster,
)
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES


def _panel(dataset: str, row: Any) -> str:
    return BY_NAME[dataset].title + (" (twin)" if row.data.get("twin") else "")


def speedup_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `scaling`: measured on cores of their own, and projected to 128; a panel for each
    model and graph."""
    points: list[dict[str, Any]] = []
    for (dataset, model, p), gains in ranked(rows).items():
        row = gains[0].row
        if p > number(row, "cores"):
            continue
        ratio = ratio_of(gains)
        common = {"panel": _shown(dataset, model, row), "series": "esdg", "row_ids": ratio.rows}
        if not any(q["panel"] == common["panel"] for q in points):
            points.append({**common, "x": 1, "y": 1.0})
        points.append({**common, "x": p, "y": ratio.value, "low": ratio.low, "high": ratio.high})
    found = curves(rows)
    for (dataset, model), row in share_rows(rows).items():
        lines = {name: line[dataset, model] for name, line in found.items()
                 if (dataset, model) in line}  # fmt: skip
        common = {"panel": _shown(dataset, model, row), "row_ids": [row.id]}
        points += scaled_points(lines, speedups, costs_of(row), link_errors(rows), common)
    return points + [
        {"panel": _shown(row.params["dataset"], row.params["model"], row), "series": "esdg",
         "x": row.params.get("ranks", 1), "failed": f"{row.status}: {row.reason}"}
        for row in rows
        if row.experiment == NAME and row.status != "ok" and "model" in row.params
    ]  # fmt: skip


def _shown(dataset: str, model: str, row: Any) -> str:
    return f"{MODEL_TITLES[model]}, {_panel(dataset, row)}"


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Compute, transfer and communication of projected epochs, by the bandwidth reading."""
    points = []
    used = share_rows(rows)
    for (dataset, model), epochs in curves(rows).get("bandwidth", {}).items():
        row = used[dataset, model]
        for p, epoch in epochs.items():
            parts = {
                "compute": epoch.compute_s,
                "transfer": epoch.transfer_s,
                "communicate": epoch.communicate_s,
            }
            for part, seconds in parts.items():
                if seconds > 0:
                    points.append(
                        {
                            "panel": f"{MODEL_TITLES[model]}, {_panel(dataset, row)}",
                            "series": part,
                            "x": p,
                            "y": seconds,
                            "projected": True,
                            "row_ids": [row.id],
                        }
                    )
    return points


def measured_split(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Bars of the ranks of this machine; more ranks than cores say so."""
    points, alone = [], set()
    for (dataset, model, p), gains in ranked(rows).items():
        row = gains[-1].row
        panel = f"{MODEL_TITLES[model]}, {_panel(dataset, row)}"
        cores = number(row, "cores")
        crowded = f", {cores:.0f} cores" if p > cores else ""
        spent = Table.of([row]).where("phase_time").by("setting")
        together, one = (spent[setting].numbers("phase") for setting in (None, "alone"))
        bars = {f"P = {p}{crowded}": (number(row, "epoch_time"), together)}
        if panel not in alone:
            bars = {"P = 1": (number(row, "epoch_time", setting="alone"), one), **bars}
            alone.add(panel)
        for name, (total, phases) in bars.items():
            for phase, seconds in phases.items():
                points.append(
                    {
                        "panel": panel,
                        "row": name,
                        "system": "esdg",
                        "phase": phase,
                        "seconds": seconds,
                        "total": total,
                        "deviation": row.deviation["loss"],
                        "row_ids": [row.id],
                    }
                )
    return points


def node_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Points of `scaling`: one node of the paper's V100 and one of H200, over one V100."""
    points: list[dict[str, Any]] = []
    by_model = speeds(rows).get("bandwidth", {})
    links = link_errors(rows)
    for (dataset, model), row in share_rows(rows).items():
        if dataset != "amlsim":
            continue
        speed, job = by_model[model], job_of(row)
        nodes = {
            name: {p: snapshot_epoch(job, p, machine(p, speed)) for p in (1, 2, 4, 8)}
            for name, machine in (("V100", v100_cluster), ("H200", h200))
        }
        one = nodes["V100"][1].seconds

        def over_one(
            epochs: Mapping[int, ProjectedSnapshotEpoch], one: float = one
        ) -> dict[int, float]:
            return {p: one / epoch.seconds for p, epoch in epochs.items()}

        common = {"panel": _shown(dataset, model, row), "row_ids": [row.id]}
        points += scaled_points(nodes, over_one, costs_of(row), links, common)
    return points

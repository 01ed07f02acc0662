"""Rows of Figure 4: what they say of bytes and times, and the points of its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.charts import failures, joined, mark
from dgbench.lab.compare import Ratio, ratio_of
from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.topology.named import PCIE3
from dgbench.systems.esdg.experiments.settings import BY_NAME, MODEL_TITLES, MODELS, RANKS, panel

BASE, GD = "Base", "GD"


def byte_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows of counted bytes."""
    return rows_of(rows, experiment="fig4", part="bytes")


def timed_rows(rows: Sequence[Any]) -> list[Any]:
    """Rows of timed epochs."""
    return rows_of(rows, experiment="fig4", part="timed")


def gain_of_bytes(
    row: Any, model: str, ranks: int = 1, blocks: int = 1, *, format_: str = "sent"
) -> float:
    """Bytes of the matrices as Base sends them over those by difference (`forced`: always)."""
    where = {"model": model, "blocks": blocks, "ranks": ranks}
    plain = number(row, "topology_sent", model=model, format="plain")
    return plain / number(row, "topology_sent", format=format_, **where)


def rank_bytes(row: Any, model: str, format_: str, ranks: int = 1, blocks: int = 1) -> int:
    """Bytes of all that the busiest rank brings in an epoch, `plain` or as `sent` by difference."""
    where = {"model": model, "blocks": blocks, "ranks": ranks}
    return number(row, "host_to_device", of="busiest_rank", format=format_, **where)


def gain_of_rank(row: Any, model: str) -> float:
    """The same for matrices and inputs, on one rank and in one block."""
    return rank_bytes(row, model, "plain") / rank_bytes(row, model, "sent")


def projected_s(row: Any, model: str, name: str, ranks: int = 1, blocks: int = 1) -> float:
    """Seconds that the busiest rank's inputs of an epoch would take over the paper's link.

    Args:
        name: `Base` or `GD`.
    """
    return rank_bytes(row, model, "plain" if name == BASE else "sent", ranks, blocks) / PCIE3


def timed_gains(rows: Sequence[Any], phase: str | None = None) -> dict[tuple[str, str], Ratio]:
    """Base over difference by graph and model: of an epoch, or of its `transfer` or `copy`."""
    found = Table.of(timed_rows(rows)).where("speedup", phase=phase).by("dataset", "model")
    return {key: ratio_of(table) for key, table in found.items()}


def transfer_share(row: Any, name: str) -> float:
    """Part of an epoch that is transfer."""
    transfer = number(row, "phase_time", setting=name, phase="transfer")
    return transfer / number(row, "epoch_time", setting=name)


def rank_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Fewer bytes of matrices by ranks: one panel per graph, one line per model, one block."""
    points: list[dict[str, Any]] = []
    for row in byte_rows(rows):
        for model in MODELS:
            for ranks in RANKS:
                points.append(
                    mark(
                        row,
                        panel=panel(row),
                        series=MODEL_TITLES[model],
                        x=ranks,
                        y=gain_of_bytes(row, model, ranks),
                        counted=True,
                    )
                )
    for row in failures(rows, "fig4"):
        if row.params["part"] == "bytes":
            points.append({"panel": BY_NAME[row.params["dataset"]].title, "series": "all models",
                           "x": 1, "failed": f"{row.status}: {row.reason}"})  # fmt: skip
    return points


def split_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Measured epochs of one rank."""
    points: list[dict[str, Any]] = []
    for row in timed_rows(rows):
        model = row.params["model"]
        for name in (BASE, GD):
            total = number(row, "epoch_time", setting=name)
            transfer = number(row, "phase_time", setting=name, phase="transfer")
            base = {
                "panel": MODEL_TITLES[model],
                "row": panel(row),
                "system": name,
                "total": total,
                "deviation": row.deviation.get("output"),
                "row_ids": [row.id],
            }
            points.append({**base, "phase": "transfer", "seconds": transfer})
            points.append({**base, "phase": "compute", "seconds": max(0.0, total - transfer)})
    for row in failures(rows, "fig4"):
        if row.params["part"] == "timed":
            points.append({"panel": MODEL_TITLES[row.params["model"]], "system": GD,
                           "row": BY_NAME[row.params["dataset"]].title,
                           "failed": f"{row.status}: {row.reason}"})  # fmt: skip
    return joined(points, "seconds", "total")


def link_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Seconds that the inputs of an epoch would take over the paper's link."""
    return [
        {
            "panel": MODEL_TITLES[model],
            "row": panel(row),
            "system": name,
            "phase": "transfer",
            "seconds": projected_s(row, model, name),
            "total": projected_s(row, model, name),
            "projected": True,
            "row_ids": [row.id],
        }
        for model in MODELS
        for row in byte_rows(rows)
        for name in (BASE, GD)
    ]


def gain_points(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Gain in transfer and epoch time on one rank, and of the transfer projected from bytes."""
    points: list[dict[str, Any]] = []
    rests = {r.params["dataset"]: r for r in timed_rows(rows)}
    turns = {r.id: number(r, "turns") for r in timed_rows(rows)}
    for title, phase in (("transfer", "transfer"), ("epoch", None)):
        for (name, model), ratio in timed_gains(rows, phase).items():
            points.append(
                {
                    "panel": f"{title}, measured",
                    "row": f"{MODEL_TITLES[model]}, {panel(rests[name])}",
                    "system": "esdg",
                    "baseline": BASE,
                    "value": ratio.value,
                    "low": ratio.low,
                    "high": ratio.high,
                    "n": sum(turns[i] for i in ratio.rows),
                    "deviation": ratio.deviation,
                    "row_ids": ratio.rows,
                }
            )
    for row in byte_rows(rows):
        for model in MODELS if row.params["dataset"] in rests else ():
            points.append(
                {
                    "panel": "transfer over PCIe 3, projected",
                    "row": f"{MODEL_TITLES[model]}, {panel(row)}",
                    "system": "esdg",
                    "baseline": BASE,
                    "value": gain_of_rank(row, model),
                    "projected": True,
                    "row_ids": [row.id],
                }
            )
    for row in failures(rows, "fig4"):
        if row.params["part"] == "timed":
            points.append({"panel": "transfer, measured", "system": "esdg", "baseline": BASE,
                           "row": f"{MODEL_TITLES[row.params['model']]}, "
                           f"{BY_NAME[row.params['dataset']].title}",
                           "failed": f"{row.status}: {row.reason}"})  # fmt: skip
    return points

"""Curves of Figure 5, and the epochs on the paper's cluster that are projected from its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any

from dgbench.lab.table import Table, number, rows_of
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.esdg.experiments.parts import costs_of
from dgbench.systems.esdg.experiments.projection import (
    TABLE2_STEPS,
    V100_BYTES_PER_S,
    ProjectedModel,
    ProjectedSnapshotEpoch,
    printed_speed,
    snapshot_epoch,
    v100_cluster,
)
from dgbench.systems.esdg.experiments.settings import RANKS

NAME = "fig5"


def job_of(row: Any, **fields: Any) -> ProjectedModel:
    """Projected model of a row of `shares`: its graph at the size of Table 1."""
    plain = number(row, "estimate", of="snapshot")
    job = ProjectedModel(
        model=str(row.params["model"]),
        steps=number(row, "snapshots"),
        nodes=number(row, "vertices"),
        costs=costs_of(row),
        plain_bytes=plain,
        difference_bytes=plain * number(row, "portion", of="differences"),
        window=number(row, "smoothing_length"),
    )
    return replace(job, **fields)


def share_rows(rows: Sequence[Any]) -> dict[tuple[str, str], Any]:
    """The last row of shares by (dataset, model)."""
    return {
        (r.params["dataset"], r.params["model"]): r
        for r in rows_of(rows, experiment=NAME, part="shares")
    }


def ranked(rows: Sequence[Any]) -> dict[tuple[str, str, int], Table]:
    """Speed-ups on ranks of this machine by dataset, model and P, P rising."""
    found = Table.of(rows, experiment=NAME, part="ranks").where("speedup")
    by_ranks = sorted(found, key=lambda one: one["ranks"])
    return Table(by_ranks).by("dataset", "model", "ranks")


def link_error(rows: Sequence[Any], statistic: str) -> float | None:
    """Largest or median error of the topology model, on this machine's links."""
    where = {"of": "links", "statistic": statistic, "link": None}
    found = Table.of(rows, experiment=NAME, part="links").where("relative_error", **where)
    return found[-1].value if found else None


def link_errors(rows: Sequence[Any]) -> tuple[float | None, float | None]:
    """Both of them, the largest first."""
    return link_error(rows, "largest"), link_error(rows, "median")


def speeds(rows: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Speed of a V100 relative to a thread of this machine, by interpretation and model."""
    found = share_rows(rows)
    if not found:
        return {}
    rate = copied(found.values())
    models = dict.fromkeys(model for _, model in found)
    by_reading = {"bandwidth": dict.fromkeys(models, V100_BYTES_PER_S / rate)}
    for model in models:
        row = found.get(("amlsim", model))
        printed = None if row is None else printed_speed(job_of(row, steps=TABLE2_STEPS))
        if printed is not None:
            by_reading.setdefault("printed", {})[model] = printed
    return by_reading


def copied(rows: Iterable[Any]) -> float:
    """Bytes that a thread here copies in a second, the median over rows of shares."""
    return median(number(row, "bandwidth", of="copy") for row in rows)


Curves = dict[str, dict[tuple[str, str], dict[int, ProjectedSnapshotEpoch]]]


def curves(rows: Sequence[Any], *, network: float | None = None) -> Curves:
    """Projected epochs by reading, (dataset, model) and P.

    Args:
        rows: of a run.
        network: bytes per second of a node; None: the paper's.
    """
    found: Curves = {}
    error = link_error(rows, "largest")
    for reading, by_model in speeds(rows).items():
        for key, row in share_rows(rows).items():
            if key[1] in by_model:
                line = project(job_of(row), by_model[key[1]], network=network, error=error)
                found.setdefault(reading, {})[key] = line
    return found


def project(
    job: ProjectedModel, speed: float, *, network: float | None = None, error: float | None = None
) -> dict[int, ProjectedSnapshotEpoch]:
    """Epochs by P on the paper's cluster, from the smallest P whose memory suffices."""
    return dict(_project(job, speed, network, error))


@lru_cache(maxsize=256)
def _project(
    job: ProjectedModel, speed: float, network: float | None, error: float | None
) -> tuple[tuple[int, ProjectedSnapshotEpoch], ...]:
    found = []
    for p in RANKS:
        try:
            found.append((p, snapshot_epoch(job, p, v100_cluster(p, speed, network=network))))
        except InvalidInputError:  # too little memory
            continue
    return tuple((p, replace(epoch, error=error)) for p, epoch in found)

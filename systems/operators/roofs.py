"""Shares of the machine's limits that operators reach, as a roofline has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from dgbench.lab.table import Table
from dgbench.systems.operators.race import OURS

ROOFS: Final = ("bandwidth", "product_rate")
"""Metrics of which a machine's limit is measured, and operators may count what they need."""


@dataclass(frozen=True, slots=True)
class LimitShare:
    """Rate of an operator on a workload beside the limit that bounds it.

    Attributes:
        bound: metric of `ROOFS` of which it reaches the largest share.
        value: its rate, median over processes. limit: the machine's rate.
        rows: ids of the rows it rests on.
    """

    bound: str
    value: float
    limit: float
    rows: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Part of the limit; caches may lift it above 1."""
        return self.value / self.limit


def machine_limits(rows: Iterable[Any], **place: str) -> dict[str, float]:
    """Limits that a run measured, by metric.

    Args:
        rows: of the run. place: dimensions of the limits, such as `place="device"`.
    """
    machine = Table.of(row for row in rows if row.paper == "-")
    return {one.of.metric: one.value for one in machine.where(ROOFS, **place)}


def limit_share(found: Table, limits: Mapping[str, float], method: str = OURS) -> LimitShare | None:
    """The bound of a method and the share that it reaches; None where nothing was counted.

    Args:
        found: observations of one workload. limits: by metric, see `machine_limits`.
    """
    shares = []
    for metric, limit in limits.items():
        if own := found.where(metric, method=method):
            shares.append(LimitShare(metric, median(own.values), limit, [r.id for r in own.rows]))
    return max(shares, key=lambda one: one.share, default=None)

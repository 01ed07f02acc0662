"""Claims on the cut of time and vertices: sections 4.1 and 6.5."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing, strength
from dgbench.systems.tgcn.experiments import partition
from dgbench.systems.tgcn.experiments.common import last_rows, number, panel
from dgbench.systems.tgcn.experiments.settings import TABLE2

NONE: Final = "the experiment '{}' did not run"
ALIKE: Final = 1.5
"""Factor up to which the largest grid is as large as with uniform degrees."""
SMALL: Final = 5.0
"""Percent of an epoch up to which a share is small."""

Rows = Sequence[Any]


def degree_independent(claim: Claim, rows: Rows) -> Finding:
    """What degrees change at the same sizes: fill of the grids, and time of the sort."""
    found = last_rows(rows, partition.NAME, kind=partition.DEGREES)
    if not found:
        return missing(NONE.format(partition.NAME))
    row, skew = found[-1], partition.SKEWS[-1]
    grown = {
        order: partition.largest_grid(row, order, "equal")[skew] for order in ("rank", "mixed")
    }
    slower = partition.sort_time(row, skew)
    graphs = last_rows(rows, partition.NAME, kind=partition.FILL)
    busy = Table.of(graphs).where("busy_devices", method="equal", ranks=8)
    seen = ", ".join(f"{panel(one.row)} {one.value:.1f}" for one in busy)
    return finding(
        [row],
        evidence="counted",
        measured={
            "largest grid over uniform, ids by degree": grown["rank"],
            "largest grid over uniform, ids mixed": grown["mixed"],
            "devices of 8 that train at a time": number(
                row, "busy_devices", setting="mixed", method="equal", skew=skew
            ),
        },
        holds=max(grown.values()) <= ALIKE,
        reason=f"ranges of vertices do not depend on degrees and the sort takes {slower:.2f} times "
        f"as long as with uniform ones, but grids are filled by degree: with an exponent of "
        f"{skew:g} the largest one has {grown['mixed']:.0f} times the edges even where ids "
        "are mixed" + (f"; devices of 8 that train at a time: {seen}" if seen else ""),
    )


def share_of_time(claim: Claim, rows: Rows) -> Finding:
    """Percent of an epoch here, and of the printed time at the rate measured here."""
    found = last_rows(rows, partition.NAME, kind=partition.SHARE)
    if not found:
        return missing(NONE.format(partition.NAME))
    row = found[-1]
    shares = Table.of([row]).where("time_share").numbers("phase", "setting")
    share, plan, printed = (
        100 * shares[key] for key in (("cut", None), ("plan", None), ("cut", "printed"))
    )
    rate = number(row, "throughput") / 1e6
    return finding(
        [row],
        evidence=strength([row]),
        measured=share,
        direction=share < SMALL,
        target=float(claim.value),
        reason=f"the sort alone; with negatives, rows and counts of every interval it is "
        f"{plan:.1f} % here. At {rate:.0f} M "
        f"edges/s of one thread the sampled half of Twitter takes {printed:.2f} % of the printed "
        f"{TABLE2['tgcn', 'total'][partition.TRAINED]:.0f} s",
    )


CHECKS: Final[dict[str, Check]] = {
    "tgcn-s41-partition-degree-independent": degree_independent,
    "tgcn-s65-partition-share": share_of_time,
}

"""Findings on several GPUs: Figure 10 and section 6.7."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dgbench.lab.paper import Check, Claim, Finding
from dgbench.lab.table import Table, number
from dgbench.lab.verbs import last_of_each, rows_with, says
from dgbench.systems.tgcn.common import last_rows
from dgbench.systems.tgcn.experiments import fig10
from dgbench.systems.tgcn.experiments.fig10 import speedup
from dgbench.systems.tgcn.findings.common import DID_NOT_RUN, Fields, Rows, geometric_mean, multiple
from dgbench.systems.tgcn.scaling_cells import CUTS, OFF, ON, PRINTED, READINGS
from dgbench.systems.tgcn.settings import panel

PROJECTED = rows_with(
    fig10.NAME, DID_NOT_RUN.format(fig10.NAME), last_of_each, kind=fig10.VIRTUAL
)  # fmt: skip


def projected(devices: int, of: Callable[[Any], Any]) -> Check:
    """Projected speed of so many devices with P2P over one; `of(claim.value)` is the printed."""

    def check(claim: Claim, rows: Rows) -> Finding:
        ranks = ", ".join(
            f"{value:.1f} on {row.params['ranks']}" for row, value in fig10.rank_speedups(rows)[1:]
        )

        def judge(claim: Claim, found: Rows) -> Fields:
            def each(cut: str, reading: str = PRINTED) -> list[float]:
                return [speedup(row, devices, cut, ON, reading) for row in found]

            equal, dealt = each("equal"), each("dealt")
            mean = geometric_mean(equal)
            fast = ", ".join(
                f"{geometric_mean(each('equal', reading)):.1f} by {reading}"
                for reading in READINGS[1:]
            )
            return {
                "measured": mean,
                "low": min(equal),
                "high": max(equal),
                "direction": mean > 1,
                "target": of(claim.value),
                "reason": "one device as slow as Table 2 prints and parts of equal width: "
                f"{min(equal):.1f} to {max(equal):.1f} by graph, what fills the grids decides; "
                f"vertices dealt out {min(dealt):.1f} to {max(dealt):.1f}. On a V100 as fast as "
                f"its peaks: {fast}"
                + (ranks and f"; ranks of one CPU, by processor time: {ranks}"),
            }

        return says(PROJECTED, judge)(claim, rows)

    return check


def without_p2p(claim: Claim, rows: Rows) -> Finding:
    """Speed of 4 devices over one without P2P, and when it would be below one."""
    words = ""
    for row in last_rows(rows, fig10.NAME, kind=fig10.SWAPS):
        count = number(row, "derived_number", of="swaps", dataset="twitter")
        gains = Table.of([row]).where("speedup", dataset="twitter").numbers("ranks")
        words = (
            f"; at the compute that Table 2 prints it takes {count:.0f} swaps of all vertices in "
            f"an epoch of Twitter, and P2P then gives {gains[4]:.1f} on 4 and {gains[8]:.1f} on 8 "
            "GPUs with Algorithm 6"
        )

    def judge(claim: Claim, found: Rows) -> Fields:
        least = {
            reading: min(speedup(row, 4, "equal", OFF, reading) for row in found)
            for reading in READINGS
        }
        return {
            "measured": {reading: multiple(value) for reading, value in least.items()},
            "direction": min(least.values()) < 1,
            "reason": "the slowest graph by reading; two GPUs share a switch, and only a GPU that "
            f"computes as fast as its peaks waits for it so much{words}",
        }

    return says(PROJECTED, judge)(claim, rows)


def p2p_benefit(claim: Claim, rows: Rows) -> Fields:
    """Speed with P2P over that without, on every graph, cut and number of devices."""
    gains = {
        reading: [
            speedup(row, n, cut, ON, reading) / speedup(row, n, cut, OFF, reading)
            for row in rows
            for n in (4, 8)
            for cut in CUTS
        ]
        for reading in READINGS
    }
    return {
        "measured": {reading: f"up to {max(each):.2f}x" for reading, each in gains.items()},
        "direction": all(min(each) >= 1 for each in gains.values()),
        "reason": "at the compute that Table 2 prints links hardly matter, if only rows travel "
        "that an interval names",
    }


def eight_ahead(claim: Claim, rows: Rows) -> Fields:
    """Check that 8 devices are ahead of one on every graph."""
    each = {panel(row): speedup(row, 8, "equal") for row in rows}
    return {
        "measured": {name: multiple(value) for name, value in each.items()},
        "direction": min(each.values()) > 1,
        "reason": "training alone, parts of equal width; sampling is the host's and does not get "
        "faster with GPUs",
    }

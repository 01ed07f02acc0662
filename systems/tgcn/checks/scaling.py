"""Claims on several GPUs: Figure 10, section 6.7, and the bar of eight GPUs in Figure 6."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.table import Table
from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing
from dgbench.systems.tgcn.experiments import fig10
from dgbench.systems.tgcn.experiments.common import last_rows, number, panel

NONE: Final = "the experiment 'fig10' did not run"

Rows = Sequence[Any]


def mean_speedup(rows: Rows, devices: int, cut: str, p2p: str, reading: str) -> float:
    """Geometric mean over graphs of the projected speed over one device."""
    each = [fig10.speedup(row, devices, cut, p2p, reading) for row in rows]
    return math.prod(each) ** (1 / len(each))


def _span(rows: Rows, devices: int, cut: str, p2p: str = fig10.ON) -> str:
    each = [fig10.speedup(row, devices, cut, p2p) for row in rows]
    return f"{min(each):.1f} to {max(each):.1f}"


def _others(rows: Rows, devices: int) -> str:
    """What other cuts, readings and ranks give, for the reason of a finding."""
    fast = ", ".join(
        f"{mean_speedup(rows, devices, 'equal', fig10.ON, reading):.1f} by {reading}"
        for reading in fig10.READINGS[1:]
    )
    return (
        f"one device as slow as Table 2 prints and parts of equal width: "
        f"{_span(rows, devices, 'equal')} by graph, what fills the grids decides; vertices dealt "
        f"out {_span(rows, devices, 'dealt')}. On a V100 as fast as its peaks: {fast}"
    )


def scaling(devices: int, value: str) -> Check:
    """A check of the speed of so many devices with P2P; of a range or of its mean."""

    def check(claim: Claim, rows: Rows) -> Finding:
        found = last_rows(rows, fig10.NAME, kind=fig10.VIRTUAL)
        if not found:
            return missing(NONE)
        mean = mean_speedup(found, devices, "equal", fig10.ON, fig10.PRINTED)
        each = [fig10.speedup(row, devices, "equal") for row in found]
        printed = claim.value if value == "" else claim.value.get(value)
        result = finding(
            found,
            evidence="projected",
            measured=mean,
            direction=mean > 1,
            target=float(printed) if printed is not None else None,
            reason=_others(found, devices) + _ranks(rows),
        )
        result.low, result.high = min(each), max(each)
        return result

    return check


def _ranks(rows: Rows) -> str:
    """Speed of real ranks over one, by processor time."""
    found = fig10.rank_speedups(rows)[1:]
    if not found:
        return ""
    said = ", ".join(f"{value:.1f} on {row.params['ranks']}" for row, value in found)
    return f"; ranks of one CPU, by processor time: {said}"


def without_p2p(claim: Claim, rows: Rows) -> Finding:
    """Speed of 4 devices over one without P2P, and when it would be below one."""
    found = last_rows(rows, fig10.NAME, kind=fig10.VIRTUAL)
    if not found:
        return missing(NONE)
    least = {
        reading: min(fig10.speedup(r, 4, "equal", fig10.OFF, reading) for r in found)
        for reading in fig10.READINGS
    }
    swaps = last_rows(rows, fig10.NAME, kind=fig10.SWAPS)
    words = ""
    if swaps:
        row = swaps[-1]
        count = number(row, "derived_number", of="swaps", dataset="twitter")
        gains = Table.of([row]).where("speedup", dataset="twitter").numbers("ranks")
        words = (
            f"; at the compute that Table 2 prints it takes {count:.0f} swaps of all vertices in "
            f"an epoch of Twitter, and P2P then gives {gains[4]:.1f} on 4 "
            f"and {gains[8]:.1f} on 8 GPUs with Algorithm 6"
        )
    return finding(
        found,
        evidence="projected",
        measured={reading: f"{value:.2f}x" for reading, value in least.items()},
        direction=min(least.values()) < 1,
        reason="the slowest graph by reading; two GPUs share a switch, and only a GPU that "
        f"computes as fast as its peaks waits for it so much{words}",
    )


def p2p_benefit(claim: Claim, rows: Rows) -> Finding:
    """Speed with P2P over that without, on every graph, cut and number of devices."""
    found = last_rows(rows, fig10.NAME, kind=fig10.VIRTUAL)
    if not found:
        return missing(NONE)
    gain = {
        reading: max(
            fig10.speedup(r, n, cut, fig10.ON, reading)
            / fig10.speedup(r, n, cut, fig10.OFF, reading)
            for r in found
            for n in (4, 8)
            for cut in fig10.CUTS
        )
        for reading in fig10.READINGS
    }
    never_worse = all(
        fig10.speedup(r, n, cut, fig10.ON, reading) >= fig10.speedup(r, n, cut, fig10.OFF, reading)
        for r in found
        for n in (4, 8)
        for cut in fig10.CUTS
        for reading in fig10.READINGS
    )
    return finding(
        found,
        evidence="projected",
        measured={reading: f"up to {value:.2f}x" for reading, value in gain.items()},
        direction=never_worse,
        reason="at the compute that Table 2 prints links hardly matter, if only rows travel that "
        "an interval names",
    )


def eight_ahead(claim: Claim, rows: Rows) -> Finding:
    """Whether 8 devices are ahead of one on every graph."""
    found = last_rows(rows, fig10.NAME, kind=fig10.VIRTUAL)
    if not found:
        return missing(NONE)
    each = {panel(r): fig10.speedup(r, 8, "equal") for r in found}
    return finding(
        found,
        evidence="projected",
        measured={name: f"{value:.2f}x" for name, value in each.items()},
        direction=min(each.values()) > 1,
        reason="training alone, parts of equal width; sampling is the host's and does not get "
        "faster with GPUs",
    )


CHECKS: Final[dict[str, Check]] = {
    "tgcn-fig10-8gpu": scaling(8, "mean"),
    "tgcn-fig10-4gpu": scaling(4, "high"),
    "tgcn-s67-p2p-off-slowdown": without_p2p,
    "tgcn-s67-p2p-benefit": p2p_benefit,
    "tgcn-abs-8gpu-mean-scaling": scaling(8, ""),
    "tgcn-fig6-8gpu-included": eight_ahead,
}

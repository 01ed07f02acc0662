"""Findings on several GPUs: Figure 10 and section 6.7.

All of them are projected; how fast a V100 computes is open, so that each speed is a reading.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from dgbench.lab.paper import Check, Claim
from dgbench.lab.verbs import Judge, last_of_each, readings, rows_with, says
from dgbench.systems.tgcn.experiments import fig10
from dgbench.systems.tgcn.experiments.fig10 import speedup
from dgbench.systems.tgcn.findings.common import DID_NOT_RUN, Fields, Rows, geometric_mean, multiple
from dgbench.systems.tgcn.scaling_cells import ARITHMETIC, BANDWIDTH, OFF, ON, PRINTED
from dgbench.systems.tgcn.settings import panel

PROJECTED = rows_with(
    fig10.NAME, DID_NOT_RUN.format(fig10.NAME), last_of_each, kind=fig10.VIRTUAL
)  # fmt: skip
MODEL: Final = "projection to V100 by published links"
SPEEDS: Final = {
    "a V100 as slow as Table 2 prints": PRINTED,
    "a V100 by memory bandwidth": BANDWIDTH,
    "a V100 by arithmetic": ARITHMETIC,
}
CLEAR: Final = 1.05
"""Factor that a projection tells from none: what it is off by on one device here."""


def by_speed(judge: Callable[[str], Judge]) -> Check:
    """A check with one reading for each speed of a V100."""
    return readings(**{words: says(PROJECTED, judge(speed)) for words, speed in SPEEDS.items()})


def projected(devices: int, of: Callable[[Any], Any]) -> Check:
    """Projected speed of so many devices with P2P over one; `of(claim.value)` is the printed
    number, or None where it is the claim's range."""

    def judge_at(speed: str) -> Judge:
        def judge(claim: Claim, rows: Rows) -> Fields:
            equal, dealt = (
                [speedup(row, devices, cut, ON, speed) for row in rows]
                for cut in ("equal", "dealt")
            )
            mean, printed = geometric_mean(equal), of(claim.value)
            return {
                "measured": mean,
                "direction": mean > 1,
                "model": MODEL,
                "reason": f"parts of equal width {min(equal):.1f} to {max(equal):.1f} by graph, "
                f"vertices dealt out {min(dealt):.1f} to {max(dealt):.1f}",
                **({} if printed is None else {"target": printed}),
            }

        return judge

    return by_speed(judge_at)


def slower_without_p2p(speed: str) -> Judge:
    """Speed of 4 devices over one without P2P, on every graph."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        each = {panel(row): speedup(row, 4, "equal", OFF, speed) for row in rows}
        return {
            "measured": {name: multiple(value) for name, value in each.items()},
            "model": MODEL,
            "reason": "two GPUs share a switch, and only a GPU that computes as fast as its peaks "
            "waits for it so much",
            **told_apart([1 / value for value in each.values()]),
        }

    return judge


def told_apart(gains: list[float]) -> Fields:
    """Fields of a statement that all projected factors are above 1; one that the projection cannot
    tell from 1 decides nothing."""
    lost = min(gains) < 1 / CLEAR
    return {"holds": min(gains) > CLEAR, "undecided": not lost and min(gains) <= CLEAR}


def p2p_gain(speed: str) -> Judge:
    """Speed with P2P over that without, on every graph and number of devices, as the paper cuts."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        gains = [
            speedup(row, n, "equal", ON, speed) / speedup(row, n, "equal", OFF, speed)
            for row in rows
            for n in (4, 8)
        ]
        return {
            "measured": " to ".join(
                dict.fromkeys(f"{gain:.2f}x" for gain in (min(gains), max(gains)))
            ),
            "model": MODEL,
            "reason": "of rows that an interval names; at the compute that Table 2 prints links "
            "hardly matter",
            **told_apart(gains),
        }

    return judge


def eight_faster(speed: str) -> Judge:
    """Check that 8 devices are ahead of one on every graph."""

    def judge(claim: Claim, rows: Rows) -> Fields:
        each = {panel(row): speedup(row, 8, "equal", ON, speed) for row in rows}
        return {
            "measured": {name: multiple(value) for name, value in each.items()},
            "model": MODEL,
            "proxy": "training alone: sampling is the host's and no faster with more GPUs",
            "reason": "parts of equal width",
            **told_apart(list(each.values())),
        }

    return judge


without_p2p: Final[Check] = by_speed(slower_without_p2p)
p2p_benefit: Final[Check] = by_speed(p2p_gain)
eight_ahead: Final[Check] = by_speed(eight_faster)

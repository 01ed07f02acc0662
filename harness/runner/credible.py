"""Plausibility checks of a process's own measurements.

A plugin measures itself, and the harness has two witnesses. The runner saw from outside how long
the process lasted, by a clock that no plugin can reach. And `measure_steady`, which most
experiments use, remembers how long its loops took. Numbers that contradict a witness make the row a
`check` row: it has a reason, and no time that a ratio could use.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from dgbench.lab.experiment import Measurement
from dgbench.lab.metrics import metric
from dgbench.runtime.steady import Loop

SHARE: Final = 0.05
"""Share of a loop's wall time that its samples may leave unexplained, or its phases exceed."""

SLACK_S: Final = 5e-6
"""Seconds of an iteration that are the loop's own."""


def against_wall(measurement: Measurement, seconds: float) -> list[str]:
    """Contradictions between a measurement and the `seconds` that its process lasted."""
    found = []
    for what, parts in (
        ("samples", measurement.steady),
        ("phases", list(measurement.seconds_by_phase.values())),
    ):
        total = math.fsum(parts)
        if total > seconds:
            found.append(
                f"its {what} add up to {total:.4g} s, and the whole process lasted {seconds:.4g} s"
            )
    return found


def against_loops(
    measurement: Measurement, loops: Sequence[Loop], *, instrumented: bool
) -> list[str]:
    """Contradictions between a measurement and the steady loops that its process ran.

    Samples are held against the loops that kept as many; an experiment with a loop of its own
    has no such witness. Phases of an instrumented process lie within the loop of its samples.
    """
    found = []
    same = [loop for loop in loops if measurement.steady and loop.kept == len(measurement.steady)]
    told = math.fsum(measurement.steady)
    if same and not any(_agree(told, loop) for loop in same):
        seen = min((loop.kept_s for loop in same), key=lambda s: abs(s - told))
        found.append(
            f"it says that {len(measurement.steady)} steps took {told:.4g} s, and the harness "
            f"saw {seen:.4g} s ({100 * (seen / told - 1):+.0f} %)"
        )
    for loop in loops:
        rest = loop.wall_s - loop.told_s
        if rest > SHARE * loop.wall_s + SLACK_S * loop.iterations:
            found.append(
                f"its clock leaves {100 * rest / loop.wall_s:.0f} % of {loop.wall_s:.4g} s of "
                "steady steps unexplained"
            )
    phases, walls = (
        math.fsum(measurement.seconds_by_phase.values()),
        math.fsum(loop.wall_s for loop in same),
    )
    if instrumented and same and phases > (1 + SHARE) * walls:
        found.append(f"its phases add up to {phases:.4g} s of {walls:.4g} s of steps: they overlap")
    return found


def negative_counters(measurement: Measurement) -> list[str]:
    """Counters below zero: nothing can be counted so few times."""
    low = {
        f"{one.metric}{one.dims or ''}": int(one.value)
        for one in measurement.observations
        if metric(one.metric).exact and one.value < 0
    }
    return [f"its counter '{name}' is {count:,}" for name, count in low.items()]


def without_witness(measurement: Measurement, loops: Sequence[Loop]) -> list[str]:
    """A note where there were loops, and the samples are as many as in none of them."""
    count = len(measurement.steady)
    if not count or not loops or any(loop.kept == count for loop in loops):
        return []
    seen = ", ".join(str(loop.kept) for loop in loops[:4])
    return [f"its {count} samples are those of no steady loop that the harness saw (of {seen})"]


def _agree(told: float, loop: Loop) -> bool:
    slack = SLACK_S * loop.kept
    return abs(told - loop.kept_s) <= SHARE * loop.kept_s + slack

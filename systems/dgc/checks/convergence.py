"""Claims on equal training (sections 5.2 and 7.6, Figure 18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.lab.verbs import asking
from dgbench.systems.base import Claim
from dgbench.systems.dgc.checks.race_words import side_fields
from dgbench.systems.dgc.experiments.fig18 import ONE, Trained, trained
from dgbench.systems.dgc.experiments.race_runs import (
    BASELINE_NAMES,
    DGC,
    EXACT,
    FORMER_WORDS,
    PLAIN,
)

Said = dict[str, Any]

NONE18 = "no curves: the experiment 'fig18' did not run"
COINCIDE: Final = 1e-3
"""Relative gap of two losses that no plot shows."""
SAME_POINTS: Final = 0.005
"""Gap of accuracies that no plot shows: half a point."""
SLIGHT: Final = 0.05
"""Accuracy that stale rows may cost and still be slightly lower: five points; Table 3 prints up to
3.6 for the adaptive threshold."""


def _exact(one: Trained) -> list[str]:
    """Systems without stale rows that ran."""
    return [name for name in (*BASELINE_NAMES, PLAIN, EXACT) if name in one.names]


def _former(found: Sequence[Trained]) -> str:
    """Words for trainings from before DGC's published form."""
    return f"; {FORMER_WORDS}" if any(one.former for one in found) else ""


def _gaps(one: Trained) -> tuple[float, float]:
    """Largest gaps of losses and of accuracies, without stale rows, to one process."""
    loss = max(max(one.gaps(name)) for name in _exact(one))
    return loss, max(abs(one.accuracy(name) - one.accuracy(ONE)) for name in _exact(one))


@asking(trained, NONE18)  # the same sums in another order, on any clock
def disable_same(claim: Claim, found: Sequence[Trained]) -> Said:
    """Without stale rows, losses and accuracies of all systems are one process's."""
    loss, points = (max(gaps) for gaps in zip(*map(_gaps, found), strict=True))
    return {
        "measured": f"losses within {loss:.1e}, accuracies within {100 * points:.2g} points",
        "holds": loss <= COINCIDE and points <= SAME_POINTS,
        "reason": f"{found[0].epochs} epochs against one process: "
        + ", ".join(dict.fromkeys(one.title for one in found))
        + _former(found),
    }


@asking(
    lambda rows: [one for one in trained(rows) if not one.twin],
    NONE18 + " on a real graph",
)
def convergence(claim: Claim, found: Sequence[Trained]) -> Said:
    """All but stale rows end alike; stale rows end sooner in time and slightly less accurate."""
    sides: list[int] = []
    said: dict[str, str] = {}
    for one in found:
        loss, points = _gaps(one)
        sides.append(1 if loss <= COINCIDE and points <= SAME_POINTS else -1)
        drop = one.accuracy(EXACT) - one.accuracy(DGC)
        sides.append(1 if drop <= SLIGHT else -1)
        quickest = min(_exact(one), key=one.seconds)
        gain = one.gain(quickest, DGC)
        sides.append(gain.side)
        said[one.title] = (
            f"stale rows {100 * drop:+.1f} points less accurate, an epoch {gain.value:.2f}x as "
            f"fast as that of {one.title_of(quickest)}"
        )
    return {
        "measured": said,
        **side_fields(sides),
        "reason": f"{found[0].epochs} epochs; alike: losses within {COINCIDE:g} and accuracies "
        f"within {100 * SAME_POINTS:g} points of one process; slightly: at most "
        f"{100 * SLIGHT:g} points{_former(found)}",
    }

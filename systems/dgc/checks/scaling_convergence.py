"""Claims on equal training (sections 5.2 and 7.6, Figure 18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dgbench.systems.base import Check, Claim, Finding
from dgbench.systems.dgc.checks.common import any_graph, finding, missing
from dgbench.systems.dgc.experiments import fig18
from dgbench.systems.dgc.experiments.race_runs import BASELINE_NAMES, DGC, EXACT, PLAIN

Rows = Sequence[Any]

NONE18 = "no curves: the experiment 'fig18' did not run"
COINCIDE: Final = 1e-3
"""Relative gap of two losses that no plot shows."""
SAME_POINTS: Final = 0.005
"""Gap of accuracies that no plot shows: half a point."""
SLIGHT: Final = 0.05
"""Accuracy that stale rows may cost and still be slightly lower: five points; Table 3 prints up to
3.6 for the adaptive threshold."""


@any_graph
def disable_same(claim: Claim, rows: Rows) -> Finding:
    """Without stale rows, losses and accuracies of all systems are one process's."""
    found = fig18.trained(rows)
    if not found:
        return missing(NONE18)
    loss, points = 0.0, 0.0
    for one in found:
        for name in (EXACT, PLAIN, *BASELINE_NAMES):
            if name not in one.names:
                continue
            loss = max(loss, *one.gaps(name))
            points = max(points, abs(one.accuracy(name) - one.accuracy(fig18.ONE)))
    return finding(
        [one.row for one in found],
        # Neither clocks nor devices matter: the same sums in another order.
        evidence="measured",
        measured=f"losses within {loss:.1e}, accuracies within {100 * points:.2g} points",
        holds=loss <= COINCIDE and points <= SAME_POINTS,
        reason=f"{found[0].epochs} epochs against one process: "
        + ", ".join(dict.fromkeys(one.title for one in found)),
    )


@any_graph
def convergence(claim: Claim, rows: Rows) -> Finding:
    """All but stale rows end alike; stale rows end sooner in time and slightly less accurate."""
    found = [one for one in fig18.trained(rows) if not one.twin]
    if not found:
        return missing(NONE18 + " on a real graph")
    alike, slightly, sooner, said = [], [], [], {}
    for one in found:
        others = [n for n in (*BASELINE_NAMES, PLAIN, EXACT) if n in one.names]
        alike.append(
            max(max(one.gaps(n)) for n in others) <= COINCIDE
            and max(abs(one.accuracy(n) - one.accuracy(fig18.ONE)) for n in others) <= SAME_POINTS
        )
        drop = one.accuracy(EXACT) - one.accuracy(DGC)
        slightly.append(drop <= SLIGHT)
        sooner.append(one.seconds(DGC) < min(one.seconds(n) for n in others))
        said[one.title] = (
            f"stale rows {100 * drop:+.1f} points less accurate, "
            f"{min(one.seconds(n) for n in others) / one.seconds(DGC):.2f}x the time saved"
        )
    return finding(
        [one.row for one in found],
        evidence="analogue",
        measured=said,
        holds=all(alike) and all(slightly) and all(sooner),
        direction=all(alike) and all(slightly),
        reason=f"{found[0].epochs} epochs; alike: losses within {COINCIDE:g} and accuracies within "
        f"{100 * SAME_POINTS:g} points of one process; slightly: at most {100 * SLIGHT:g} points",
    )


CHECKS: Final[dict[str, Check]] = {
    "dgc-fig18-convergence": convergence,
    "dgc-s5-disable-same": disable_same,
}

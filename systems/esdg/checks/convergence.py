"""Claims on convergence, equality and pairs (section 6.4, Figure 6), and on large graphs (6.5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing
from dgbench.lab.table import Table, number
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import Claim, Finding
from dgbench.systems.esdg.experiments.fig6 import (
    APART,
    FLOAT64,
    PARTITIONS,
    PLAIN,
    apart,
    curve,
    fluctuation,
    gaps,
    trained,
)
from dgbench.systems.esdg.experiments.settings import MODEL_TITLES

NONE = "the experiment 'fig6' did not run"
COINCIDE = 1e-3
"""Relative gap of two losses that no plot shows."""
MILD = 0.02
"""Largest relative gap of curves that `differ only slightly`."""
SAME_POINTS = 0.005
"""Gap of accuracies that no plot shows: half a point."""
NOISY = 0.1
"""Share of epochs whose loss rises from which on a run counts as fluctuating."""

BYTES_PER_EDGE = 20
LARGE = {"esdg-s65-large-1": 2.2, "esdg-s65-large-2": 3.2}
"""Billions of edges."""

Rows = Sequence[Any]


def _between(row: Any) -> tuple[list[float], float]:
    """Gaps of the losses of both partitions by epoch, and the largest one of their accuracies."""
    points = zip(*(curve(row, "accuracy", p) for p in PARTITIONS), strict=True)
    return gaps(row, *PARTITIONS), max(abs(a - b) for a, b in points)


def _one(claim: Claim, rows: Rows, model: str) -> Any:
    found = trained(rows, model=model)
    return max(found, key=_epochs) if found else None


def _epochs(row: Any) -> int:
    return number(row, "epochs")


def tmgcn(claim: Claim, rows: Rows) -> Finding:
    """Curves of both partitions lie on each other."""
    row = _one(claim, rows, "tm_gcn")
    if row is None:
        return missing(NONE)
    losses, points = _between(row)
    return finding(
        [row],
        measured=_shown(losses, points),
        holds=max(losses) <= COINCIDE and points <= SAME_POINTS,
        reason=f"{_epochs(row)} epochs on {row.params['ranks']} processes",
    )


def cdgcn(claim: Claim, rows: Rows) -> Finding:
    """Curves differ slightly, and more in the second half of the epochs than in the first."""
    row = _one(claim, rows, "cd_gcn")
    if row is None:
        return missing(NONE)
    losses, points = _between(row)
    half = len(losses) // 2
    late = max(losses[half:]) > max(losses[:half])
    return finding(
        [row],
        measured=_shown(losses, points),
        holds=max(losses) <= MILD and late,
        direction=max(losses) <= MILD,
        reason=f"the gap is {max(losses[:half]):.1e} in the first half of "
        f"{_epochs(row)} epochs and {max(losses[half:]):.1e} in the second",
    )


def evolvegcn(claim: Claim, rows: Rows) -> Finding:
    """Curves differ visibly, and one process alone fluctuates from epoch to epoch."""
    row = _one(claim, rows, "evolvegcn_o")
    if row is None:
        return missing(NONE)
    losses, points = _between(row)
    rises, jump = fluctuation(row)
    visible = max(losses) > COINCIDE or points > SAME_POINTS
    return finding(
        [row],
        measured=_shown(losses, points),
        holds=visible and rises >= NOISY,
        reason=f"one process alone: the loss rises in {rises:.0%} of the epochs, accuracy moves by "
        f"{100 * jump:.2g} points an epoch",
    )


def _shown(losses: Sequence[float], points: float) -> str:
    return f"losses within {max(losses):.1e}, accuracies within {100 * points:.2g} points"


def equivalence(claim: Claim, rows: Rows) -> Finding:
    """Gradients and losses of both partitions against one process; float64 tells rounding apart."""
    found = trained(rows)
    if {r.params["model"] for r in found} != set(MODEL_TITLES):
        return missing(NONE + " for all three models")
    first = max(gaps(r, p, PLAIN)[0] for r in found for p in PARTITIONS)
    exact = max(max(gaps(r, p, PLAIN, FLOAT64)) for r in found for p in PARTITIONS)
    words = []
    for row in found:
        at = [e for p in PARTITIONS if (e := apart(row, p)) is not None]
        words.append(
            f"{MODEL_TITLES[row.params['model']]} "
            + (f"apart from epoch {min(at)} on" if at else "never apart")
        )
    return finding(
        found,
        # Neither clocks nor devices matter: the same sums in another order.
        measured=f"float64: losses within {exact:.1e} over all epochs",
        holds=exact <= APART and first <= APART,
        reason=f"float32 (apart: by more than {APART:g}): " + ", ".join(words),
    )


def theta(claim: Claim, rows: Rows) -> Finding:
    """Drawn positives over the edges they are drawn from, and as many negatives."""
    found = trained(rows)
    if not found:
        return missing(NONE)
    drawn = Table.of(found)
    edges = sum(drawn.where("edges").values)
    if not edges:
        raise InvalidInputError("no edges were there to draw from")
    positives, negatives, rounded_up = (
        sum(drawn.where("pairs", of=of).values) for of in ("positives", "negatives", "rounded_up")
    )
    return finding(
        found,
        measured=positives / edges,
        target=claim.value,
        # A step draws a whole number of edges, so each may add one.
        holds=negatives == positives and 0 <= positives - claim.value * edges <= rounded_up,
        reason=f"{positives} edges and {negatives} random pairs",
    )


def large(claim: Claim, rows: Rows) -> Finding:
    """The graphs were never published; what is said of their size can be counted."""
    billions = LARGE[claim.id]
    return missing(
        f"needs {claim.workload['datasets'][0]}, which was not published, nor the settings of its "
        f"generator; its size fits: {billions} B edges x {BYTES_PER_EDGE} bytes = "
        f"{billions * BYTES_PER_EDGE:.0f} GB. The experiment 'sec65' trains a smaller graph so"
    )

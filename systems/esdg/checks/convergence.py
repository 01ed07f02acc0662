"""Claims on convergence, equality and pairs (section 6.4, Figure 6), and on large graphs (6.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.evidence import finding, missing, some
from dgbench.lab.printed import plain
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

Rows = Sequence[Any]


def _between(row: Any) -> tuple[list[float], float]:
    """Gaps of the losses of both partitions by epoch, and the largest one of their accuracies."""
    points = zip(*(curve(row, "accuracy", p) for p in PARTITIONS), strict=True)
    return gaps(row, *PARTITIONS), max(abs(a - b) for a, b in points)


def _epochs(row: Any) -> int:
    return number(row, "epochs")


def _curves(rows: Rows, judge: Callable[[Sequence[float], float, Any], bool], model: str) -> Any:
    """Rows of a model's seeds, gaps and accuracies of each, and seeds on which `judge` says yes."""
    found = trained(rows, model=model)
    each = [(row, *_between(row)) for row in found]
    return found, each, sum(judge(losses, points, row) for row, losses, points in each)


def _on_all(
    claim: Claim, rows: Rows, model: str, judge: Any, reason: Callable[[Any], str]
) -> Finding:
    """A statement on both curves that has to hold from each of the seeds."""
    found, each, right = _curves(rows, judge, model)
    if not found:
        return missing(NONE)
    loss = max(max(losses) for _, losses, _ in each)
    points = max(points for _, _, points in each)
    return finding(
        found,
        measured=f"losses within {loss:.1e}, accuracies within {100 * points:.2g} points",
        holds=right == len(found),
        reason=f"holds from {right} of {some(len(found), 'seed')}; {reason(each)}",
    )


def tmgcn(claim: Claim, rows: Rows) -> Finding:
    """Curves of both partitions lie on each other."""
    return _on_all(
        claim,
        rows,
        "tm_gcn",
        lambda losses, points, _: max(losses) <= COINCIDE and points <= SAME_POINTS,
        lambda each: f"{_epochs(each[0][0])} epochs on {each[0][0].params['ranks']} processes",
    )


def cdgcn(claim: Claim, rows: Rows) -> Finding:
    """Curves differ slightly, visibly so in the second half of the epochs and not in the first."""

    def late(losses: Sequence[float], points: float, row: Any) -> bool:
        half = len(losses) // 2
        return max(losses[:half]) <= COINCIDE < max(losses[half:]) <= MILD

    def halves(each: Any) -> str:
        half = len(each[0][1]) // 2
        first, second = (
            max(max(losses[part]) for _, losses, _ in each)
            for part in (slice(half), slice(half, None))
        )
        return (
            f"the gap is at most {first:.1e} in the first half of {_epochs(each[0][0])} epochs and "
            f"{second:.1e} in the second; {COINCIDE:g} is the least that a plot shows"
        )

    return _on_all(claim, rows, "cd_gcn", late, halves)


def evolvegcn(claim: Claim, rows: Rows) -> Finding:
    """Curves differ visibly, and one process alone fluctuates from epoch to epoch."""

    def differ(losses: Sequence[float], points: float, row: Any) -> bool:
        visible = max(losses) > COINCIDE or points > SAME_POINTS
        return visible and fluctuation(row)[0] >= NOISY

    def alone(each: Any) -> str:
        rises, jumps = zip(*(fluctuation(row) for row, _, _ in each), strict=True)
        return (
            f"one process alone: the loss rises in {min(rises):.0%} to {max(rises):.0%} of the "
            f"epochs, accuracy moves by up to {100 * max(jumps):.2g} points an epoch"
        )

    return _on_all(claim, rows, "evolvegcn_o", differ, alone)


def equivalence(claim: Claim, rows: Rows) -> Finding:
    """Gradients and losses of both partitions against one process; float64 tells rounding apart."""
    found = trained(rows)
    if {r.params["model"] for r in found} != set(MODEL_TITLES):
        return missing(NONE + " for all three models")
    first = max(gaps(r, p, PLAIN)[0] for r in found for p in PARTITIONS)
    precise = [gap for r in found for p in PARTITIONS for gap in gaps(r, p, PLAIN, FLOAT64)]
    if not precise:
        return missing(NONE + " in float64")
    exact = max(precise)
    words = []
    for model, title in MODEL_TITLES.items():
        mine = [row for row in found if row.params["model"] == model]
        at = [e for row in mine for p in PARTITIONS if (e := apart(row, p)) is not None]
        words.append(f"{title} " + (f"apart from epoch {min(at)} on" if at else "never apart"))
    return finding(
        found,
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
    billions = plain(claim.value["nnz"]) / 1e9
    return missing(
        f"needs {claim.workload['datasets'][0]}, which was not published, nor the settings of its "
        f"generator; its size fits: {billions} B edges x {BYTES_PER_EDGE} bytes = "
        f"{billions * BYTES_PER_EDGE:.0f} GB. The experiment 'sec65' trains a smaller graph so"
    )

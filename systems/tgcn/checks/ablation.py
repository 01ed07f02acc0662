"""What the rows of the ablation say (section 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dgbench.lab.table import rows_of
from dgbench.systems.base import Claim, Finding
from dgbench.systems.tgcn.checks.common import finding, missing, strength
from dgbench.systems.tgcn.experiments.ablation import BEFORE, NAME, STEPS, gain
from dgbench.systems.tgcn.experiments.settings import BY_NAME

PAPERS = ("sampling", "partition", "schedule")
"""What the paper says it enables one at a time."""


def order(claim: Claim, rows: Sequence[Any]) -> Finding:
    """Every technique of the paper's ladder gains."""
    found = rows_of(rows, experiment=NAME)
    if not found:
        return missing("needs a row of ablation")
    sides = [gain([row], step, BEFORE).side for row in found for step in PAPERS]
    words = []
    for row in found:
        steps = ", ".join(f"{s} {gain([row], s, BEFORE).value:.2f}x" for s in STEPS[1:])
        words.append(f"{BY_NAME[row.params['dataset']].title}: {steps}")
    lost = sum(side < 0 for side in sides)
    return finding(
        found,
        evidence=strength(found),
        measured={step: gain(found, step, BEFORE).value for step in STEPS[1:]},
        direction=lost == 0 if lost or all(sides) else None,
        undecided=not lost and not all(sides),
        reason="each over the step before; " + "; ".join(words),
    )


CHECKS: dict[str, Callable[..., Finding]] = {"tgcn-s65-ablation-order": order}

"""Points of the figures that the harness draws from verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgbench.harness.claims.evaluate import PaperVerdicts
from dgbench.harness.claims.verdict import Verdict, is_factor

if TYPE_CHECKING:
    from dgbench.harness.report.site import PaperOnSite


def board_points(verdicts: PaperVerdicts) -> list[dict[str, Any]]:
    """Points of the claim board of one run."""
    return [_point(verdicts.paper, v) for v in verdicts.verdicts]


def merged_points(paper: PaperOnSite) -> list[dict[str, Any]]:
    """Points of the claim board of a site: the strongest evidence, and each machine's glyph."""
    return [_point(paper.paper, c.verdict) | {"machines": c.machines} for c in paper.claims]


def _point(paper: Any, verdict: Verdict) -> dict[str, Any]:
    return {
        "paper": paper.name,
        "title": paper.title,
        "claim": verdict.id,
        "glyph": verdict.glyph,
        "twin": verdict.data == "twin",
        "row_ids": list(verdict.rows),
    }


def ratio_points(verdicts: PaperVerdicts) -> list[dict[str, Any]]:
    """Every claimed factor against ours; those without a value are counted, not hidden."""
    points = []
    for claim, verdict in zip(verdicts.claims, verdicts.verdicts, strict=True):
        target = verdict.target
        if target is None and isinstance(claim.value, int | float) and is_factor(claim):
            target = float(claim.value)
        if target is None or not is_factor(claim) or isinstance(claim.value, bool):
            continue
        point: dict[str, Any] = {"claim": claim.id, "paper": target}
        if isinstance(verdict.measured, int | float) and not isinstance(verdict.measured, bool):
            point |= {
                "measured": float(verdict.measured),
                "low": verdict.low,
                "high": verdict.high,
                "strength": verdict.strength,
                "projected": verdict.source == "projected",
                "row_ids": list(verdict.rows),
            }
        else:
            point["failed"] = f"not-supported: {verdict.reason}"
        points.append(point)
    return points

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
    found = (
        _ratio_point(claim, verdict)
        for claim, verdict in zip(verdicts.claims, verdicts.verdicts, strict=True)
    )
    return [point for point in found if point is not None]


def machine_points(paper: PaperOnSite) -> list[dict[str, Any]]:
    """Points of kind `across`: claimed factors that several machines have, one mark a machine."""
    points: list[dict[str, Any]] = []
    for shown in paper.claims:
        here = []
        for run, verdict in shown.all:
            point = _ratio_point(shown.claim, verdict)
            if point is not None and point.get("measured", 0.0) > 0 and point["paper"] > 0:
                point["value"] = point.pop("measured")
                here.append({"row": point.pop("claim"), "series": run.machine_name, **point})
        points += here if len(here) > 1 else []
    return points


def _ratio_point(claim: Any, verdict: Verdict) -> dict[str, Any] | None:
    """A claimed factor against ours, without a value where there is none; None for a claim that is
    on no factor."""
    target = verdict.target
    if target is None and isinstance(claim.value, int | float) and is_factor(claim):
        target = float(claim.value)
    if target is None or not is_factor(claim) or isinstance(claim.value, bool):
        return None
    point: dict[str, Any] = {"claim": claim.id, "paper": target}
    if isinstance(verdict.measured, int | float) and not isinstance(verdict.measured, bool):
        return point | {
            "measured": float(verdict.measured),
            "low": verdict.low,
            "high": verdict.high,
            "strength": verdict.strength,
            "projected": verdict.source == "projected",
            "row_ids": list(verdict.rows),
        }
    return point | {"failed": f"not-supported: {verdict.reason}"}

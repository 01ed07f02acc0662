"""What is said before a run: what, how long, and what will be missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.terminal.text import wrapped
from dgbench.harness.terminal.verdicts import clock


def plan_head(plan: Any, papers: Sequence[Any], last_s: float | None = None) -> str:
    """The lines above the progress.

    Args:
        plan: the plan. papers: the papers it covers, with their ledgers.
        last_s: how long the same run took last time, seconds, or None.
    """
    names = " ".join(p.name for p in papers)
    count = len(plan.runnable)
    pairs = f", up to {plan.pairs} pairs each" if plan.pairs > 1 else ""
    before = f" (last time {clock(last_s)})" if last_s else ""
    head = f"plan  {names} {plan.preset} {plan.device}"
    lines = [f"{head:<24}  {count} cells{pairs}, about {_about(plan.seconds)}{before}"]
    for paper in papers:
        lines.append(wrapped(claims_line(paper, plan.device), " " * 6))
    skipped = [c for c in plan.cells if c.status]
    if skipped:
        reasons = sorted({c.reason for c in skipped})
        lines.append(wrapped(f"{len(skipped)} cells will not start: {'; '.join(reasons)}", " " * 6))
    lines += [wrapped(f"warning: {problem}", " " * 6) for problem in plan.problems]
    return "\n".join(lines)


def claims_line(paper: Any, device: str) -> str:
    """How many claims of a paper a device can check, from the ledger's needs."""
    claims = load_ledger(paper.ledger)
    gpu = [c for c in claims if c.needs.get("gpus") and not c.needs.get("cpu_only_ok", False)]
    if device == "cuda":
        many = sum(int(c.needs.get("gpus") or 0) > 1 for c in claims)
        return (
            f"{len(claims) - many} of {len(claims)} claims need at most one GPU, {many} need more"
        )
    here = len(claims) - len(gpu)
    return (
        f"{here} of {len(claims)} claims can be checked without a GPU; {len(gpu)} name one and "
        f"are at most CPU analogues (dgbench claims {paper.name} --needs)"
    )


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min"

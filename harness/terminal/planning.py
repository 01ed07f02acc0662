"""Messages before a run: its plan, its duration, and what will be missing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgbench.harness.claims.ledger import load_ledger
from dgbench.harness.terminal.estimate import TimeEstimate
from dgbench.harness.terminal.text import WIDTH, wrapped
from dgbench.harness.terminal.verdicts import clock

_INDENT = " " * 6


def plan_head(
    plan: Any, papers: Sequence[Any], last_s: float | None = None, width: int = WIDTH
) -> str:
    """The lines above the progress.

    A time is said where earlier runs of this machine know nearly every process, or where the
    experiments estimate all of theirs.

    Args:
        plan: the plan. papers: the papers it covers, with their ledgers.
        last_s: how long the same run took last time, seconds, or None.
    """
    names = " ".join(p.name for p in papers)
    count = len(plan.runnable)
    if TimeEstimate(plan).known:
        when = f"about {_about(plan.seconds)}"
        when += f" (last time {clock(last_s)})" if last_s else ""
    elif plan.runnable and all(one.known or one.stated for one in plan.runnable):
        when = f"about {_about(plan.seconds)}, as its experiments estimate"
    else:
        when = "the time left is shown once some have run here"
    head = (
        f"plan  {names} {plan.preset} {plan.device}: {count} cells in {len(plan.steps)} processes"
    )
    lines = [wrapped(f"{head}, {when}", "", width, hanging=_INDENT)]
    for paper in papers:
        said = claims_line(paper, plan.device)
        if plan.own_data is not None:
            said = f"on '{plan.own_data.card.name}', so no claim of {paper.name} is decided"
        lines.append(wrapped(said, _INDENT, width))
    if plan.on_cpu:
        said = f"{plan.on_cpu} of them measure the CPU, whatever device is asked for"
        lines.append(wrapped(said, _INDENT, width))
    if skipped := len(plan.cells) - count:
        verb = "cell will" if skipped == 1 else "cells will"
        text = f"{skipped} {verb} not start here; the end of the run says what they need"
        lines.append(wrapped(text, _INDENT, width))
    lines += [wrapped(f"warning: {problem}", _INDENT, width) for problem in plan.problems]
    return "\n".join(lines)


def claims_line(paper: Any, device: str) -> str:
    """Number of a paper's claims that a device can check, from the ledger's needs."""
    claims = load_ledger(paper.ledger)
    if not claims:
        return f"{paper.title} makes no claims: it ranks"
    gpu = [c for c in claims if c.needs.get("gpus") and not c.needs.get("cpu_only_ok", False)]
    if device == "cuda":
        many = sum(int(c.needs.get("gpus") or 0) > 1 for c in claims)
        return (
            f"{len(claims) - many} of {len(claims)} claims need at most one GPU, {many} need more"
        )
    here = len(claims) - len(gpu)
    return (
        f"{here} of {len(claims)} claims can be checked without a GPU; {len(gpu)} name one and "
        f"are at most weakly supported (dgbench claims {paper.name} --needs)"
    )


def _about(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 2 * 3600:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"

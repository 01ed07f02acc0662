"""Running the kinds one after the other, and the table of what came of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.faults.campaign import Kind, Report, run_kind

MAX_LISTED = 12
"""Losses of a kind that are printed."""

CHECKS = ("rows", "resume", "orphans", "temporary", "reason")


def run_all(kinds: Sequence[Kind], seed: int, root: Path, *, quick: bool = False) -> int:
    """Run, print, return the exit code: 1 on any loss."""
    reports = []
    screen = Console(stderr=True)
    for number, kind in enumerate(kinds, 1):
        screen.print(f"[{number}/{len(kinds)}] {kind.name}", markup=False, highlight=False)
        reports.append(run_kind(kind, seed, root, quick=quick))
        for loss in reports[-1].losses[:3]:
            screen.print(f"    LOST {loss[:200]}", markup=False, highlight=False)
    width = None if sys.stdout.isatty() else 110
    console = Console(width=width)
    console.print(as_table(reports))
    for report in reports:
        if report.skipped:
            console.print(f"left out: {report.kind.name}: {report.skipped}", markup=False)
        for remark in report.remarks:
            console.print(f"{report.kind.name}: {remark}", markup=False)
        for loss in report.losses[:MAX_LISTED]:
            console.print(f"LOST in {report.kind.name}: {loss}", markup=False)
    injected = sum(r.injected for r in reports)
    losses = sum(len(r.losses) for r in reports)
    console.print(
        f"{injected} faults injected (seed {seed}), {sum(r.passed for r in reports)} passed, "
        f"{losses} losses."
    )
    if quick:
        left = sum(r.kind.count for r in reports if not r.skipped) - injected
        console.print(f"Quick: one fault of each kind; {left} more are left to the whole campaign.")
    return int(losses > 0)


def as_table(reports: Sequence[Report]) -> Table:
    """A line a kind: how many, how many passed, what was checked how often, seconds."""
    table = Table(box=None, pad_edge=False)
    table.add_column("kind of fault")
    for name in ("faults", "passed", *CHECKS, "s"):
        table.add_column(name, justify="right")
    for r in reports:
        counts = [str(r.checked.get(name, "") or "") for name in CHECKS]
        done = "left out" if r.skipped else str(r.passed)
        name = r.kind.name + ("  LOST" if r.losses else "")
        table.add_row(name, str(r.injected), done, *counts, f"{r.seconds:.1f}")
    totals = [str(sum(r.checked.get(name, 0) for r in reports)) for name in CHECKS]
    table.add_section()
    table.add_row(
        "all", str(sum(r.injected for r in reports)), str(sum(r.passed for r in reports)), *totals,
        f"{sum(r.seconds for r in reports):.1f}",
    )  # fmt: skip
    return table

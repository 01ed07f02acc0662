"""Exit code and leading message of a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

EXPECTED: Final = ("oom", "time")
"""Statuses of failed rows that a claim may be about: a baseline that does not fit, or not end."""


def unexpected(rows: Sequence[Any], verdicts: Sequence[Any]) -> list[Any]:
    """Failed and void rows, and those with void numbers, that no claim expects.

    A row that ran out of memory or time is expected where a claim that holds rests on it. A wrong
    result, a crash and a void row never are.

    Args:
        rows: of the run. verdicts: `PaperVerdicts` of its papers.
    """
    from dgbench.harness.store.row import FAILED
    from dgbench.harness.store.standing import void_reasons

    held = {
        name
        for paper in verdicts
        for verdict in paper.verdicts
        if verdict.side == "for"
        for name in verdict.rows
    }
    return [
        row
        for row in rows
        if void_reasons(row)
        or (row.status in FAILED and not (row.status in EXPECTED and row.id in held))
    ]


def exit_code(summary: Any, failed: Sequence[Any]) -> int:
    """The exit code of a run, see the table in docs/command-line.md.

    Args:
        summary: of the run. failed: its unexpected failures.
    """
    if summary.interrupted:
        return 128 + (summary.signal or 2)
    return int(bool(summary.trouble or failed or not summary.cells_ok))


def stopped_text(summary: Any, width: int) -> str:
    """The last lines of a run that was stopped; its report would take seconds."""
    from dgbench.harness.terminal.text import fitted

    lines = [
        summary.sentence,
        f"  go on: dgbench run --resume {summary.run}",
        f"  report of what is there: dgbench report {summary.run}",
    ]
    return fitted("\n".join(lines), width)

"""Listener interface for the progress of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dgbench.harness.plan import Plan
    from dgbench.harness.runner.summary import RunSummary
    from dgbench.harness.store import Row
    from dgbench.lab.experiment import Cell


class Listener:
    """Receives the events of a run, all on the thread that runs it. The default does nothing.

    A listener must be quick: while it works, nothing is measured and nothing else happens.
    """

    def on_plan(self, plan: Plan, kept: list[Row]) -> None:
        """The run begins; `kept` are rows of an earlier part of it that are not run again."""

    def on_more(self, plan: Plan, rows: list[Row]) -> None:
        """The plan got further rounds; `rows` are all that the run holds."""

    def on_start(self, cell: Cell, round: int) -> None:
        """A process of `cell` begins. The machine's own row has `cell.paper == "-"`."""

    def on_row(self, row: Row) -> None:
        """A row is on disk, also for a cell that did not start or failed."""

    def on_note(self, text: str) -> None:
        """Something a reader should know: torn lines set aside, the fork server died ..."""

    def on_end(self, summary: RunSummary) -> None:
        """The run is over, also after Ctrl-C."""

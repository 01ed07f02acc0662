"""Rounds that a run adds to its own: disturbed ones once more, and those of undecided groups."""

from __future__ import annotations

from collections.abc import Callable

from dgbench.harness.plan import GroupKey, Plan, PlannedCell
from dgbench.harness.plan.rounds import (
    RoundsRecord,
    add_rounds,
    repeat_disturbed,
    settle_stages,
)
from dgbench.harness.store import Row, Store

Look = Callable[[list[Row]], set[GroupKey]]
"""From the rows of a run to the groups that something undecided rests on."""


class RoundAdder:
    """Adds rounds to the plan of a run and keeps the plan each time.

    Attributes:
        record: what became of the groups, after the last decision; None where none may get rounds.
    """

    def __init__(self, plan: Plan, store: Store, look: Look) -> None:
        self.plan, self.store, self.look = plan, store, look
        self.record: RoundsRecord | None = None
        self._by_hash = {planned.hash: planned for planned in plan.cells}
        self._warned = ""

    def settle(self, planned: PlannedCell, number: int) -> None:
        """Settle how often groups of a paper are looked at, before a last own round begins."""
        if planned.stages is None and number == planned.cell.repeats:
            settle_stages(self.plan, planned.cell.paper, self.store.rows())
            if planned.stages is not None:
                self.store.write_plan(self.plan)

    def stamp(self, row: Row) -> None:
        """Write into a row how often its group is looked at, and the round that it repeats."""
        planned = self._by_hash.get(row.cell_hash)
        if planned is None:
            return
        row.looks = len(planned.stages or ())
        if planned.again is not None and planned.again[0] == row.round and not row.instrumented:
            row.repeats = planned.again[1]

    def add(self, note: Callable[[str], None]) -> bool:
        """Add what is due; whether the plan got rounds.

        Disturbed rounds are repeated before anything is looked at, so that no look rests on them.
        """
        rows = self.store.rows()
        repeated, warning = repeat_disturbed(self.plan, rows)
        if warning and not self._warned:
            note(warning)
        self._warned = self._warned or warning
        if repeated:
            self.store.write_plan(self.plan)
            return True
        if not any(planned.stages for planned in self.plan.runnable):
            self.record = RoundsRecord.of(self.plan, rows, None)
            return False
        try:
            undecided = self.look(rows)
        except Exception as error:  # checks and answers are plugin code; the rows are still good
            note(f"no rounds are added: {type(error).__name__}: {error}")
            return False
        added = add_rounds(self.plan, rows, undecided)
        self.record = RoundsRecord.of(self.plan, rows, added)
        if added.given:
            self.store.write_plan(self.plan)
        return bool(added.given)

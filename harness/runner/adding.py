"""Rounds that a run adds to its own: disturbed ones once more, and those of undecided groups."""

from __future__ import annotations

from collections.abc import Callable

from dgbench.harness.plan import GroupKey, Plan, PlannedCell
from dgbench.harness.plan.rounds import (
    AddedRounds,
    add_rounds,
    repeat_disturbed,
    settle_stages,
    timed_groups,
)
from dgbench.harness.store import Row, Store

Look = Callable[[list[Row]], set[GroupKey]]
"""From the rows of a run to the groups that something undecided rests on."""


class RoundAdder:
    """Adds rounds to the plan of a run and keeps the plan each time.

    Attributes:
        sentence: what became of the groups, after the last decision.
    """

    def __init__(self, plan: Plan, store: Store, look: Look) -> None:
        self.plan, self.store, self.look = plan, store, look
        self.sentence = ""
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
            self.sentence = self._without_looks(rows)
            return False
        try:
            undecided = self.look(rows)
        except Exception as error:  # checks and answers are plugin code; the rows are still good
            note(f"no rounds are added: {type(error).__name__}: {error}")
            return False
        added = add_rounds(self.plan, rows, undecided)
        self.sentence = self._summary(rows, added)
        if added.given:
            self.store.write_plan(self.plan)
        return bool(added.given)

    def _without_looks(self, rows: list[Row]) -> str:
        papers = list(dict.fromkeys(planned.cell.paper for planned in self.plan.runnable))
        if self.plan.rounds is None or not any(timed_groups(self.plan, p, rows) for p in papers):
            return ""
        return (
            f"rounds: as planned; the budget of {self.plan.rounds.budget_s:g} s a paper allowed no "
            "more"
        )

    def _summary(self, rows: list[Row], added: AddedRounds) -> str:
        papers = dict.fromkeys(planned.cell.paper for planned in self.plan.runnable)
        groups = [group for paper in papers for group in timed_groups(self.plan, paper, rows)]
        more = [one.rounds - one.stages[0] for one in groups if one.stages]
        more = [count for count in more if count]
        again = sum(group.cells[0].again is not None for group in groups)
        still = len(added.denied) + len(added.ended)
        parts = [f"{_groups(len(added.decided))} decided"]
        if more:
            parts.append(f"{_groups(len(more))} got {_span(more)} more")
        if again:
            parts.append(f"{again} repeated one that was disturbed")
        if still:
            why = []
            if added.ended:
                why.append(f"{len(added.ended)} after the most rounds")
            if added.denied and self.plan.rounds is not None:
                budget = self.plan.rounds.budget_s
                why.append(f"{len(added.denied)} because the budget of {budget:g} s a paper ended")
            parts.append(f"{still} still undecided ({', '.join(why)})")
        return f"rounds: {', '.join(parts)}"


def _groups(count: int) -> str:
    return "1 group" if count == 1 else f"{count} groups"


def _span(counts: list[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"

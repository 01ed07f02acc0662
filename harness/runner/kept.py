"""Numbers that processes of a group keep for one another, in the memory of the runner.

What results are compared with and how far they may deviate must not be in reach of what is
compared. A file could be written by any cell, so there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgbench.systems.base.registry import SYSTEMS, own_papers, third_party

if TYPE_CHECKING:
    from dgbench.harness.plan import GroupKey
    from dgbench.harness.runner.protocol import Result
    from dgbench.harness.store import Row
    from dgbench.lab.experiment import Cell

ALTERED = "it was compared with numbers that the harness had not kept"


class KeptNumbers:
    """Numbers of each group by key, from processes that loaded no code of a third party."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, dict[str, dict[str, Any]]] = {}
        self._papers, self._others = own_papers(), frozenset(third_party(SYSTEMS))

    def of(self, cell: Cell) -> dict[str, dict[str, Any]]:
        """Numbers that a process of a cell is given."""
        return self._groups.get(_group(cell), {})

    def take(self, cell: Cell, row: Row, result: Result | None) -> None:
        """Keep what a process made sure of; one that used other numbers than its own is refused."""
        if result is None or not row.ok:
            return
        known = self.of(cell)
        if any(known.get(key) != numbers for key, numbers in result.used.items()):
            row.status, row.reason, row.checks = "check", ALTERED, []
            row.observed = []
        elif self._is_own(cell):
            self._groups.setdefault(_group(cell), {}).update(result.made)

    def _is_own(self, cell: Cell) -> bool:
        """Return True if a cell loads code of dgbench alone."""
        words = [one for one in cell.params.values() if isinstance(one, str)]
        return cell.paper in self._papers and not any(
            name in word for name in self._others for word in words
        )


def _group(cell: Cell) -> GroupKey:
    return cell.paper, cell.experiment, cell.group

"""Estimate of a run's remaining time, learned from the processes that have ended."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

PRIOR_S = 5.0
"""Estimated seconds that count for a ratio of 1 before anything was measured."""
KNOWN_PRIOR_S = 60.0
"""The same where earlier runs of this machine say how long every cell takes."""
KIND_PRIOR_S = 3.0
"""Estimated seconds that count for the ratio of all cells in that of one experiment."""
MIN_STEPS = 8
MIN_SHARE = 0.1
"""Processes and share of the work that must have ended before a time is said."""
KNOWN_SHARE = 0.9
"""Share of processes that an earlier run must know for a time to be said at once."""

Kind = tuple[str, str, bool]


class TimeEstimate:
    """Remaining seconds of a plan.

    A process of a cell that has run takes as long as that cell did last. Others take what the plan
    says of them, times the ratio of measured to planned seconds so far: of their experiment as far
    as it has run, else of all, and 1 in the beginning. Time between processes is added per process.

    Attributes:
        left: processes that will still start.
    """

    def __init__(self, plan: Any) -> None:
        self._cells = {planned.hash: planned for planned in plan.cells}
        self._left: dict[tuple[str, bool], int] = defaultdict(int)
        for step in plan.steps:
            self._left[plan.cells[step.index].hash, step.instrumented] += 1
        self.left = sum(self._left.values())
        steps = self.left
        known = sum(n for (key, _), n in self._left.items() if self._cells[key].known)
        self.known = steps > 0 and known >= KNOWN_SHARE * steps
        self._prior_s = KNOWN_PRIOR_S if self.known else PRIOR_S
        self._last: dict[tuple[str, bool], float] = {}
        self._spent: dict[Kind, float] = defaultdict(float)
        self._planned: dict[Kind, float] = defaultdict(float)
        self._steps = 0
        self._between_s = 0.0

    def ended(self, key: str, instrumented: bool, seconds: float) -> None:
        """A process of the cell `key` ended after so many seconds."""
        if not self._drop(key, instrumented, 1):
            return
        kind = self._kind(key, instrumented)
        self._last[key, instrumented] = seconds
        self._spent[kind] += seconds
        self._planned[kind] += self._cells[key].estimate_s
        self._steps += 1

    def between(self, seconds: float) -> None:
        """So many seconds passed beside the plan's processes: starting them, A/A pairs."""
        self._between_s += seconds

    def keep(self, key: str, instrumented: bool) -> None:
        """A process has a row of an earlier part of the run."""
        self._drop(key, instrumented, 1)

    def drop(self, key: str) -> int:
        """A cell will not start again; how many of its processes are left out."""
        return sum(self._drop(key, i, self._left.get((key, i), 0)) for i in (False, True))

    @property
    def learned(self) -> bool:
        """True if enough processes have ended to give a time."""
        if self.known:
            return True
        total = self._steps + self.left
        if self._steps < min(MIN_STEPS, total):
            return False
        planned = sum(self._planned.values())
        rest = sum(n * self._cells[key].estimate_s for (key, _), n in self._left.items())
        return planned >= MIN_SHARE * (planned + rest)

    @property
    def left_s(self) -> float:
        """Seconds that should be left."""
        overall = (sum(self._spent.values()) + self._prior_s) / (
            sum(self._planned.values()) + self._prior_s
        )
        seconds = self.left * self._between_s / self._steps if self._steps else 0.0
        for (key, instrumented), count in self._left.items():
            if count:
                seconds += count * self._one(key, instrumented, overall)
        return seconds

    def _one(self, key: str, instrumented: bool, overall: float) -> float:
        """Seconds that one process of a cell should take."""
        if (last := self._last.get((key, instrumented))) is not None:
            return last
        kind = self._kind(key, instrumented)
        spent, planned = self._spent.get(kind, 0.0), self._planned.get(kind, 0.0)
        ratio = (spent + KIND_PRIOR_S * overall) / (planned + KIND_PRIOR_S)
        return min(self._cells[key].estimate_s * ratio, self._cells[key].cell.timeout_s)

    def _drop(self, key: str, instrumented: bool, count: int) -> int:
        there = min(count, self._left.get((key, instrumented), 0))
        if there:
            self._left[key, instrumented] -= there
            self.left -= there
        return there

    def _kind(self, key: str, instrumented: bool) -> Kind:
        cell = self._cells[key].cell
        return cell.paper, cell.experiment, instrumented

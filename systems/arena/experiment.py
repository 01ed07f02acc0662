"""Base of the experiments that run a task of the arena."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from dgbench.lab.arena import ArenaRace, ArenaTask, quotable, race_points, races
from dgbench.lab.charts import chart
from dgbench.lab.experiment import Experiment, FigureSpec
from dgbench.systems.arena.entrants import registered


class TaskExperiment(Experiment):
    """An experiment that runs a task of the arena."""

    paper = "arena"
    arena_task: ClassVar[ArenaTask]
    own_data = "the workloads of a task are frozen in its definition"

    def params(self, case: str) -> dict[str, Any]:
        """Params that every cell of a case has."""
        return {"task": self.arena_task.label, "definition": self.arena_task.digest, "case": case}

    def races(self, rows: Sequence[Any], floor: float = 0.0) -> list[ArenaRace]:
        return races(self.arena_task, rows, registered(), floor)

    def figures(self) -> list[FigureSpec]:
        return [
            chart(
                "speedup",
                f"arena_{self.name.replace('-', '_')}",
                f"{self.arena_task.title}: time over that of the fastest",
                lambda rows: race_points(self.races(rows)),
                baseline_label="the fastest",
                xlabel="time over that of the fastest",
            )
        ]

    def answer(self, rows: Sequence[Any]) -> str:
        return quotable([one for one in self.races(rows) if one.timed])

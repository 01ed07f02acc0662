"""Base of the experiments that run a task of the arena."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from dgbench.lab.arena import ArenaRace, ArenaTask, races
from dgbench.lab.charts import chart, speedup
from dgbench.lab.experiment import Contender, Experiment, FigureSpec
from dgbench.systems.arena.entrants import own_systems, registered


class TaskExperiment(Experiment):
    """An experiment that runs a task of the arena."""

    paper = "arena"
    arena_task: ClassVar[ArenaTask]

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
                contenders=self.contenders(),
            )
        ]

    def contenders(self) -> dict[str, Contender]:
        """Contenders that are no registered systems: whose forms they are, and their titles."""
        systems = own_systems()
        return {
            name: Contender(one.form_of if one.form_of in systems else "", one.title)
            for name, one in self.arena_task.entrants.items()
            if name not in systems
        }


def race_points(found: Iterable[ArenaRace]) -> list[dict[str, Any]]:
    """Points of `speedup`: every contender's time over that of the fastest; gaps with reasons."""
    points: list[dict[str, Any]] = []
    for race in found:
        if not race.timed:
            continue
        best = race.timed[0]
        panel = ", ".join([race.case.title, *(str(value) for _, value in race.setting)])
        for one in (other for other in race.entries[1:] if other.entered):
            point: dict[str, Any] = {
                "panel": panel, "row": f"{best.entrant.title} over {one.entrant.title}",
                "system": best.name, "baseline": one.name, "twin": race.twin,
            }  # fmt: skip
            if one.ratio is None:
                reason = one.reason or "no pair of processes"
                point["failed"] = f"{'skipped' if one.status == 'ok' else one.status}: {reason}"
            else:
                point |= speedup(one.ratio)
            points.append(point)
    return points

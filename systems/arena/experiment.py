"""Base of the experiments that run a task of the arena."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from copy import copy
from typing import Any, ClassVar

from msgspec.structs import replace

from dgbench.lab.arena import BASE, DIVISION, TUNED, ArenaRace, ArenaTask, Division, races
from dgbench.lab.charts import chart, ratio_mark
from dgbench.lab.experiment import (
    Cell,
    Contender,
    Experiment,
    FigureSpec,
    Preset,
    RunContext,
)
from dgbench.lab.grid import by_preset
from dgbench.systems.arena.entrants import own_systems, registered
from dgbench.systems.arena.tuned import BUDGETS

SEARCH_FACTOR = 5.0
"""Time limits of a process that searches over those of one that does not."""


class TaskExperiment(Experiment):
    """An experiment that runs a task of the arena.

    Attributes:
        divisions: those that it plans cells of.
    """

    paper = "arena"
    arena_task: ClassVar[ArenaTask]
    divisions: tuple[Division, ...] = ("base",)

    def in_divisions(self, *divisions: Division) -> TaskExperiment:
        """The same experiment with cells of these divisions."""
        made = copy(self)
        made.divisions = divisions
        return made

    @abstractmethod
    def base_cells(self, preset: Preset, device: str) -> list[Cell]:
        """The cells of the base division."""

    def cells(self, preset: Preset, device: str) -> list[Cell]:
        base = self.base_cells(preset, device)
        tuned = [self._tuned(cell, preset) for cell in base] if TUNED in self.divisions else []
        return [*(base if BASE in self.divisions else ()), *tuned]

    def _tuned(self, cell: Cell, preset: Preset) -> Cell:
        """The same cell with settings of its own, and time to search them."""
        return replace(
            cell,
            params={**cell.params, DIVISION: TUNED},
            group=f"{cell.group}/{TUNED}",
            timeout_s=SEARCH_FACTOR * cell.timeout_s + by_preset(BUDGETS, preset).seconds,
            unavailable=self.arena_task.untuned or cell.unavailable,
        )

    def controls(self, cell: Cell, context: RunContext | None = None) -> bool:
        return DIVISION not in cell.params and super().controls(cell, context)

    def params(self, case: str) -> dict[str, Any]:
        """Params that every cell of a case has."""
        return {"task": self.arena_task.label, "definition": self.arena_task.digest, "case": case}

    def races(
        self,
        rows: Sequence[Any],
        floor: float = 0.0,
        *,
        with_ours: bool = False,
        division: Division = "base",
    ) -> list[ArenaRace]:
        return races(
            self.arena_task, rows, registered(), floor, with_ours=with_ours, division=division
        )

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
                point |= ratio_mark(one.ratio)
            points.append(point)
    return points

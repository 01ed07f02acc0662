"""The task on whole timelines: a system deals the work out over ranks in each way that it has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from dgbench.lab.arena import ArenaCase
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.grid import by_preset
from dgbench.lab.ranks import devices_lacking
from dgbench.runtime.threads import cores
from dgbench.systems.arena.entrants import own_systems
from dgbench.systems.arena.experiment import TaskExperiment
from dgbench.systems.arena.tasks import TIMELINES
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.sequences import SequenceWorkload
from dgbench.systems.base.timeline import TimelineWorkload

HOST_TURNS: Final = {"smoke": 2, "quick": 3, "full": 6, "paper": 10}
"""Turns of each contender in a process, at least."""
WORKLOADS: Final = {"esdg": TimelineWorkload, "dgc": SequenceWorkload}
"""Class of the workloads of a case by the system that deals it out."""


class TimelineTraining(TaskExperiment):
    name = "timeline-training"
    title = "Training on a whole timeline"
    question = "Which way to deal a timeline out over ranks trains an epoch fastest?"
    arena_task = TIMELINES
    repeats: ClassVar[Any] = {"smoke": 1, None: 5}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, None: 1800}
    control: ClassVar = {"case": "sx-mathoverflow/cd_gcn/2"}

    def workload(self, case: ArenaCase, preset: Preset) -> TimelineWorkload | SequenceWorkload:
        """The training task of a case."""
        settings = case.settings
        common = {**self.arena_task.settings, **settings["fields"]}
        common["snapshots"] = common["snapshots"][preset]
        kind = WORKLOADS[settings["host"]]
        return kind(dataset=settings["dataset"], model=settings["model"], **common)

    def base_cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            cell
            for case in self.arena_task.cases
            if preset in case.presets
            for cell in self._cells_of(case.name, case.settings, preset, device)
        ]

    def _cells_of(
        self, case: str, settings: Mapping[str, Any], preset: Preset, device: str
    ) -> list[Cell]:
        """The cell of a case, and one with the reason of each system that does not enter."""
        where = {**self.params(case), **{k: settings[k] for k in ("dataset", "model", "ranks")}}
        group, ranks = f"{self.name}/{case}", int(settings["ranks"])
        lacking = devices_lacking(ranks, device)
        if not lacking and device == "cpu" and ranks > cores():
            lacking = f"{ranks} ranks need {ranks} cores, here are {cores()}"
        cell = self.cell_of(
            where, group, interleaved=True, repeats=by_preset(self.repeats, preset),
            timeout_s=by_preset(self.timeout_s, preset), unavailable=lacking,
        )  # fmt: skip
        kind = WORKLOADS[settings["host"]]
        absent = [
            self.cell_of(
                {**where, self.arena_task.contender: name}, group,
                unavailable=f"{system.title} {system.trains[1]} (`{system.trains[0].__name__}`)",
            )
            for name, system in own_systems().items()
            if system.trains is not None and not issubclass(kind, system.trains[0])
        ]  # fmt: skip
        return [cell, *absent]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        case = self.arena_task.case_of(cell.params)
        return get_system(case.settings["host"]).race_ranks(
            self.workload(case, context.preset),
            int(case.settings["ranks"]),
            replace(context, control=self.controls(cell)),
            least=HOST_TURNS[context.preset],
            timeout_s=0.9 * cell.timeout_s,
        )

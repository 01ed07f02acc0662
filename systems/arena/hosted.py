"""Tasks that another paper's race already runs: the same code, on the arena's frozen workloads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as changed
from typing import Any, ClassVar

from msgspec.structs import replace

from dgbench.lab.arena import DIVISION
from dgbench.lab.experiment import Cell, Experiment, Measurement, Preset, RunContext
from dgbench.lab.grid import by_preset
from dgbench.systems.arena.entrants import own_systems
from dgbench.systems.arena.experiment import TaskExperiment
from dgbench.systems.arena.tasks import SAMPLING, STREAMS, UPDATE, WEIGHTED
from dgbench.systems.arena.tuned import tuned_turns
from dgbench.systems.base.registry import get_paper
from dgbench.systems.base.stream import StreamWorkload

HOST = ("race", "twin")
"""Settings of a case that are no params of the race that runs it."""


def race_called(name: str) -> Experiment:
    """The experiment called `paper/experiment`."""
    paper, _, wanted = name.partition("/")
    return next(one for one in get_paper(paper).experiments if one.name == wanted)


class HostedTask(TaskExperiment):
    """A task whose contenders take turns inside one process of a paper's own race.

    Which case has an A/A pair is the task's to say (`control`), whatever the race declares for its
    own cells.

    Attributes:
        repeats, timeout_s: by preset.
        workload: class of the workloads that are trained on; systems that train on others are
            there with this reason. None where no system trains.
    """

    repeats: ClassVar[Any] = {"smoke": 1, None: 5}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 120, None: 1800}
    workload: ClassVar[type | None] = None
    device = "cpu"

    def base_cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            cell
            for case in self.arena_task.cases
            if preset in case.presets
            for cell in self._cells_of(case.name, case.settings, preset)
        ]

    def _cells_of(self, case: str, settings: Mapping[str, Any], preset: Preset) -> list[Cell]:
        """The cell of a case, and one with the reason of each contender that is absent."""
        where = self.params(case)
        if "dataset" in settings:
            where["dataset"] = settings["dataset"]
        else:
            where["operator"] = f"{self.name}/{case}"
        group = f"{self.name}/{case}"
        cell = self.cell_of(
            where, group, interleaved=True, repeats=by_preset(self.repeats, preset),
            timeout_s=by_preset(self.timeout_s, preset),
        )  # fmt: skip
        absent = [
            self.cell_of(
                {**where, self.arena_task.contender: one.params["contenders"]}, group,
                unavailable=one.unavailable,
            )
            for one in race_called(settings["race"]).cells(preset, "cpu")
            if one.unavailable and "contenders" in one.params
            and one.params["contenders"] in self.arena_task.entrants
        ]  # fmt: skip
        absent += [
            self.cell_of(
                {**where, self.arena_task.contender: name}, group,
                unavailable=f"{system.title} {system.trains[1]} (`{system.trains[0].__name__}`)",
            )
            for name, system in own_systems().items()
            if self.workload is not None
            and system.trains is not None and not issubclass(self.workload, system.trains[0])
        ]  # fmt: skip
        unique = {str(one.params[self.arena_task.contender]): one for one in absent}
        return [cell, *unique.values()]

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        settings = self.arena_task.case_of(cell.params).settings
        host = race_called(str(settings["race"]))
        params = {name: value for name, value in settings.items() if name not in HOST}
        hosted = replace(cell, params=params, paper=host.paper, experiment=host.name)
        if DIVISION in cell.params:
            case = str(cell.params["case"])
            return tuned_turns(
                lambda given: host.run(hosted, given), self.arena_task, case, context
            )
        return host.run(hosted, changed(context, control=self.controls(cell)))


class StreamTraining(HostedTask):
    name = "stream-training"
    arena_task = STREAMS
    title = "Continuous training on a stream"
    question = "Which system follows a stream of new events fastest?"
    workload = StreamWorkload
    device = ""
    control: ClassVar = {"case": "sx-mathoverflow/tgn"}


class TemporalSampling(HostedTask):
    name = "temporal-sampling"
    arena_task = SAMPLING
    title = "Temporal sampling"
    question = "Which sampler of temporal neighbours is fastest, and is it right?"
    control: ClassVar = {"case": "wikipedia"}


class GraphUpdate(HostedTask):
    name = "graph-update"
    arena_task = UPDATE
    title = "Graph update"
    question = "Which graph takes in new edges fastest?"
    control: ClassVar = {"case": "wikipedia"}


class WeightedDraw(HostedTask):
    name = "weighted-draw"
    arena_task = WEIGHTED
    title = "Weighted draws"
    question = "Which way to draw by weight without replacement is fastest?"
    own_data = "it draws from items with weights and reads no dataset"
    control: ClassVar = {"case": "1e4"}

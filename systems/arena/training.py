"""Tasks that systems of the registry train on, each in processes of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from dgbench.lab.arena import DIVISION, ArenaCase
from dgbench.lab.experiment import Cell, Measurement, Preset, RunContext
from dgbench.lab.grid import by_preset
from dgbench.runtime.errors import UnsupportedError
from dgbench.systems.arena.entrants import own_systems
from dgbench.systems.arena.experiment import TaskExperiment
from dgbench.systems.arena.tasks import SNAPSHOTS
from dgbench.systems.arena.tuned import tuned_training
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.race import timed
from dgbench.systems.base.registry import (
    SYSTEMS,
    Broken,
    find_system,
    get_system,
    system_names,
    third_party,
)
from dgbench.systems.base.system import System
from dgbench.systems.base.workload import Workload

EPOCHS = 200
SLOW: Mapping[str, str] = {
    "compiled": "compiling takes minutes: it runs in the presets full, paper"
}
"""Systems that need more time than quick has, with the reason."""


class SnapshotTraining(TaskExperiment):
    name = "snapshot-training"
    title = "Training on frames of snapshots"
    question = "Which system takes a training step on a frame of snapshots fastest?"
    arena_task = SNAPSHOTS
    repeats: ClassVar[Any] = {"smoke": 1, None: 5}
    timeout_s: ClassVar[Any] = {"smoke": 60, "quick": 90, None: 600}

    def workload(self, case: ArenaCase, preset: Preset) -> Workload:
        """The training task of a case."""
        settings = {**self.arena_task.settings, **case.settings}
        settings["snapshots"] = settings["snapshots"][preset]
        return Workload(**settings)

    def base_cells(self, preset: Preset, device: str) -> list[Cell]:
        return [
            cell
            for case in self.arena_task.cases
            if preset in case.presets
            for cell in self._cells_of(case, preset, device)
        ]

    def _cells_of(self, case: ArenaCase, preset: Preset, device: str) -> list[Cell]:
        """A cell for each system of the registry; those that cannot enter have their reason."""
        task = self.workload(case, preset)
        where = {**self.params(case.name), "dataset": task.dataset, "model": task.model}
        others = third_party(SYSTEMS)
        found = []
        for name in system_names():
            if name in others:  # its own process alone may import it, and says whether it enters
                entering, why = {name: {}}, ""
            else:
                system = find_system(name)
                why = _reason(system, name, self.arena_task.label, task, preset, device)
                forms = {} if isinstance(system, Broken) or why else system.forms
                entering = {name: {}, **forms}
            found += [
                self.cell_of(
                    {**where, "system": form}, f"{self.name}/{case.name}",
                    repeats=by_preset(self.repeats, preset),
                    timeout_s=by_preset(self.timeout_s, preset), unavailable=why,
                )
                for form in entering
            ]  # fmt: skip
        return found

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        form = str(cell.params["system"])
        name, switches = self._switches(form)
        system = get_system(name)
        if self.arena_task.label not in system.enters:
            raise UnsupportedError(_not_entered(system, self.arena_task.label))
        task = self.workload(self.arena_task.case_of(cell.params), context.preset)
        if DIVISION in cell.params:
            found = tuned_training(
                self.arena_task, form, name, task, context, switches=switches, epochs=EPOCHS
            )
        else:
            found = timed(name, task, context, epochs=EPOCHS, switches=switches)
        step = next(one.value for one in found.observations if one.metric == "step_time")
        work = workload_data.load(task).num_nodes * task.frame
        found.observe("throughput", work / step, of="vertex_steps")
        return found

    def _switches(self, form: str) -> tuple[str, Mapping[str, bool] | None]:
        """The system of a form and its switches."""
        if form in system_names():
            return form, None
        for name, system in own_systems().items():
            if form in system.forms:
                return name, system.forms[form]
        raise UnsupportedError(f"no system has a form '{form}'")


def _reason(
    system: System | Broken, name: str, label: str, task: Workload, preset: Preset, device: str
) -> str:
    """Reason why a system of ours cannot enter a task, or ""."""
    if isinstance(system, Broken):
        return f"it does not load: {system.reason}"
    if label not in system.enters:
        return "; ".join(system.unsupported(task, device)) or _not_entered(system, label)
    if reasons := system.unsupported(task, device):
        return "; ".join(reasons)
    if name == "pygt-a" and device == "cpu":
        return "nothing is copied on a CPU, so that it is PyGT"
    return SLOW.get(name, "") if preset in ("smoke", "quick") and device == "cpu" else ""


def _not_entered(system: System, label: str) -> str:
    entered = ", ".join(system.enters) or "none"
    return f"{system.title} does not enter {label}: it declares {entered}"

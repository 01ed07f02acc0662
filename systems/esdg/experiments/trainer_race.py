"""Settings of the one-process trainer that take turns, compared with the plain trainer."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.meter import Meter
from dgbench.systems.base import RunContext
from dgbench.systems.base.race import audited
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.base.turns import Turns, turns_of
from dgbench.systems.esdg.oracle import TimelineOracle, largest_gap, later_checks
from dgbench.systems.esdg.system import EsdgSystem, EsdgTrainer

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence


def open_trainer(
    task: TimelineWorkload, data: SnapshotSequence, context: RunContext,
    switches: Mapping[str, bool], *, timing: bool = False, **more: Any,
) -> EsdgTrainer:  # fmt: skip
    """A prepared trainer; on a CPU inputs are copied into memory apart."""
    on = EsdgSystem().switches({"arena": context.device == "cpu", **switches})
    meter = Meter(timing=timing, device=context.device)
    trainer = EsdgTrainer(task, data, on, device=context.device, meter=meter, **more)
    trainer.prepare()
    return trainer


class TrainerRace(ExitStack):
    """Trainers of one process by name; closed where its context ends.

    Processes of one cell stand for each other: the first one compares all results, later ones an
    output.
    """

    def __init__(self, task: TimelineWorkload, data: SnapshotSequence, context: RunContext) -> None:
        super().__init__()
        self.task, self.data, self.context = task, data, context
        first = context.round == 1
        self.oracle = TimelineOracle(task, data, device=context.device) if first else None
        self.trainers: dict[str, EsdgTrainer] = {}
        self._before: Any = {}

    def open(self, name: str, switches: Mapping[str, bool], **more: Any) -> EsdgTrainer:
        """Open a trainer, see `open_trainer`."""
        trainer = open_trainer(self.task, self.data, self.context, switches, **more)
        self.callback(trainer.close)
        self.trainers[name] = trainer
        return trainer

    def take_turns(self, least: int, seconds_s: float, *, most: int | None = None) -> Turns:
        """Epochs of all trainers in turns."""
        if self.oracle is not None:
            self._before = self.oracle.first_results(self.trainers)
        return turns_of(self.trainers, least, seconds_s, most=most)

    def checks(self, turns: Turns, *, without: str = "") -> list[ResultCheck]:
        """Compare all trainers but one, which a control has no need of."""
        compared = {name: one for name, one in self.trainers.items() if name != without}
        if self.oracle is not None:
            found = self.oracle.checks_of(compared, self._before)
        else:
            found = later_checks(self.task, self.data, compared, self.context.device)
        return [*found, *audited(turns, self.task, self.context, self.data)]

    def deviation(self, checks: list[ResultCheck]) -> dict[str, float]:
        """Largest deviation from the reference, where this process compared all results."""
        return {"output": largest_gap(checks, "outputs", "gradients")} if self.oracle else {}

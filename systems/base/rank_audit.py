"""Audited epochs of trainers on a group of ranks.

Which epochs are audited is drawn while the ranks train, by a seed that the process which launches
them has drawn. Rank 0 copies the replicated parameters and Adam's moments before and after such an
epoch, outside of the clock and without a call to the trainer; gradients are sums over all ranks, so
work that any of them left out shows there. In the launching process the oracle takes the epoch
again in float64. Training with stale rows, which no reference can take again from one rank's copy,
is held against Adam by its own moments alone, as all audited epochs are.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import Communicator
from dgbench.runtime.schedule import DrawnSteps
from dgbench.runtime.touched import comparing
from dgbench.systems.base.audit import (
    OWN_MOMENTS,
    AuditedStep,
    StepAudit,
    TrainingState,
    adam_checks,
    taken_again,
    taken_again_later,
)
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.system import Trainer

FIRST: Final = 2
"""Trainers of which the oracle takes an epoch again in a cell's first process: that costs as much
as some epochs do."""

HELD_BACK: Final = "Adam by its own moments, as stale rows cannot be taken again"


@dataclass(frozen=True, slots=True)
class AuditedEpochs:
    """Audited epochs of one trainer, with the states around them on the CPU.

    Attributes:
        seed: that they were drawn by. steps: those that were copied whole.
    """

    seed: int
    steps: list[AuditedStep]


def draw_seed() -> int:
    """Seed of the audited epochs of a group of ranks, drawn by the operating system."""
    return random.SystemRandom().getrandbits(48)


def audited_numbers(seed: int, first: int, count: int) -> list[int]:
    """Numbers of the epochs, or batches, that `RankAudit` draws by a seed where there are `count`
    in all."""
    schedule = _schedule(seed, first, count - first)
    return [number for number in range(first, count) if number in schedule]


def _schedule(seed: int, first: int, least: int) -> DrawnSteps:
    return DrawnSteps(first, spread=max(1, min(2, least)), seed=seed)


class RankAudit:
    """Copies of training states around drawn epochs, made on rank 0 and by no other.

    Args:
        comm: of the rank.
        seed: of the draws, equal on all ranks.
        first: epochs that are never drawn, in the beginning.
        least: epochs that follow them at least; one of them is drawn.
    """

    def __init__(self, comm: Communicator, seed: int, first: int, *, least: int = 2) -> None:
        self._copies = comm.rank == 0
        self._seed, self._first, self._least = seed, first, least
        self._audits: dict[str, StepAudit] = {}

    def open(self, name: str, trainer: Trainer) -> None:
        """Audit a trainer that has taken no step yet."""
        if self._copies:
            schedule = _schedule(self._seed, self._first, self._least)
            self._audits[name] = StepAudit(
                trainer, self._first, name=name, moves=False, schedule=schedule
            )

    def after(self, name: str, epochs: int) -> None:
        """Called when a trainer's epoch has ended, outside of the clock.

        Args:
            epochs: that it has trained so far.
        """
        if self._copies:
            self._audits[name].between(epochs)

    @property
    def epochs(self) -> dict[str, AuditedEpochs]:
        """Audited epochs by trainer; none on ranks other than 0."""
        return {
            name: AuditedEpochs(audit.seed, [_on_cpu(step) for step in audit.steps])
            for name, audit in self._audits.items()
        }


@comparing()
def audited_epochs(
    audits: Mapping[str, AuditedEpochs],
    losses: Mapping[str, Sequence[float]],
    oracle: Oracle,
    *,
    first: bool,
    stale: Collection[str] = (),
) -> list[ResultCheck]:
    """Checks of the audited epochs of trainers on ranks, by name.

    Args:
        losses: of every epoch.
        oracle: of their task, see `Oracle.retake`.
        first: take the same epoch of drawn trainers again, as in the first process of a cell,
            `FIRST` of them, else, in `LATER` of the processes, of one.
        stale: trainers that hold rows back, whose epochs are not taken again.
    """
    draw, checks = random.SystemRandom(), list[ResultCheck]()
    lr = oracle.trainer.workload.lr  # type: ignore[attr-defined]
    for name, audit in audits.items():
        if audit.steps:
            checks += adam_checks(
                audit.steps, lr, seed=audit.seed, system=name, each="epoch",
                against=HELD_BACK if name in stale else OWN_MOMENTS,
            )  # fmt: skip
    exact = [name for name, audit in audits.items() if audit.steps and name not in stale]
    if not exact or not taken_again_later(first):
        return checks
    names = draw.sample(exact, min(FIRST, len(exact)) if first else 1)
    place = draw.randrange(min(len(audits[name].steps) for name in names))
    limits: dict[str, dict[str, float]] = {}  # what rounding does is measured once for all
    for name in names:
        step = audits[name].steps[place]
        checks += taken_again(
            oracle, step, losses[name][step.number], 0, shared=dict, seed=audits[name].seed,
            system=name, limits=limits,
        )  # fmt: skip
    return checks


def _on_cpu(step: AuditedStep) -> AuditedStep:
    """The step with its states on the CPU, as they can leave a process."""
    assert step.after is not None
    return AuditedStep(step.number, _state_on_cpu(step.before), _state_on_cpu(step.after))


def _state_on_cpu(state: TrainingState) -> TrainingState:
    parameters, first, second = (
        {name: tensor.cpu() for name, tensor in tensors.items()}
        for tensors in (state.parameters, state.first, state.second)
    )
    return TrainingState(parameters, first, second, state.updates)

"""Settings of a system that take turns inside one process, step by step on the same frames.

What disturbs the machine then disturbs all of them, and ratios are formed turn by turn. Works for
trainers of frames and of timelines alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.meter import Meter
from dgbench.systems.base import Preset, RunContext, Workload
from dgbench.systems.base.audit import StepAudit, taken_again_later
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import Trainer
from dgbench.systems.base.timeline import TimelineWorkload

NOT_AUDITED: Final = 1
"""Steps of each trainer, in the beginning, that are not audited."""


@dataclass(frozen=True, slots=True)
class RaceContender:
    """One setting of a race: a system, its switches, and what else its trainer takes.

    Attributes:
        system: its name in the registry.
        switches: techniques that differ from the system's defaults.
        settings: further arguments of `System.open`, such as `nb` of ESDG.
    """

    system: str
    switches: Mapping[str, bool] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def opened(
    contenders: Mapping[str, RaceContender],
    task: Workload | TimelineWorkload,
    context: RunContext,
    *,
    timing: bool = False,
) -> Iterator[dict[str, Trainer]]:
    """Trainers of all contenders, prepared, each with a meter of its own; closed at the end.

    Args:
        contenders: by the name they have in the results.
        task: what all of them train.
        context: names the device.
        timing: let the meters take the times of phases.

    Raises:
        UnsupportedError: with the reasons of the first system that cannot train this here.
    """
    with ExitStack() as stack:
        trainers: dict[str, Trainer] = {}
        for name, one in contenders.items():
            system = get_system(one.system)
            reasons = system.unsupported(task, context.device)  # type: ignore[arg-type]
            if reasons:
                raise UnsupportedError(f"{system.title}: {'; '.join(reasons)}")
            trainers[name] = system.open(
                task,  # type: ignore[arg-type]
                device=context.device,
                switches=one.switches,
                meter=Meter(timing=timing, device=context.device),
                **one.settings,
            )
            stack.callback(trainers[name].close)
            trainers[name].prepare()
        yield trainers


@dataclass(frozen=True, slots=True)
class Turns:
    """Times, losses and sent bytes of trainers that took turns.

    Attributes:
        seconds: of each step, by contender.
        sent: bytes that a step sends, the mean of the first turns, by contender.
        parts: by contender, then by name of a phase or of a spent time of its meter: seconds of
            each step. Phases are there only where the meter times them.
        losses: of each step by contender, those that warm up included.
        audits: of drawn steps, by contender.
    """

    seconds: dict[str, list[float]]
    sent: dict[str, int]
    parts: dict[str, dict[str, list[float]]]
    losses: dict[str, list[float]]
    audits: dict[str, StepAudit]

    @property
    def starts(self) -> dict[str, dict[str, Tensor]]:
        """Parameters that training went on from, by contender, where its audit moved them."""
        found = {name: audit.start for name, audit in self.audits.items()}
        return {name: start for name, start in found.items() if start is not None}

    def audited(self, oracle: Oracle, *, first: bool) -> list[ResultCheck]:
        """Checks of drawn steps by the oracle of their task.

        Args:
            first: take a step of each contender again, as in the first process of a cell, else,
                in a share of the processes, one of a drawn contender.
        """
        names = list(self.audits) if first else [random.SystemRandom().choice(list(self.audits))]
        again, found = taken_again_later(first), list[ResultCheck]()
        for name in names:
            found += self.audits[name].checks(oracle, self.losses[name], again=again, system=name)
        return found


def turns_of(
    trainers: Mapping[str, Trainer], least: int, budget_s: float, *, most: int | None = None
) -> Turns:
    """Let trainers take turns, every second turn in reverse order, after two that warm up.

    Args:
        trainers: by name, prepared; each with a meter of its own.
        least: turns at least.
        budget_s: seconds to go on for, the turns that warm up included.
        most: turns at most.
    """
    seconds: dict[str, list[float]] = {name: [] for name in trainers}
    parts: dict[str, dict[str, list[float]]] = {name: {} for name in trainers}
    losses: dict[str, list[float]] = {name: [] for name in trainers}
    sent: dict[str, int] = {}
    frames = next(iter(trainers.values())).num_frames
    audits = {
        name: StepAudit(trainer, NOT_AUDITED, name=name, moves=False)
        for name, trainer in trainers.items()
    }
    names = list(trainers)
    begin, turn = time.perf_counter(), -2  # two turns warm up
    while turn < least or (
        time.perf_counter() - begin < budget_s and (most is None or turn < most)
    ):
        if turn == 0:
            for trainer in trainers.values():
                trainer.meter.reset()
        for name in names if turn % 2 == 0 else reversed(names):
            audits[name].between(len(losses[name]))
            before = _spent(trainers[name])
            start = time.perf_counter()
            loss = trainers[name].step((turn + 2) % frames)
            took = time.perf_counter() - start
            losses[name].append(loss)
            if turn >= 0:
                seconds[name].append(took)
                for part, total in _spent(trainers[name]).items():
                    found = parts[name].setdefault(part, [0.0] * turn)
                    found.append(total - before.get(part, 0.0))
        turn += 1
        if turn == least:  # the same frames in every run
            for name, trainer in trainers.items():
                sent[name] = trainer.meter.counters["bytes_h2d_counted"] // least
    for name, audit in audits.items():
        audit.finish(len(losses[name]))
    return Turns(seconds, sent, parts, losses, audits)


def _spent(trainer: Trainer) -> dict[str, float]:
    """Seconds so far by phase and by what else the meter was told of."""
    return {**trainer.meter.phases(), **trainer.meter.spent}


def turn_rounds(preset: Preset) -> int:
    """Rounds of a cell whose gains differ from process to process; a smoke run decides nothing."""
    return 1 if preset == "smoke" else 5

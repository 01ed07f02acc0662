"""The paper whose cells train cheats. A fork server finds it as `tests.cheats.paper`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

from dgbench.harness.plan import Plan
from dgbench.lab.experiment import Cell, Measurement, RunContext
from dgbench.systems.base import Experiment, Paper, Workload, race
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import System
from tests.cheats import PRESET, Cheat, ranks, streams
from tests.cheats.honest import CopiesTrainer, HonestSystem, system_of

HONEST = [
    Cheat("honest", HonestSystem),
    Cheat("copies", system_of(CopiesTrainer)),
    *streams.HONEST,
    *ranks.HONEST,
]
TASK = Workload(
    dataset="chickenpox", snapshots=24, frame=4, model="tgcn_model", feature_dim=4, hidden_dim=8
)
SMOKE_S = 0.01
"""Steady seconds of a process in preset smoke; the steps that audits need come on top."""


def ledger() -> list[Cheat]:
    """Cheats of all modules, behind the honest ones."""
    from tests.cheats import harness, training

    return [*HONEST, *training.LEDGER, *harness.LEDGER, *streams.LEDGER, *ranks.LEDGER]


class Cheats(Experiment):
    """Trains the system of a cheat as a race trains any system."""

    paper, name = "cheats", "training"
    title, question = "Cheats", "which of them keeps its row?"

    def cells(self, preset: str, device: str) -> list[Cell]:
        return cells(ledger())

    def run(self, cell: Cell, context: RunContext) -> Measurement:
        from tests.cheats.harness import ON_ONE_PROCESSOR

        every = [*ledger(), *ON_ONE_PROCESSOR]
        cheat = next(one for one in every if one.name in cell.params.values())
        if context.preset == "smoke":
            context = replace(context, budget_s=SMOKE_S)
        if cheat.trains is not None:
            return cheat.trains(cheat.plugin, context)
        return trained(cheat.plugin(), context)


def trained(system: System, context: RunContext) -> Measurement:
    """One process of a race on `TASK` by a system that is in no registry."""

    def named(name: str) -> System:
        return system if name == system.name else get_system(name)

    with mock.patch.object(race, "get_system", named):
        return race.timed(system.name, TASK, context)


def cells(cheats: Sequence[Cheat]) -> list[Cell]:
    """A cell of each cheat; those that bring a trainer alone do not race each other."""
    return [
        Cell(
            paper="cheats", experiment="training",
            params={"system" if one.trains is None else "case": one.name}, group=one.name,
            repeats=one.rounds, timeout_s=240.0,
        )
        for one in cheats
    ]  # fmt: skip


PAPER = Paper(
    name="cheats", title="Cheats", venue="nowhere", about="", system="honest",
    ledger=Path("none"), experiments=(Cheats(),), checks={},
)  # fmt: skip


def lookup(name: str) -> Paper:
    """The paper by its name, as a fork server asks for it."""
    return {PAPER.name: PAPER}[name]


def plan_of(cheats: Sequence[Cheat]) -> Plan:
    """The plan of the cells of some cheats."""

    class Some(Cheats):
        def cells(self, preset: str, device: str) -> list[Cell]:
            return cells(cheats)

    return Plan.build([replace(PAPER, experiments=(Some(),))], None, PRESET)

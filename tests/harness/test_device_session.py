"""The device session, rehearsed on an emulated clock: ordered, cut anywhere, resumed."""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from fake_papers import cell, make_paper

from dgbench.harness.device_session import CommandUnit, DeviceSession
from dgbench.harness.device_session.session import restore
from dgbench.harness.plan import Plan
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import InvalidInputError

LEDGER = """
- {id: fake-a, where: here, statement: One., kind: speedup, value: 2.0, needs: {gpus: 1}}
- {id: fake-b, where: here, statement: Two., kind: speedup, value: 2.0, needs: {gpus: 8}}
"""


@pytest.fixture
def paper(tmp_path):
    """Two groups of two contenders, three rounds each, and a cell that cannot start."""
    (tmp_path / "claims.yaml").write_text(LEDGER)
    cells = [
        cell("ok", repeats=3, group=group, system=system)
        for group in ("g1", "g2")
        for system in ("ours", "theirs")
    ]
    made = make_paper(*cells, cell("ok", group="g3", system="none", repeats=0))
    return replace(made, ledger=tmp_path / "claims.yaml")


def command(name: str, seconds: float = 30.0, answers: int = 1, **more) -> CommandUnit:
    return CommandUnit(
        name=name, about="", command=("true",), seconds=seconds, answers=answers, **more
    )


class Cut(Exception):
    """The machine is taken away."""


class EmulatedDevice:
    """Runs units on a clock of its own and writes their rows; is taken away at event `cut_at`."""

    def __init__(self, folder: Path, process_s: float = 2.0, cut_at: int = -1) -> None:
        self.folder, self.process_s, self.cut_at = folder, process_s, cut_at
        self.now, self.events = 1000.0, 0

    def clock(self) -> float:
        return self.now

    def event(self) -> None:
        if self.events == self.cut_at:
            raise Cut
        self.events += 1

    def run_command(self, unit: CommandUnit, seconds: float) -> int:
        """Three rows, each measured once, as the scripts with `Rows.kept` do."""
        path = self.folder / "rows" / f"{unit.name}.jsonl"
        for number in range(3):
            kept = path.read_text().splitlines() if path.exists() else []
            if any(json.loads(line)["id"] == number for line in kept):
                continue
            self.event()
            self.now += unit.seconds / 3
            with open(path, "a") as file:
                file.write(json.dumps({"id": number}) + "\n")
            self.event()
        return 0

    def run_experiment(self, plan: Plan, store: Store, keys, end: float) -> bool:
        kept = {(r.cell_hash, r.round, r.instrumented) for r in store.written()}
        for key in keys:
            for step in plan.steps:
                planned = plan.cells[step.index]
                mark = (planned.hash, step.round, step.instrumented)
                if plan.group_of(step) != key or mark in kept:
                    continue
                if self.now >= end:
                    return False
                self.event()
                self.now += self.process_s
                store.append(row_of(planned, step))
                self.event()
        return True


def row_of(planned, step) -> Row:
    cell_ = planned.cell
    return Row(
        id=f"{planned.hash[:8]}-r{step.round}", run="x", cell_hash=planned.hash, paper=cell_.paper,
        experiment=cell_.experiment, params=dict(cell_.params), group=cell_.group,
        round=step.round, device="cpu", preset="quick",
    )  # fmt: skip


def rehearsal(folder, paper, commands, device) -> DeviceSession:
    return DeviceSession(
        folder=folder, papers=[paper], commands=commands, device="cpu", commit="abc",
        clock=device.clock, run_command=device.run_command,
        run_experiment=device.run_experiment, say=lambda text: None,
    )  # fmt: skip


def measured(folder: Path) -> Counter:
    """Number of measurements of each process and of each command's row."""
    found: Counter = Counter()
    for run in (folder / "runs").glob("*/*/run.json"):
        for row in Store.open(run.parent).written(latest=False):
            found[row.cell_hash, row.round] += 1
    for path in (folder / "rows").glob("*.jsonl"):
        for line in path.read_text().splitlines():
            found[path.stem, json.loads(line)["id"]] += 1
    return found


def test_a_session_cut_at_any_point_loses_nothing_and_measures_nothing_twice(
    paper, tmp_path
) -> None:
    commands = [command("c1", stage="check"), command("c2")]
    whole = EmulatedDevice(tmp_path / "whole")
    assert rehearsal(tmp_path / "whole", paper, commands, whole).run(1000) == []
    wanted = measured(tmp_path / "whole")
    assert set(wanted.values()) == {1}
    assert len(wanted) == (2 * 2 + 1) * 3 + 2 * 3  # with the A/A control
    for cut_at in range(0, whole.events, 3):
        folder = tmp_path / f"cut{cut_at}"
        first = EmulatedDevice(folder, cut_at=cut_at)
        with pytest.raises(Cut):
            rehearsal(folder, paper, commands, first).run(1000)
        before = measured(folder)
        second = EmulatedDevice(folder)
        assert rehearsal(folder, paper, commands, second).run(1000) == []
        assert measured(folder) == wanted, cut_at
        assert sum(before.values()) == (cut_at + 1) // 2


def test_a_parcel_writes_nowhere_else(tmp_path) -> None:
    with tarfile.open(tmp_path / "p.tar.gz", "w:gz") as tar:
        entry = tarfile.TarInfo("../out")
        entry.size = 1
        tar.addfile(entry, io.BytesIO(b"x"))
    with pytest.raises(InvalidInputError):
        restore(tmp_path / "p.tar.gz", tmp_path / "s")
    assert not (tmp_path / "out").exists()

"""The device session: runs units until the time is over, and goes on in the next command.

Its folder holds all that is known: `session.json` (state of the commands), `rows/` (their JSON
lines), `runs/<paper>/` (one run of each paper), `logs/`. After every unit all of it is packed into
`session.tar.gz`, so that whatever comes back from a machine that is taken away is whole.
Groups of an experiment run one after the other, all rounds of each, so that a run that is cut has
whole ratios. A process is done when it has a row, a command when its status is kept.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.claims import evaluate
from dgbench.harness.device_session.units import (
    CommandUnit,
    ExperimentUnit,
    Unit,
    experiment_units,
    open_claims,
    ordered,
)
from dgbench.harness.plan import GroupKey, Plan, read_plan
from dgbench.harness.runner import Listener, run_plan
from dgbench.harness.runner.run import MACHINE
from dgbench.harness.store import LACKING, Row, Store, find_runs
from dgbench.harness.store.files import write_whole
from dgbench.runtime.documents import decode_json
from dgbench.runtime.errors import InvalidInputError, StoreError
from dgbench.runtime.statistics import median

RESERVE_S = 12.0
"""Seconds kept at the end of a command for the last row, the state and the parcel."""
MIN_UNIT_S = 10.0
"""Seconds that a unit must have to be begun."""
LOG_BYTES = 64 << 10
"""Of each log, the end is packed."""

RunCommand = Callable[[CommandUnit, float], int]
RunExperiment = Callable[[Plan, Store, Sequence[GroupKey], float], bool]


class CommandState(msgspec.Struct, kw_only=True):
    """Stored result of a command: `done`, `failed` or `cut`, its status and seconds."""

    state: str
    status: int = 0
    seconds: float = 0.0
    attempts: int = 1


class SessionState(msgspec.Struct, kw_only=True):
    """Contents of session.json."""

    commit: str
    device: str
    preset: str
    commands: dict[str, CommandState] = {}
    estimated_s: float = 0.0
    measured_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _PaperProgress:
    """Progress of a paper's run, from its rows; reread only after one of its experiments ran."""

    plan: Plan
    done: set[tuple[str, int, bool]]
    lacking: set[str]
    open_claims: set[str]


@dataclass
class DeviceSession:
    """A resumable series of measurements on one device.

    Attributes:
        folder: of the session; made where it is missing, read where it is not.
        papers: plugins whose experiments are measured. commands: what else is.
        device, preset: of the plans. gpus: devices here. commit: of the sources, kept with it.
        earlier: rows of other machines, from whose seconds a plan estimates those of an experiment.
        clock: seconds; run_command, run_experiment: how a unit runs, for tests.

    Raises:
        InvalidInputError: the folder holds a session of another commit, device or preset.
    """

    folder: Path
    papers: Sequence[Any]
    commands: Sequence[CommandUnit]
    device: str = "cuda"
    preset: str = "quick"
    gpus: int = 1
    commit: str = ""
    earlier: Sequence[Row] = ()
    clock: Callable[[], float] = time.monotonic
    run_command: RunCommand | None = None
    run_experiment: RunExperiment | None = None
    say: Callable[[str], None] = print
    state: SessionState = field(init=False)
    _progress: dict[str, _PaperProgress] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("rows", "runs", "logs"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        mine = SessionState(commit=self.commit, device=self.device, preset=self.preset)
        path = self.folder / "session.json"
        try:
            self.state = decode_json(path.read_bytes(), SessionState) if path.exists() else mine
        except msgspec.MsgspecError as error:
            raise StoreError(f"{path} is not the state of a session: {error}") from error
        for name in ("commit", "device", "preset"):
            found, wanted = getattr(self.state, name), getattr(mine, name)
            if found != wanted:
                raise InvalidInputError(
                    f"{self.folder} holds a session with {name} '{found}', this one has "
                    f"'{wanted}': begin another folder"
                )

    @property
    def pace(self) -> float:
        """Measured over estimated seconds of the groups so far, held within 0.3 to 4."""
        if self.state.estimated_s < 1:
            return 1.0
        return min(4.0, max(0.3, self.state.measured_s / self.state.estimated_s))

    def units(self) -> list[Unit]:
        """Units that are left to do, in order."""
        experiments: list[ExperimentUnit] = []
        for paper in self.papers:
            if paper.name not in self._progress:
                self._progress[paper.name] = self._read(paper)
            now = self._progress[paper.name]
            bears_on = {(paper.name, e.name): e.claims for e in paper.experiments}
            experiments += experiment_units(
                now.plan, now.done, bears_on, now.open_claims, self.pace, now.lacking
            )
        left = [
            unit
            for unit in self.commands
            if unit.id not in self.state.commands or self.state.commands[unit.id].state == "cut"
        ]
        return ordered(left, experiments)

    def run(self, seconds: float) -> list[Unit]:
        """Run units until `seconds` are over; what is left for the next command."""
        end = self.clock() + seconds - RESERVE_S
        done: set[str] = set()
        while True:
            left = [unit for unit in self.units() if unit.id not in done]
            unit = self._next(left, end - self.clock(), seconds - RESERVE_S)
            if unit is None:
                return left
            begin = self.clock()
            if isinstance(unit, CommandUnit):
                self._one_command(unit, end)
                done.add(unit.id)
            elif not self._one_experiment(unit, end):
                done.add(unit.id)  # nothing came of it: no second try in this call
            self._keep()
            self.say(f"{unit.id}: {self.clock() - begin:.0f} s, {end - self.clock():.0f} s left")

    def _next(self, left: Sequence[Unit], time_left: float, whole: float) -> Unit | None:
        """The first unit that fits; a command longer than a whole call has the call it begins."""
        if time_left < MIN_UNIT_S:
            return None
        for unit in left:
            if isinstance(unit, ExperimentUnit):
                return unit  # it stops at the end and goes on in the next call
            if unit.seconds <= time_left or time_left > 0.9 * whole:
                return unit
        return None

    def _one_command(self, unit: CommandUnit, end: float) -> None:
        begin = self.clock()
        status = (self.run_command or self.execute)(unit, end - begin)
        before = self.state.commands.get(unit.id)
        state = {0: "done", 124: "cut"}.get(status, "failed")
        self.state.commands[unit.id] = CommandState(
            state=state,
            status=status,
            seconds=self.clock() - begin + (before.seconds if before else 0.0),
            attempts=1 + (before.attempts if before else 0),
        )

    def _one_experiment(self, unit: ExperimentUnit, end: float) -> bool:
        """Run what is left of an experiment; whether a row was added."""
        paper = next(p for p in self.papers if p.name == unit.paper)
        begin = self.clock()
        self._progress.pop(unit.paper, None)
        with self._store(paper) as store:
            before = len(store.rows())
            run = self.run_experiment or self.measure
            finished = run(read_plan(store), store, unit.keys, end)
            added = len(store.rows()) - before
        if finished and added:
            self.state.estimated_s += unit.seconds / self.pace
            self.state.measured_s += self.clock() - begin
        return added > 0

    def execute(self, unit: CommandUnit, seconds: float) -> int:
        """Run a command with a limit; 124 where it ran past it. Its output goes to logs/."""
        rows = self.folder / "rows" / f"{unit.name}.jsonl"
        words = {
            "rows": str(rows.resolve()),
            "seconds": str(max(1, int(seconds - 5))),
            "python": sys.executable,
        }
        command = [part.format(**words) for part in unit.command]
        with open(self.folder / "logs" / f"{unit.name}.log", "ab") as log:
            child = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                return child.wait(timeout=seconds)
            except subprocess.TimeoutExpired:
                return 124
            finally:
                _end_group(child)

    def measure(self, plan: Plan, store: Store, keys: Sequence[GroupKey], end: float) -> bool:
        """Run groups of a plan in order until `end`; whether they came to their own end."""
        summary = run_plan(
            plan,
            store,
            groups=keys,
            until=lambda: self.clock() >= end,
            listener=_PackAfterGroup(self._keep),
        )
        return not summary.interrupted and not summary.trouble

    def _read(self, paper: Any) -> _PaperProgress:
        with self._store(paper) as store:
            plan, rows = read_plan(store), store.rows()
        return _PaperProgress(
            plan=plan,
            done={(r.cell_hash, r.round, r.instrumented) for r in rows},
            lacking={r.cell_hash for r in rows if r.status in LACKING},
            open_claims=set(open_claims(evaluate(paper, rows), self.gpus)),
        )

    def _store(self, paper: Any) -> Store:
        root = self.folder / "runs" / paper.name
        found = sorted(p.parent for p in root.glob("*/run.json"))
        if found:
            return Store.open(found[-1], writable=True)
        plan = Plan.build([paper], None, self.preset, self.device, gpus=self.gpus)
        self._lengthen(plan)
        settings = {"papers": [paper.name], "experiments": [], "command": "device session"}
        return Store.create(root, settings, plan)

    def _lengthen(self, plan: Plan) -> None:
        """No estimate below half of what an experiment's processes took on another machine.

        What takes turns inside one process, or prepares its data there, takes long anywhere.
        """
        seconds: dict[tuple[str, str], list[float]] = {}
        for row in self.earlier:
            if row.preset == self.preset and row.status == "ok":
                seconds.setdefault((row.paper, row.experiment), []).append(row.seconds)
        for planned in plan.cells:
            found = seconds.get((planned.cell.paper, planned.cell.experiment))
            if found and not planned.known:
                planned.estimate_s = max(planned.estimate_s, 0.5 * median(found))

    def _keep(self) -> None:
        write_whole(self.folder / "session.json", msgspec.json.encode(self.state))
        write_whole(self.folder / "session.tar.gz", packed(self.folder))


class _PackAfterGroup(Listener):
    """Packs the session whenever a group's last process has its row."""

    def __init__(self, pack: Callable[[], None]) -> None:
        self.pack = pack
        self.group = ""

    def on_start(self, cell: Any, round: int) -> None:
        if cell.paper == MACHINE.paper:
            return
        if self.group not in ("", cell.group):
            self.pack()
        self.group = cell.group


def kept_rows(folder: Path) -> list[Row]:
    """Rows of all kept runs below a folder."""
    return [row for path in find_runs(folder) for row in Store.open(path).rows()]


def packed(folder: Path) -> bytes:
    """A tar.gz of a session: state, rows and runs whole, of each log the end."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6) as tar:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not path.is_file() or path.is_symlink() or name.parts[0] in ("cache", "tmp"):
                continue
            if path.suffix == ".gz" or path.name.startswith("."):
                continue
            data = path.read_bytes()
            if "logs" in name.parts:
                data = data[-LOG_BYTES:]
            entry = tarfile.TarInfo(str(name))
            entry.size, entry.mtime, entry.mode = len(data), int(path.stat().st_mtime), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def restore(parcel: Path, folder: Path) -> None:
    """Unpack `session.tar.gz` into an empty or missing folder. Raises InvalidInputError."""
    if folder.exists() and any(folder.iterdir()):
        raise InvalidInputError(f"{folder} is not empty, a session is restored into an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(parcel, "r:gz") as tar:
            for entry in tar:
                target = folder / entry.name
                if not entry.isfile() or not target.resolve().is_relative_to(folder.resolve()):
                    raise InvalidInputError(f"{parcel}: '{entry.name}' is no file of a session")
                target.parent.mkdir(parents=True, exist_ok=True)
                source = tar.extractfile(entry)
                target.write_bytes(source.read() if source else b"")
    except (OSError, tarfile.TarError, EOFError) as error:
        raise InvalidInputError(f"{parcel} cannot be unpacked: {error}") from error


def _end_group(child: subprocess.Popen) -> None:
    """End all processes of a command that was cut or has ended."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()

"""The bench a fault is tried on: a folder, runners in processes of their own, and the checks."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import torch  # noqa: F401 - before any fork, or every cell would import it anew

import dgbench.datasets.store  # noqa: F401
from dgbench.harness.plan import Plan
from dgbench.harness.runner import Listener, client, run_plan, server
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import Cell
from tests.faults import checks, papers
from tests.faults.campaign import Report, Skipped, brief
from tests.faults.checks import Loss
from tests.faults.shim import STATE, Disk

PATIENCE_S = 60.0
"""Seconds after which a runner that does not end is a loss."""


class Runner:
    """A run in a process of its own, that tells what it does through a pipe.

    Attributes:
        pid: of the process, which leads a session of its own.
        events: what it told so far: `{"path"}`, `{"start", "number"}` when a cell begins,
            `{"row", "status"}` when its row is kept, `{"note"}`, `{"end", ...}`,
            `{"error", "hint"}`.
        code: exit code, or the negative number of a signal; None while it runs.
    """

    def __init__(self, pid: int, pipe: int, path: Path | None, root: Path) -> None:
        self.pid, self.pipe, self.root = pid, pipe, root
        self.events: list[dict[str, Any]] = []
        self.code: int | None = None
        self._path, self._text = path, b""

    @property
    def path(self) -> Path:
        """The run's folder."""
        if self._path is None:
            self._path = Path(self.until("path")["path"])
        return self._path

    @property
    def folder_or_none(self) -> Path | None:
        """The run's folder; None where it died before it had one that can be resumed."""
        found = (
            sorted(p.parent for p in self.root.glob("[!.]*/run.json")) if self._path is None else []
        )
        self._path = found[-1] if found else self._path
        return self._path

    def until(self, key: str, *, nth: int = 1, timeout_s: float = PATIENCE_S) -> dict[str, Any]:
        """Wait for the nth event that has `key`. Raises Loss where it does not come."""
        end = time.monotonic() + timeout_s
        while True:
            found = [e for e in self.events if key in e]
            if len(found) >= nth:
                return found[nth - 1]
            if not self._listen(end - time.monotonic()):
                raise Loss(f"'{key}' number {nth} never came; it said {self.events[-3:]}")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the runner alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def server(self, timeout_s: float = 10.0) -> int:
        """Number of its fork server, as soon as there is one."""
        return self._child(lambda: self.pid, timeout_s)

    def cell(self, timeout_s: float = 10.0) -> int:
        """Number of the cell's process that runs now, as soon as there is one."""
        return self._child(lambda: self.server(timeout_s), timeout_s)

    def _child(self, parent: Callable[[], int], timeout_s: float) -> int:
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            of, found = parent(), []
            with contextlib.suppress(OSError), open(f"/proc/{of}/task/{of}/children") as file:
                found = [int(pid) for pid in file.read().split()]
            if alive := [pid for pid in found if checks.living(pid)]:
                return alive[0]
            time.sleep(0.002)
        raise Loss(f"no process came up below it; it said {self.events[-3:]}")

    def wait(self, timeout_s: float = PATIENCE_S) -> Runner:
        """Wait for its end. Raises Loss (and kills it) where it hangs."""
        end = time.monotonic() + timeout_s
        while self._listen(min(0.05, end - time.monotonic())) or not self._gone():
            if time.monotonic() > end:
                self.kill()
                os.waitpid(self.pid, 0)
                self.code = -9
                raise Loss(f"the runner hung for {timeout_s:g} s; it said {self.events[-3:]}")
        while self._listen(0.0):
            pass
        return self

    @property
    def summary(self) -> dict[str, Any]:
        """What it said at its end. Raises Loss where it did not come to one."""
        found = [e for e in self.events if "end" in e]
        if not found:
            raise Loss(f"it has no summary, exit code {self.code}; it said {self.events[-3:]}")
        return found[-1]

    @property
    def error(self) -> str:
        """Message and hint of the error it ended with, "" without one."""
        found = [e for e in self.events if "error" in e]
        return f"{found[-1]['error']} {found[-1]['hint']}" if found else ""

    @property
    def notes(self) -> str:
        """All it noted, a line each."""
        return "\n".join(e["note"] for e in self.events if "note" in e)

    def rows(self, how: str | None = None) -> list[Row]:
        """Rows on disk now, in the order of writing; of one behaviour, or all."""
        found = Store.open(self.path).rows(latest=False)
        return [r for r in found if how is None or r.params.get("how") == how]

    def row(self, how: str) -> Row:
        """The last row of a behaviour. Raises Loss where there is none."""
        found = self.rows(how)
        if not found:
            raise Loss(f"there is no row of '{how}'; it ended with {self.code} {self.error}")
        return found[-1]

    @property
    def bytes(self) -> bytes:
        """rows.jsonl as it is now."""
        path = self.path / "rows.jsonl"
        return path.read_bytes() if path.exists() else b""

    def _listen(self, seconds: float) -> bool:
        """Take what has come; whether anything did before the time was over."""
        if self.pipe < 0 or not select.select([self.pipe], [], [], max(0.0, seconds))[0]:
            return False
        part = os.read(self.pipe, 1 << 16)
        if not part:
            os.close(self.pipe)
            self.pipe = -1
            return False
        *lines, self._text = (self._text + part).split(b"\n")
        self.events += [json.loads(line) for line in lines]
        return True

    def _gone(self) -> bool:
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.005)
        return self.code is not None


class Bench:
    """A fresh folder for one call of a kind's function.

    Attributes:
        folder: all of it. results: root of the runs. tmp: TMPDIR of every process started here.
        number: which call this is. rng: seeded generator. disk: the failing disk, or None.
    """

    def __init__(self, root: Path, report: Report, number: int, rng: random.Random) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=root, prefix="b"))
        self.results, self.tmp = self.folder / "results", self.folder / "t"
        self.tmp.mkdir()
        self.number, self.rng, self.report = number, rng, report
        self.disk = Disk(Path(os.environ[STATE])) if os.environ.get(STATE) else None
        self.runners: list[Runner] = []
        self.tidy: tuple[str, ...] = ()

    # what a case does

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """One injected fault with its checks; what is raised inside is a loss of its own."""
        self.report.injected += 1
        try:
            yield
        except Skipped:
            self.report.injected -= 1
            raise
        except Exception as error:
            self.report.losses.append(f"{name}: {brief(error)}")
        else:
            self.report.passed += 1

    def injected_nothing(self) -> None:
        """Inside a fault: it did not come to it; no loss as long as enough others did."""
        self.report.injected -= 1
        self.report.passed -= 1

    def skip(self, reason: str) -> NoReturn:
        """Leave this kind out here."""
        raise Skipped(reason)

    def remark(self, text: str) -> None:
        """Say under the table what stood in for what."""
        if text not in self.report.remarks:
            self.report.remarks.append(text)

    def start(
        self,
        cells: Sequence[Cell] = (),
        *,
        resume: Path | None = None,
        preset: str = "smoke",
        control: str = "none",
        real: bool = False,
        before: Callable[[], Any] | None = None,
        root: Path | None = None,
        **settings: Any,
    ) -> Runner:
        """Fork a runner of these cells, or one that goes on with the plan of a run.

        Args:
            real: start the fork server as users do (a new interpreter, seconds), not as a fork of
                this process (milliseconds).
            before: called in the runner's process before it touches the disk.
            root: where the run's folder is made, `bench.results` else.
            settings: of `run_plan`.
        """
        order = _Order(list(cells), resume, preset, control, root or self.results, settings)
        return self._fork(order.run, resume, root or self.results, before, real=real)

    def call(self, function: Callable[[], Any], before: Callable[[], Any] | None = None) -> Runner:
        """Call a function in a forked process, which a fault may end, and wait for its end."""

        def work(tell: Callable[..., None]) -> int:
            function()
            return 0

        return self._fork(work, None, self.results, before, real=True).wait()

    def _fork(
        self,
        work: Callable[[Callable[..., None]], int],
        path: Path | None,
        root: Path,
        before: Callable[[], Any] | None,
        *,
        real: bool,
    ) -> Runner:
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            _be_runner(self, theirs, work, real, before)
        os.close(theirs)
        self.runners.append(Runner(pid, ours, path, root))
        return self.runners[-1]

    def run(self, cells: Sequence[Cell] = (), **more: Any) -> Runner:
        """`start`, and wait for the end."""
        return self.start(cells, **more).wait()

    # what a case checks

    def named(self, row: Row, status: str, *words: str) -> None:
        """A row has this status, and its reason or notes contain the words."""
        self._count("reason")
        text = " ".join([row.reason, *row.notes])
        if row.status != status:
            raise Loss(f"status is '{row.status}' ({row.reason}), expected '{status}'")
        for word in words:
            if word not in text:
                raise Loss(f"the reason does not say '{word}': {text[:300]}")

    def said(self, text: str, *words: str) -> None:
        """A text that the user sees contains the words."""
        self._count("reason")
        for word in words:
            if word not in text:
                raise Loss(f"nobody says '{word}': {text[:300]!r}")

    def intact(self, before: bytes, runner: Runner) -> None:
        """Every complete row of `before` is still there."""
        self._count("rows")
        checks.rows_intact(before, runner.bytes)

    def resumed(self, runner: Runner, *, clean: bool = True, **more: Any) -> Runner:
        """Go on with a run on a good disk: it ends, keeps every row and has all of them.

        Args:
            clean: also no process and no temporary file is left.
        """
        if self.disk is not None:
            self.disk.disarm()
        before = runner.bytes
        again = self.run(resume=runner.path, **more)
        if again.error or again.code:
            raise Loss(f"the run does not resume (exit code {again.code}): {again.error}")
        self._count("resume")
        self.intact(before, again)
        plan = json.loads((runner.path / "plan.json").read_bytes())
        checks.every_step(checks.rows_sound(again.bytes), plan)
        state = json.loads((runner.path / "run.json").read_bytes())["state"]
        if state != "done":
            raise Loss(f"the resumed run says '{state}' of itself")
        if clean:
            self.clean()
        return again

    def clean(self) -> None:
        """No process that was started here lives, and no temporary file is left."""
        self.no_orphans()
        self._count("temporary")
        if found := checks.leftovers(self.results, self.tmp):
            raise Loss(f"{len(found)} temporary files are left: {', '.join(found[:6])}")

    def no_orphans_of(self, pid: int, patience_s: float = 3.0) -> None:
        """Nothing that the process `pid` started lives on, while its runner still does."""
        self._count("orphans")
        end = time.monotonic() + patience_s
        while found := [p for p, c in self._others() if "time.sleep(120)" in c]:
            if time.monotonic() > end:
                raise Loss(f"{len(found)} processes that {pid} has started are left")
            time.sleep(0.02)

    def no_orphans(self, patience_s: float = 3.0) -> None:
        """No process lives that was started here; those that are told to end may take a moment."""
        self._count("orphans")
        end = time.monotonic() + patience_s
        while found := self._others():
            if time.monotonic() > end:
                text = "; ".join(f"{pid} {command}" for pid, command in found[:4])
                raise Loss(f"{len(found)} processes are left: {text}")
            time.sleep(0.02)

    def end(self) -> None:
        """Look for what is left, end it, and remove the folder."""
        if self.disk is not None:
            self.disk.disarm()
        for runner in self.runners:
            if runner.code is None:
                runner.kill()
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(runner.pid, 0)
            if runner.pipe >= 0:
                os.close(runner.pipe)
        try:
            if not self.report.skipped:
                self.clean()
        except Loss as loss:
            self.report.losses.append(f"after it all: {loss}")
        for pid, _ in self._others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _others(self) -> list[tuple[int, str]]:
        keep = {os.getpid(), os.getppid()} | {r.pid for r in self.runners if r.code is None}
        return checks.marked(os.environ[checks.MARK], keep)

    def _count(self, what: str) -> None:
        self.report.checked[what] = self.report.checked.get(what, 0) + 1


class _Teller(Listener):
    def __init__(self, tell: Callable[..., None]) -> None:
        self.tell, self.number = tell, 0

    def on_start(self, cell: Cell, round: int) -> None:
        self.number += 1
        self.tell(start=cell.params.get("how", cell.experiment), number=self.number)

    def on_row(self, row: Row) -> None:
        self.tell(row=row.id, status=row.status)

    def on_note(self, text: str) -> None:
        self.tell(note=text)


@dataclass(frozen=True, slots=True)
class _Order:
    """What a forked runner shall run."""

    cells: list[Cell]
    resume: Path | None
    preset: str
    control: str
    root: Path
    settings: dict[str, Any]

    def run(self, tell: Callable[..., None]) -> int:
        """Do as `dgbench run` does; returns its exit code."""
        if self.resume is None:
            paper = papers.make_paper(*self.cells)
            plan = Plan.build([paper], None, self.preset, control=self.control)
            store = Store.create(self.root, {"papers": ["faulty"], "experiments": []}, plan)
        else:
            store = Store.open(self.resume, writable=True)
            plan = msgspec.convert(store.read_plan(), Plan)
        given = {"limits": False, "modules": (), "threads": 1, "lookup": papers.lookup}
        with store:
            tell(path=str(store.path))
            summary = run_plan(plan, store, listener=_Teller(tell), **{**given, **self.settings})
        tell(
            end=summary.sentence,
            interrupted=summary.interrupted,
            trouble=summary.trouble,
            rows=summary.rows,
            kept=summary.kept,
            restarts=summary.restarts,
        )
        return 130 if summary.interrupted else int(bool(summary.trouble))


def _be_runner(
    bench: Bench,
    pipe: int,
    work: Callable[[Callable[..., None]], int],
    real: bool,
    before: Callable[[], Any] | None,
) -> NoReturn:
    """The forked process: run, tell, leave without a look back."""

    def tell(**event: Any) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(bench.folder / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = str(bench.tmp)
        tempfile.tempdir = None
        gc.freeze()
        if not real:
            client.subprocess = _Subprocess  # type: ignore[assignment]
        if before is not None:
            before()
        code = work(tell)
    except DgbenchError as error:
        tell(error=str(error), hint=error.hint)
        code = 2
    except KeyboardInterrupt:
        code = 130
    except BaseException as error:
        traceback.print_exc()
        with contextlib.suppress(OSError):
            tell(error=f"{type(error).__name__}: {error}", hint="a traceback")
        code = 70
    finally:
        os._exit(code)


class _ForkedServer:
    """Stands in for `subprocess.Popen` of a fork server: a fork of this process, ready at once."""

    def __init__(
        self, command: list[str], *, pass_fds: list[int], stdout: Any, **more: Any
    ) -> None:
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid:
            return
        try:
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(stdout.fileno(), 1)
            os.dup2(stdout.fileno(), 2)
            keep = pass_fds[0]
            os.closerange(3, keep)
            os.closerange(keep + 1, 1 << 12)
            os.environ.update(more.get("env") or {})
            tempfile.tempdir = None
            server.warm_up = lambda notes: None  # the cells here need no system
            server.main(keep)
        finally:
            os._exit(0)

    def poll(self) -> int | None:
        if self.returncode is None:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout if timeout is not None else 1e9)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("fork server", timeout or 0.0)
            time.sleep(0.002)
        return self.returncode or 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class _Subprocess:
    """What the runner uses of the module `subprocess`."""

    Popen = _ForkedServer
    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

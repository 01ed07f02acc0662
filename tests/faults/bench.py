"""The bench a fault is tried on: a folder, runners in processes of their own, and the checks."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from dgbench.harness.store import Row
from dgbench.systems.base import Cell
from tests.faults import checks
from tests.faults.campaign import Report, Sampled, Skipped, brief
from tests.faults.checks import Loss
from tests.faults.forked import Order, be_runner
from tests.faults.runner import Runner
from tests.faults.shim import STATE, Disk


class Bench:
    """A fresh folder for one call of a kind's function.

    Attributes:
        folder: all of it. results: root of the runs. tmp: TMPDIR of every process started here.
        number: which call this is. rng: seeded generator. disk: the failing disk, or None.
        quick: end the kind before its second fault.
    """

    def __init__(
        self, root: Path, report: Report, number: int, rng: random.Random, *, quick: bool = False
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=root, prefix="b"))
        self.results, self.tmp = self.folder / "results", self.folder / "t"
        self.tmp.mkdir()
        self.number, self.rng, self.report, self.quick = number, rng, report, quick
        self.disk = Disk(Path(os.environ[STATE])) if os.environ.get(STATE) else None
        self.runners: list[Runner] = []

    # what a case does

    @contextlib.contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """One injected fault with its checks; what is raised inside is a loss of its own."""
        if self.quick and self.report.injected:
            raise Sampled
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
        root = root or self.results
        order = Order(list(cells), resume, preset, control, root, settings)
        ours, theirs = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        if (pid := os.fork()) == 0:
            os.close(ours)
            be_runner(self.folder, self.tmp, theirs, order, real, before)
        os.close(theirs)
        self.runners.append(Runner(pid, ours, resume, root))
        return self.runners[-1]

    def run(self, cells: Sequence[Cell] = (), **more: Any) -> Runner:
        """`start`, and wait for the end."""
        return self.start(cells, **more).wait()

    # what a case checks

    def named(self, row: Row, status: str, *words: str) -> None:
        """A row has this status, and its reason or notes contain the words."""
        text = " ".join([row.reason, *row.notes])
        if row.status != status:
            raise Loss(f"status is '{row.status}' ({row.reason}), expected '{status}'")
        for word in words:
            if word not in text:
                raise Loss(f"the reason does not say '{word}': {text[:300]}")

    def said(self, text: str, *words: str) -> None:
        """A text that the user sees contains the words."""
        for word in words:
            if word not in text:
                raise Loss(f"nobody says '{word}': {text[:300]!r}")

    def intact(self, before: bytes, runner: Runner) -> None:
        """Every complete row of `before` is still there."""
        checks.rows_intact(before, runner.bytes)

    def resumed(self, runner: Runner, **more: Any) -> Runner:
        """Go on with a run on a good disk: it ends, keeps every row, has all of them and leaves no
        process and no temporary file."""
        if self.disk is not None:
            self.disk.disarm()
        before = runner.bytes
        again = self.run(resume=runner.path, **more)
        if again.error or again.code:
            raise Loss(f"the run does not resume (exit code {again.code}): {again.error}")
        self.intact(before, again)
        plan = json.loads((runner.path / "plan.json").read_bytes())
        checks.every_step(checks.rows_sound(again.bytes), plan)
        state = json.loads((runner.path / "run.json").read_bytes())["state"]
        if state != "done":
            raise Loss(f"the resumed run says '{state}' of itself")
        self.clean()
        return again

    def clean(self) -> None:
        """No process that was started here lives, and no temporary file is left."""
        self.no_orphans()
        if found := checks.leftovers(self.results, self.tmp):
            raise Loss(f"{len(found)} temporary files are left: {', '.join(found[:6])}")

    def no_orphans(self, patience_s: float = 20.0, *, words: str = "") -> None:
        """No process lives that was started here (and whose command has these words); those that
        are told to end may take a moment."""
        end = time.monotonic() + patience_s
        while left := [f"{pid} {command}" for pid, command in self._others() if words in command]:
            if time.monotonic() > end:
                raise Loss(f"{len(left)} processes are left: {'; '.join(left[:4])}")
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

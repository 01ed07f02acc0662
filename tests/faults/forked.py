"""Forked runner and fork server: processes that are ready at once, in place of new interpreters."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
import torch  # noqa: F401 - before any fork, or every cell would import it anew

import dgbench.datasets.store  # noqa: F401
from dgbench.harness.plan import Plan
from dgbench.harness.runner import Listener, client, run_plan, server
from dgbench.harness.store import Row, Store
from dgbench.runtime.errors import DgbenchError
from dgbench.systems.base import Cell
from tests.faults import papers


class ForkedServer:
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
class Order:
    """Arguments of a forked runner."""

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
        tell(end=summary.sentence, trouble=summary.trouble, rows=summary.rows)
        return 130 if summary.interrupted else int(bool(summary.trouble))


def be_runner(
    folder: Path, tmp: Path, pipe: int, order: Order, real: bool, before: Callable[[], Any] | None
) -> NoReturn:
    """The forked process: run, tell, leave without a look back."""

    def tell(**event: Any) -> None:
        os.write(pipe, json.dumps(event).encode() + b"\n")

    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(folder / "runner.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = str(tmp)
        # what torch compiles is shared by all runs of a user, so it is no leftover of this one
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "torchinductor")
        tempfile.tempdir = None
        gc.freeze()
        if not real:
            client.subprocess = SimpleNamespace(  # type: ignore[assignment]
                Popen=ForkedServer, DEVNULL=subprocess.DEVNULL,
                TimeoutExpired=subprocess.TimeoutExpired,
            )  # fmt: skip
        if before is not None:
            before()
        code = order.run(tell)
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

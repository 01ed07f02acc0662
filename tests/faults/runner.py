"""A run in a process of its own, as the bench sees it from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dgbench.harness.store import Row, Store
from tests.faults import checks
from tests.faults.checks import Loss

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
        return child(lambda: self.pid, timeout_s)

    def cell(self, timeout_s: float = 10.0) -> int:
        """Number of the cell's process that runs now, as soon as there is one.

        It leads a session; what the fork server starts while it loads does not.
        """
        return child(lambda: self.server(timeout_s), timeout_s, leads=True)

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
        """Summary that it sent at its end. Raises Loss where it did not come to one."""
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
        found = Store.open(self.path).written(latest=False)
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


def child(parent: Callable[[], int], timeout_s: float, *, leads: bool = False) -> int:
    """A living process that another started (`leads`: and that leads a session), as soon as there
    is one. Raises Loss where none comes up."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        of = parent()
        with contextlib.suppress(OSError), open(f"/proc/{of}/task/{of}/children") as file:
            for pid in map(int, file.read().split()):
                if checks.living(pid) and (not leads or _leads_session(pid)):
                    return pid
        time.sleep(0.002)
    raise Loss("no process came up below it")


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False

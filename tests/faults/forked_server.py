"""A fork server that is a fork of this process, ready at once, in place of a new interpreter."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import Any

from dgbench.harness.runner import server


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


class Subprocess:
    """Part of the module `subprocess` that the runner uses."""

    Popen = ForkedServer
    DEVNULL = subprocess.DEVNULL
    TimeoutExpired = subprocess.TimeoutExpired

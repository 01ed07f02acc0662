"""The runner's side of the fork server: start it, give it a job, hold the job to its limits."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from dgbench.harness.probes.cpu import Tree, TreeTime, memory_kills
from dgbench.harness.probes.scheduling import KeptScheduling, SchedulingWatch
from dgbench.harness.probes.series import Recording
from dgbench.harness.runner.protocol import (
    Ended,
    Job,
    Loading,
    Ready,
    Refused,
    Setup,
    Started,
    name_of,
    receive,
    send,
    signal_name,
)
from dgbench.harness.runner.scratch import Scratch
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.threads import cores

MODULES = (
    "torch",
    "torch_geometric",
    "torch_geometric.nn",
    "torch._dynamo",  # torch's optimisers import it at their first step: 1.1 s of processor time
    "numpy",
    "scipy.sparse",
    "psutil",
)
"""Imported before the first fork; what is missing or broken is left to the cells that need it."""

TICK_S = 0.02
"""Seconds between looks at a running process's memory and age."""

CROWDED = 4.0
"""Most times its limit that a process may run where others wait for the same cores."""

GRACE_S = 0.3
"""Seconds between SIGTERM and SIGKILL."""

LOG_BYTES = 256 << 20
"""Most bytes that a process may print; one that never stops would fill the disk."""

STUCK_S = 10.0
"""Seconds after which a killed process that does not go away is given up."""

STOP_S = 0.5
"""Seconds, after a signal that ends the run, that a killed process and its server have to end by
themselves: batch systems wait for two in all."""

START_S = 120.0
"""Seconds the server may take to import one thing."""

CULPRITS = 8
"""Most things that may end the server while they are loaded before it is given up."""

_CODE = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); " + (
    "from dgbench.harness.runner.server import main; main(int(sys.argv[1]))"
)


def crowding() -> float:
    """Runnable processes per core in the last minute, between 1 and `CROWDED`."""
    try:
        return min(CROWDED, max(1.0, os.getloadavg()[0] / cores()))
    except OSError:  # no such number here
        return 1.0


class ServerDied(Exception):
    """The fork server is gone; it can be started again."""


class Stopped(Exception):
    """The run was asked to stop; the process that ran was killed."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """End of a process.

    Attributes:
        ended: what the server saw.
        killed: "" or why it was: `time`, `oom`, `log`, or `system` where Linux was out of memory.
        peak_bytes: largest memory of its tree. limit_bytes: its limit.
        processes: most processes of its tree at once.
        threads: of each process, as it was asked. doubts: what it did to be faster than its rivals.
    """

    ended: Ended
    killed: str
    peak_bytes: int
    limit_bytes: int
    processes: int
    threads: int = 0
    doubts: list[str] = field(default_factory=list)


class ForkServer:
    """A running fork server.

    Attributes:
        pid: of the process that cells are forks of. seconds: it took to start. notes: what it could
            not import ahead.
    """

    def __init__(
        self,
        lookup: Callable[[str], Any],
        papers: list[str],
        *,
        threads: int,
        log: Path,
        modules: tuple[str, ...] = MODULES,
        mark: str = "",
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start a server and wait until it can fork.

        Args:
            lookup: module-level function from a paper's name to its `Paper`.
            papers, modules: loaded before the first fork.
            threads: OpenMP threads of the cells. log: what the server itself prints.
            mark: of all its processes, see `scratch`; one of its own where none is given.
            stop: asked while the server loads; True ends it.

        Raises:
            DgbenchError: it does not start; the message says why.
            Stopped: `stop` said so.
        """
        name, file = name_of(lookup)
        setup = Setup(lookup=name, file=file, papers=papers, modules=list(modules))
        self.current = 0
        self.ready = False
        self.scheduling = KeptScheduling()
        self.scratch = Scratch(mark or uuid.uuid4().hex[:16])
        notes: list[str] = []
        while True:
            self._launch(threads, log)
            answer, culprit = self._prepare(setup, stop)
            if isinstance(answer, Ready):
                self.ready = True
                self.seconds, self.threads, self.pid = answer.seconds, answer.threads, answer.pid
                self.notes = notes + answer.notes
                return
            self.close()
            if isinstance(answer, Refused) or not culprit or len(notes) == CULPRITS:
                break
            how = "took too long" if answer else _how(self.process.returncode)
            notes.append(f"{culprit} was not loaded ahead: the fork server {how} over it")
            setup = msgspec.structs.replace(setup, without=[*setup.without, culprit])
        why = answer.reason if isinstance(answer, Refused) else f"see {log}"
        raise DgbenchError(f"the fork server does not start: {why}", hint=f"its log: {log}")

    def _launch(self, threads: int, log: Path) -> None:
        """Start the process and connect to it."""
        ours, theirs = socket.socketpair()
        environment = {
            **os.environ,
            # Read when the libraries are loaded; the cells inherit what the server has loaded.
            "OMP_NUM_THREADS": str(threads),
            "MKL_NUM_THREADS": str(threads),
            # numpy's OpenBLAS would start its threads at import, and threads do not fork.
            "OPENBLAS_NUM_THREADS": "1",
            # Asking whether there is a GPU would leave traces of CUDA that a child cannot use.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "JE_ARROW_MALLOC_CONF": "background_thread:false",  # so would pyarrow's allocator
            **self.scratch.make(),
        }
        with open(log, "ab") as file_log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(theirs.fileno()), json.dumps(_search_path())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file_log,
                stderr=file_log,
                env=environment,
                start_new_session=True,
            )
        theirs.close()
        self.sock = ours

    def _prepare(self, setup: Setup, stop: Callable[[], bool]) -> tuple[Any, str]:
        """Let the server load what `setup` says.

        Returns:
            Its answer (None where it is gone, a Loading where it hangs), and what it was loading.
        """
        last = None
        try:
            send(self.sock, setup)
            while True:
                self._await_message(stop)
                if not isinstance(found := receive(self.sock), Loading):
                    break
                last = found
        except TimeoutError:
            found = last
        except OSError:
            found = None
        except BaseException:
            self.close()
            raise
        return found, last.what if last is not None else ""

    def _await_message(self, stop: Callable[[], bool]) -> None:
        """Wait until the loading server says something. Raises TimeoutError, Stopped."""
        end = time.monotonic() + START_S
        while not select.select([self.sock], [], [], TICK_S)[0]:
            if stop():
                raise Stopped
            if time.monotonic() > end:
                raise TimeoutError

    def run(
        self,
        job: Job,
        *,
        timeout_s: float,
        limit_bytes: int,
        stop: Callable[[], bool] = lambda: False,
        watch: bool = True,
        recording: Recording | None = None,
    ) -> ProcessExit:
        """Run one job to its end.

        Args:
            timeout_s: wall-clock limit, stretched by `crowding`.
            limit_bytes: memory limit of its process tree.
            stop: asked on every tick; True kills the process. watch: False leaves memory alone.
            recording: takes memory and processor time of the tree over time.

        Raises:
            ServerDied: the server is gone, and the process with it.
            Stopped: `stop` said so, or Ctrl-C came.
        """
        self.current = 0
        try:
            return self._run(job, timeout_s, limit_bytes, stop, watch, recording)
        except KeyboardInterrupt:
            self._kill_current(STOP_S)
            raise Stopped from None

    def _run(
        self,
        job: Job,
        timeout_s: float,
        limit_bytes: int,
        stop: Callable[[], bool],
        watch: bool,
        recording: Recording | None,
    ) -> ProcessExit:
        self.scheduling.note((os.getpid(), self.pid))
        try:
            send(self.sock, job)
        except OSError as error:
            raise ServerDied from error
        started = self._receive()
        if not isinstance(started, Started):
            raise ServerDied
        self.current = started.pid
        tree = Tree(started.pid)
        busy = TreeTime(tree, started.at)
        scheduling = SchedulingWatch(self.scheduling.first)
        short_before = memory_kills()
        if recording is not None:
            recording.begin = started.at
            recording.limits["memory"] = float(limit_bytes)
        begin, killed = time.monotonic(), ""
        while True:
            if select.select([self.sock], [], [], TICK_S)[0]:
                ended = self._receive()
                break
            if stop():
                self._kill_current(STOP_S)
                raise Stopped
            if watch:
                scheduling.look(tree.last)
                held, now = tree.rss(), time.monotonic()
                if recording is not None and held:
                    recording.add("memory", now, held)
                    if (percent := busy.percent(now)) is not None:
                        recording.add("cpu", now, percent)
            if watch and held > limit_bytes:
                killed = "oom"
            elif (age := time.monotonic() - begin) > timeout_s and age > timeout_s * crowding():
                killed = "time"
            elif _size(job.log) > LOG_BYTES:
                killed = "log"
            if killed:
                ended = self._kill_current()
                break
        self.current = 0
        if not isinstance(ended, Ended):
            raise ServerDied
        if not killed and ended.code == -signal.SIGKILL and memory_kills() > short_before:
            killed = "system"
        peak = max(tree.peak_bytes, ended.peak_rss_bytes)
        doubts = [f"it {words}" for words in scheduling.seen]
        said, whole = self.scheduling.settle()
        if not whole:
            self.close()  # a new one has the priority of the runner
        return ProcessExit(
            ended, killed, peak, limit_bytes, tree.processes, job.threads,
            doubts + [f"it {words}" for words in said],
        )  # fmt: skip

    def _kill_current(self, patience_s: float = STUCK_S) -> Ended | None:
        """End the running process and all below it; waits until the server has seen it."""
        if not self.current:
            return None
        pids = Tree(self.current).pids()
        # Memory that is running out leaves no time to be polite; 0.3 s is short enough.
        _signal_all(self.current, pids, signal.SIGTERM)
        if not select.select([self.sock], [], [], GRACE_S)[0]:
            _signal_all(self.current, [*pids, *Tree(self.current).pids()], signal.SIGKILL)
        else:
            _signal_all(0, pids[1:], signal.SIGKILL)  # those in groups of their own
        if not select.select([self.sock], [], [], patience_s)[0]:
            # Stuck in the kernel (a driver, a dead disk): leave it behind with its server.
            stuck, self.current = self.current, 0
            self.process.kill()
            return Ended.of_stuck(stuck)
        ended = self._receive()
        self.current = 0
        return ended if isinstance(ended, Ended) else None

    def _receive(self) -> Any:
        try:
            return receive(self.sock)
        except OSError:
            return None

    def close(self) -> None:
        """End the server and what it runs; may be called twice."""
        with contextlib.suppress(OSError):
            self.sock.close()
        if not self.ready:  # it imports, and would look at its socket much later
            self.process.kill()
        try:
            self.process.wait(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.scratch.sweep()  # what was below a server that died is nobody's child now

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _how(code: int | None) -> str:
    """Describe a server's end in words."""
    if code is not None and code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"ended with exit code {code}"


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _signal_all(group: int, pids: list[int], number: signal.Signals) -> None:
    if group:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _search_path() -> list[str]:
    return [os.path.abspath(entry or os.getcwd()) for entry in sys.path]

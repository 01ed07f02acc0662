"""The fork server: a process that has imported everything and started nothing.

Importing torch and torch-geometric takes seconds; a fork of a process that has them takes
milliseconds. For the children to be sound, the server must never start a thread (OpenMP's pool
does not survive a fork) and never touch a device (a CUDA context does not either). So it only
imports, waits, forks and reaps.

It runs as `python -c "... main(descriptor)"` in a session of its own, so that Ctrl-C reaches the
runner alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from dgbench.harness.runner.child import run_child
from dgbench.harness.runner.protocol import (
    Ended,
    Job,
    Ready,
    Refused,
    Setup,
    Start,
    Started,
    receive,
    send,
)
from dgbench.runtime.cuda_driver import driver_awake

START: Final = "DGBENCH_START"
"""Environment variable that holds a `Start` for a process that takes this one's place."""

NEEDED: Final = ("torch", "numpy", "scipy.sparse", "psutil")
"""What a server that starts again imports ahead: nothing that wakes a driver."""

_AGAIN: Final = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); " + (
    "from dgbench.harness.runner import server; server.{}(int(sys.argv[1]))"
)


def main(descriptor: int) -> None:
    """Serve until the runner closes its end."""
    sock = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    start = time.perf_counter()
    again = os.environ.pop(START, None)
    notes: list[str] = []
    if again:
        before = msgspec.json.decode(again, type=Start)
        setup, notes = before.setup, before.notes
    else:
        setup = receive(sock)
        if not isinstance(setup, Setup):
            return
    try:
        lookup, culprit = _load(setup, notes, careful=bool(again))
    except ImportError as error:
        send(sock, Refused(reason=f"cannot import {setup.lookup}: {error}"))
        return
    if culprit and not again:
        notes = [f"the CUDA driver was woken by {culprit}: less is imported ahead"]
        replace("main", descriptor, Start(setup=setup, notes=notes))
    if culprit:
        notes.append(f"and then by {culprit}: every process imports all for itself")
    gc.collect()
    gc.freeze()  # or a child's first collection would copy every page it looks at
    send(sock, Ready(seconds=time.perf_counter() - start, threads=count_threads(), notes=notes))
    _Server(sock, lookup, fresh=setup if culprit else None).serve()


def _load(setup: Setup, notes: list[str], *, careful: bool) -> tuple[Callable[[str], Any], str]:
    """Import ahead; returns the lookup, and what was loaded when the driver woke, or ""."""
    culprit = ""
    for name in setup.modules:
        if careful and name not in NEEDED:
            continue
        try:
            importlib.import_module(name)
        except Exception as error:  # an optional package may fail in any way
            notes.append(f"{name} was not imported ahead: {type(error).__name__}: {error}")
        culprit = culprit or (name if driver_awake() else "")
    try:
        lookup = find_lookup(setup.lookup, setup.file)
    except Exception as error:
        raise ImportError(str(error)) from error
    for name in setup.papers:
        try:
            lookup(name)
        except Exception as error:  # its cells will say so, each in its row
            notes.append(f"paper {name} was not loaded ahead: {type(error).__name__}: {error}")
        culprit = culprit or (f"paper {name}" if driver_awake() else "")
    if not careful:
        warm_up(notes)
        culprit = culprit or ("a system" if driver_awake() else "")
    return lookup, culprit


def replace(function: str, descriptor: int, start: Start) -> None:
    """Become a new process that runs a function of this module; does not return."""
    if descriptor >= 0:
        os.set_inheritable(descriptor, True)
    environment = os.environ | {START: msgspec.json.encode(start).decode()}
    code = [sys.executable, "-c", _AGAIN.format(function), str(descriptor), json.dumps(sys.path)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, code, environment)


def fresh(_: int) -> None:
    """A child that has started over: run its cell."""
    start = msgspec.json.decode(os.environ.pop(START), type=Start)
    die_with_parent()
    run_child(start.job, find_lookup(start.setup.lookup, start.setup.file))


def warm_up(notes: list[str]) -> None:
    """Load what nearly every cell would load again: the systems and the catalogue of datasets."""
    from dgbench import datasets
    from dgbench.systems.base import Broken, find_system, system_names

    for name in system_names():
        found = find_system(name)
        if isinstance(found, Broken):
            notes.append(f"system {name} was not loaded ahead: {found.reason}")
    try:
        datasets.cards()
    except Exception as error:  # the cells that need a card will say so
        notes.append(f"the datasets' cards were not read ahead: {error}")


def find_lookup(name: str, file: str) -> Callable[[str], Any]:
    """The function `module:name`, by import or, failing that, from its file."""
    module_name, _, attribute = name.partition(":")
    module = None
    if module_name != "__main__":
        with contextlib.suppress(ImportError):
            module = importlib.import_module(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location("dgbench_lookup", file)
        if spec is None or spec.loader is None:
            raise ImportError(f"no module {module_name} and no file {file}")
        module = importlib.util.module_from_spec(spec)
        sys.modules["dgbench_lookup"] = module
        spec.loader.exec_module(module)
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def count_threads() -> int:
    """Threads of this process, 0 where the system does not say."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 0


class _Server:
    """Forks one child at a time and reports its end."""

    def __init__(
        self, sock: socket.socket, lookup: Callable[[str], Any], *, fresh: Setup | None = None
    ) -> None:
        """With `fresh` every child starts a new interpreter."""
        self.sock, self.lookup, self.fresh = sock, lookup, fresh
        self.pid, self.start = 0, 0.0
        self.wake_read, self.wake_write = os.pipe()
        for descriptor in (self.wake_read, self.wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def serve(self) -> None:
        try:
            while True:
                ready, _, _ = select.select([self.sock, self.wake_read], [], [])
                if self.wake_read in ready:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake_read, 4096)
                    self._reap()
                if self.sock in ready:
                    job = receive(self.sock)
                    if not isinstance(job, Job):
                        return
                    self._fork(job)
        except OSError:
            return  # the runner is gone
        finally:
            if self.pid:
                _kill_group(self.pid)

    def _fork(self, job: Job) -> None:
        self.start, at = time.perf_counter(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_child()
                if self.fresh is not None:
                    replace("fresh", -1, Start(setup=self.fresh, job=job))
                run_child(job, self.lookup)
            finally:
                os._exit(70)  # run_child ends the process itself; this is for what it cannot
        self.pid = pid
        send(self.sock, Started(pid=pid, at=at))

    def _become_child(self) -> None:
        signal.set_wakeup_fd(-1)
        for name in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with contextlib.suppress(OSError):
            os.setsid()
        die_with_parent()
        self.sock.close()
        os.close(self.wake_read)
        os.close(self.wake_write)

    def _reap(self) -> None:
        if not self.pid:
            return
        if hasattr(os, "waitid"):
            # Look without reaping: the number stays taken while its group is cleared away.
            look = os.WEXITED | os.WNOHANG | os.WNOWAIT
            if os.waitid(os.P_PID, self.pid, look) is None:
                return
            seconds = time.perf_counter() - self.start
            _kill_group(self.pid)  # what it left behind must not disturb the next process
            _, status, usage = os.wait4(self.pid, 0)
        else:
            gone, status, usage = os.wait4(self.pid, os.WNOHANG)
            if not gone:
                return
            seconds = time.perf_counter() - self.start
            _kill_group(self.pid)
        scale = 1 if sys.platform == "darwin" else 1024
        ended = Ended(
            pid=self.pid,
            code=os.waitstatus_to_exitcode(status),
            seconds=seconds,
            peak_rss_bytes=usage.ru_maxrss * scale,
            cpu_s=usage.ru_utime + usage.ru_stime,
            voluntary=usage.ru_nvcsw,
            involuntary=usage.ru_nivcsw,
            read_bytes=usage.ru_inblock * 512,
            written_bytes=usage.ru_oublock * 512,
        )
        self.pid = 0
        send(self.sock, ended)


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent ends; elsewhere this does nothing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

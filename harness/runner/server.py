"""The fork server: a process that has imported all of dgbench's own and started nothing.

Importing torch and torch-geometric takes seconds; a fork of a process that has them takes
milliseconds. For the children to be sound, the server must never start a thread (OpenMP's pool
does not survive a fork) and never touch a device (a CUDA context does not either). So it only
imports, waits, forks and reaps. What third parties have written is imported after the fork, by the
cells that name it.

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

from dgbench.harness.probes.cpu import Tree, cpu_seconds
from dgbench.harness.runner.child import run_child
from dgbench.harness.runner.protocol import (
    LEFT_WORK_S,
    Ended,
    Job,
    Loading,
    Ready,
    Refused,
    Setup,
    Start,
    Started,
    receive,
    send,
)
from dgbench.harness.runner.readable import describe, message
from dgbench.harness.runner.scratch import empty, leave
from dgbench.harness.signals import die_with_parent
from dgbench.runtime.cuda_driver import driver_awake, left_asleep
from dgbench.systems.base import System
from dgbench.systems.base.registry import (
    PAPERS,
    SYSTEMS,
    Broken,
    find_system,
    system_names,
    third_party,
)

START: Final = "DGBENCH_START"
"""Environment variable that holds a `Start` for a process that takes this one's place."""

STRAYS_S, STUCK_S = 0.1, 2.0
"""Seconds that what a cell left behind has to end by itself, and then to be gone once killed."""

WORKING_S: Final = 3.0
"""Seconds that what a cell left behind is watched at most, where it works."""

NEEDED: Final = ("torch", "numpy", "scipy.sparse", "psutil")
"""Modules that a restarted server imports ahead: none that initialises a driver."""

_AGAIN: Final = "import sys, json; sys.path[:] = json.loads(sys.argv[2]); " + (
    "from dgbench.harness.runner import server; server.{}(int(sys.argv[1]))"
)


def main(descriptor: int) -> None:
    """Serve until the runner closes its end."""
    sock = socket.socket(fileno=descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A batch system warns every process of a job by it; the runner answers, cells go on.
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
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
        lookup, culprit = _Loader(setup, notes, sock).load(careful=bool(again))
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
    seconds = time.perf_counter() - start
    send(sock, Ready(seconds=seconds, threads=count_threads(), pid=os.getpid(), notes=notes))
    _Server(sock, lookup, fresh=setup if culprit else None).serve()


class _Loader:
    """Imports ahead, one thing after the other, and tells the runner of each before it begins.

    What is loaded may raise, exit or take the process with it; what it changes of dgbench's own
    settings in the environment is put back, or the cells of others would run with it.

    Attributes:
        culprit: what was loaded when the CUDA driver woke, or "".
    """

    def __init__(self, setup: Setup, notes: list[str], sock: socket.socket) -> None:
        self.setup, self.notes, self.sock = setup, notes, sock
        self.culprit = ""

    def load(self, *, careful: bool) -> tuple[Callable[[str], Any], str]:
        """Everything that `setup` names; returns the lookup and the culprit."""
        setup = self.setup
        for name in setup.modules:
            if not careful or name in NEEDED:
                self._one(name, lambda name=name: _imported(name))
        send(self.sock, Loading(what=""))
        try:
            lookup = find_lookup(setup.lookup, setup.file)
        except BaseException as error:
            raise ImportError(message(error)) from error
        theirs = third_party(PAPERS)  # only their own cells import them
        for name in setup.papers:
            if name not in theirs:
                self._one(f"paper {name}", lambda name=name: lookup(name))
        if not careful:
            warm_up(self._one)
        return lookup, self.culprit

    def _one(self, what: str, load: Callable[[], Any]) -> None:
        if what in self.setup.without:
            return
        send(self.sock, Loading(what=what))
        before = _settings()
        try:
            found = load()
            if isinstance(found, Broken):
                self.notes.append(f"{what} was not loaded ahead: {found.reason}")
        except BaseException as error:  # no Ctrl-C comes here; the cells that need it will say so
            self.notes.append(f"{what} was not loaded ahead: {describe(error)}")
        if changed := before.items() ^ _settings().items():
            names = ", ".join(sorted({name for name, _ in changed}))
            self.notes.append(f"{what} changed {names} while it was loaded; it was put back")
            for name in _settings():
                del os.environ[name]
            os.environ.update(before)
        self.culprit = self.culprit or (what if driver_awake() else "")


def warm_up(load: Callable[[str, Callable[[], Any]], None]) -> None:
    """Load what nearly every cell would load again: our systems and the catalogue of datasets."""
    from dgbench import datasets
    from dgbench.harness.runner.replaced import shared_functions

    theirs = third_party(SYSTEMS)
    for name in system_names():
        if name not in theirs:
            load(f"system {name}", lambda name=name: _ahead(name))
    load("the catalogue of datasets", datasets.cards)
    load("functions that plugins share with their reference", shared_functions)


def _imported(name: str) -> Any:
    """A module; torch-geometric without waking the driver, which torch alone does not."""
    with left_asleep() if name != "torch" else contextlib.nullcontext():
        return importlib.import_module(name)


def _ahead(name: str) -> System | Broken:
    """One of our systems, with what its processes would make again."""
    system = find_system(name)
    if isinstance(system, System):
        system.load_ahead()
    return system


def _settings() -> dict[str, str]:
    """Environment variables of dgbench."""
    return {k: v for k, v in os.environ.items() if k.startswith("DGBENCH_")}


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
        adopt_orphans()
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
            end_strays()
            leave()

    def _fork(self, job: Job) -> None:
        self.start, at = time.perf_counter(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            try:
                self._become_child()
                if self.fresh is not None:
                    small = msgspec.structs.replace(job, kept={})  # as its environment must be
                    replace("fresh", -1, Start(setup=self.fresh, job=small))
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
            left, worked = end_strays(besides=self.pid)  # or they would disturb the next process
            _kill_group(self.pid)
            _, status, usage = os.wait4(self.pid, 0)
        else:
            gone, status, usage = os.wait4(self.pid, os.WNOHANG)
            if not gone:
                return
            seconds, left, worked = time.perf_counter() - self.start, [], 0.0
            _kill_group(self.pid)
        empty()
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
            left=left,
            left_cpu_s=worked,
        )
        self.pid = 0
        send(self.sock, ended)


def adopt_orphans() -> None:
    """Ask Linux to make this process the parent of what its children leave behind.

    A process that put itself into a session of its own (a daemon) is no longer in the group of the
    cell that started it; like this it can still be found. Elsewhere this does nothing.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def end_strays(besides: int = 0) -> tuple[list[str], float]:
    """Kill and reap all below this process except its child `besides`.

    Returns:
        Names of those that were still running `STRAYS_S` after they were first seen (helpers of
        libraries end by themselves when the process that started them is gone), and the processor
        time that one of them used meanwhile, `LEFT_WORK_S` at least where one was never seen to
        sleep. Those that work are watched until it is clear that they do not merely start.
    """
    patient = time.monotonic() + STRAYS_S
    latest = patient + WORKING_S
    end, left = latest + STUCK_S, {}
    begun: dict[int, float] = {}
    worked, grew, slept = 0.0, 0.0, False
    while True:
        found, runnable, alone = _living(os.getpid(), besides)
        now = time.monotonic()
        for pid in found:
            spent = cpu_seconds(pid) or 0.0
            used = spent - begun.setdefault(pid, spent)
            if used > worked:
                worked, grew = used, now
        if runnable:  # it works, or waits for a processor that others use
            grew = now
        elif found:
            slept = True
        if grew and worked < LEFT_WORK_S and now - grew < STRAYS_S and now < latest:
            patient = now + 0.01
        elif found and not slept and now >= latest:  # others left it no time
            worked = max(worked, LEFT_WORK_S)
        if now > patient:
            left.update(found)
            for pid in found:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if alone or now > end:
            return list(left.values()), worked if left else 0.0
        if found:
            time.sleep(0.002)


def _living(root: int, besides: int) -> tuple[dict[int, str], bool, bool]:
    """List the live processes below `root`; its dead children are reaped on the way.

    Returns:
        Number and name of each, whether one of them is runnable, and whether nobody was seen at
        all. Where only dead ones were seen, one of them may have forked after the children were
        listed: it is listed the next time, for the dead stay in the list until they are reaped
        here.
    """
    found: dict[int, str] = {}
    runnable = False
    below = [pid for pid in Tree(root).pids() if pid not in (root, besides)]
    for pid in below:
        with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/stat") as file:
            name, _, rest = file.read().partition("(")[2].rpartition(")")
            state, parent = rest.split()[:2]
            if state not in "ZX":
                found[pid] = name
                runnable = runnable or state == "R"
            elif int(parent) == root:
                with contextlib.suppress(ChildProcessError):
                    # Dead, but with threads that still end: it cannot be reaped yet.
                    if os.waitpid(pid, os.WNOHANG) == (0, 0):
                        found[pid] = name
    return found, runnable, not below


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)

"""Plugins that leave processes or files behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.plugins import harm

SLEEP = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(120)"


def _fork(*steps: str) -> None:
    """A process without an interpreter of its own; `steps`: setsid, twice."""
    if os.fork() == 0:
        if "setsid" in steps:
            os.setsid()
        if "twice" in steps and os.fork():
            os._exit(0)
        time.sleep(120)
        os._exit(0)


@harm("ok", "left 1 thread running when it was done: hurry")
def a_thread(cell: Cell, context: RunContext) -> Measurement:
    threading.Thread(target=time.sleep, args=(120,), name="hurry").start()
    return Measurement()


@harm("ok", "left 1 thread running")
def a_daemon_thread(cell: Cell, context: RunContext) -> Measurement:
    threading.Thread(target=time.sleep, args=(120,), daemon=True).start()
    return Measurement()


@harm("ok", "left 1 thread running")
def a_thread_that_works(cell: Cell, context: RunContext) -> Measurement:
    def work() -> None:
        while True:
            sum(range(1000))

    threading.Thread(target=work).start()
    return Measurement()


@harm("ok", "left 1 process running", "ended by the harness")
def a_child(cell: Cell, context: RunContext) -> Measurement:
    subprocess.Popen(SLEEP)
    return Measurement()


@harm("ok", "left 1 process running")
def a_child_in_a_session_of_its_own(cell: Cell, context: RunContext) -> Measurement:
    subprocess.Popen(SLEEP, start_new_session=True)
    return Measurement()


@harm("ok", "left 1 process running")
def a_daemon(cell: Cell, context: RunContext) -> Measurement:
    _fork("setsid", "twice")
    time.sleep(0.05)
    return Measurement()


@harm("ok", "left 1 process running")
def a_child_that_ignores_signals(cell: Cell, context: RunContext) -> Measurement:
    subprocess.Popen([sys.executable, "-S", "-c", DEAF])
    return Measurement()


@harm("ok", "left 8 processes running")
def eight_forks(cell: Cell, context: RunContext) -> Measurement:
    for number in range(8):
        _fork(*(("setsid",) if number % 2 else ()))
    return Measurement()


@harm("ok", "running when it was done")
def a_child_that_forks_while_it_is_ended(cell: Cell, context: RunContext) -> Measurement:
    if os.fork() == 0:
        for _ in range(50):  # the one that runs is always a new one
            if os.fork():
                os._exit(0)
            os.setsid()
            time.sleep(0.02)
        os._exit(0)
    return Measurement()


@harm("crash", "ValueError: over", "left 1 process running")
def a_child_and_an_error(cell: Cell, context: RunContext) -> Measurement:
    _fork("setsid")
    raise ValueError("over")


@harm("ok", "left 1 process running")
def a_stopped_child(cell: Cell, context: RunContext) -> Measurement:
    process = subprocess.Popen(SLEEP)
    process.send_signal(signal.SIGSTOP)
    return Measurement()


@harm("ok")
def temporary_files(cell: Cell, context: RunContext) -> Measurement:
    folder = Path(tempfile.mkdtemp())
    (folder / "big").write_bytes(bytes(1 << 20))
    folder.chmod(0o500)
    server = socket.socket(socket.AF_UNIX)
    server.bind(os.path.join(tempfile.gettempdir(), "socket"))
    return Measurement()

"""Cells that do not end: in Python, in C, stopped, at their exit, behind children."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell, ok


def deaf(_: Cell, context: RunContext) -> Measurement:
    """Sleep and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(60)
    raise AssertionError


def busy(_: Cell, context: RunContext) -> Measurement:
    """Compute for ever."""
    while True:
        pass


def in_c(_: Cell, context: RunContext) -> Measurement:
    """Sleep in C with the interpreter's lock, as a faulty operator would."""
    ctypes.PyDLL(None).sleep(60)
    raise AssertionError


def stopped(_: Cell, context: RunContext) -> Measurement:
    """Stop itself, as a debugger does."""
    os.kill(os.getpid(), signal.SIGSTOP)
    raise AssertionError


def blocked(_: Cell, context: RunContext) -> Measurement:
    """Wait for a lock that nobody gives back."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
    raise AssertionError


def pipe(_: Cell, context: RunContext) -> Measurement:
    """Read from a child that never says anything."""
    child = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]
    subprocess.run(child, stdout=subprocess.PIPE, check=True)
    raise AssertionError


def masked(_: Cell, context: RunContext) -> Measurement:
    """Block every signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    time.sleep(60)
    raise AssertionError


def unkillable_child(_: Cell, context: RunContext) -> Measurement:
    """Wait for a child in a session of its own that ignores all it can, and is stopped."""
    code = (
        "import os, signal, time\n"
        "for n in range(1, 32):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "os.kill(os.getpid(), signal.SIGSTOP)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], start_new_session=True, check=True)
    raise AssertionError


def at_exit(cell: Cell, context: RunContext) -> Measurement:
    """Measure, and want to hang in Python's own end, which the harness does not wait for."""
    atexit.register(time.sleep, 60)
    threading.Thread(target=time.sleep, args=(60,)).start()
    return ok(cell, context)


HOWS = (deaf, busy, in_c, stopped, blocked, pipe, masked, unkillable_child)


@fault("cell hangs", count=9, about="asleep, busy, in C, stopped, blocked, behind a child")
def hangs(bench: Bench) -> None:
    cells = [cell(f"{__name__}:{how.__name__}", timeout_s=0.6) for how in HOWS]
    late = cell(f"{__name__}:{at_exit.__name__}", timeout_s=5.0)
    runner = bench.run([*cells, late, cell("ok")])
    for how in HOWS:
        with bench.fault(how.__name__):
            bench.named(runner.row(f"{__name__}:{how.__name__}"), "time", "limit of 0.6 s")
    with bench.fault("at_exit"):
        row = runner.row(f"{__name__}:{at_exit.__name__}")
        bench.named(row, "ok", "thread")
        assert row.seconds < 4
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)

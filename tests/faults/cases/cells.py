"""Cells that hang or take all memory."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np

from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell

MIB = 1 << 20


def _deaf() -> None:
    """Block every signal that can be blocked."""
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    time.sleep(60)


def _behind() -> None:
    """Wait for a child in a session of its own that is stopped."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    subprocess.run([sys.executable, "-S", "-c", code], start_new_session=True, check=True)


HANGS = {
    "deaf": _deaf,
    "in C": lambda: ctypes.PyDLL(None).sleep(60),
    "stopped": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "behind a child": _behind,
}


def hang(cell: Cell, context: RunContext) -> Measurement:
    """Do not end, in the way that `cell` names."""
    HANGS[str(cell.params["way"])]()
    raise AssertionError


@fault("cell hangs", count=len(HANGS), about="deaf, in C, stopped, behind a child")
def hangs(bench: Bench) -> None:
    cells = [cell(f"{__name__}:hang", way=way, timeout_s=0.6) for way in HANGS]
    runner = bench.run([*cells, cell("ok")])
    for row in runner.rows(f"{__name__}:hang"):
        with bench.fault(str(row.params["way"])):
            bench.named(row, "time", "limit of 0.6 s")
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)


def _at_once() -> None:
    held = np.ones(150 * MIB)
    time.sleep(30 + held[0])


def _child() -> None:
    code = "import time; x = bytearray(b'x') * (3 << 29); time.sleep(60)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


EATS = {"at once": _at_once, "child": _child}


def eat(cell: Cell, context: RunContext) -> Measurement:
    """Take more memory than there is, in the way that `cell` names."""
    EATS[str(cell.params["way"])]()
    raise AssertionError


@fault("memory runs out", count=len(EATS), about="at once, in a child")
def memory(bench: Bench) -> None:
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * resource.getpagesize()
    cells = [cell(f"{__name__}:eat", way=way, memory_bytes=700 * MIB + resident) for way in EATS]
    runner = bench.run([*cells, cell("ok")])
    for row in runner.rows(f"{__name__}:eat"):
        with bench.fault(str(row.params["way"])):
            bench.named(row, "oom", "out of memory")
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)

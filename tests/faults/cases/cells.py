"""Cells that hang or take all memory, and groups of ranks that lose one of them."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import gone, kill
from tests.faults.papers import cell
from tests.faults.runner import children
from tests.observed import NUMBER, told

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


def _tensors() -> None:
    held = []
    while True:
        held.append(torch.ones(4 * MIB))
        time.sleep(0.002)


def _at_once() -> None:
    held = np.ones(150 * MIB)
    time.sleep(30 + held[0])


def _child() -> None:
    code = "import time; x = bytearray(b'x') * (3 << 29); time.sleep(60)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def _limited() -> None:
    """The error of an allocator where the address space is limited."""
    with open("/proc/self/statm") as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 400 * MIB, now + 400 * MIB))
    torch.ones(1 << 32)


def _device() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")


EATS = {"tensors": _tensors, "at once": _at_once, "child": _child, "limited": _limited,
        "device": _device}  # fmt: skip


def eat(cell: Cell, context: RunContext) -> Measurement:
    """Take more memory than there is, in the way that `cell` names."""
    EATS[str(cell.params["way"])]()
    raise AssertionError


@fault("memory runs out", count=len(EATS), about="by allocation, in a child, by an error")
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


def _rounds(comm: Any, how: str, rank: int, at: int) -> float:
    """Thirty sums over all ranks; one rank does something else at round `at`."""
    value = torch.ones(1000)
    for number in range(30):
        if number == at and comm.rank == rank:
            if how in ("SIGKILL", "SIGSEGV", "SIGSTOP"):
                os.kill(os.getpid(), getattr(signal, how))
            elif how == "raise":
                raise ValueError("a mistake in a rank")
            elif how == "exit":
                sys.exit(7)
            elif how == "hang":
                time.sleep(60)
            elif how == "grow":
                held = [torch.ones(8 << 20) for _ in range(64) if not time.sleep(0.001)]
                value += held[0][0]
        comm.all_reduce(value)
        time.sleep(0.005)
    return float(value[0])


def ranked(cell: Cell, context: RunContext) -> Measurement:
    """Launch three ranks, one of which fails as `cell` says."""
    fails = (cell.params["fails"], cell.params["rank"], cell.params["at"])
    limits = {"timeout_s": 15.0, "stall_s": 1.5, "memory_bytes": 200 << 20, "threads": 1}
    results = launch(_rounds, 3, fails, **limits)
    return told({NUMBER: results[0]}, samples=[results.seconds])


FAILS = {
    "SIGKILL": ("crash", "killed by SIGKILL"),
    "SIGSEGV": ("crash", "killed by SIGSEGV"),
    "SIGSTOP": ("time", "kept others waiting"),
    "raise": ("crash", "ValueError: a mistake in a rank"),
    "exit": ("crash", "exit code 7"),
    "hang": ("time", "kept others waiting"),
    "grow": ("oom", "its limit is 200 MiB"),
}


@fault("rank fails", count=len(FAILS), about="killed, raises, exits, hangs, out of memory")
def rank_fails(bench: Bench) -> None:
    how = f"{__name__}:ranked"
    draws = [(how_, bench.rng.randrange(3), bench.rng.randrange(20)) for how_ in FAILS]
    cells = [cell(how, fails=fails, rank=rank, at=at) for fails, rank, at in draws]
    runner = bench.run([*cells, cell(how, fails="", rank=0, at=0), cell("ok")])
    for row, (fails, rank, _) in zip(runner.rows(how), draws, strict=False):
        with bench.fault(f"{fails} in rank {rank}"):
            status, words = FAILS[fails]
            bench.named(row, status, f"rank {rank} of 3", words)
    bench.named(runner.rows(how)[-1], "ok")
    bench.resumed(runner)


def slowly(cell: Cell, context: RunContext) -> Measurement:
    """Launch three ranks that take long."""
    launch(_wait, 3, (20.0,), timeout_s=25.0, threads=1)
    return told(samples=[1.0])


def _wait(comm: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        comm.barrier()
        time.sleep(0.005)


@fault("rank or launcher killed", count=6, about="kill -9 of a rank, or of what launched it")
def rank_killed(bench: Bench) -> None:
    how = f"{__name__}:slowly"
    runner = bench.start([*(cell(how, which=n) for n in range(6)), cell("ok")])
    for number in range(6):
        runner.until("start", nth=number + 1)
        launcher = runner.cell()
        ranks = children(lambda pid=launcher: pid, count=3)
        time.sleep(bench.rng.uniform(0, 0.3))
        with bench.fault(f"cell {number}"):
            kill(bench.rng.choice(ranks) if number % 2 else launcher)
            runner.until("row", nth=number + 1)
            bench.named(runner.row(how), "crash", "killed by SIGKILL")
            for pid in ranks:
                gone(pid)
    bench.named(runner.wait().row("ok"), "ok")
    bench.resumed(runner)

"""Processes that are killed: the cell, the fork server, the runner."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from tests.faults import checks
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell

MIXED = (cell("ok"), cell("slow", seconds=0.1), cell("exit"), cell("ok", repeats=2, which="b"))
"""A plan of good and bad cells, half a second long."""


@fault("cell killed", count=12, about="kill -9, with files and processes below it")
def cell_killed(bench: Bench) -> None:
    cells = [cell("untidy", which=n) for n in range(12)]
    runner = bench.start([*cells, cell("ok")])
    for number in range(12):
        runner.until("start", nth=number + 1)
        pid = runner.cell()
        time.sleep(bench.rng.choice((0.0, bench.rng.uniform(0, 0.2))))
        with bench.fault(f"cell {number}"):
            kill(pid)
            runner.until("row", nth=number + 1)
            bench.named(runner.row("untidy"), "crash", "SIGKILL")
            bench.no_orphans(3.0, words="time.sleep(120)")
    runner.wait()
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)


@fault("fork server killed in a cell", count=8, about="kill -9 while processes of a cell run")
def server_killed(bench: Bench) -> None:
    cells = [cell("untidy", seconds=0.4, which=n) for n in range(8)]
    runner = bench.start([*cells, cell("ok")])
    for number in range(8):
        runner.until("start", nth=number + 1)
        runner.cell()
        server = runner.server()
        time.sleep(bench.rng.uniform(0, 0.15))
        with bench.fault(f"cell {number}"):
            kill(server)
            runner.until("row", nth=number + 1)
            bench.named(runner.row("untidy"), "ok", "fork server died")
            bench.no_orphans(3.0, words="time.sleep(120)")
    bench.named(runner.wait().row("ok"), "ok")
    bench.resumed(runner)


@fault("fork server killed twice", count=1, each=True, about="and the one in its place")
def server_killed_twice(bench: Bench) -> None:
    runner = bench.start([cell("slow", seconds=20), cell("ok")])
    for _ in range(2):
        pid = runner.cell()
        kill(runner.server())
        gone(pid)
    bench.named(runner.wait().row("slow"), "crash", "fork server died with it, twice")
    bench.resumed(runner)


@fault("runner killed", count=14, each=True, about="alone, or with its server: the next tidies up")
def runner_killed(bench: Bench) -> None:
    """Every third time the fork server goes first, once one that was started as users do."""
    cells = (cell("untidy", seconds=0.4, which=bench.number), *MIXED)
    with_server = bench.number % 3 == 0
    runner = bench.start(cells, real=bench.number == 0)
    path, pid = runner.path, runner.cell(60) if with_server else 0
    time.sleep(bench.rng.uniform(0, 0.4 if with_server else 0.9))
    if with_server:
        kill(runner.server())
    runner.kill()
    runner.wait()
    if with_server:
        gone(pid)
    else:
        bench.no_orphans()
    assert path.exists()
    bench.resumed(runner)


def _at_operations(bench: Bench, mode: str, count: int) -> None:
    """Kill the runner at operations on the disk, spread over a whole run."""
    if bench.disk is None:
        bench.skip("no C compiler: nothing can be put at a single operation")
    plan = (*MIXED, cell("ok", unavailable="not here"))
    bench.disk.arm("count", bench.results)
    bench.run(plan, before=lambda: bench.disk.only(os.getpid()))
    operations = bench.disk.count
    bench.disk.disarm()
    for number in range(count):
        at = 1 + int((number + bench.rng.random()) * operations / count)
        with bench.fault(f"operation {at} of {operations}"):
            root = bench.results / f"n{number}"

            def arm(at: int = at) -> None:
                bench.disk.arm(mode, bench.results, at=at, pid=os.getpid())

            runner = bench.run(plan, before=arm, root=root)
            bench.disk.disarm()
            if bench.disk.hits != 1:
                bench.injected_nothing()  # a run takes an operation more or less than another
                continue
            folder = runner.folder_or_none
            if folder is None:  # before the run had a folder: the next one starts afresh
                runner = bench.run(plan, root=root)
            bench.resumed(runner)


@fault("runner killed at an operation", count=30, about="before the n-th open, write, rename ...")
def runner_at_operation(bench: Bench) -> None:
    _at_operations(bench, "kill", 30)


@fault("runner killed in a write", count=16, about="kill -9 when half of a write is on the disk")
def runner_in_write(bench: Bench) -> None:
    _at_operations(bench, "tear", 16)


def kill(pid: int) -> None:
    """kill -9, also where it is gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def gone(pid: int, patience_s: float = 5.0) -> None:
    """Wait until a process is gone; a zombie counts as gone."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if not checks.living(pid):
            return
        time.sleep(0.005)
    raise AssertionError(f"process {pid} is still there")

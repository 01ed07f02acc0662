"""Groups of ranks that lose a rank, or the process that launched them."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

import torch

from dgbench.runtime.ranks import launch
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import gone, kill
from tests.faults.papers import cell
from tests.observed import NUMBER, told


def _rounds(comm: Any, how: str, rank: int, at: int) -> float:
    """Thirty sums over all ranks; one rank does something else at round `at`."""
    value = torch.ones(1000)
    for number in range(30):
        if number == at and comm.rank == rank:
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            elif how == "segv":
                os.kill(os.getpid(), signal.SIGSEGV)
            elif how == "raise":
                raise ValueError("a mistake in a rank")
            elif how == "exit":
                sys.exit(7)
            elif how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            elif how == "hang":
                time.sleep(60)
            elif how == "grow":
                held = [torch.ones(8 << 20) for _ in range(64) if not time.sleep(0.001)]
                value += held[0][0]
            elif how == "memory":
                raise MemoryError("no more")
        comm.all_reduce(value)
        time.sleep(0.005)
    return float(value[0])


def ranked(cell: Cell, context: RunContext) -> Measurement:
    """Launch three ranks, one of which fails as `cell` says."""
    results = launch(
        _rounds,
        3,
        (cell.params["fails"], cell.params["rank"], cell.params["at"]),
        timeout_s=15.0,
        stall_s=1.5,
        memory_bytes=200 << 20,
        threads=1,
    )
    return told({NUMBER: results[0]}, samples=[results.seconds])


HOW = f"{__name__}:ranked"
EXPECTED = {
    "kill": ("crash", "killed by SIGKILL"),
    "segv": ("crash", "killed by SIGSEGV"),
    "raise": ("crash", "ValueError: a mistake in a rank"),
    "exit": ("crash", "exit code 7"),
    "stop": ("time", "kept others waiting"),
    "hang": ("time", "kept others waiting"),
    "grow": ("oom", "its limit is 200 MiB"),
    "memory": ("oom", "no more"),
}


@fault("rank fails", count=12, about="killed, raises, exits, hangs, is stopped, out of memory")
def rank_fails(bench: Bench) -> None:
    order = [*EXPECTED, "kill", "kill", "kill", "kill"]
    draws = [(how, bench.rng.randrange(3), bench.rng.randrange(20)) for how in order]
    cells = [
        cell(HOW, fails=how, rank=rank, at=at, which=n) for n, (how, rank, at) in enumerate(draws)
    ]
    runner = bench.run([*cells, cell(HOW, fails="", rank=0, at=0), cell("ok")])
    for row in runner.rows(HOW)[: len(draws)]:
        how, rank = row.params["fails"], row.params["rank"]
        with bench.fault(f"{how} in rank {rank}"):
            status, words = EXPECTED[how]
            bench.named(row, status, f"rank {rank} of 3", words)
    bench.named(runner.rows(HOW)[-1], "ok")
    bench.resumed(runner)


def slowly(cell: Cell, context: RunContext) -> Measurement:
    """Launch three ranks that take a second."""
    launch(_wait, 3, (float(cell.params.get("seconds", 1.0)),), timeout_s=15.0, threads=1)
    return told(samples=[1.0])


def _wait(comm: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        comm.barrier()
        time.sleep(0.005)


@fault("rank killed from outside", count=6, about="kill -9 of a random rank at a random moment")
def rank_killed(bench: Bench) -> None:
    how = f"{__name__}:slowly"
    runner = bench.start([*(cell(how, seconds=20, which=n) for n in range(6)), cell("ok")])
    for number in range(6):
        runner.until("start", nth=number + 1)
        ranks = _ranks(runner.cell())
        time.sleep(bench.rng.uniform(0, 0.3))
        with bench.fault(f"cell {number}"):
            kill(bench.rng.choice(ranks))
            runner.until("row", nth=number + 1)
            bench.named(runner.row(how), "crash", "killed by SIGKILL", "of 3")
            for pid in ranks:
                gone(pid)
    runner.wait()
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)


@fault("launcher killed", count=6, about="kill -9 of the process that launched the ranks")
def launcher_killed(bench: Bench) -> None:
    how = f"{__name__}:slowly"
    runner = bench.start([*(cell(how, seconds=20, which=n) for n in range(6)), cell("ok")])
    for number in range(6):
        runner.until("start", nth=number + 1)
        launcher = runner.cell()
        ranks = _ranks(launcher)
        time.sleep(bench.rng.uniform(0, 0.3))
        with bench.fault(f"cell {number}"):
            kill(launcher)
            runner.until("row", nth=number + 1)
            bench.named(runner.row(how), "crash", "killed by SIGKILL")
            for pid in ranks:
                gone(pid)
    runner.wait()
    bench.resumed(runner)


@fault("runner killed above ranks", count=3, each=True, about="kill -9 of runner and fork server")
def above_ranks(bench: Bench) -> None:
    runner = bench.start([cell(f"{__name__}:slowly", seconds=1.5), cell("ok")])
    launcher = runner.cell()
    ranks = _ranks(launcher)
    if bench.number:
        kill(runner.server())
    if bench.number != 1:
        runner.kill()
        runner.wait()
    for pid in (launcher, *ranks):
        gone(pid)
    runner.wait()
    bench.resumed(runner)


def _ranks(launcher: int, count: int = 3, patience_s: float = 20.0) -> list[int]:
    """The processes of the ranks, as soon as all are there."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        try:
            with open(f"/proc/{launcher}/task/{launcher}/children") as file:
                found = [int(pid) for pid in file.read().split()]
        except OSError:
            found = []
        if len(found) >= count:
            return found[:count]
        time.sleep(0.005)
    raise AssertionError(f"the ranks did not come up, {len(found)} did")

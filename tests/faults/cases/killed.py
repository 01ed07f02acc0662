"""Processes that are killed: the cell, the fork server, the runner."""

from __future__ import annotations

import signal

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.papers import cell


@fault(
    "cell ends by a signal",
    count=8,
    about="kill -9, SIGSEGV, SIGBUS ... at a random moment",
    sample=True,
)
def cell_by_signal(bench: Bench) -> None:
    names = ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT", "SIGTERM", "SIGXCPU")
    cells = [
        cell("dies", signal=int(getattr(signal, n)), after=bench.rng.uniform(0, 0.1)) for n in names
    ]
    runner = bench.run([*cells, cell("ok")])
    for row in runner.rows("dies"):
        name = signal.Signals(row.params["signal"]).name
        with bench.fault(name):
            bench.named(row, "crash", name)
    bench.named(runner.row("ok"), "ok")
    bench.resumed(runner)

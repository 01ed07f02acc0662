"""Cells that take their time while the clock of the wall is wrong."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.shim import STATE, Disk
from tests.observed import NUMBER, told

YEAR = 365 * 86400


def takes_steps(cell: Cell, context: RunContext) -> Measurement:
    """Steps of 10 ms, by a clock that is right."""
    return _steady()


def _steady() -> Measurement:
    steady = measure_steady(lambda: time.sleep(0.01), budget_s=0.1)
    return told(samples=steady.samples, warmup=steady.warmup)


def jumps_in_a_step(cell: Cell, context: RunContext) -> Measurement:
    """The clock jumps by `cell.params["by"]` seconds while this cell measures."""
    disk = Disk(Path(os.environ[STATE]))
    timer = threading.Timer(0.05, disk.shift, (int(cell.params["by"]),))  # type: ignore[arg-type]
    timer.start()
    found = _steady()
    timer.join()
    found.observe(NUMBER, time.time())
    return found


def jumps_and_hangs(cell: Cell, context: RunContext) -> Measurement:
    """The clock jumps, and this cell does not end."""
    Disk(Path(os.environ[STATE])).shift(int(cell.params["by"]))  # type: ignore[arg-type]
    time.sleep(60)
    return Measurement()


def shakes(cell: Cell, context: RunContext) -> Measurement:
    """The clock goes forward and backward all the time."""
    disk, stop = Disk(Path(os.environ[STATE])), threading.Event()

    def shake() -> None:
        while not stop.wait(0.003):
            disk.shift(-YEAR)
            disk.shift(YEAR)

    thread = threading.Thread(target=shake)
    thread.start()
    found = _steady()
    stop.set()
    thread.join()
    disk.shift(0)
    return found


def patches_the_clocks(cell: Cell, context: RunContext) -> Measurement:
    """A plugin puts clocks of its own into the module `time`: half as fast, or standing still."""
    real = time.perf_counter
    if cell.params["by"] == "half":
        time.perf_counter = time.monotonic = time.time = lambda: 0.5 * real()
    else:
        time.perf_counter = time.monotonic = time.time = lambda: 1.0
    steady = measure_steady(lambda: time.sleep(0.01), budget_s=0.1)
    return told(samples=steady.samples, warmup=steady.warmup)

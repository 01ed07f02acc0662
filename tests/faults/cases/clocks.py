"""Clocks of the wall that jump: nothing that lasts is measured by them, nothing is lost."""

from __future__ import annotations

import time

from dgbench.harness.store import Row, Store
from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.checks import Loss
from tests.faults.papers import cell
from tests.faults.plugins import timers
from tests.observed import NUMBER, numbers, samples

HOW = timers.__name__
HOUR, DAY, YEAR = 3600, 86400, timers.YEAR
JUMPS = {
    "a second back": -1,
    "an hour back": -HOUR,
    "a day back": -DAY,
    "to the seventies": -50 * YEAR,
    "an hour on": HOUR,
    "a year on": YEAR,
    "beyond 2038": 20 * YEAR,
}


def _lasted(row: Row, low: float, high: float) -> None:
    """By the runner's clock and by its own a row lasted as long as it did."""
    if not low <= row.seconds <= high:
        raise Loss(f"it lasted {row.seconds:g} s, by its row; it was {low:g} to {high:g} s")
    if any(not 0.009 < s < 2.0 for s in samples(row)):
        raise Loss(f"its steps of 10 ms took {samples(row)}")


def _needs_the_clock(bench: Bench) -> None:
    if bench.disk is None:
        bench.skip("there is no C compiler for the library that sets the clock wrong")


@fault("clock jumps in a cell", count=len(JUMPS) + 1, about="while it measures its steps")
def in_a_cell(bench: Bench) -> None:
    _needs_the_clock(bench)
    cells = [cell(f"{HOW}:jumps_in_a_step", by=by) for by in JUMPS.values()]
    begin = time.monotonic()
    runner = bench.run([*cells, cell(f"{HOW}:shakes")])
    whole = time.monotonic() - begin
    rows = {row.params["by"]: row for row in runner.rows(f"{HOW}:jumps_in_a_step")}
    for name, by in JUMPS.items():
        with bench.fault(name):
            bench.named(rows[by], "ok")
            _lasted(rows[by], 0.04, whole)
            if abs(numbers(rows[by])[NUMBER] - by - time.time()) > 3600:
                raise Loss("the clock did not jump")
    with bench.fault("to and fro"):
        row = runner.row(f"{HOW}:shakes")
        bench.named(row, "ok")
        _lasted(row, 0.04, whole)
    bench.resumed(runner)


@fault("clock jumps, cell hangs", count=4, about="it ends at its limit, not sooner and not later")
def at_the_limit(bench: Bench) -> None:
    _needs_the_clock(bench)
    jumps = (-YEAR, -HOUR, HOUR, YEAR)
    runner = bench.run([cell(f"{HOW}:jumps_and_hangs", by=by, timeout_s=0.6) for by in jumps])
    for row in runner.rows(f"{HOW}:jumps_and_hangs"):
        with bench.fault(f"{row.params['by']:+d} s"):
            bench.named(row, "time", "limit of 0.6 s")
            _lasted(row, 0.6, 6.0)
    bench.resumed(runner)


@fault("clock jumps between cells", count=len(JUMPS), each=True, about="and the run is resumed")
def between_cells(bench: Bench) -> None:
    _needs_the_clock(bench)
    by = list(JUMPS.values())[bench.number]
    runner = bench.start([cell(f"{HOW}:takes_steps", which=i) for i in range(3)])
    runner.until("row")
    bench.disk.shift(by)  # type: ignore[union-attr]
    runner.wait()
    if len(runner.rows()) != 3 or {row.status for row in runner.rows()} != {"ok"}:
        raise Loss(f"rows: {[(row.status, row.reason) for row in runner.rows()]}")
    for row in runner.rows():
        _lasted(row, 0.04, 6.0)
    if len({row.started[:19] for row in runner.rows()}) < 2 and abs(by) > HOUR:
        raise Loss("the clock did not jump")
    if runner.summary["rows"] != 3:
        raise Loss("the summary has lost a row")
    again = bench.resumed(runner)
    if again.summary["kept"] != 3:
        raise Loss(f"{again.summary['kept']} of 3 rows were kept")


@fault("clock set back, a new run", count=3, each=True, about="it takes no other run's place")
def another_run(bench: Bench) -> None:
    _needs_the_clock(bench)
    first = bench.run([cell("ok", which=1)])
    before = first.bytes
    bench.disk.shift((-HOUR, -YEAR, 0)[bench.number])  # type: ignore[union-attr]
    second = bench.run([cell("ok", which=2), cell("ok", which=3)])
    if first.path == second.path:
        raise Loss("two runs have one folder")
    if len({Store.open(r.path).run for r in (first, second)}) < 2:
        raise Loss("two runs have one id")
    bench.intact(before, first)
    if len(second.rows()) != 2:
        raise Loss("the second run has lost rows")
    bench.resumed(second)


@fault("plugin sets its own clocks", count=2, about="half as fast, or standing still")
def own_clocks(bench: Bench) -> None:
    runner = bench.run([cell(f"{HOW}:patches_the_clocks", by=by) for by in ("half", "still")])
    for row in runner.rows(f"{HOW}:patches_the_clocks"):
        with bench.fault(str(row.params["by"])):
            bench.named(row, "ok")
            _lasted(row, 0.04, 6.0)
    bench.resumed(runner)

"""Several processes at one folder or at one root of runs, and signals that end a run in order."""

from __future__ import annotations

import signal
import time

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import MIXED
from tests.faults.papers import cell


@fault("two writers after a kill", count=4, each=True, about="two resumes of a killed run at once")
def two_resumes(bench: Bench) -> None:
    runner = bench.start((cell("untidy", seconds=0.3), *MIXED))
    runner.cell()
    runner.kill()
    runner.wait()
    both = [bench.start(resume=runner.path) for _ in range(2)]
    codes = sorted(one.wait().code or 0 for one in both)
    # The second may come when the first is done.
    assert codes in ([0, 2], [0, 0]), f"the two ended with {codes}: {[one.error for one in both]}"
    bench.resumed(runner)


@fault("runs that start together", count=4, each=True, about="eight at the same root at once")
def start_together(bench: Bench) -> None:
    runners = [bench.start((cell("ok", which=n),)) for n in range(8)]
    codes = {runner.wait().code for runner in runners}
    assert codes == {0}
    assert len({runner.path for runner in runners}) == len(runners)
    for number, runner in enumerate(runners):
        assert [row.params["which"] for row in runner.rows()] == [number]
    bench.resumed(runners[0])


SIGNALS = {
    "Ctrl-C once": (signal.SIGINT,),
    "Ctrl-C twice": (signal.SIGINT,) * 2,
    "Ctrl-C held down": (signal.SIGINT,) * 8,
    "SIGTERM": (signal.SIGTERM,),
}


def _signalled(bench: Bench, numbers: tuple[signal.Signals, ...]) -> None:
    """Send signals at a random moment; the run ends in order and goes on."""
    runner = bench.start((cell("untidy", seconds=0.3), *MIXED, cell("ok", which=bench.number)))
    assert runner.path
    time.sleep(bench.rng.uniform(0, 0.8))
    for number in numbers:
        runner.kill(number)
        time.sleep(bench.rng.choice((0.0, 0.004, 0.02)))
    runner.wait(20)
    if not (runner.code == -signal.SIGTERM and not runner.rows()):  # nothing to end in order
        assert len(numbers) > 2 or runner.code in (0, 130), f"{runner.code} {runner.error}"
        if runner.code == 130 and any("end" in e for e in runner.events):
            bench.said(runner.summary["end"], "Stopped", "cells kept")
    bench.clean()
    bench.resumed(runner)


def _register(name: str, numbers: tuple[signal.Signals, ...]) -> None:
    @fault(name, count=8, each=True, about="at a random moment: the run ends in order")
    def signalled(bench: Bench) -> None:
        _signalled(bench, numbers)


for _name, _numbers in SIGNALS.items():
    _register(_name, _numbers)

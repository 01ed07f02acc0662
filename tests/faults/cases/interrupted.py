"""Ctrl-C, once and twice, and the signal a batch system sends."""

from __future__ import annotations

import signal
import time

from tests.faults.bench import Bench
from tests.faults.campaign import fault
from tests.faults.cases.killed import MIXED
from tests.faults.papers import cell
from tests.faults.runner import Runner

PLAN = (cell("untidy", seconds=0.3), *MIXED)


def _after(bench: Bench, seconds: float, *numbers: int, gap: float = 0.0) -> Runner:
    """A runner that got these signals one after the other, and its end."""
    runner = bench.start((*PLAN, cell("ok", which=bench.number)))
    assert runner.path
    time.sleep(bench.rng.uniform(0, seconds))
    for number in numbers:
        runner.kill(number)
        time.sleep(gap)
    runner.wait(20)
    if runner.code == -signal.SIGTERM and not runner.rows():
        return runner  # before there was anything to end in order
    if runner.code not in (0, 130):
        raise AssertionError(f"it ended with {runner.code} {runner.error}")
    if runner.code == 130 and any("end" in e for e in runner.events):
        bench.said(runner.summary["end"], "Stopped", "cells kept")
    bench.clean()
    return runner


@fault("Ctrl-C once", count=10, each=True, about="at a random moment: the run ends in order")
def once(bench: Bench) -> None:
    runner = _after(bench, 0.8, signal.SIGINT)
    begun = len(runner.events) > 1  # before that there is only a folder, and Python ends it
    if runner.code == 130 and begun and not runner.summary["interrupted"]:
        raise AssertionError("it does not say that it was interrupted")
    bench.resumed(runner)


@fault("Ctrl-C twice", count=10, each=True, about="the second one ends it at once")
def twice(bench: Bench) -> None:
    gap = bench.rng.choice((0.0, 0.001, 0.02, 0.1))
    bench.resumed(_after(bench, 0.8, signal.SIGINT, signal.SIGINT, gap=gap))


@fault("Ctrl-C held down", count=4, each=True, about="eight of them, a few milliseconds apart")
def held(bench: Bench) -> None:
    runner = bench.start(PLAN)
    assert runner.path
    time.sleep(bench.rng.uniform(0, 0.6))
    for _ in range(8):
        runner.kill(signal.SIGINT)
        time.sleep(0.004)
    runner.wait(20)
    bench.no_orphans()
    bench.resumed(runner)


@fault("SIGTERM", count=4, each=True, about="what a batch system sends before its limit")
def terminated(bench: Bench) -> None:
    bench.resumed(_after(bench, 0.8, signal.SIGTERM))

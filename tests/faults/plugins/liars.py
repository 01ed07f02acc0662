"""Plugins that report false times."""

from __future__ import annotations

import time

from dgbench.runtime.meter import kept_spans
from dgbench.runtime.steady import Steady, measure_steady
from dgbench.systems.base import Cell, Measurement, RunContext
from tests.faults.plugins import harm
from tests.observed import told

STEP_S = 0.004


def _steady(**more) -> Steady:
    return measure_steady(lambda: time.sleep(STEP_S), budget_s=5 * STEP_S, **more)


@harm("check", "samples add up to 3 s", "whole process lasted")
def samples_beyond_the_process(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[1.0, 1.0, 1.0])


@harm("check", "phases add up to 100 s", "whole process lasted")
def phases_beyond_the_process(cell: Cell, context: RunContext) -> Measurement:
    return told(phases={"compute": 99.0, "transfer": 1.0})


@harm("check", "phases add up to", phases=True)
def instrumented_phases_beyond_the_process(cell: Cell, context: RunContext) -> Measurement:
    return told(phases={"compute": 5.0} if context.instrumented else {})


@harm("crash", "phase_time{'phase': 'gnn'} is -0.1")
def a_negative_phase(cell: Cell, context: RunContext) -> Measurement:
    return told(phases={"compute": 0.2, "gnn": -0.1})


@harm("crash", "step_time has a sample of -1e-05 s")
def a_negative_sample(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[1e-5, -1e-5, 1e-5])


@harm("crash", "step_time has a sample of 0.0 s")
def no_time_at_all(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[0.0, 0.0, 0.0])


@harm("crash", "warmup is -2")
def negative_warmup(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[1e-5], warmup=-2)


@harm("check", "overlap", phases=True)
def phases_that_overlap(cell: Cell, context: RunContext) -> Measurement:
    steady = _steady()
    each = sum(steady.samples)
    phases = {"gnn": each, "rnn": each} if context.instrumented else {}
    return told(samples=steady.samples, warmup=steady.warmup, phases=phases)


@harm("check", "the harness saw", "(+11 %)")
def ten_percent_slower_than_it_says(cell: Cell, context: RunContext) -> Measurement:
    steady = _steady()
    return told(samples=[0.9 * s for s in steady.samples], warmup=steady.warmup)


@harm("check", "the harness saw", "(-9 %)")
def ten_percent_faster_than_it_says(cell: Cell, context: RunContext) -> Measurement:
    steady = _steady()
    return told(samples=[1.1 * s for s in steady.samples], warmup=steady.warmup)


@harm("check", "10 % of", "unexplained")
def a_clock_that_runs_slow(cell: Cell, context: RunContext) -> Measurement:
    steady = _steady(clock=lambda: 0.9 * time.perf_counter())
    return told(samples=steady.samples, warmup=steady.warmup)


@harm("check", "the harness saw")
def another_loops_samples(cell: Cell, context: RunContext) -> Measurement:
    steady = _steady()
    fast = measure_steady(int, budget_s=0.0, min_iters=len(steady.samples) + 1)
    return told(samples=[1e-6 + s for s in fast.samples[: len(steady.samples)]])


@harm("ok", "are those of no steady loop")
def the_best_sample_only(cell: Cell, context: RunContext) -> Measurement:
    return told(samples=[min(_steady().samples)])


@harm("check", "not finite: phase_time{'phase': 'gnn'}")
def a_phase_that_is_no_number(cell: Cell, context: RunContext) -> Measurement:
    return told(phases={"gnn": float("nan")})


@harm("ok", phases=True)
def spans_from_nowhere(cell: Cell, context: RunContext) -> Measurement:
    """They are for a strip over time; what lies outside of the process is cut off."""
    if (log := kept_spans()) is not None:
        log.add("before", -1e9, -1e8)
        log.add("nonsense", float("nan"), 1.0)
        log.add("beyond", time.perf_counter(), 1e12)
    time.sleep(0.25)
    return Measurement()

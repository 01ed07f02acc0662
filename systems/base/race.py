"""One process of a training race: open a system on a workload, train, and say how it went.

The trainer that was timed is compared once the clock stands, in every process.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgbench.lab.catalogue import METER_METRICS
from dgbench.lab.experiment import Measurement, RunContext
from dgbench.lab.result_checks import LIVENESS, ResultCheck
from dgbench.runtime import touched
from dgbench.runtime.errors import CheckFailed, UnsupportedError
from dgbench.runtime.launches import count_calls, profile_call, read_trace
from dgbench.runtime.readback import AHEAD, Readback
from dgbench.runtime.steady import measure_steady
from dgbench.runtime.touched import comparing
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.audit import StepAudit, taken_again_later
from dgbench.systems.base.oracle import OUTPUT_FRAMES, Oracle
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.plain_stream import PlainStream
from dgbench.systems.base.recount import recounted
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.sequences import SequenceWorkload, load_sequences, vertex_steps
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, load_stream
from dgbench.systems.base.system import System, Trainer
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload, load_timeline
from dgbench.systems.base.turns import Turns
from dgbench.systems.base.workload import Workload

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

TOLERANCE = 1e-5
"""Largest relative deviation of outputs, losses and gradients between exact systems."""

COUNTED_STEPS = 3
"""Steps that are counted. A clock decides how many follow, and counters must not depend on it."""

DEFERRED_WORK_SHARE, DEFERRED_WORK_S = 0.1, 0.2
"""Share of the timed steps, and seconds, that closing a trainer may take without a note."""

PROFILED_STEPS, LONGEST = 5, 8
"""Steps under the profiler of an instrumented process on a device, and kernels that are named."""


def open_trainer(
    system: System, workload: Workload, context: RunContext, switches: Mapping[str, bool] | None
) -> Trainer:
    """Open a trainer, or raise UnsupportedError with the system's own reasons."""
    reasons = system.unsupported(workload, context.device)
    if reasons:
        raise UnsupportedError(f"{system.title}: {'; '.join(reasons)}")
    return system.open(workload, device=context.device, switches=switches, meter=context.meter)


def timed(
    system_name: str,
    workload: Workload,
    context: RunContext,
    *,
    epochs: int = 200,
    switches: Mapping[str, bool] | None = None,
) -> Measurement:
    """Train in time order and time each step.

    On a device the host is one step ahead, so that a step's time is from the end of the one before.

    Observed are `preparation_time` (one-off work), `step_time` (median steady step, with all of
    them as samples), `epoch_time` (steady step times frames), `end_to_end_time` (preparation plus
    `epochs` epochs) and the `loss` of the first step. What the meter counted is the total of the
    `counted_steps` steps after the first, the same frames in every run. What it noted as spent is
    `spent_time` by phase, the mean of all steps but the first (as phases are), and the trainer adds
    what it reports. The trainer that was timed is then compared with the oracle, see
    `checked_after`.
    """
    system = get_system(system_name)
    trainer = open_trainer(system, workload, context, switches)
    start = time.perf_counter()
    trainer.prepare()
    prepare_s = time.perf_counter() - start
    audit = StepAudit(trainer, COUNTED_STEPS, name=system.title)
    losses: list[Readback] = []
    values: list[float] = []
    counters: dict[str, int] = {}
    before: dict[str, int] = {}

    def settled() -> None:
        before.update(context.meter.counters)
        context.meter.reset()

    def step() -> None:
        if len(losses) % trainer.num_frames == 0:
            context.meter.mark("epoch")
        losses.append(trainer.enqueue(len(losses) % trainer.num_frames))
        # A step takes as long as from one to the next: the device is never waited for until it has
        # nothing left to do.
        if len(losses) > AHEAD:
            values.append(losses[-1 - AHEAD].value())
        if len(losses) == 1 + COUNTED_STEPS:
            counters.update(context.meter.counters)

    # Counters start after the first step, which also fills caches that later steps find full.
    steady = measure_steady(
        step,
        budget_s=context.budget_s,
        min_iters=COUNTED_STEPS,
        on_settled=settled,
        between=lambda: audit.between(len(losses)),
    )
    while not audit.enough and not context.instrumented:  # its phases are those of the loop
        audit.between(len(losses))
        step()
    audit.finish(len(losses))
    values += [loss.value() for loss in losses[len(values) :]]
    _check_losses(values)
    epoch_s = steady.time * trainer.num_frames
    notes = list(getattr(trainer, "notes", []))
    if system.provenance:
        notes.insert(0, f"{system.title}: {system.provenance}")
    data = workload_data.describe(trainer.data) if hasattr(trainer, "data") else {}
    measured = Measurement(warmup=steady.warmup, data=data, notes=notes)
    measured.observe("preparation_time", prepare_s)
    measured.observe("step_time", steady.time, samples=steady.samples)
    measured.observe("epoch_time", epoch_s)
    measured.observe("end_to_end_time", prepare_s + epochs * epoch_s)
    measured.observe("loss", values[0])
    for part, seconds in context.meter.spent.items():
        measured.observe("spent_time", seconds / (len(losses) - 1), phase=part)
    for metric, value in trainer.report().items():
        measured.observe(metric, value)
    measured.observe("counted_steps", COUNTED_STEPS)
    for name, count in counters.items():
        measured.observe(METER_METRICS.get(name, name), count)
    for phase, seconds in (context.meter.phases() if context.instrumented else {}).items():
        measured.observe("phase_time", seconds, phase=phase)
    if context.instrumented and context.device == "cuda":
        observe_launches(measured, step)
    measured.checks = checked_after(system, trainer, workload, context, values, audit=audit)
    if isinstance(workload, Workload):
        measured.checks += recounted(
            workload, workload_data.load(workload), counters, before,
            range(1, 1 + COUNTED_STEPS), trainer.num_frames, system=system_name,
        )  # fmt: skip
    context.meter.counters.clear()  # or the harness would add those of later steps
    start = time.perf_counter()
    trainer.close()
    measured.notes += _put_off(time.perf_counter() - start, sum(steady.samples))
    return measured


def observe_launches(
    measured: Measurement,
    step: Callable[[], object],
    profiled: Callable[[Callable[[], object]], dict[str, Any]] = profile_call,
) -> None:
    """Observe what a step launches on a device and asks of its runtime, by torch's profiler."""

    def steps() -> None:
        for _ in range(PROFILED_STEPS):
            step()

    trace = profiled(steps)
    kernels = read_trace(trace)
    busy = sum(one.seconds for one in kernels) / PROFILED_STEPS
    measured.observe("spent_time", busy, of="kernels")
    measured.observe("launches", sum(one.count for one in kernels) // PROFILED_STEPS)
    for kind, count in count_calls(trace).items():
        measured.observe("launches", count // PROFILED_STEPS, of=kind)
    by_name: Counter[str] = Counter()
    for one in kernels:
        by_name[one.name] += one.seconds / PROFILED_STEPS
    for name, seconds in by_name.most_common(LONGEST):
        measured.observe("spent_time", seconds, of="kernels", kernel=name)


def _check_losses(losses: Sequence[float]) -> None:
    """Raise CheckFailed where one is not finite: such steps do other work than good ones."""
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            raise CheckFailed(f"the loss of step {number} of {len(losses)} is {loss}")


def _put_off(close_s: float, steps_s: float) -> list[str]:
    """A note where closing a trainer took long enough to have been part of its steps."""
    if close_s < DEFERRED_WORK_S or close_s < DEFERRED_WORK_SHARE * steps_s:
        return []
    return [
        f"closing it took {close_s:.2g} s, its timed steps {steps_s:.2g} s: it may have put off "
        "work that no step has paid for"
    ]


@comparing()
def checked(
    system_name: str,
    workload: Workload,
    context: RunContext,
    *,
    exact: bool = True,
    switches: Mapping[str, bool] | None = None,
) -> Measurement:
    """Compare a system with the float64 oracle from the same parameters, and while it trains.

    Outputs and gradients of drawn frames and the last, losses of some steps, and outputs and
    gradients again with the parameters that the system then has. With `exact` false, deviations
    are kept and nothing is judged.
    """
    system = get_system(system_name)
    oracle = oracle_of(workload, context)
    trainer = open_trainer(system, workload, context, switches)
    trainer.prepare()
    about = {"system": system_name, "released": system.kind == "baseline"}
    frames = oracle.frames()
    checks = oracle.compare(trainer, frames, **about)
    checks.append(oracle.train(trainer, **about))
    oracle.load(trainer.state())
    when = "after training"
    checks += oracle.compare(trainer, oracle.frames(), when=when, **about)
    checks += oracle.liveness(trainer.state(), system=system_name, when=when)
    data = workload_data.describe(trainer.data) if hasattr(trainer, "data") else {}
    oracle.close()
    return Measurement(deviation=deviation_of(checks), checks=checks if exact else [], data=data)


def oracle_of(
    task: Workload | TimelineWorkload | SequenceWorkload | StreamWorkload,
    context: RunContext,
    data: SnapshotSequence | None = None,
) -> Oracle:
    """The oracle of a task, on the device of a context.

    `data` are the snapshots of a timeline, where they are open already.
    """
    if isinstance(task, StreamWorkload):
        return Oracle(_plain_stream(task, load_stream(task), context.device), task)
    if isinstance(task, TimelineWorkload):
        timeline = load_timeline(task) if data is None else data
        return Oracle(
            lambda dtype: PlainTimeline(task, timeline, device=context.device, dtype=dtype), task
        )
    if isinstance(task, SequenceWorkload):
        steps = load_sequences(task) if data is None else data
        graph = vertex_steps(steps, task)
        return Oracle(
            lambda dtype: PlainSequences(
                task, steps, device=context.device, dtype=dtype, graph=graph
            ),
            task,
        )
    frames = workload_data.load(task)
    plain = get_system("reference").trainer
    return Oracle(lambda dtype: plain(task, frames, device=context.device, dtype=dtype), task)


def audited(
    turns: Turns,
    task: Workload | TimelineWorkload | SequenceWorkload,
    context: RunContext,
    data: SnapshotSequence | None = None,
) -> list[ResultCheck]:
    """Checks of drawn steps of settings that took turns, by an oracle of their own."""
    oracle = oracle_of(task, context, data)
    found = turns.audited(oracle, first=context.round == 1)
    oracle.close()
    return found


def _plain_stream(
    task: StreamWorkload, data: StreamData, device: str
) -> Callable[[torch.dtype], StreamTrainer]:
    """Opens the plain trainer on a stream, its graph filled, in a dtype."""

    def opened(dtype: torch.dtype) -> StreamTrainer:
        trainer = StreamTrainer(task, data, PlainStream(task, data), device=device, dtype=dtype)
        trainer.prepare()
        return trainer

    return opened


@comparing()
def checked_after(
    system: System,
    trainer: Trainer,
    workload: Workload,
    context: RunContext,
    losses: Sequence[float] = (),
    *,
    audit: StepAudit | None = None,
) -> list[ResultCheck]:
    """Checks of a trainer as its timed steps have left it: caches, buffers and parameters.

    The first process of a cell compares outputs and gradients of drawn frames and the last, and one
    more step; later ones and the instrumented one, which do the same arithmetic, outputs of fewer
    frames. All compare `losses`, those of the trainer's first steps.
    """
    touched.end_measurement()
    context.meter.timing = False  # what follows belongs to no phase
    oracle = oracle_of(workload, context)
    about = {"system": system.name, "released": system.kind == "baseline"}
    when = "after the timed steps"
    checks = [oracle.first_steps(losses, **about)] if losses else []
    state = trainer.state() if losses else None
    start = None if audit is None else audit.start
    if context.round > 1 or context.instrumented:
        frames = oracle.frames(OUTPUT_FRAMES)
        checks += oracle.output(trainer, frames, when=when, **about)
        checks += oracle.liveness(state, start, system=system.name, when=when)
    else:
        oracle.load(trainer.state())
        frames = oracle.frames()
        checks += oracle.compare(trainer, frames, when=when, **about)
        checks += oracle.liveness(state, start, system=system.name, when=when)
        checks += oracle.next_step(trainer, frames[0], **about)
    if audit is not None:
        first = context.round == 1 and not context.instrumented
        checks += audit.checks(oracle, losses, again=taken_again_later(first), **about)
    oracle.close()
    return checks


def deviation_of(checks: Sequence[ResultCheck]) -> dict[str, float]:
    """Largest gap of each thing that was compared, as a row's `deviation`."""
    names = {"outputs": "output", "gradients": "gradient", "losses": "loss"}
    found: dict[str, float] = {}
    for check in checks:
        if check.of == LIVENESS:
            continue
        name = names.get(check.of, check.of)
        found[name] = max(found.get(name, 0.0), check.gap)
    return found


def relative(found: Tensor, wanted: Tensor) -> float:
    """||found - wanted|| / ||wanted||, in float64; the plain norm of `found` where wanted is 0."""
    wanted = wanted.to(torch.float64)
    size = float(wanted.norm())
    return float((found.to(torch.float64) - wanted).norm()) / (size or 1.0)

"""One process of a training race: open a system on a workload, train, and say how it went.

Speed and correctness are separate cells: a timed process must not spend its time on a reference
run, and one comparison holds for all rounds, since every process does the same arithmetic.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from dgbench.models.dtdg.mpnn_lstm import FrameNorm
from dgbench.runtime.errors import CheckFailed, UnsupportedError
from dgbench.runtime.readback import AHEAD, Readback
from dgbench.runtime.steady import measure_steady
from dgbench.systems.base import data as workload_data
from dgbench.systems.base.experiment import Measurement, RunContext
from dgbench.systems.base.registry import get_system
from dgbench.systems.base.system import System, Trainer
from dgbench.systems.base.training import FrameTrainer
from dgbench.systems.base.workload import Workload

TOLERANCE = 1e-5
"""Largest relative deviation of outputs, losses and gradients between exact systems."""

COUNTED_STEPS = 3
"""Steps that are counted. A clock decides how many follow, and counters must not depend on it."""

PUT_OFF, PUT_OFF_S = 0.1, 0.2
"""Share of the timed steps, and seconds, that closing a trainer may take without a note."""

CHECK_STEPS = 2
"""Optimiser steps that a system and the reference take together in a check."""


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

    Values: `prepare_s` (one-off work), `step_s` (median steady step), `epoch_s` (steady step times
    frames), `end_to_end_s` (preparation plus `epochs` epochs) and `loss` (of the first step).
    Counters are totals of the `counted_steps` steps after the first, the same frames in every run.
    What the meter noted as spent becomes a value in seconds per step, over all steps but the first
    (as phases are), and the trainer adds what it reports.
    """
    system = get_system(system_name)
    trainer = open_trainer(system, workload, context, switches)
    start = time.perf_counter()
    trainer.prepare()
    prepare_s = time.perf_counter() - start
    losses: list[Readback] = []
    counters = {"counted_steps": COUNTED_STEPS}

    def step() -> None:
        if len(losses) % trainer.num_frames == 0:
            context.meter.mark("epoch")
        losses.append(trainer.enqueue(len(losses) % trainer.num_frames))
        # A step takes as long as from one to the next: the device is never waited for until it has
        # nothing left to do.
        if len(losses) > AHEAD:
            losses[-1 - AHEAD].wait()
        if len(losses) == 1 + COUNTED_STEPS:
            counters.update(context.meter.counters)

    # Counters start after the first step, which also fills caches that later steps find full.
    steady = measure_steady(
        step,
        budget_s=context.budget_s,
        min_iters=COUNTED_STEPS,
        on_settled=context.meter.reset,
    )
    values = [loss.value() for loss in losses]
    _check_losses(values)
    context.meter.counters.clear()  # or the harness would add those of later steps
    spent = {f"{k}_s": v / (len(losses) - 1) for k, v in context.meter.spent.items()}
    epoch_s = steady.time * trainer.num_frames
    notes = list(getattr(trainer, "notes", []))
    if system.provenance:
        notes.insert(0, f"{system.title}: {system.provenance}")
    measured = Measurement(
        values={
            "prepare_s": prepare_s,
            "step_s": steady.time,
            "epoch_s": epoch_s,
            "end_to_end_s": prepare_s + epochs * epoch_s,
            "loss": values[0],
            **spent,
            **trainer.report(),
        },
        units={"prepare_s": "s", "step_s": "s", "epoch_s": "s", "end_to_end_s": "s"}
        | dict.fromkeys(spent, "s"),
        counters=counters,
        phases=context.meter.phases() if context.instrumented else {},
        samples=steady.samples,
        warmup=steady.warmup,
        data=workload_data.describe(trainer.data) if hasattr(trainer, "data") else {},
        notes=notes,
    )
    start = time.perf_counter()
    trainer.close()
    measured.notes += _put_off(time.perf_counter() - start, sum(steady.samples))
    return measured


def _check_losses(losses: Sequence[float]) -> None:
    """Raise CheckFailed where one is not finite: such steps do other work than good ones."""
    for number, loss in enumerate(losses, 1):
        if not math.isfinite(loss):
            raise CheckFailed(f"the loss of step {number} of {len(losses)} is {loss}")


def _put_off(close_s: float, steps_s: float) -> list[str]:
    """A note where closing a trainer took long enough to have been part of its steps."""
    if close_s < PUT_OFF_S or close_s < PUT_OFF * steps_s:
        return []
    return [
        f"closing it took {close_s:.2g} s, its timed steps {steps_s:.2g} s: it may have put off "
        "work that no step has paid for"
    ]


def checked(
    system_name: str,
    workload: Workload,
    context: RunContext,
    *,
    exact: bool = True,
    switches: Mapping[str, bool] | None = None,
) -> Measurement:
    """Compare a system with the reference from the same seed: output, gradients and losses.

    Raises:
        CheckFailed: an exact system deviates by more than `TOLERANCE`.
    """
    reference = open_trainer(get_system("reference"), workload, context, None)
    trainer = open_trainer(get_system(system_name), workload, context, switches)
    trainer.prepare()
    found, wanted = _answers(trainer), _answers(reference)
    deviation = _gaps(found, wanted)
    bad = {name: value for name, value in deviation.items() if not value <= TOLERANCE}
    notes = []
    if exact and bad:
        notes = [_excuse(system_name, workload, context, found, bad)]
    # Adam turns rounding of near-zero gradients into steps of full size, so parameters after
    # training are reported and not judged.
    deviation["parameters"] = _largest(trainer.state(), reference.state())
    data = workload_data.describe(trainer.data) if hasattr(trainer, "data") else {}
    return Measurement(deviation=deviation, notes=notes, data=data)


Answers = tuple[Tensor, dict[str, Tensor], list[float]]


def _answers(trainer: Trainer) -> Answers:
    """Output and gradients of frame 0 before training, then losses of a few steps."""
    output, gradients = trainer.evaluate(0), trainer.gradients(0)
    steps = min(CHECK_STEPS, trainer.num_frames)
    return output, gradients, [trainer.step(i) for i in range(steps)]


def _gaps(found: Answers, wanted: Answers) -> dict[str, float]:
    losses = zip(found[2], wanted[2], strict=True)
    return {
        "output": relative(found[0], wanted[0]),
        "gradient": _largest(found[1], wanted[1]),
        "loss": max(abs(a - b) / max(abs(b), 1e-30) for a, b in losses),
    }


def _excuse(
    name: str, workload: Workload, context: RunContext, found: Answers, bad: Mapping[str, float]
) -> str:
    """Why a deviation is rounding; raises CheckFailed if it is not.

    torch's float32 batch norm magnifies rounding where columns are nearly constant, and a released
    baseline is made of it. So a system may be twice as far from float64 as the plain model with
    torch's own operators is, and no further.
    """
    reference = get_system("reference")
    plain = open_trainer(reference, workload, context, None)
    if isinstance(plain, FrameTrainer):
        for module in plain.model.modules():
            if isinstance(module, FrameNorm):
                module.exact = False
    exact = open_trainer(type(reference)(torch.float64), workload, context, None)
    truth = _answers(exact)
    own, noise = _gaps(found, truth), _gaps(_answers(plain), truth)
    worse = {key: own[key] for key in bad if not own[key] <= max(TOLERANCE, 2 * noise[key])}
    if worse:
        shown = ", ".join(f"{key} {value:.2g}" for key, value in worse.items())
        raise CheckFailed(
            f"{name} deviates from float64: {shown}; plain torch in float32: "
            + ", ".join(f"{key} {noise[key]:.2g}" for key in worse)
        )
    shown = ", ".join(f"{key} {noise[key]:.1g}" for key in bad)
    return f"rounding: torch's own float32 operators deviate from float64 by {shown} here"


def relative(found: Tensor, wanted: Tensor) -> float:
    """||found - wanted|| / ||wanted||, in float64; the plain norm of `found` where wanted is 0."""
    wanted = wanted.to(torch.float64)
    size = float(wanted.norm())
    return float((found.to(torch.float64) - wanted).norm()) / (size or 1.0)


def _largest(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> float:
    """Largest relative deviation over named tensors, each measured against the whole's size.

    A tensor whose gradient cancels to rounding (a bias before a norm) has no scale of its own;
    it is compared with the norm of everything, not with its own dust.
    """
    total = sum(float(t.to(torch.float64).square().sum()) for t in wanted.values()) ** 0.5 or 1.0
    worst = 0.0
    for name, tensor in wanted.items():
        own = float(tensor.to(torch.float64).norm())
        scale = own if own > 1e-3 * total else total
        gap = float((found[name].to(torch.float64) - tensor.to(torch.float64)).norm())
        worst = max(worst, gap / scale)
    return worst

"""Audited steps: drawn steps of timed training, taken again by the oracle in float64.

Which steps are audited is drawn while training goes on. The harness holds what a trainer updates
in place (`Trainer.trained`, `Trainer.moments`), and copies it before and after a drawn step,
outside of the clock and without a call, so that a trainer cannot tell. Before the first of them it
also moves every parameter by a drawn share: no training that was made earlier, in `prepare` or by
another process, goes through the state that this one is in. The oracle takes the step again from
the copied state, and the loss, the update of every parameter and Adam's moments are compared.

A trainer that keeps its state elsewhere is asked for a copy after every step. Work that is put off
until it is asked shows in the time of the first answer, which the second is not held up by.

Over 500 lines: what watches a step and what takes it again read the same copies of its states.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import torch
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, close, equal
from dgbench.runtime.errors import UnsupportedError
from dgbench.runtime.schedule import DrawnSteps
from dgbench.runtime.touched import comparing
from dgbench.systems.base.foreign import ForeignTrainer
from dgbench.systems.base.liveness import AGES
from dgbench.systems.base.moments import AdamMoments
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.system import FrameResult, Trainer

BETA_1: Final = 0.9
BETA_2: Final = 0.999
EPS: Final = 1e-8
"""Of Adam, as torch has them."""

MOVE: Final = 2.0**-7
"""Largest share of itself that a parameter is moved by before the first audited step."""

MIN_AUDITED: Final = 2
"""Steps of a process that are audited, at least."""

ASKED_TWICE: Final = 0.75
"""Share of the steps after which a trainer without `trained` is asked twice."""

MAX_DEFERRED: Final = 0.5
"""Share of a step's time that the first answer may take longer than the second, by both clocks."""

ROUNDING: Final = 1e-4
"""Share of the largest gradient below which an entry may be nothing but rounding."""

RESOLUTION_S: Final = 1e-6
"""Seconds below which a clock says nothing."""

FORMED: Final = 1e-3
"""Relative deviation of an update from that which the moments after it give: float32 rounds the
parameters, and a step that was left out is off by all of itself."""

LATER: Final = 1 / 4
"""Share of the processes after a cell's first in which the oracle takes a step again, which costs
as much as some steps do. In all of them states are copied and held against Adam."""

COUNTED: Final = "updates so far"
OWN_MOMENTS: Final = "Adam by its own moments"
PUT_OFF: Final = "works outside the clock"
SEED: Final = "parameters of the seed"


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Copy of what a step starts from, by the names of what is trained.

    Attributes:
        parameters, first, second: values and Adam's moments of them.
        updates: how often Adam has updated each; absent where only the harness counts.
    """

    parameters: dict[str, Tensor]
    first: dict[str, Tensor]
    second: dict[str, Tensor]
    updates: dict[str, int]


Tensors = dict[str, dict[str, Tensor]]
"""Numbers by name, by kind of check."""


@dataclass(slots=True)
class AuditedStep:
    """A step of training and the states around it.

    Attributes:
        number: steps that were taken before it. moved: whether parameters were moved before it.
    """

    number: int
    before: TrainingState
    after: TrainingState | None = None
    moved: bool = False


class _Answers:
    """Seconds of steps and of answers about the state after them, by wall and processor time.

    Args:
        busy: processor time of what trains.
    """

    def __init__(self, busy: Callable[[], float]) -> None:
        self._clocks = time.perf_counter, busy
        self._begun: tuple[float, ...] | None = None
        self._steps: list[tuple[float, ...]] = []
        self._longer: list[tuple[float, ...]] = []

    def begin(self) -> None:
        """A step begins."""
        self._begun = self._now()

    def end(self) -> None:
        """It has ended."""
        if self._begun is not None:
            self._steps.append(_since(self._begun, self._now()))

    def ask(self, trainer: Trainer, *, twice: bool) -> dict[str, Tensor]:
        """Parameters of a trainer; asked for once more to see how long that takes by itself."""
        start = self._now()
        found = trainer.state()
        middle = self._now()
        if twice:
            trainer.state()
            first, second = _since(start, middle), _since(middle, self._now())
            self._longer.append(tuple(a - b for a, b in zip(first, second, strict=True)))
        return found

    @property
    def deferred(self) -> tuple[float, int]:
        """Share of a step's time that first answers took longer than second ones, by the clock
        that says least, and the number of pairs of answers."""
        if not self._longer or not self._steps:
            return 0.0, 0
        shares = []
        for clock in range(len(self._clocks)):
            step = statistics.median(seconds[clock] for seconds in self._steps)
            longer = statistics.median(seconds[clock] for seconds in self._longer)
            shares.append(max(0.0, longer) / max(step, RESOLUTION_S))
        return min(shares), len(self._longer)

    def _now(self) -> tuple[float, ...]:
        return tuple(clock() for clock in self._clocks)


def _since(start: tuple[float, ...], end: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(b - a for a, b in zip(start, end, strict=True))


class StepAudit:
    """Copies the state of a trainer around drawn steps.

    Args:
        trainer: prepared; no step was taken yet.
        first: steps that are never drawn, in the beginning.
        name: of the trainer's system, for people.
        moves: whether parameters are moved before the first audited step; not where all losses are
            compared, and no third party trains.
        schedule: of the steps; drawn by the operating system where it is None.

    Attributes:
        seed: of the schedule; checks name it.
        enough: whether the steps so far have as many drawn ones as are needed.
    """

    def __init__(
        self,
        trainer: Trainer,
        first: int,
        *,
        name: str = "",
        moves: bool = True,
        schedule: DrawnSteps | None = None,
    ) -> None:
        self._trainer, self._name = trainer, name
        self._first, self._prepared = first, trainer.state()
        self._moves = moves
        self._schedule = schedule or DrawnSteps(first)
        self._leaves = trainer.trained()
        self._moments: dict[str, AdamMoments] | None = None
        self._steps: list[AuditedStep] = []
        self._last = False
        self._answers = _Answers(_busy(trainer))

    @property
    def seed(self) -> int:
        return self._schedule.seed

    @property
    def enough(self) -> bool:
        return len(self._steps) >= MIN_AUDITED

    @property
    def start(self) -> dict[str, Tensor] | None:
        """Parameters that training went on from, by the shared names; None where none moved."""
        moved = (one.before.parameters for one in self._steps if one.moved)
        return next((self._trainer.shared(one) for one in moved), None)

    @property
    def steps(self) -> list[AuditedStep]:
        """Steps that were audited so far, whole."""
        return [one for one in self._steps if one.after is not None]

    def between(self, number: int) -> None:
        """Called before step `number` and after the one before it."""
        if self._leaves:
            self._watch(number)
            return
        self._answers.end()
        if number:
            self._ask(number)
        self._answers.begin()

    def _watch(self, number: int) -> None:
        if number == 0:
            return
        due = not self._last and number in self._schedule
        open_ = bool(self._steps) and self._steps[-1].after is None
        if self._moments is None:
            self._moments = self._found_moments(self._trainer.moments(), self._leaves)
        if not due and not open_:
            return
        self._synchronise()
        state = None
        if open_:
            state = self._steps[-1].after = self._copy()
        if due:
            if moved := self._moves and not self._steps:
                self._move()
                state = None
            self._steps.append(AuditedStep(number, state or self._copy(), moved=moved))

    def finish(self, number: int) -> None:
        """End the audit after `number` steps."""
        self._last = True
        self.between(number)

    def _ask(self, number: int) -> None:
        """Ask for the state after a step, whether or not it is audited."""
        # Only once the first steps are over, whose losses are compared.
        twice = number > self._first and (self._last or self._schedule.chance(ASKED_TWICE))
        found = self._answers.ask(self._trainer, twice=twice)
        state = copied_training(found, self._found_moments(self._trainer.moments(), found))
        if self._steps and self._steps[-1].after is None:
            self._steps[-1].after = state
        if not self._last and number in self._schedule:
            self._steps.append(AuditedStep(number, state))

    def _found_moments(
        self, moments: dict[str, AdamMoments], leaves: Mapping[str, Tensor]
    ) -> dict[str, AdamMoments]:
        if moments or not leaves:
            return moments
        raise UnsupportedError(
            f"steps of {self._name} cannot be audited: its trainer has no `moments()`, and no "
            "`torch.optim.Adam` of what it trains among its attributes",
            hint="docs/adding-a-system.md, 'Audited steps', says what a trainer must offer",
        )

    def _copy(self) -> TrainingState:
        assert self._moments is not None
        return copied_training(self._leaves, self._moments)

    def _move(self) -> None:
        """Move every parameter by a drawn share of itself, in place."""
        for leaf in self._leaves.values():
            draw = torch.Generator().manual_seed(self._schedule.bits())
            share = 2 * torch.rand(leaf.shape, generator=draw) - 1
            leaf.data.mul_(1 + MOVE * share.to(leaf.device, leaf.dtype))

    def _synchronise(self) -> None:
        device = next(iter(self._leaves.values())).device
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    @comparing()
    def checks(
        self,
        oracle: Oracle,
        losses: Sequence[float],
        *,
        again: bool,
        system: str = "",
        released: bool = False,
    ) -> list[ResultCheck]:
        """Checks of audited steps: `MIN_AUDITED` of them against Adam, the one from moved
        parameters always among them.

        Args:
            losses: of all steps.
            again: take that one again, or a drawn one where none was moved.
            system, released: see `Oracle.compare`.
        """
        found = [untouched(self._prepared, oracle, system)] if self._moves else []
        steps = self.steps
        places = list(range(len(steps)))
        if steps and steps[0].moved:
            places = [0, *self._schedule.sample(places[1:], MIN_AUDITED - 1)]
        else:
            places = self._schedule.sample(places, MIN_AUDITED)
        chosen = [steps[place] for place in places]
        lr = oracle.trainer.workload.lr  # type: ignore[attr-defined]
        found += adam_checks(chosen, lr, seed=self.seed, system=system)
        if again and chosen:
            step = chosen[0] if chosen[0].moved else chosen[self._schedule.below(len(chosen))]
            found += taken_again(
                oracle, step, losses[step.number], step.number % self._trainer.num_frames,
                shared=self._trainer.shared, seed=self.seed, system=system, released=released,
            )  # fmt: skip
        return found + self._put_off(system)

    def _put_off(self, system: str) -> list[ResultCheck]:
        """A check of the time that answers about the state took."""
        share, pairs = self._answers.deferred
        if not pairs:
            return []
        return [
            at_most("times", share, MAX_DEFERRED, against="second answers", compared=pairs,
                    part=PUT_OFF, system=system)
        ]  # fmt: skip


def taken_again_later(first: bool) -> bool:
    """Return True in the first process of a cell, and in `LATER` of the others."""
    return first or random.SystemRandom().random() < LATER


def counted_steps(around: Iterable[tuple[TrainingState, TrainingState]]) -> list[AuditedStep]:
    """Steps by the states around them, which Adam has numbered; none where it counts nothing."""
    return [
        AuditedStep(max(before.updates.values()), before, after)
        for before, after in around
        if before.updates
    ]


@comparing()
def adam_checks(
    steps: Sequence[AuditedStep],
    lr: float,
    *,
    seed: int,
    system: str = "",
    each: Literal["step", "epoch", "batch"] = "step",
    against: str = OWN_MOMENTS,
) -> list[ResultCheck]:
    """Checks that Adam has updated every parameter once in each step: of its counters, of the
    update by the moments after it, and of the second moment by the gradient of the first.

    Args:
        steps: whole ones. lr: learning rate. seed: that they were drawn by.
        system: name of the trainer. each: what a step is. against: words on what is compared.
    """
    counts: dict[str, Tensor] = {}
    numbers: dict[str, Tensor] = {}
    left: dict[str, dict[str, Tensor]] = {"updates": {}, "moments": {}}
    formed: dict[str, dict[str, Tensor]] = {"updates": {}, "moments": {}}
    for place, step in enumerate(steps, 1):
        before, after = step.before, step.after
        assert after is not None
        # Two steps have one number where Adam counted one of them alone.
        label = f"{each} {step.number + 1}, {place} of {len(steps)}"
        for when, state, number in (
            ("before", before, step.number), ("after", after, step.number + 1)
        ):  # fmt: skip
            if state.updates:
                counts[f"{when} {label}"] = torch.tensor(list(state.updates.values()))
                numbers[f"{when} {label}"] = torch.full((len(state.updates),), number)
        names = [name for name in after.parameters if name in after.first]  # others: no gradient
        if not names:
            continue
        # One vector, in its own precision: there are many tensors, and few numbers in each.
        first, second, first_before, second_before, old, value = (
            torch.cat([of[name].flatten().cpu() for name in names])
            for of in (
                after.first, after.second, whole(before.first, after.first),
                whole(before.second, after.second), before.parameters, after.parameters,
            )
        )  # fmt: skip
        count = step.number + 1
        root = (second / (1 - BETA_2**count)).sqrt_().add_(EPS)
        new = torch.addcdiv(old, first, root, value=-lr / (1 - BETA_1**count))
        left["updates"][label], formed["updates"][label] = value.sub_(old), new.sub_(old)
        gradient = first.sub_(first_before, alpha=BETA_1).div_(1 - BETA_1)
        left["moments"][label] = second.sqrt_()
        squares = second_before.mul_(BETA_2).addcmul_(gradient, gradient, value=1 - BETA_2)
        formed["moments"][label] = squares.sqrt_()
    many = {"step": "steps", "epoch": "epochs", "batch": "batches"}[each]
    about = {"against": against, "system": system}
    part = f"{len(steps)} {many} drawn by {seed}"
    found = [
        equal(COUNTED, counts, numbers, against=f"{many} so far", system=system),
        *(close(of, left[of], formed[of], FORMED, part=part, **about) for of in left),
    ]
    return [check for check in found if check.compared]


@comparing()
def taken_again(
    oracle: Oracle,
    step: AuditedStep,
    loss: float,
    frame: int,
    *,
    shared: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    seed: int,
    system: str = "",
    released: bool = False,
    limits: dict[str, dict[str, float]] | None = None,
) -> list[ResultCheck]:
    """Checks of an audited step, which the oracle takes again from the state before it.

    Args:
        loss, frame: of the step.
        shared: of the trainer, see `Trainer.shared`.
        seed: that the step was drawn by.
        system, released: see `Oracle.compare`. limits: see `Oracle.retake`.
    """
    assert step.after is not None

    def plain(state: TrainingState) -> TrainingState:
        """By the names of the shared model, of which each is trained."""
        first, second = (whole(of, state.parameters) for of in (state.first, state.second))
        updates = {name: state.updates.get(name, step.number) for name in state.parameters}
        return TrainingState(shared(state.parameters), shared(first), shared(second), updates)

    before, after = plain(step.before), plain(step.after)
    lr = oracle.trainer.workload.lr  # type: ignore[attr-defined]
    left: Tensors = {"losses": {"loss": torch.tensor(loss, dtype=torch.float64)}}
    clear: dict[str, Tensor] = {}

    def read(result: FrameResult) -> Tensors:
        if not clear:  # the first result is the exact one
            clear.update(clear_entries(result.gradients, before))
            left.update(numbers_left(before, after, clear))
        exact = torch.tensor(result.loss, dtype=torch.float64)
        return {"losses": {"loss": exact}} | adam_numbers(before, result.gradients, clear, lr)

    part = f"step {step.number + 1}, frame {frame}, drawn by {seed}"
    return oracle.retake(
        before.parameters,
        frame,
        left,
        read,
        system=system,
        released=released,
        part=part,
        limits=limits,
    )


def adam_update(
    value: Tensor, gradient: Tensor, first: Tensor, second: Tensor, updates: int, lr: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Update of a value by Adam, as the gradient's precision shows it, and the moments after it."""
    one = first.to(gradient.dtype).lerp(gradient, 1 - BETA_1)
    two = second.to(gradient.dtype).mul(BETA_2).addcmul(gradient, gradient, value=1 - BETA_2)
    rate = lr / (1 - BETA_1 ** (updates + 1))
    root = (two / (1 - BETA_2 ** (updates + 1))).sqrt() + EPS
    old = value.to(gradient.dtype)
    new = (old - rate * one / root).to(value.dtype)  # as it is kept
    return new.double() - old.double(), one, two


@comparing()
def untouched(prepared: Mapping[str, Tensor], oracle: Oracle, system: str) -> ResultCheck:
    """A check that nothing was trained before the first step.

    Args:
        prepared: parameters of a trainer after its preparation.
    """
    found = {name: value.double() for name, value in prepared.items()}
    return equal("parameters after preparation", found, oracle.first, against=SEED, system=system)


def _busy(trainer: Trainer) -> Callable[[], float]:
    """Clock of the processor time that a trainer's work takes."""
    if isinstance(trainer, ForeignTrainer):
        return lambda: trainer.process.cpu_seconds() or 0.0
    return time.process_time


def clear_entries(gradients: Mapping[str, Tensor], before: TrainingState) -> dict[str, Tensor]:
    """Entries whose update is more than rounding: Adam makes whole steps of the smallest gradient.

    Args:
        gradients: exact ones. before: the step; rounding of larger gradients is in its moments.
    """
    first = whole(before.first, before.parameters)
    clear: dict[str, Tensor] = {}
    for names in _by_ages(gradients):
        sizes = {name: torch.maximum(gradients[name].cpu().abs(), first[name].cpu().abs())
                 for name in names}  # fmt: skip
        largest = max(float(size.max()) for size in sizes.values() if size.numel())
        clear |= {name: size > ROUNDING * largest for name, size in sizes.items()}
    return clear


def adam_numbers(
    before: TrainingState, gradients: Mapping[str, Tensor], clear: Mapping[str, Tensor], lr: float
) -> Tensors:
    """Numbers that a step of Adam leaves, from the state before it, by kind of check.

    Args:
        clear: see `clear_entries`.
    """
    first, second = (whole(of, before.parameters) for of in (before.first, before.second))
    made = {
        name: adam_update(
            before.parameters[name].cpu(), gradient.cpu(), first[name].cpu(),
            second[name].cpu(), before.updates.get(name, 0), lr,
        )
        for name, gradient in gradients.items()
    }  # fmt: skip
    return _by_kind(*({name: made[name][i] for name in clear} for i in range(3)), clear)


def numbers_left(
    before: TrainingState, after: TrainingState, clear: Mapping[str, Tensor]
) -> Tensors:
    """The same numbers as a trainer left them."""
    moved = {
        name: (after.parameters[name].double() - before.parameters[name].double()).cpu()
        for name in clear
    }
    first, second = (
        {name: value.cpu() for name, value in whole(of, after.parameters).items()}
        for of in (after.first, after.second)
    )
    return _by_kind(moved, first, second, clear)


def _by_kind(
    moved: Mapping[str, Tensor],
    first: Mapping[str, Tensor],
    second: Mapping[str, Tensor],
    clear: Mapping[str, Tensor],
) -> Tensors:
    """Numbers without those that are rounding. Moments of weights of ages stand apart: beside them
    all others are nothing."""
    kinds: Tensors = {"updates": {name: moved[name] * clear[name] for name in clear}}
    for names in _by_ages(clear):
        moments = ({name: of[name] * clear[name] for name in names} for of in (first, second))
        ages = next(iter(names)).endswith(AGES)
        kinds["moments, of weights of ages" if ages else "moments"] = joined_moments(*moments)
    return kinds


def _by_ages(named: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """Tensors of weights of ages, which are as large as ages, and all others."""
    ages = {name: one for name, one in named.items() if name.endswith(AGES)}
    return [one for one in (ages, {k: v for k, v in named.items() if k not in ages}) if one]


def copied_training(
    leaves: Mapping[str, Tensor], moments: Mapping[str, AdamMoments]
) -> TrainingState:
    """Copy of parameters and of what Adam keeps of them."""
    return TrainingState(
        {name: leaf.detach().clone() for name, leaf in leaves.items()},
        {name: one.first.detach().clone() for name, one in moments.items()},
        {name: one.second.detach().clone() for name, one in moments.items()},
        {name: int(one.updates) for name, one in moments.items() if one.updates is not None},
    )


def whole(found: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by all names, zeros where there is none."""
    return {name: found.get(name, torch.zeros_like(value)) for name, value in like.items()}


def joined_moments(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Moments by name; roots of the second ones, which are as large as gradients are."""
    ones = {f"{name}, first": value for name, value in first.items()}
    return ones | {f"{name}, second": value.sqrt() for name, value in second.items()}

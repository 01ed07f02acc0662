"""Float64 oracle of trainers of vertex-steps: outputs, gradients and losses, and their rounding.

The plain trainer in float64 answers before training and at parameters that a trainer was left with.
What float32 rounding may do to a tensor is only found out where it differs by more than the least
tolerance, since it costs some runs under perturbed arithmetic.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch
from msgspec import structs
from torch import Tensor

from dgbench.lab.result_checks import ResultCheck, at_most, close, deviations
from dgbench.runtime.touched import comparing
from dgbench.systems.base import liveness
from dgbench.systems.base.conditioning import MIN_TOLERANCE, rounding, tolerances
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.rank_audit import AuditedEpochs, audited_epochs
from dgbench.systems.base.sequences import SequenceTrainer, SequenceWorkload, vertex_steps

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

AGAINST: Final = "float64 oracle"
"""Tensors by what they are, then by name."""
TIES: Final = 2e-3
"""Share of predictions that rounding may turn, where both classes are as likely."""
STEPS: Final = 2
"""Optimiser steps whose losses are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class SequenceAnswers:
    """Results of a trainer at one set of parameters.

    Attributes:
        loss: over all that is trained on.
        output: [V, D], of all vertex-steps.
        gradients: by the model's names.
        accuracy: share of right predictions on what is held out, where it was asked for.
    """

    loss: float
    output: Tensor
    gradients: dict[str, Tensor]
    accuracy: float | None = None

    def by_kind(self) -> dict[str, dict[str, Tensor]]:
        """Outputs, gradients and losses, each by name."""
        loss = torch.tensor(self.loss, dtype=torch.float64)
        return {"outputs": {"": self.output}, "gradients": self.gradients, "losses": {"": loss}}


def answers_of(trainer: SequenceTrainer) -> SequenceAnswers:
    """Outputs, then loss and gradients of one pass without an update; on ranks all call it."""
    output, accuracy = trainer.evaluate(), trainer.accuracy()
    trainer.model.zero_grad(set_to_none=True)
    loss = trainer.accumulate()
    return SequenceAnswers(loss, output, last_gradients(trainer), accuracy)


def last_gradients(trainer: SequenceTrainer) -> dict[str, Tensor]:
    """Gradients that the last pass left at the parameters, by name on the CPU."""
    return {
        name: (torch.zeros_like(p) if p.grad is None else p.grad).detach().cpu().clone()
        for name, p in trainer.model.named_parameters()
    }


@torch.no_grad()
def load_state(trainer: SequenceTrainer, state: Mapping[str, Tensor]) -> None:
    """Overwrite a trainer's parameters by name; all else that it keeps stays as it is."""
    for name, parameter in trainer.model.named_parameters():
        parameter.copy_(state[name])


def send_every_row(trainer: SequenceTrainer) -> None:
    """Let the next pass of a trainer with stale rows send all of them: it is then exact."""
    threshold = getattr(getattr(trainer, "exchange", trainer), "threshold", None)
    if threshold is not None:
        threshold.share = None


@comparing()
def close_to_exact(
    of: str,
    found: Mapping[str, Tensor],
    wanted: Mapping[str, Tensor],
    ask: Callable[[], Mapping[str, Tensor]],
    **words: str,
) -> ResultCheck:
    """A check of float32 results against float64 ones up to rounding.

    Args:
        of: `outputs` or `gradients`.
        found, wanted: tensors by name.
        ask: what made `wanted`, to find out what rounding does where the least tolerance fails.
        words: further fields of the check.
    """
    check = close(of, found, wanted, MIN_TOLERANCE, against=AGAINST, **words)
    if check.passed:
        return check
    return close(of, found, wanted, tolerances(rounding(ask, wanted)), against=AGAINST, **words)


@comparing()
def later_audited(
    task: SequenceWorkload,
    data: SnapshotSequence,
    audits: Mapping[str, AuditedEpochs],
    losses: Mapping[str, Sequence[float]],
    *,
    stale: Collection[str],
    device: str,
) -> list[ResultCheck]:
    """Checks of a drawn trainer's audited epoch, in processes after a cell's first."""
    graph = vertex_steps(data, task)
    oracle = Oracle(
        lambda dtype: PlainSequences(task, data, device=device, dtype=dtype, graph=graph), task
    )
    return audited_epochs(audits, losses, oracle, first=False, stale=stale)


NOTHING_SCORED: Final = "(nothing is scored: losses and gradients are zero whoever trains)"
"""Words of checks on a network whose vertices all have an edge in the next snapshot, or none."""


class SequenceOracle:
    """The plain trainer in float64, asked before training and later.

    Args:
        task, data: what is trained.
        device: of the trainers.
        label: of the workload, put before what checks compare.
        steps: optimiser steps whose losses are compared.

    Attributes:
        start: answers at the first parameters.
        losses: of the first `steps` optimiser steps, before each.
    """

    @comparing()
    def __init__(
        self,
        task: SequenceWorkload,
        data: SnapshotSequence,
        device: str = "cpu",
        *,
        label: str = "",
        steps: int = STEPS,
    ) -> None:
        self._label, self._task = label, task
        self._ask: Callable[[torch.dtype], PlainSequences] = lambda dtype: PlainSequences(
            task, data, device=device, dtype=dtype, graph=self.plain.graph
        )
        self.plain = PlainSequences(task, data, device=device, dtype=torch.float64)
        if not self.plain.task.scored.label.numel():
            self._label = f"{label} {NOTHING_SCORED}".strip()
        self.first = self.plain.state()
        output = self.plain.evaluate()
        self.losses = [self.plain.train_epoch()]
        self.start = SequenceAnswers(self.losses[0], output, last_gradients(self.plain))
        self.losses += [self.plain.train_epoch() for _ in range(steps - 1)]
        self._rounding: list[tuple[str, Mapping[str, Tensor], dict[str, float], Any]] = []
        self._rounding_of_losses: tuple[float, Tensor] | None = None
        self._known: tuple[Mapping[str, Tensor], SequenceAnswers] | None = None

    @comparing()
    def gap(self, output: Tensor, gradients: Mapping[str, Tensor]) -> float:
        """Relative deviation at the start: of an output, or of all gradients as one vector."""
        wanted = self.start.gradients
        flat = [torch.cat([of[name].flatten() for name in wanted]) for of in (gradients, wanted)]
        found = {"output": output, "gradients": flat[0]}
        return max(deviations(found, {"output": self.start.output, "gradients": flat[1]}).values())

    @comparing()
    def answers(self, state: Mapping[str, Tensor]) -> SequenceAnswers:
        """Answers at other parameters; asked again for the same ones, the same."""
        if self._known is None or self._known[0] is not state:
            load_state(self.plain, state)
            self._known = state, answers_of(self.plain)
        return self._known[1]

    @comparing()
    def output(self, state: Mapping[str, Tensor]) -> Tensor:
        """Outputs at other parameters, [V, D]."""
        load_state(self.plain, state)
        return self.plain.evaluate()

    @comparing()
    def check_start(
        self, output: Tensor, gradients: Mapping[str, Tensor], losses: Sequence[float], name: str
    ) -> list[ResultCheck]:
        """Checks of an untrained model, and of the losses of its first steps.

        Args:
            output, gradients: before the first step.
            losses: of the first steps; those beyond the oracle's are not compared.
            name: of the trainer.
        """
        found = SequenceAnswers(losses[0], output, dict(gradients))
        count = min(len(self.losses), len(losses))
        checks = self._compared(found, self.start, self.first, name, "before training")
        return [*checks[:2], self.check_losses(losses[:count], name)]

    @comparing()
    def checks_at(
        self, state: Mapping[str, Tensor]
    ) -> Callable[[SequenceAnswers, str], list[ResultCheck]]:
        """A function that checks what a trainer of a name answers at these parameters."""
        wanted = self.answers(state)
        return lambda found, name: self._compared(found, wanted, state, name, "after training")

    @comparing()
    def check_used(
        self,
        trainers: Mapping[str, SequenceTrainer],
        *,
        stale: Collection[str] = (),
        timed: bool = True,
    ) -> list[ResultCheck]:
        """Checks of trainers as their timed steps left them, in this process.

        They are asked at the parameters that a drawn one has come to, and then begin anew from the
        first parameters; all else that they keep stays. Calls `close`.

        Args:
            trainers: by name.
            stale: names of those whose later steps are not exact.
            timed: whether they took steps, and so have moved their parameters.
        """
        checks: list[ResultCheck] = []
        states = {name: trainer.state() for name, trainer in trainers.items()}
        state = trainers[random.SystemRandom().choice(list(trainers))].state()
        check = self.checks_at(state)
        for name, trainer in trainers.items():
            load_state(trainer, state)
            send_every_row(trainer)
            own = answers_of(trainer)
            checks += check(own, name)
            checks += self.liveness(own, state, name, now=states[name] if timed else None)
            trainer.close()
            load_state(trainer, self.first)
            send_every_row(trainer)
            output, losses = trainer.evaluate(), [trainer.train_epoch()]
            gradients = last_gradients(trainer)
            if name not in stale:
                losses += [trainer.train_epoch() for _ in range(len(self.losses) - 1)]
            checks += self.check_start(output, gradients, losses, name)
            trainer.close()
        return checks

    @comparing()
    def audited(
        self,
        audits: Mapping[str, AuditedEpochs],
        losses: Mapping[str, Sequence[float]],
        *,
        stale: Collection[str],
    ) -> list[ResultCheck]:
        """Checks of audited epochs of ranks by name, see `audited_epochs`."""

        def opened(dtype: torch.dtype) -> PlainSequences:
            return self.plain if dtype == torch.float64 else self._ask(dtype)

        oracle = Oracle(opened, self._task)
        return audited_epochs(audits, losses, oracle, first=True, stale=stale)

    @comparing()
    def liveness(
        self,
        found: SequenceAnswers,
        state: Mapping[str, Tensor],
        name: str,
        *,
        now: Mapping[str, Tensor] | None = None,
    ) -> list[ResultCheck]:
        """A check of how alive a trainer and the oracle are, see `base.liveness`.

        Args:
            found: answers of the trainer at the parameters `state`.
            name: of the trainer.
            now: parameters that its timed steps led to; None where it was not trained.
        """
        measured = [
            liveness.measures(
                outputs=[(one.output, None)],
                gradients=[one.gradients],
                first=None if moved is None else self.first,
                now=moved,
            )
            for one, moved in ((found, now), (self.answers(state), None))
        ]
        part = self._part("after training")
        return liveness.check(*measured, against=AGAINST, system=name, part=part)

    @comparing()
    def _compared(
        self,
        found: SequenceAnswers,
        wanted: SequenceAnswers,
        state: Mapping[str, Tensor],
        name: str,
        when: str,
    ) -> list[ResultCheck]:
        """Checks of outputs, gradients and the loss, each tensor on its own."""
        own, exact = found.by_kind(), wanted.by_kind()
        words = {"against": AGAINST, "system": name, "part": self._part(when)}
        checks = []
        for of, tensors in exact.items():
            check = close(of, own[of], tensors, MIN_TOLERANCE, **words)
            # What rounding does at the start is known for all, elsewhere it is found out anew.
            for place in (self.first, state):
                if not check.passed:
                    moved, plain = self._moved(of, place)
                    beside = plain if place is state else None
                    check = close(of, own[of], tensors, moved, plain=beside, **words)
            checks.append(check)
        if found.accuracy is not None and wanted.accuracy is not None:
            gap = abs(found.accuracy - wanted.accuracy)
            named = at_most(
                "accuracies", gap, TIES, against=AGAINST, compared=self.plain.task.tested or 1
            )
            checks.append(structs.replace(named, system=name, part=self._part(when)))
        return checks

    def _moved(
        self, of: str, state: Mapping[str, Tensor]
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """Tolerances of some answers at these parameters, and what plain float32 answers."""
        for kind, place, moved, plain in self._rounding:
            if kind == of and place is state:
                return moved, plain
        load_state(self.plain, state)
        ask = lambda: answers_of(self.plain).by_kind()[of]  # noqa: E731
        moved = tolerances(rounding(ask, ask(), draws=1))
        rounded = self._ask(torch.float32)
        load_state(rounded, state)
        self._rounding.append((of, state, moved, answers_of(rounded).by_kind()[of]))
        return self._rounding[-1][2:]

    def _part(self, when: str) -> str:
        return f"{self._label}, {when}" if self._label else when

    @comparing()
    def check_losses(self, losses: Sequence[float], name: str) -> ResultCheck:
        """A check of the losses of the first steps."""
        wanted = torch.tensor(self.losses[: len(losses)], dtype=torch.float64)
        found = torch.tensor(list(losses), dtype=torch.float64)
        part = self._part(f"first {len(losses)} steps")
        words = {"against": AGAINST, "system": name, "part": part}
        check = close("losses", found, wanted, MIN_TOLERANCE, **words)
        if check.passed:
            return check
        if self._rounding_of_losses is None:
            moved = rounding(
                lambda: {"": self._train(self.plain)}, {"": self._train(self.plain)}, draws=1
            )
            rounded = self._train(self._ask(torch.float32))
            self._rounding_of_losses = tolerances(moved)[""], rounded
        allowed, rounded = self._rounding_of_losses
        return close("losses", found, wanted, allowed, plain=rounded[: len(losses)], **words)

    def _train(self, plain: PlainSequences) -> Tensor:
        """Losses of the first steps from the first parameters."""
        load_state(plain, self.first)
        plain.close()
        return torch.tensor([plain.train_epoch() for _ in self.losses], dtype=torch.float64)

"""Results of timeline trainers compared with those of the plain trainer in float64.

Over 500 lines: all checks of the one class share epochs of the plain trainer, made once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec
import torch
from torch import Tensor

from dgbench.lab.result_checks import LOOSEST, ResultCheck, close, largest, of_contender, summarised
from dgbench.runtime.draws import draws_of
from dgbench.runtime.touched import comparing
from dgbench.systems.base import liveness
from dgbench.systems.base.conditioning import MIN_TOLERANCE, rounding, tolerances
from dgbench.systems.base.kept import KeptLosses, content_of, kept_key, read, write
from dgbench.systems.base.kinks import excess, with_nearest_slopes
from dgbench.systems.base.oracle import Oracle
from dgbench.systems.base.rank_audit import AuditedEpochs, audited_epochs
from dgbench.systems.base.timeline import (
    PlainTimeline,
    TimelineTrainer,
    TimelineWorkload,
    timeline_model,
)
from dgbench.systems.esdg.partition import block_ranges, consecutive

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.systems.base import RunContext

AGAINST: Final = "float64 oracle"
DRAWN_STEPS: Final = 3
"""Steps whose outputs are compared beside those of the last step."""

CHECKED_LOSSES: Final = 2
"""Training steps whose losses are compared; that of the second depends on the first update."""

DRAWN_PARAMETERS: Final = 24
"""Sets of parameters that are tried until all outputs that are compared are alive."""

EXACT: Final = 1e-9
"""Tolerance of results in float64."""


Tensors = dict[str, Tensor]
PlainComputation = Callable[[PlainTimeline], Tensors]


@dataclass(frozen=True, slots=True)
class ResultRequest:
    """Request for a trainer's results.

    Attributes:
        steps: whose outputs are kept.
        parameters: with which results are computed; None: the trainer's own.
    """

    steps: tuple[int, ...]
    parameters: Mapping[str, Tensor] | None = None


@dataclass(slots=True)
class TimelineResult:
    """Results of a trainer.

    Attributes:
        state: parameters by name that it had.
        outputs: [N, D] of the steps that were asked for.
        gradients: by name of the parameter.
        loss: of the timeline.
    """

    state: Tensors
    outputs: dict[int, Tensor]
    gradients: Tensors
    loss: float

    @classmethod
    def of(
        cls,
        trainer: TimelineTrainer,
        request: ResultRequest,
        state: Mapping[str, Tensor] | None = None,
        *,
        gradients: bool = True,
    ) -> TimelineResult:
        """Ask a trainer, new or trained, and leave its parameters as they are; of ranks, ask all.

        Args:
            trainer: any.
            request: steps, and the parameters to load.
            state: parameters where the request names none.
            gradients: whether to ask for these and the loss, too.
        """
        own = trainer.state()
        asked = request.parameters or state
        if asked is not None:
            load_parameters(trainer, asked)
        outputs = trainer.outputs()
        kept = {t: outputs[t].detach().cpu().clone() for t in request.steps}
        slopes = trainer.gradients() if gradients else {}
        found = cls(trainer.state(), kept, slopes, trainer.last_loss)
        load_parameters(trainer, own)
        return found


@torch.no_grad()
def load_parameters(trainer: TimelineTrainer, state: Mapping[str, Tensor]) -> None:
    """Copy parameters into a trainer's model, whatever their types."""
    for name, parameter in trainer.model.named_parameters():
        parameter.copy_(state[name])


class TimelineOracle:
    """Results of the plain trainer in float64, and how far rounding may take a trainer from them.

    Tensors within `MIN_TOLERANCE` need no more. Only for others the plain trainer is run again
    under perturbed arithmetic, which tells what rounding does to each of them.

    Attributes:
        request: what trainers are to be asked for: some steps drawn at random and the last. Where
            outputs of one of them are all zero with the workload's first parameters (units that are
            dead from the start tell nothing), other parameters come with it.
    """

    @comparing()
    def __init__(
        self,
        workload: TimelineWorkload,
        data: SnapshotSequence,
        *,
        device: str = "cpu",
        share: tuple[int, int] | None = None,
    ) -> None:
        """Draw steps.

        Args:
            workload, data: what is trained.
            device: of the plain trainer.
            share: (P, blocks) where the results are those of rank 0 of the snapshot partition, to
                which the other ranks send zeros; None: of the whole timeline.
        """
        self._workload, self._data, self._device, self._share = workload, data, device, share
        self._exact = self._plain()
        self._first = self._exact.state()
        held = list(self._exact.held)
        drawn = draws_of("steps").sample(held[:-1], min(DRAWN_STEPS, len(held) - 1))
        self._steps = (*sorted(drawn), held[-1])
        self._known: list[TimelineResult] = []

    @cached_property
    @comparing()
    def request(self) -> ResultRequest:
        """Request that trainers are to be asked with."""
        return ResultRequest(self._steps, self._live_parameters(self._steps))

    def _live_parameters(self, steps: Sequence[int]) -> Tensors | None:
        """None where the first parameters give outputs of these steps, else drawn ones that do, if
        some do: those that did in another process come first, then others with gradients that
        float32 leaves their digits."""
        kept = kept_key((self._workload, "parameters of live outputs"))
        known = read(kept)
        if known is not None:
            parameters = self._drawn_parameters(int(known["seed"]))
            if _alive(self._outputs_with(parameters, steps), steps):
                return parameters
        elif _alive(self.expected().outputs, steps):
            return None
        live: Tensors | None = None
        for _ in range(DRAWN_PARAMETERS):
            seed = draws_of("parameters").randrange(2, 2**31)
            parameters = self._drawn_parameters(seed)
            if not _alive(self._outputs_with(parameters, steps), steps):
                continue
            live = live or parameters
            slopes = self._plain(torch.float32, parameters).gradients()
            if largest(slopes, self.expected(parameters).gradients) <= MIN_TOLERANCE:
                write(kept, {"seed": seed})
                return parameters
        return live or parameters

    def _drawn_parameters(self, seed: int) -> Tensors:
        other = msgspec.structs.replace(self._workload, seed=seed)
        return {name: p.detach() for name, p in timeline_model(other).named_parameters()}

    @torch.no_grad()
    def _outputs_with(self, state: Mapping[str, Tensor], steps: Sequence[int]) -> dict[int, Tensor]:
        load_parameters(self._exact, state)
        outputs = self._exact.forward()
        return {t: outputs[t].cpu() for t in steps}

    def expected(self, state: Mapping[str, Tensor] | None = None) -> TimelineResult:
        """Results with these parameters, or with the first ones of the workload."""
        plain = self._exact
        load_parameters(plain, self._first if state is None else state)
        own = plain.state()
        for known in self._known:
            if all(torch.equal(known.state[name], own[name]) for name in own):
                return known
        plain.model.zero_grad(set_to_none=True)
        outputs = plain.forward()
        loss = plain.loss_of(outputs)
        loss.backward()
        gradients = {
            name: (torch.zeros_like(p) if p.grad is None else p.grad).cpu()
            for name, p in plain.model.named_parameters()
        }
        plain.model.zero_grad(set_to_none=True)
        kept = {t: outputs[t].detach().cpu() for t in self._steps}
        self._known.append(TimelineResult(own, kept, gradients, float(loss.detach())))
        return self._known[-1]

    @comparing()
    def checks(
        self, results: Mapping[str, TimelineResult], when: str, *, exact: bool = False
    ) -> list[ResultCheck]:
        """Compare outputs, gradients and losses, each result at its own parameters.

        Args:
            results: by the name of the trainer.
            when: at which point of training, in words.
            exact: they were computed in float64.
        """
        found = []
        for name, own in results.items():
            wanted = self.expected(own.state)
            state, part = own.state, ", ".join(word for word in (name, when) if word)
            kinds: dict[str, tuple[Tensors, Tensors, PlainComputation]] = {
                "outputs": (_steps(own.outputs), _steps(wanted.outputs), self._outputs),
                "gradients": (own.gradients, wanted.gradients, _gradients),
                "losses": (_numbers([own.loss]), _numbers([wanted.loss]), _loss),
            }
            for of, (mine, reference, answer) in kinds.items():
                check = self._check(of, part, mine, reference, answer, state, exact)
                found += of_contender(name, [check])
        return found

    @comparing()
    def loss_checks(
        self, losses: Mapping[str, Sequence[float]], *, exact: bool = False
    ) -> list[ResultCheck]:
        """Compare the first losses of training, by the name of the trainer."""
        found: list[ResultCheck] = []
        for anew in (False, True):  # where kept ones do not confirm a trainer's
            wanted, found = _numbers(self._first_losses(anew=anew)), []
            for name, own in losses.items():
                part = ", ".join(word for word in (name, "in training") if word)
                mine = _numbers(own[:CHECKED_LOSSES])
                check = self._check(
                    "losses", part, mine, wanted, lambda p: _numbers(_trained(p)), None, exact
                )
                found += of_contender(name, [check])
            if all(check.passed for check in found):
                break
        return found

    @comparing()
    def first_results(self, trainers: Mapping[str, TimelineTrainer]) -> dict[str, TimelineResult]:
        """Results of one trainer that is drawn, before it is trained: all are asked later."""
        name = draws_of("trainers").choice(list(trainers))
        return {name: TimelineResult.of(trainers[name], self.request)}

    @comparing()
    def checks_of(
        self, trainers: Mapping[str, TimelineTrainer], before: Mapping[str, TimelineResult]
    ) -> list[ResultCheck]:
        """Compare trainers in this process as they were and, trained, as they are now.

        All of them are asked with the parameters of one that is drawn, so that a single result of
        the oracle serves all; whatever else they hold is as training left it.

        Args:
            trainers: by name.
            before: their results before they were trained.
        """
        state = trainers[draws_of("trainers").choice(list(trainers))].state()
        losses = {name: list(trainer.losses) for name, trainer in trainers.items()}
        states = {name: trainer.state() for name, trainer in trainers.items()}
        after = {n: TimelineResult.of(t, self.request, state) for n, t in trainers.items()}
        return self.trained_checks(before, after, losses, states)

    @comparing()
    def later_checks(self, trainers: Mapping[str, TimelineTrainer]) -> list[ResultCheck]:
        """Compare outputs of the last step of trained trainers.

        All are asked with the parameters of one that is drawn or, where these give outputs that
        are all zero and tell nothing, with others. A trainer whose output is not within
        `MIN_TOLERANCE` is compared as in a cell's first process.
        """
        states = {name: trainer.state() for name, trainer in trainers.items()}
        state = states[draws_of("trainers").choice(list(trainers))]
        last = self._steps[-1]
        wanted = self._outputs_with(state, [last])[last]
        exact = self._measures(TimelineResult(state, {last: wanted}, {}, math.nan))
        if not wanted.any():
            state = self._live_parameters([last]) or self._first
            wanted = self._outputs_with(state, [last])[last]
        found: list[ResultCheck] = []
        for name, trainer in trainers.items():
            own = TimelineResult.of(trainer, ResultRequest((last,)), state, gradients=False)
            part = f"{name}, after training, step {last}"
            found += self._alive(name, exact, self._measures(own, states[name]))
            check = close(
                "outputs", own.outputs[last], wanted, MIN_TOLERANCE, against=AGAINST, part=part,
                system=name,
            )  # fmt: skip
            if check.passed and wanted.any():
                found.append(check)
                continue
            asked = TimelineResult.of(trainer, self.request, state)
            found += self.checks({name: asked}, "after training")
        return summarised(found)

    @comparing()
    def trained_checks(
        self,
        before: Mapping[str, TimelineResult],
        after: Mapping[str, TimelineResult],
        losses: Mapping[str, Sequence[float]],
        states: Mapping[str, Tensors] | None = None,
    ) -> list[ResultCheck]:
        """Compare results before and after training, and losses of its first steps; summarised.

        Args:
            before, after, losses: by the name of the trainer.
            states: parameters that training led to, where the results after it are at others.
        """
        return summarised(
            [
                *self.checks(before, "before training"),
                *self.checks(after, "after training"),
                *self.liveness(after, states),
                *self.loss_checks(losses),
            ]
        )

    @comparing()
    def liveness(
        self,
        results: Mapping[str, TimelineResult],
        states: Mapping[str, Tensors] | None = None,
    ) -> list[ResultCheck]:
        """Checks of how alive trained trainers and the oracle are, see `base.liveness`.

        Where trainers were asked with drawn parameters, since those of the workload give no
        outputs, the oracle's results with the workload's count.

        Args:
            results: of trainers after training, by name.
            states: parameters that training led to, where the results are at others.
        """
        drawn, found = self.request.parameters is not None, list[ResultCheck]()
        if states is None and not drawn:
            states = {name: own.state for name, own in results.items()}
        for name, own in results.items():
            exact = self.expected(None if drawn else own.state)
            moved = (states or {}).get(name)
            found += self._alive(name, self._measures(exact), self._measures(own, moved))
        return found

    @comparing()
    def audited(
        self,
        audits: Mapping[str, AuditedEpochs],
        losses: Mapping[str, Sequence[float]],
        *,
        first: bool = True,
    ) -> list[ResultCheck]:
        """Checks of audited epochs of ranks by name, see `audited_epochs`; summarised."""

        def opened(dtype: torch.dtype) -> PlainTimeline:
            return self._exact if dtype == torch.float64 else self._plain(dtype)

        oracle = Oracle(opened, self._workload)
        return summarised(audited_epochs(audits, losses, oracle, first=first))

    def _alive(self, name: str, *measures: liveness.Measures) -> list[ResultCheck]:
        part = ", ".join(word for word in (name, "after training") if word)
        return of_contender(name, liveness.check(*measures, against=AGAINST, part=part))

    def _measures(
        self, result: TimelineResult, now: Mapping[str, Tensor] | None = None
    ) -> liveness.Measures:
        outputs = [(y, self._reached(t)) for t, y in result.outputs.items()]
        if self._share is not None:
            # Rows of other ranks are zeros: a layer that reads them alone has no slope.
            moved = {"moved": (liveness.distance(self._first, now), "")} if now else {}
            return liveness.measures(outputs=outputs) | moved
        return liveness.measures(
            outputs=outputs,
            gradients=[result.gradients] if result.gradients else [],
            first=self._first if now else None,
            now=now,
        )

    def _reached(self, t: int) -> Tensor:
        """Vertices that a snapshot reaches; of a share with temporal halves, those of its rank."""
        rows = liveness.reached(self._data, t)
        model = self._exact.model
        if self._share is not None and any(map(model.has_temporal, range(model.num_layers))):
            rows[-(-self._data.num_nodes // self._share[0]) :] = False
        return rows

    def _first_losses(self, *, anew: bool) -> list[float]:
        """Losses before and after one update by the first gradients, kept between processes."""
        content = content_of(self._data, state=self._first)
        kept = kept_key((self._workload, "losses", self._share, content))
        known = None if anew else read(kept)
        if known is None or len(known) != CHECKED_LOSSES:
            first, plain = self.expected(), self._exact
            for name, parameter in plain.model.named_parameters():
                parameter.grad = first.gradients[name].to(parameter.device)
            torch.optim.Adam(plain.model.parameters(), lr=self._workload.lr).step()
            plain.model.zero_grad(set_to_none=True)
            with torch.no_grad():
                losses = [first.loss, float(plain.loss_of(plain.forward()))]
            known = {str(step): loss for step, loss in enumerate(losses)}
            write(kept, known)
        return list(known.values())

    def _check(
        self,
        of: str,
        part: str,
        found: Tensors,
        wanted: Tensors,
        answer: PlainComputation,
        state: Mapping[str, Tensor] | None,
        exact: bool,
    ) -> ResultCheck:
        check = close(
            of, found, wanted, EXACT if exact else MIN_TOLERANCE, against=AGAINST, part=part
        )
        if check.passed or exact or not check.gap <= LOOSEST:
            return check  # no rounding explains more
        allowed = tolerances(rounding(lambda: answer(self._plain(state=state)), wanted))
        about = {"against": AGAINST, "part": part}
        beside = answer(self._plain(torch.float32, state))
        check = close(of, found, wanted, allowed, plain=beside, **about)
        if check.passed or of != "gradients":
            return check
        nearest = with_nearest_slopes(
            lambda: answer(self._plain(state=state)), lambda own: excess(found, own, allowed)
        )
        return close(of, found, nearest or wanted, allowed, plain=beside, **about)

    def _outputs(self, plain: PlainTimeline) -> Tensors:
        with torch.no_grad():
            outputs = plain.forward()
        return _steps({t: outputs[t] for t in self._steps})

    def _plain(
        self, dtype: torch.dtype = torch.float64, state: Mapping[str, Tensor] | None = None
    ) -> PlainTimeline:
        if self._share is None:
            plain = PlainTimeline(self._workload, self._data, device=self._device, dtype=dtype)
        else:
            plain = PlainShare(self._workload, self._data, *self._share, dtype=dtype)
        if state is not None:
            load_parameters(plain, state)
        return plain


def comparison(
    workload: TimelineWorkload, data: SnapshotSequence, ranks: int, context: RunContext
) -> tuple[TimelineOracle | None, KeptLosses]:
    """The oracle of a cell's first process, and the losses that later ones are compared with.

    Without losses that an oracle confirmed, a later process has the oracle, too. All ways to deal
    out the work train the same.
    """
    kept = KeptLosses(workload, data, (ranks, context.device))
    if context.round > 1 and kept.known is not None:
        return None, kept
    return TimelineOracle(workload, data, device=context.device), kept


@comparing()
def later_checks(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    trainers: Mapping[str, TimelineTrainer],
    device: str = "cpu",
) -> list[ResultCheck]:
    """Compare outputs of the last step of trained trainers, in processes after a cell's first."""
    return TimelineOracle(workload, data, device=device).later_checks(trainers)


@comparing()
def later_ranks(
    workload: TimelineWorkload,
    data: SnapshotSequence,
    kept: KeptLosses,
    losses: Mapping[str, Sequence[float]],
    audits: Mapping[str, AuditedEpochs],
    device: str,
) -> list[ResultCheck]:
    """Checks of ranks in processes after a cell's first: all losses, and a drawn audited epoch."""
    oracle = TimelineOracle(workload, data, device=device)
    return [*kept.checks(losses), *oracle.audited(audits, losses, first=False)]


class PlainShare(PlainTimeline):
    """The plain trainer of rank 0's share of the snapshot partition, other ranks sending zeros.

    The rank convolves the first snapshots of every block and runs the temporal halves of the first
    vertices; snapshots and vertices of others are zero wherever they would be read.
    """

    def __init__(
        self,
        workload: TimelineWorkload,
        data: SnapshotSequence,
        size: int,
        blocks: int,
        *,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(workload, data, dtype=dtype)
        blocked = block_ranges(self.task.steps, blocks)
        self._held = [t for times in blocked for t in consecutive(times, size)[0]]
        self._owned = -(-data.num_nodes // size)

    @property
    def held(self) -> Sequence[int]:
        return self._held

    def forward(self) -> list[Tensor]:
        model, aggregator = self.model, self.aggregator()
        links, _ = model.chain(self.task.steps, ())
        hidden: dict[int, Tensor] = {}
        for layer in range(model.num_layers):
            inputs = {
                t: aggregator.apply(t, hidden[t]) if layer else aggregator.first(t)
                for t in self.held
            }
            hidden = {t: model.spatial(layer, x, links[t]) for t, x in inputs.items()}
            if model.has_temporal(layer):
                hidden = self._temporal(layer, hidden)
        none = torch.zeros(self.data.num_nodes, model.output_dim, dtype=self.dtype)
        return [hidden.get(t, none) for t in range(self.task.steps)]

    def loss_of(self, outputs: Sequence[Tensor]) -> Tensor:
        losses = [self.task.loss_sum(self.model.head, t, outputs[t]) for t in self.held]
        return torch.stack(losses).sum() / self.task.count

    def _temporal(self, layer: int, hidden: Mapping[int, Tensor]) -> dict[int, Tensor]:
        width = self.model.spatial_dims[layer]
        none = torch.zeros(self._owned, width, dtype=self.dtype)
        series = [hidden[t][: self._owned] if t in hidden else none for t in range(self.task.steps)]
        out, _ = self.model.temporal(layer, torch.stack(series), ())
        others = self.data.num_nodes - self._owned
        return {t: torch.nn.functional.pad(out[t], (0, 0, 0, others)) for t in hidden}


def largest_gap(checks: Sequence[ResultCheck], *kinds: str) -> float:
    """The largest deviation among checks of these kinds, as rows keep it; 0 where there is none."""
    return max((check.gap for check in checks if check.of in kinds), default=0.0)


def _trained(plain: PlainTimeline) -> list[float]:
    return [plain.train_epoch() for _ in range(CHECKED_LOSSES)]


def _gradients(plain: PlainTimeline) -> Tensors:
    return plain.gradients()


def _loss(plain: PlainTimeline) -> Tensors:
    with torch.no_grad():
        return {"0": plain.loss_of(plain.forward())}


def _alive(outputs: Mapping[int, Tensor], steps: Sequence[int]) -> bool:
    """Return True if no output of these steps is all zero."""
    return all(bool(outputs[t].any()) for t in steps)


def _steps(outputs: Mapping[int, Tensor]) -> Tensors:
    return {f"step {t}": output for t, output in outputs.items()}


def _numbers(values: Sequence[float]) -> Tensors:
    return {str(i): torch.tensor(value, dtype=torch.float64) for i, value in enumerate(values)}

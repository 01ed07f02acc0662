"""Checks of stream trainers: what they answer in the state they are in, beside a float64 oracle.

The oracle is the plain path in float64: sorted arrays, one root after the other, plain gathers. It
takes over parameters, memories and the optimiser of the trainer that was timed, whose graph, caches
and buffers stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from dgbench.lab.result_checks import LOOSEST, ResultCheck, close, equal, of_contender
from dgbench.models.ctdg import MemoryRows
from dgbench.runtime.draws import draws_of
from dgbench.runtime.threads import one_thread
from dgbench.runtime.touched import comparing
from dgbench.systems.base import liveness
from dgbench.systems.base.conditioning import rounding, tolerances
from dgbench.systems.base.stream import StreamData, StreamTrainer, StreamWorkload, batches
from dgbench.systems.base.stream_audit import BatchOracle
from dgbench.systems.base.stream_memory import HeldWrites, MemoryState
from dgbench.systems.base.stream_recount import recount_batches
from dgbench.systems.gnnflow.experiments.sample_checks import NearbyStream, drawn
from dgbench.systems.gnnflow.rank_audit import RankBatches
from dgbench.systems.gnnflow.ranked import BatchAnswer, GraphPlacement, StreamRankedRun, race_ranked

if TYPE_CHECKING:
    from dgbench.systems.base.stream import GraphAccess

ORACLE: Final = "float64 oracle"
PLAIN: Final = "plain path in float32"
EVENTS: Final = (12, 4)
"""Events of a frame that are compared, always its last one: with one hop, and with two."""
ROUNDING: Final = 1e-5
"""Largest relative deviation of float32 where nothing cancels; seen are 1e-6."""
NUDGES: Final = 8.0
"""Times the change of losses by a last bit of the parameters that is still rounding."""
COUNTED: Final = ("roots", "sampled_edges")
"""Counters of timed batches that all ranks together have as many of as the plain path."""
SCORED: Final = 1e-3
"""Average precision moves by whole ranks where rounding swaps two scores."""


def narrow_frames(task: StreamWorkload, data: StreamData, inserted: int) -> dict[int, Tensor]:
    """Some events of a frame drawn from all that lie before `inserted`, and of the last of them."""
    frames = batches(task, torch.arange(inserted), data.events.t[:inserted])
    last, most = len(frames) - 1, EVENTS[len(task.fanouts) > 1]
    return {
        number: frames[number][drawn(frames[number].numel(), most)]
        for number in sorted({draws_of("batches").randrange(last + 1), last})
    }


class RecordedSamples:
    """A `GraphAccess` that samples the same roots of the same call once."""

    def __init__(self, access: GraphAccess) -> None:
        self._access = access
        self._known: dict[Any, Any] = {}

    def insert(self, first: int, last: int) -> None:
        self._known.clear()
        self._access.insert(first, last)

    def sample(
        self, nodes: Tensor, times: Tensor, *, draw: int, positions: Tensor | None = None
    ) -> Any:
        key = draw, nodes.numpy().tobytes(), times.numpy().tobytes()
        if key not in self._known:
            self._known[key] = self._access.sample(nodes, times, draw=draw, positions=positions)
        return self._known[key]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._access, name)


class StreamOracle:
    """The plain `trainer` in float64, and the `frames` compared: number -> events.

    Args:
        inserted: events that the graph holds.
        access: of the samples where no plain sampler draws them; None: `NearbyStream`.
        device: of the model, that of the trainers compared.
    """

    @comparing()
    def __init__(
        self,
        task: StreamWorkload,
        data: StreamData,
        inserted: int,
        *,
        access: GraphAccess | None = None,
        device: str = "cpu",
    ) -> None:
        plain = RecordedSamples(NearbyStream(task, data) if access is None else access)
        self.trainer = StreamTrainer(task, data, plain, device=device, dtype=torch.float64)
        if access is None:
            self.trainer.insert(inserted)
        self._first = self.trainer.state()
        self.frames = narrow_frames(task, data, inserted)
        self._exact: list[BatchAnswer] = []  # of the frames compared last

    def load(self, state: Mapping[str, Tensor], memory: MemoryRows | None) -> None:
        """Take over parameters and memories."""
        self.trainer.model.load_state_dict(dict(state), strict=False)
        if self.trainer.memory is not None and memory is not None:
            self.trainer.restore_memory(MemoryState(memory, HeldWrites()))
        self.trainer._optimiser = None

    @comparing()
    def checks(self, name: str, trainer: StreamTrainer) -> list[ResultCheck]:
        """Outputs, gradients, losses and a step of a trainer, which is trained on a few events."""
        found, answers = [], list[BatchAnswer]()
        state, few = trainer.state(), liveness.few_updates(trainer.moments())
        # A few events: a second thread costs more than it does.
        with (
            one_thread(),
            trainer.frames_replaced(self.frames),
            self.trainer.frames_replaced(self.frames),
        ):
            for frame in self.frames:
                taken_over(self.trainer, trainer)
                answers.append(BatchAnswer.of(trainer, frame))
                found += self.compare(name, frame, answers[-1])
                found += self._compare_step(name, frame, trainer)
        return [*found, *self.liveness(name, answers, state, few=few)]

    @comparing()
    def liveness(
        self, name: str, answers: Sequence[BatchAnswer], state: Mapping[str, Tensor], *, few: bool
    ) -> list[ResultCheck]:
        """A check of how alive a trainer is and the oracle where it was compared with it last.

        `answers` are on all `frames`, `state` are parameters after its timed steps; `few`: these
        cannot move every layer, see `liveness.ALL_LAYERS`.
        """
        layers = liveness.distances(self._first, state)
        own, exact = (
            liveness.measures(
                outputs=[(one.outputs, None) for one in some],
                gradients=liveness.taking_part([one.gradients for one in some], layers, few=few),
            )
            for some in (answers, self._exact)
        )
        gradients = [one.gradients for one in self._exact]
        moved = (
            liveness.together(self._first, state)
            if few
            else liveness.measures(first=self._first, now=state, exact=gradients)
        )
        return liveness.check({**own, **moved}, exact, against=ORACLE, part=f"{name}")

    @comparing()
    def compare(self, name: str, frame: int, answer: BatchAnswer) -> list[ResultCheck]:
        """Outputs, gradients and loss of one of `frames`, in the state that was loaded."""
        exact = self._answer(frame)
        self._exact = [*self._exact, exact][-len(self.frames) :]
        # Gradients of the weights of ages are as large as ages: beside them all others are nothing.
        ages = {key for key in exact.gradients if key.endswith("time.weight")}
        parts: list[tuple[str, Callable[[BatchAnswer], dict[str, Tensor]]]] = [
            ("outputs", lambda one: {"": one.outputs}),
            ("losses", lambda one: {"": torch.as_tensor(one.loss, dtype=torch.float64)}),
            ("gradients", lambda one: {k: g for k, g in one.gradients.items() if k in ages}),
            ("gradients", lambda one: {k: g for k, g in one.gradients.items() if k not in ages}),
        ]
        part = f"{name}, frame {frame}"
        return [
            _judged(of, read(answer), read(exact), lambda r=read: r(self._answer(frame)), part)
            for of, read in parts
            if read(exact)
        ]

    def _compare_step(self, name: str, frame: int, trainer: StreamTrainer) -> list[ResultCheck]:
        """Loss and parameters of a step that both take from the state that both are in."""
        plain, memory = self.trainer, self.trainer.mark_memory()
        parameters = deepcopy(plain.model.state_dict())
        moments = None if plain._optimiser is None else deepcopy(plain._optimiser.state_dict())

        def step() -> dict[str, Tensor]:
            plain.model.load_state_dict(parameters)
            plain.restore_memory(memory)
            plain._optimiser = None
            if moments is not None:
                _resume_optimiser(plain, moments)
            loss = torch.as_tensor(plain.step(frame), dtype=torch.float64)
            return {"losses": loss, "parameters": _flat(plain.state())}

        exact = step()
        loss = torch.as_tensor(trainer.step(frame), dtype=torch.float64)
        own = {"losses": loss, "parameters": _flat(trainer.state())}
        part = f"{name}, a step on frame {frame}"
        return [
            _judged(of, {"": own[of]}, {"": exact[of]}, lambda of=of: {"": step()[of]}, part)
            for of in exact
        ]

    def _answer(self, frame: int) -> BatchAnswer:
        with self.trainer.frames_replaced(self.frames):
            return BatchAnswer.of(self.trainer, frame)


def taken_over(plain: StreamTrainer, trainer: StreamTrainer) -> None:
    """Let a plain trainer go on from where another one is, with its moments of Adam."""
    plain.copy_from(trainer)
    if trainer._optimiser is not None:
        _resume_optimiser(plain, trainer._optimiser.state_dict())


def _resume_optimiser(plain: StreamTrainer, moments: Mapping[str, Any]) -> None:
    parameters = plain.model.parameters()
    plain._optimiser = torch.optim.Adam(parameters, lr=plain.workload.lr, fused=True)
    # Counts of steps would be shared else.
    plain._optimiser.load_state_dict(deepcopy(dict(moments)))


def _judged(
    of: str,
    own: Mapping[str, Tensor],
    exact: Mapping[str, Tensor],
    again: Callable[[], dict[str, Tensor]],
    part: str,
) -> ResultCheck:
    """A check up to rounding; where terms cancel, as in the gradient of the last bias, up to what
    rounding every operation of `again` does to each tensor."""
    check = close(of, own, exact, ROUNDING, against=ORACLE, part=part)
    if check.passed:
        return check
    allowed = tolerances(rounding(again, exact))
    return close(of, own, exact, allowed, against=ORACLE, part=part)


def _flat(state: Mapping[str, Tensor]) -> Tensor:
    """All parameters as one vector: where a gradient is rounding, Adam steps either way."""
    return torch.cat([part.double().flatten() for part in state.values()])


@comparing()
def trainer_checks(
    trainers: Mapping[str, StreamTrainer], task: StreamWorkload, data: StreamData
) -> list[ResultCheck]:
    """Checks of trainers of one task that hold the same events, each as it stands, and of what it
    asks for in two more batches."""
    first = next(iter(trainers.values()))
    oracle = StreamOracle(task, data, first.inserted, device=str(first.device))
    return [
        check
        for name, trainer in trainers.items()
        for check in (*oracle.checks(name, trainer), *recount_batches(name, trainer, task))
    ]


@comparing()
def _plain_run(
    task: StreamWorkload, data: StreamData, inserted: int, *, nudged: bool = False
) -> StreamTrainer:
    """A plain trainer in float32, or one whose parameters are off by their last bit."""
    plain = StreamTrainer(task, data, NearbyStream(task, data))
    plain.insert(inserted)
    if nudged:
        nudge(plain)
    return plain


def nudge(trainer: StreamTrainer) -> None:
    """Let every parameter be off by its last bit."""
    with torch.no_grad():
        for leaf in trainer.model.parameters():
            leaf.copy_(torch.nextafter(leaf, torch.full_like(leaf, torch.inf)))


def rounded_as(moved: float, least: float) -> float:
    """Largest relative deviation of losses that is rounding, where a last bit of the parameters
    moves them by `moved`; long ages enlarge that."""
    return min(LOOSEST, max(least, NUDGES * moved))


def largest_gap(found: Sequence[float], wanted: Sequence[float]) -> float:
    """Largest relative difference of numbers from those wanted."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, wanted, strict=True))


def checked_race(
    task: StreamWorkload,
    contenders: Mapping[str, GraphPlacement],
    data: StreamData,
    *,
    first_process: bool = True,
    **how: Any,
) -> tuple[dict[str, StreamRankedRun], list[ResultCheck]]:
    """`race_ranked` of one epoch with checks of each contender after its training, and of all its
    losses; `first_process`: see `RankBatches.checks`."""
    score = how.get("score")
    trained = torch.arange(how.get("first", 0), how.get("last") or len(data.events))
    inserted = max(int(trained[-1]) + 1, score[1] if score else 0)
    oracle = StreamOracle(task, data, inserted)
    parts = batches(task, trained, data.events.t[trained])
    audited = RankBatches(BatchOracle(task, data, oracle.trainer), [parts])
    runs = race_ranked(
        task, contenders, data=data, compared=oracle.frames, audited=audited.request, **how
    )
    plain = _plain_run(task, data, inserted)
    losses = []
    for part in parts:
        losses.append(float(plain.enqueue_batch(part, 0)))
        if len(losses) == 1:  # as ranks do
            plain.meter.reset()
    counted = {key: float(plain.meter.counters[key]) for key in COUNTED}
    precision = plain.evaluate_range(*score).ap if score else None
    allowed = ROUNDING
    if any(largest_gap(run.losses, losses) > ROUNDING for run in runs.values()):
        # Sums of gradients over ranks are rounded otherwise.
        other = _plain_run(task, data, inserted, nudged=True)
        moved = largest_gap([float(other.enqueue_batch(part, 0)) for part in parts], losses)
        allowed = rounded_as(moved, ROUNDING)
    checks = audited.checks(
        {name: run.copies for name, run in runs.items()},
        {name: run.losses for name, run in runs.items()},
        first=first_process,
    )
    for name, run in runs.items():
        how_compared: dict[str, Any] = {"against": PLAIN, "part": name, "system": name}
        own = {key: float(sum(of.get(key, 0) for of in run.counters)) for key in COUNTED}
        checks += [
            equal("counters", own, counted, against=PLAIN, system=name),
            close("losses", run.losses[0], losses[0], ROUNDING, **how_compared),
            close("losses", run.losses, losses, allowed, **how_compared),
        ]
        if precision is not None:
            checks.append(close("scores", run.scores.ap, precision, SCORED, **how_compared))
        oracle.load(run.state, run.memory)
        for frame, answer in zip(oracle.frames, run.answers, strict=True):
            checks += of_contender(name, oracle.compare(name, frame, answer))
        few = len(losses) < liveness.ALL_LAYERS
        checks += of_contender(name, oracle.liveness(name, run.answers, run.state, few=few))
    return runs, checks

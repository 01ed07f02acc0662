"""Systems that skip, defer or replay the work of training, and those that do less of it.

All train their first steps as they should, and cheat in the timed steps that follow.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor

from dgbench.datasets.store import cache_root
from dgbench.runtime.readback import Readback
from dgbench.systems.base.system import Trainer
from tests.cheats import Cheat
from tests.cheats.honest import CopiesTrainer, HonestTrainer, system_of

HONEST_STEPS: Final = 3


class LateTrainer(HonestTrainer):
    """Is honest for some steps, and `cheat` after them."""

    taken = 0

    def enqueue(self, frame: int) -> Readback:
        self.taken += 1
        return super().enqueue(frame) if self.taken <= HONEST_STEPS else self.cheat(frame)

    def cheat(self, frame: int) -> Readback:
        return super().enqueue(frame)

    @property
    def late(self) -> bool:
        return self.taken > HONEST_STEPS


class Idle(LateTrainer):
    """Does nothing after its first steps."""

    def cheat(self, frame: int) -> Readback:
        return Readback(0.5)


class NoUpdate(LateTrainer):
    """Computes the loss and nothing else."""

    def cheat(self, frame: int) -> Readback:
        return Readback(self.loss(frame))


class OneOfTen(LateTrainer):
    """Takes every tenth step and tells its loss ten times."""

    each = 10
    told = Readback(0.5)

    def cheat(self, frame: int) -> Readback:
        if self.taken % self.each == 0:
            self.told = super().cheat(frame)
        return self.told


class EverySecond(OneOfTen):
    """Takes every second step."""

    each = 2


class Asked(LateTrainer):
    """Puts steps off until somebody asks about the model."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.owed: list[int] = []

    def cheat(self, frame: int) -> Readback:
        self.owed.append(frame)
        return Readback(self.loss(frame))

    def state(self) -> dict[str, Tensor]:
        while self.owed:
            super().cheat(self.owed.pop(0))
        return super().state()


class AskedForCopies(CopiesTrainer):
    """Does so, and hands out copies of its parameters alone."""

    trainer = Asked


class _Promise(Readback):
    """A loss that is made when it is read."""

    def __init__(self, make: Any) -> None:
        super().__init__(0.0)
        self.make = make

    def value(self) -> float:
        if self.make is not None:
            self._host, self.make = self.make().value(), None
        return super().value()


class WhenRead(LateTrainer):
    """Trains when the loss is read."""

    def cheat(self, frame: int) -> Readback:
        return _Promise(lambda: super(WhenRead, self).cheat(frame))


class InThread(LateTrainer):
    """Trains in a thread that is waited for in `report`."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.owed: list[int] = []
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)

    def cheat(self, frame: int) -> Readback:
        if self.done.is_set():
            return super().cheat(frame)
        self.owed.append(frame)
        if self.thread.ident is None:
            self.thread.start()
        return Readback(0.5)

    def work(self) -> None:
        while self.owed or not self.done.wait(1e-3):
            if self.owed:
                super().cheat(self.owed.pop(0))

    def report(self) -> dict[str, float]:
        self.done.set()
        if self.thread.is_alive():
            self.thread.join()
        return super().report()


class Rehearsed(HonestTrainer):
    """Trains in `prepare`, goes back, and replays what it saw."""

    def prepare(self) -> None:
        first = {name: leaf.detach().clone() for name, leaf in self.trained().items()}
        self.seen = [self.rehearse(step) for step in range(48)]
        self._optimiser, self.taken = None, 0
        with torch.no_grad():
            for name, leaf in self.trained().items():
                leaf.copy_(first[name])

    def rehearse(self, step: int) -> tuple[float, list[Tensor]]:
        loss = HonestTrainer.enqueue(self, step % self.num_frames).value()
        return loss, [one.detach().clone() for one in self.kept()]

    def kept(self) -> list[Tensor]:
        states = self.optimiser().state
        of = [states[leaf] for leaf in self.trained().values()]
        moments = [one for state in of for one in state.values()]
        return [*self.trained().values(), *moments]

    @torch.no_grad()
    def enqueue(self, frame: int) -> Readback:
        self.taken += 1
        if self.taken == 1 or self.taken > len(self.seen):
            with torch.enable_grad():
                return super().enqueue(frame)  # which makes the moments
        loss, values = self.seen[self.taken - 1]
        for mine, value in zip(self.kept(), values, strict=True):
            mine.copy_(value)
        return Readback(loss)


class FromFile(Rehearsed):
    """Replays what an earlier process has seen."""

    def prepare(self) -> None:
        path = cache_root() / "seen.pt"
        if path.exists():
            self.seen, self.taken = torch.load(path, weights_only=True), 0
        else:
            super().prepare()
            torch.save(self.seen, path)
            self.seen = []


class Trained(HonestTrainer):
    """Begins with parameters that it trained in `prepare`."""

    def prepare(self) -> None:
        for frame in range(8):
            super().enqueue(frame)
        self._optimiser = None


class TrainedAhead(HonestTrainer):
    """Begins with parameters that it trained when it was opened."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        super().enqueue(0)
        self._optimiser = None


class NoBackward(LateTrainer):
    """Updates by gradients of an earlier step."""

    def cheat(self, frame: int) -> Readback:
        loss = self.loss(frame)
        self.optimiser().step()
        return Readback(loss)


class Accumulated(LateTrainer):
    """Updates after every second backward pass, by the sum of both."""

    def cheat(self, frame: int) -> Readback:
        loss = self._loss(frame)
        loss.backward()
        if self.taken % 2 == 0:
            self.optimiser().step()
            self.optimiser().zero_grad(set_to_none=True)
        return Readback(loss)


class OneFrame(LateTrainer):
    """Trains on one frame over and over."""

    def cheat(self, frame: int) -> Readback:
        return super().cheat(0)


class HalfWindow(LateTrainer):
    """Reads the second half of each frame alone."""

    def outputs(self, times: range) -> Any:
        half = range(times[len(times) // 2], times.stop)
        return super().outputs(half if self.late and torch.is_grad_enabled() else times)


class StaleRows(LateTrainer):
    """Aggregates a snapshot's features by those of the snapshot before it."""

    def outputs(self, times: range) -> Any:
        if self.late and torch.is_grad_enabled():
            earlier = range(max(0, times.start - 1), max(0, times.start - 1) + len(times))
            return super().outputs(earlier)
        return super().outputs(times)


class FewerEdges(LateTrainer):
    """Leaves out every fiftieth edge."""

    def outputs(self, times: range) -> Any:
        plain, less = self.aggregator.normalised, self.late and torch.is_grad_enabled()

        def fewer(t: int) -> tuple[Tensor, Tensor]:
            edges, weights = plain(t)
            kept = torch.arange(weights.numel()) % 50 != 0
            return edges[:, kept], weights[kept]

        self.aggregator.normalised = fewer if less else plain
        try:
            return super().outputs(times)
        finally:
            self.aggregator.normalised = plain


class HalfPrecision(LateTrainer):
    """Computes in bfloat16."""

    def _loss(self, frame: int) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.late and torch.is_grad_enabled()):
            return super()._loss(frame)


class WrongRate(LateTrainer):
    """Learns a tenth faster."""

    def cheat(self, frame: int) -> Readback:
        self.optimiser().param_groups[0]["lr"] = 1.1 * self.workload.lr
        return super().cheat(frame)


class FrozenLayer(LateTrainer):
    """Leaves one bias as it is."""

    def cheat(self, frame: int) -> Readback:
        leaf = self.trained()["conv_z.bias"]
        with torch.no_grad():
            before = leaf.clone()
            with torch.enable_grad():
                loss = super().cheat(frame)
            leaf.copy_(before)
        return loss


class ReplayedLoss(LateTrainer):
    """Trains, and tells the loss of the step before."""

    last = 0.5

    def cheat(self, frame: int) -> Readback:
        told, self.last = self.last, super().cheat(frame).value()
        return Readback(told)


class NoMomentum(LateTrainer):
    """Forgets Adam's moments after every step."""

    def cheat(self, frame: int) -> Readback:
        loss = super().cheat(frame)
        for state in self.optimiser().state.values():
            state["exp_avg"].zero_()
            state["exp_avg_sq"].zero_()
            state["step"].zero_()
        return loss


class NoAdam(LateTrainer):
    """Takes plain gradient steps."""

    def cheat(self, frame: int) -> Readback:
        loss = self._loss(frame)
        found = torch.autograd.grad(loss, list(self.trained().values()))
        with torch.no_grad():
            for leaf, gradient in zip(self.trained().values(), found, strict=True):
                leaf -= self.workload.lr * gradient
        return Readback(loss)


LOSES: Final[Mapping[type[Trainer], str]] = {
    Idle: "updates",
    NoUpdate: "updates",
    OneOfTen: "updates",
    EverySecond: "updates",
    Asked: "updates",
    AskedForCopies: "works outside the clock",
    WhenRead: "updates",
    InThread: "updates",
    Rehearsed: "updates",
    FromFile: "updates",
    Trained: "parameters after preparation",
    TrainedAhead: "parameters after preparation",
    NoBackward: "updates",
    Accumulated: "updates",
    OneFrame: "losses",
    HalfWindow: "losses",
    StaleRows: "losses",
    FewerEdges: "losses",
    HalfPrecision: "losses",
    WrongRate: "updates",
    FrozenLayer: "updates",
    ReplayedLoss: "losses",
    NoMomentum: "moments",
    NoAdam: "updates",
}

LEDGER: Final = [
    Cheat(trainer.__name__, system_of(trainer), loses, rounds=2 if trainer is FromFile else 1)
    for trainer, loses in LOSES.items()
]

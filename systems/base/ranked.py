"""Timing a trainer on a group of ranks: what every rank does around its epochs.

A system's own call deals the work out, launches the ranks and gathers what they found.
"""

from __future__ import annotations

import gc
import resource
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import torch
from torch import Tensor

from dgbench.runtime.collectives import (
    Communicator,
    LocalCommunicator,
    Traffic,
    TrafficMatrix,
    stack,
)
from dgbench.runtime.errors import InvalidInputError
from dgbench.runtime.fields import check_count
from dgbench.runtime.meter import Meter
from dgbench.runtime.ranks import TRAINING, launch
from dgbench.runtime.steady import falling_warmup
from dgbench.runtime.threads import threads as limited

if TYPE_CHECKING:
    from dgbench.systems.base.rank_audit import RankAudit

Found = TypeVar("Found")
Run = TypeVar("Run", bound="RankedRun")

MIN_EPOCHS, MAX_EPOCHS = 3, 1000
"""Timed epochs after warm-up that are kept at least, and epochs trained at most, by a budget."""

INSTRUMENTED: Final = (2, 6)
"""Epochs after the timed ones in which clocks are read, at least and at most, by the budget."""


class EpochTrainer(Protocol):
    """One rank's part of training."""

    def train_epoch(self) -> float:
        """Train once on everything; the loss before the step, equal on all ranks."""

    def accuracy(self) -> float:
        """Share of right predictions on what is held out."""


class WorkClock:
    """Seconds of own work of a rank, epoch by epoch.

    On a CPU those of its processor, so that ranks which share a core do not count each other's
    time; else of the epoch less waiting.

    Attributes:
        each: of every epoch.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._cpu = comm.device.type == "cpu"
        self.each: list[float] = []

    def start(self) -> None:
        """An epoch begins."""
        self._since = self._now()

    def pause(self) -> None:
        """Leave out of the epoch what follows, until `resume`."""
        self._paused = self._now()

    def resume(self) -> None:
        """The epoch goes on."""
        self._since += self._now() - self._paused

    def stop(self) -> None:
        """It has ended."""
        self.each.append(self._now() - self._since)

    def _now(self) -> float:
        if self._cpu:
            return time.process_time()
        return time.perf_counter() - self._comm.meter.spent["communicate_wait"]


@dataclass(slots=True)
class Epochs:
    """Times and losses of the timed epochs; the same on all ranks.

    Attributes:
        seconds: of every epoch, by the slowest rank.
        losses: of every epoch.
        accuracy: after every epoch, or empty.
        warmup: epochs before steady ones.
    """

    seconds: list[float]
    losses: list[float]
    accuracy: list[float]
    warmup: int


def time_epochs(
    comm: Communicator,
    trainer: EpochTrainer,
    *,
    epochs: int | None,
    budget_s: float,
    accuracy: bool = False,
    clock: WorkClock | None = None,
    audit: RankAudit | None = None,
) -> Epochs:
    """Train and time. All ranks see the same seconds, so they agree about the end without asking.

    Args:
        epochs: as many; None: until the budget is spent, `MIN_EPOCHS` after the first at least.
        budget_s: seconds of timed epochs to aim for.
        accuracy: measure it after each epoch, outside of the timed part.
        clock: also told when an epoch begins and ends.
        audit: of the trainer by the name "", told after every epoch.
    """
    seconds: list[float] = []
    losses: list[float] = []
    correct: list[float] = []
    spent = 0.0
    gc.collect()
    while True:
        comm.barrier()
        if clock is not None:
            clock.start()
        begin = time.perf_counter()
        losses.append(trainer.train_epoch())
        took = torch.tensor([time.perf_counter() - begin], dtype=torch.float64)
        if clock is not None:
            clock.stop()
        seconds.append(float(comm.all_gather(took.to(comm.device)).max()))
        if audit is not None:
            audit.after("", len(losses))
        if accuracy:
            correct.append(trainer.accuracy())
        spent += seconds[-1]
        done = len(seconds)
        if epochs is not None:
            if done >= epochs:
                break
        elif done >= MAX_EPOCHS or (done > MIN_EPOCHS and spent + seconds[-1] > budget_s):
            break
    warmup = falling_warmup(seconds)
    if epochs is None:
        warmup = min(warmup, len(seconds) - MIN_EPOCHS)
    return Epochs(seconds, losses, correct, warmup)


def instrumented(
    comm: Communicator,
    trainer: EpochTrainer,
    timed: Epochs,
    budget_s: float,
    phases: Callable[[Meter], dict[str, float]],
) -> tuple[Traffic, Counter[str], dict[str, float]]:
    """Traffic and counters of one more epoch, and median seconds of phases over several.

    Args:
        timed: from `time_epochs`; with the budget it says how many.
        budget_s: seconds to aim for.
        phases: reads a meter after an epoch; what it does not name in one counts as nothing.
    """
    fewest, most = INSTRUMENTED
    meter = comm.meter
    each: list[dict[str, float]] = []
    for number in range(min(most, max(fewest, int(budget_s / median(timed.seconds))))):
        comm.traffic.clear()
        meter.reset()
        comm.barrier()  # with clocks off: waiting here is none of an epoch's phases
        meter.timing = True
        trainer.train_epoch()
        meter.timing = False
        if number == 0:
            traffic, counters = comm.traffic.copy(), Counter(meter.counters)
        each.append(phases(meter))
    names = dict.fromkeys(name for spent in each for name in spent)
    return (
        traffic,
        counters,
        {name: median(spent.get(name, 0.0) for spent in each) for name in names},
    )


@dataclass(slots=True, kw_only=True)
class RankOutput:
    """Output of one rank: its timed epochs, and what `instrumented` found.

    Attributes:
        prepare_s: seconds of its set-up. state: parameters after the last timed epoch.
        notes: what readers have to know.
    """

    timed: Epochs
    traffic: Traffic
    phases: dict[str, float]
    counters: Counter[str]
    prepare_s: float
    state: dict[str, Tensor]
    notes: list[str]


@dataclass(slots=True, kw_only=True)
class RankedRun:
    """A training run on a group of ranks.

    Attributes:
        samples: seconds of each steady epoch; of the slowest rank.
        warmup: epochs before them.
        losses: of every epoch up to the last sample, before its step; equal on all ranks.
        traffic: of one epoch.
        phases: per rank, seconds per epoch by phase, medians of later epochs.
        counters: of one epoch, summed over the ranks; rows and floats by name of exchange.
        prepare_s: seconds until the first epoch could begin, the data lying in memory: the work's
            partition, and the slowest rank's set-up. Starting processes is not in it.
        peak_rss_bytes: per rank, the most private memory beyond its beginning; of one rank without
            a process of its own, by how much the resident memory of this one grew at its peak.
        accuracy: after each epoch, share of right predictions on what is held out; empty unless
            asked for.
        state: parameters after the last sample.
        notes: what readers have to know.
    """

    samples: list[float]
    warmup: int
    losses: list[float]
    traffic: TrafficMatrix
    phases: list[dict[str, float]]
    counters: dict[str, int]
    prepare_s: float
    peak_rss_bytes: list[int]
    accuracy: list[float]
    state: dict[str, Tensor]
    notes: list[str]

    @classmethod
    def of(
        cls: type[Run],
        found: Sequence[RankOutput],
        peaks: list[int],
        before_s: float,
        **fields: Any,
    ) -> Run:
        """The run of these ranks; `before_s` were spent before they began, see `on_ranks`."""
        timed = found[0].timed
        return cls(
            samples=timed.seconds[timed.warmup :],
            warmup=timed.warmup,
            losses=timed.losses,
            traffic=stack([rank.traffic for rank in found]),
            phases=[rank.phases for rank in found],
            counters=dict(sum((rank.counters for rank in found), Counter())),
            prepare_s=before_s + max(rank.prepare_s for rank in found),
            peak_rss_bytes=peaks,
            accuracy=timed.accuracy,
            state=found[0].state,
            **{"notes": found[0].notes, **fields},
        )


def on_ranks(
    train: Callable[..., Found],
    ranks: int,
    arguments: Sequence[Any],
    *,
    device: str,
    seed: int,
    timeout_s: float,
    threads: int = 1,
) -> tuple[list[Found], list[int]]:
    """Run `train(communicator, *arguments)` as ranks of this machine; one rank in this process.

    Args:
        train: module-level. What it returns is pickled and handed back.
        ranks: at least 1.
        arguments: of every rank; ranks that are forks of this process share them.
        device: `cpu` or `cuda`.
        seed: of what a rank draws itself.
        timeout_s: limit of the whole group, its start included; one rank alone has none.
        threads: of each rank.

    Returns:
        What each rank found, and the most private memory of each beyond its beginning; of one rank
        by how many bytes the resident memory of this process grew at its peak.

    Raises:
        RankError: a rank failed; RankTimeoutError and RankMemoryError where by time or memory.
    """
    if ranks > 1:
        found = launch(
            train, ranks, arguments, timeout_s=timeout_s, device=device, threads=threads,
            seed=seed, preload=TRAINING,
        )  # fmt: skip
        return list(found), found.peak_bytes
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with limited(threads):
        comm = LocalCommunicator(device=device, meter=Meter(device=device), seed=seed)
        one = train(comm, *arguments)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory
    return [one], [grown * 1024]


def check_group(size: int, epochs: int | None, budget_s: float) -> None:
    """Raise InvalidInputError where a group of ranks cannot train for so long."""
    check_count("'size'", size)
    if epochs is not None:
        check_count("'epochs'", epochs)
    if not budget_s > 0:
        raise InvalidInputError(f"'budget_s' is {budget_s!r}; more than 0 is needed")

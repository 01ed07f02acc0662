"""Training by a system's ranks, whoever started them: epoch by epoch, kept, and gone on with.

`dgbench ranks` starts them on one host or several. What is kept after an epoch are parameters, what
Adam keeps, and the losses so far; memories and states of vertices begin anew with every epoch in
all systems, so any number of ranks on any hosts goes on from there.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgbench.runtime.collectives import Communicator
from dgbench.runtime.errors import DgbenchError
from dgbench.runtime.ranks.address import sent_bytes
from dgbench.runtime.ranks.hosts import RankHost, Refusal
from dgbench.systems.base.adam import AdamTrainer
from dgbench.systems.base.data import describe
from dgbench.systems.base.data_digest import digest
from dgbench.systems.base.training_file import OtherRankRefused, TrainingFile, newest

if TYPE_CHECKING:
    from collections.abc import Sequence


class RankTraining(ABC):
    """A system's way to train on ranks; without state, and the same on all of them."""

    @abstractmethod
    def load(self, workload: Any) -> Any:
        """The data of a workload, once for all ranks of a host."""

    @abstractmethod
    def open(self, comm: Communicator, hosts: int, workload: Any, data: Any) -> AdamTrainer:
        """The trainer of this rank; all ranks call it alike.

        Args:
            comm: of the group; its ranks lie host by host, equally many on each.
            hosts: that the group lies on.
            workload, data: of `load`.
        """

    def train_epoch(self, trainer: Any, epoch: int) -> float:
        """Train once on the training part of the data; the loss, equal on all ranks."""
        return trainer.train_epoch()

    def describe(self, data: Any) -> dict[str, Any]:
        """The `data` field of a measurement."""
        return describe(data)


@dataclass(frozen=True, slots=True)
class RankTask:
    """A training for ranks.

    Attributes:
        system: name of the system. workload: what it trains. epochs: in all.
        kept: folder where each host keeps the training after every epoch; None keeps nothing.
    """

    system: str
    workload: Any
    epochs: int
    kept: Path | None = None


class HostReport(msgspec.Struct, frozen=True):
    """A host after a training.

    Attributes:
        address, interface: by which the other hosts reach it.
        ranks: their numbers.
        sent_bytes: that left it over its interface during the epochs, with all headers and with
            whatever else left there.
        restarts: how often its ranks were started again.
    """

    address: str
    interface: str
    ranks: list[int]
    sent_bytes: int
    restarts: int


class RankReport(msgspec.Struct, frozen=True):
    """Result of a group of ranks; equal on all of them.

    Attributes:
        losses: of every epoch, those before a restart included.
        first_epoch: the first one that this group trained; those before were taken up.
        seconds: of each epoch that it trained, by the slowest rank.
        prepare_s: until the first epoch could begin, by the slowest rank; data not included.
        exchanged: bytes from each rank to each, counted over these epochs.
        operations: collectives of this rank over these epochs.
        hosts: in order of their ranks.
        carrier: what carried rows.
        notes: what readers have to know.
    """

    losses: list[float]
    first_epoch: int
    seconds: list[float]
    prepare_s: float
    exchanged: list[list[int]]
    operations: int
    hosts: list[HostReport]
    carrier: str
    notes: list[str]


def train_rank(
    comm: Communicator, host: RankHost, task: RankTask, data: Any
) -> RankReport | Refusal:
    """Be one rank of a training.

    Args:
        comm: of the group. host: of this rank. task: what to train.
        data: of the workload; None: loaded here.
    """
    from dgbench.systems.base.registry import get_system

    begin = time.perf_counter()
    trainer, training = None, get_system(task.system).rank_training()
    refusal = Refusal("")
    try:
        data = training.load(task.workload) if data is None else data
        trainer = training.open(comm, host.hosts, task.workload, data)
    except OtherRankRefused as error:
        return error.refusal
    except DgbenchError as error:
        refusal = Refusal(str(error), error.hint)
    file = TrainingFile.of(task.kept, task.system, task.workload)
    found = newest(comm, file, refusal)
    if isinstance(found, Refusal) or trainer is None:
        return found if isinstance(found, Refusal) else refusal
    if found is not None:
        trainer.load_training_state(found.state)
    losses = [] if found is None else list(found.losses)
    first = len(losses)
    prepare_s = time.perf_counter() - begin
    sent, seconds = _sent(comm, host), []
    comm.traffic.clear()
    operations = comm.operations
    for epoch in range(first, task.epochs):
        start = time.perf_counter()
        losses.append(training.train_epoch(trainer, epoch))
        seconds.append(time.perf_counter() - start)
        if file is not None and host.first:
            file.keep(trainer.training_state(), losses)
    traffic, operations = comm.traffic.copy(), comm.operations - operations
    sent = _sent(comm, host) - sent
    told = comm.gather_objects((traffic, host, sent, seconds, prepare_s))
    hosts = _hosts([(one, sent) for _, one, sent, *_ in told])
    report = RankReport(
        losses=losses[: task.epochs],
        first_epoch=first,
        seconds=[max(each) for each in zip(*(one[3] for one in told), strict=True)],
        prepare_s=max(one[4] for one in told),
        exchanged=[one[0].row("bytes").tolist() for one in told],
        operations=operations,
        hosts=hosts,
        carrier=getattr(comm, "carrier", "nothing"),
        notes=list(trainer.notes),
    )
    trainer.close()
    return report


def _sent(comm: Communicator, host: RankHost) -> int:
    """Bytes that have left this host, at a moment when no rank has anything under way."""
    comm.barrier()
    found = sent_bytes(host.interface) if host.first else 0
    comm.barrier()
    return found


def _hosts(told: Sequence[tuple[RankHost, int]]) -> list[HostReport]:
    """Reports of the hosts from what their ranks tell, in order of rank."""
    found = []
    for number in dict.fromkeys(host.number for host, _ in told):
        ranks = [rank for rank, (host, _) in enumerate(told) if host.number == number]
        host, sent = told[ranks[0]]
        found.append(HostReport(host.address, host.interface, ranks, sent, host.restarts))
    return found


def data_words(training: RankTraining, data: Any) -> str:
    """Words on what a host trains on, which differ where the data does."""
    found = training.describe(data)
    kind = f"twin of scale {found['scale']:g}" if found["twin"] else "real"
    return f"{found['dataset']} ({kind}, sha256 {digest(data)[:16]})"

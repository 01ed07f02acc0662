"""Training a timeline on several ranks of this machine and measuring it: one call, one result.

What ESDG (SC 2021) shows of its distributed runs (sections 6.2 to 6.5) comes from here: time per
epoch, what was sent over every link, what a rank spends its time on, losses and accuracy.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch

from dgbench.lab.result_checks import ResultCheck
from dgbench.runtime.collectives import Communicator, LinkEmulation
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.runtime.fields import check_count
from dgbench.runtime.meter import Meter
from dgbench.systems.base.rank_audit import AuditedEpochs, RankAudit, draw_seed
from dgbench.systems.base.rank_training import RankTraining
from dgbench.systems.base.ranked import (
    RankedRun,
    RankOutput,
    check_group,
    instrumented,
    on_ranks,
    time_epochs,
)
from dgbench.systems.base.timeline import TimelineTask, TimelineWorkload, load_timeline
from dgbench.systems.base.transport import Transport, check_transport, use_transport
from dgbench.systems.esdg.oracle import ResultRequest, TimelineOracle, TimelineResult
from dgbench.systems.esdg.partition_trainer import (
    PARTITIONS,
    Partition,
    SnapshotRankTrainer,
    check_prefetch,
    published,
)
from dgbench.systems.esdg.vertex_parts import VertexParts, split_vertices

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

PHASES: Final = ("transfer", "compute", "exchange", "update")
"""Phases of a rank's time; `exchange` is the time it waits for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRankSettings:
    """Settings of partitioning and checkpointing; every choice trains the same model.

    Attributes:
        partition: `snapshot` (ESDG 4.2), `vertex` (its baseline, 4.1) or `hybrid` (6.5).
        blocks: runs of snapshots between two checkpoints, 1 .. steps.
        checkpoint: run blocks again in the backward pass instead of recording all of them.
        pieces: above 1, exchanges travel in so many pieces beside the convolutions.
        precompute: keep A-hat X of the first layer.
        fused: run LSTMs as a compiled scan.
        reuse: the re-run takes the activations that the first pass received, instead of
            exchanging them again; needs `checkpoint` and the snapshot partition.
        late: of the snapshot partition: make a layer's dense half behind its exchange, so that
            narrower rows travel, those of the first layer once. Off, volumes are the paper's.
        scored: of the snapshot partition with `checkpoint`: bring home only those outputs that the
            loss reads. Off, volumes are the paper's.
        lean: the first pass of a checkpoint does only what the borders of blocks need. None: where
            that leaves out neither exchange nor transfer, so that volumes are the paper's.
        group: of the hybrid partition, ranks that share a snapshot.
        difference: of the snapshot partition: bring each rank's snapshots over a link (into memory
            apart on a CPU), as differences (True) or plain (False). None: they lie where they are.
        prefetch: with `difference` and `checkpoint`: copy the next block's share while one
            computes.
        wire: an emulated link, (seconds per message, bytes per second); None: the real one.
        transport: what carries rows: `auto`, shared memory on one machine, or `gloo`, its sockets,
            see `use_transport`.
    """

    partition: Partition = "snapshot"
    blocks: int = 1
    checkpoint: bool = True
    pieces: int = 1
    precompute: bool = True
    fused: bool = False
    reuse: bool = False
    late: bool = False
    scored: bool = False
    lean: bool | None = False
    group: int = 1
    difference: bool | None = None
    prefetch: bool = False
    wire: tuple[float, float] | None = None
    transport: Transport = "auto"

    def check(self) -> SnapshotRankSettings:
        """Return self.

        Raises:
            UnknownKeyError, InvalidInputError: a field out of range, or two that exclude another.
        """
        if self.partition not in PARTITIONS:
            raise unknown_key("partition", self.partition, PARTITIONS)
        check_transport(self.transport)
        for name in ("blocks", "pieces", "group"):
            check_count(f"'{name}'", getattr(self, name))
        for name, unset in (
            ("reuse", False),
            ("late", False),
            ("scored", False),
            ("difference", None),
        ):
            if getattr(self, name) is not unset and self.partition != "snapshot":
                raise InvalidInputError(
                    f"'{name}' is for the partition 'snapshot', not for '{self.partition}'"
                )
        for name in ("reuse", "scored"):
            if getattr(self, name) and not self.checkpoint:
                raise InvalidInputError(
                    f"'{name}' needs 'checkpoint': without it nothing is run again"
                )
        check_prefetch(self.prefetch, self.checkpoint, self.difference)
        if self.group != 1 and self.partition != "hybrid":
            raise InvalidInputError(
                f"'group' is {self.group} and the partition '{self.partition}'",
                hint="partition='hybrid'",
            )
        if self.wire is not None:
            LinkEmulation(*self.wire)
        return self


@dataclass(slots=True, kw_only=True)
class SnapshotRankedRun(RankedRun):
    """A training run on a group of ranks.

    Its `phases` are those of `PHASES`; where single rows travel (vertex, hybrid) also `pack`,
    selecting and joining them. Its `accuracy` is that on pairs of the last snapshot that the loss
    does not score.

    Attributes:
        compared: results before the first epoch and after the last one, where they were asked for.
        audited: drawn epochs after the first one.
    """

    compared: tuple[TimelineResult, TimelineResult] | None = None
    audited: AuditedEpochs

    def checks(self, oracle: TimelineOracle, name: str) -> list[ResultCheck]:
        """Comparisons of what was asked for with the oracle, of the first losses, and of a drawn
        epoch."""
        losses = oracle.loss_checks({name: self.losses})
        losses += oracle.audited({name: self.audited}, {name: self.losses})
        if self.compared is None:
            return losses
        before, after = self.compared
        found = oracle.checks({name: before}, "before training")
        found += oracle.checks({name: after}, "after training")
        return [*found, *oracle.liveness({name: after}), *losses]


def train_ranked(
    workload: TimelineWorkload,
    size: int,
    settings: SnapshotRankSettings | None = None,
    *,
    epochs: int | None = None,
    budget_s: float = 1.0,
    timeout_s: float = 60.0,
    device: str = "cpu",
    threads: int = 1,
    seed: int | None = None,
    accuracy: bool = False,
    data: SnapshotSequence | None = None,
    compared: ResultRequest | None = None,
) -> SnapshotRankedRun:
    """Train on `size` ranks of this machine; one rank runs in this process.

    Every rank waits for the others before each timed epoch. Data is loaded here, once: ranks that
    are forks of this process share it, others map it from one file.

    Args:
        workload: what to train.
        size: P, at least 1.
        settings: how; None: as published, see `published`.
        epochs: trained in all, at least 1; warm-up is taken off the timed ones. None: as many as
            fit into the budget, at least three after the first.
        budget_s: seconds of timed epochs to aim for.
        timeout_s: limit of the whole group, its start included; one rank alone has none.
        device: `cpu` or `cuda`.
        threads: of each rank.
        seed: of what a rank draws itself; None: the workload's, which also makes the parameters.
        accuracy: measure it after each epoch, outside of the timed part; link and class only.
        data: of the workload, from `load_timeline`; None: loaded here.
        compared: asks for results; None: for none.

    Raises:
        InvalidInputError, UnknownKeyError: an argument out of range.
        UnsupportedError: what this machine cannot do or what is not built.
        RankError: a rank failed; RankTimeoutError and RankMemoryError where by time or memory.
    """
    workload.check()
    check_group(size, epochs, budget_s)
    data = load_timeline(workload) if data is None else data
    if settings is None:
        settings = SnapshotRankSettings(**published(TimelineTask(data, workload).steps))
    settings.check()
    begin = time.perf_counter()
    parts = _parts(workload, data, size, settings)
    work = _SnapshotRankInput(
        workload, settings, epochs, budget_s, accuracy, parts, compared, draw_seed()
    )
    before = time.perf_counter() - begin
    seed = workload.seed if seed is None else seed
    with _shipped(data) as shared:
        found, peaks = on_ranks(
            _train, size, (work, shared), device=device, seed=seed, timeout_s=timeout_s,
            threads=threads,
        )  # fmt: skip
    first = found[0]
    return SnapshotRankedRun.of(
        found, peaks, before, compared=first.compared, audited=first.audited
    )


@dataclass(frozen=True, slots=True)
class _SnapshotRankInput:
    """Input of every rank."""

    workload: TimelineWorkload
    settings: SnapshotRankSettings
    epochs: int | None
    budget_s: float
    accuracy: bool
    parts: VertexParts | None
    compared: ResultRequest | None
    seed: int


@dataclass(slots=True, kw_only=True)
class _SnapshotRankOutput(RankOutput):
    """Output of one rank."""

    compared: tuple[TimelineResult, TimelineResult] | None
    audited: AuditedEpochs | None


def _parts(
    workload: TimelineWorkload, data: SnapshotSequence, size: int, settings: SnapshotRankSettings
) -> VertexParts | None:
    """Parts of the vertices, searched for once and not by every rank."""
    if settings.partition != "vertex":
        return None
    steps = len(data) - (workload.task != "class")
    return split_vertices([data.topology[t] for t in range(steps)], size)


def _train(
    comm: Communicator, work: _SnapshotRankInput, shared: SharedSequence
) -> _SnapshotRankOutput:
    """Be one rank."""
    settings = work.settings
    data = shared.open()
    use_transport(comm, settings.transport)
    if settings.wire is not None and comm.size > 1:
        comm.use_wire(LinkEmulation(*settings.wire))
    begin = time.perf_counter()
    trainer = SnapshotRankTrainer(
        comm,
        work.workload,
        data,
        partition=settings.partition,
        blocks=settings.blocks,
        checkpoint=settings.checkpoint,
        pieces=settings.pieces,
        precompute=settings.precompute,
        fused=settings.fused,
        reuse=settings.reuse,
        late=settings.late,
        scored=settings.scored,
        lean=settings.lean,
        group=settings.group,
        difference=settings.difference,
        prefetch=settings.prefetch,
        parts=work.parts,
    )
    prepare_s = time.perf_counter() - begin
    results = [TimelineResult.of(trainer, work.compared)] if work.compared else []
    audit = RankAudit(comm, work.seed, 1)
    audit.open("", trainer)
    timed = time_epochs(
        comm, trainer, epochs=work.epochs, budget_s=work.budget_s, accuracy=work.accuracy,
        audit=audit,
    )  # fmt: skip
    audited = audit.epochs.get("")
    state = trainer.state()
    traffic, counters, phases = instrumented(comm, trainer, timed, work.budget_s, _phases)
    if work.compared:
        results.append(TimelineResult.of(trainer, work.compared))
    notes = list(trainer.notes)
    trainer.close()
    return _SnapshotRankOutput(
        timed=timed,
        traffic=traffic,
        phases=phases,
        counters=counters,
        prepare_s=prepare_s,
        state=state,
        notes=notes,
        # Equal on all ranks; one of them tells.
        compared=(results[0], results[1]) if results and comm.rank == 0 else None,
        audited=audited,
    )


def _phases(meter: Meter) -> dict[str, float]:
    spent = meter.phases()
    # Exchanges may be noted by whoever waits for them or by the group itself.
    spent["exchange"] = spent.get("exchange", 0.0) + spent.pop("communicate", 0.0)
    found = {name: spent.get(name, 0.0) for name in PHASES}
    if meter.spent.get("pack"):
        # It is part of what was noted as computing.
        found["pack"] = meter.spent["pack"]
        found["compute"] -= found["pack"]
    return found


class SharedSequence:
    """A sequence on its way to ranks: a fork finds it in its memory, others in one file.

    Args:
        data: the sequence.
        folder: where the file would lie.
    """

    def __init__(self, data: SnapshotSequence, folder: Path | None = None) -> None:
        self._data, self._folder = data, folder
        self._file: Path | None = None

    def open(self) -> SnapshotSequence:
        """The sequence; mapped, where it came in a file."""
        return self._data

    def __reduce__(self) -> tuple[Any, ...]:
        if self._folder is None:
            raise InvalidInputError("a sequence without a folder cannot leave its process")
        if self._file is None:
            self._file = self._folder / "sequence.pt"
            torch.save(self._data, self._file)
        return _arrived, (str(self._file),)


def _arrived(file: str) -> SharedSequence:
    # A file of our own making, read by our own child.
    return SharedSequence(torch.load(file, mmap=True, weights_only=False))


@contextlib.contextmanager
def _shipped(data: SnapshotSequence) -> Iterator[SharedSequence]:
    folder = Path(tempfile.mkdtemp(prefix="dgbench-sequence-"))
    try:
        yield SharedSequence(data, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class TimelineRanks(RankTraining):
    """Training of a timeline by ranks that `dgbench ranks` starts, as published: each rank brings
    its snapshots of a block as differences and keeps the borders of blocks alone."""

    def load(self, workload: TimelineWorkload) -> SnapshotSequence:
        return load_timeline(workload)

    def open(
        self, comm: Communicator, hosts: int, workload: TimelineWorkload, data: SnapshotSequence
    ) -> SnapshotRankTrainer:
        steps = TimelineTask(data, workload).steps
        return SnapshotRankTrainer(comm, workload, data, **published(steps))

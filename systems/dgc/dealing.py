"""From settings to who does what: the vertex-steps, the placement, and each rank's trainer."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dgbench.runtime.collectives import Communicator, LinkEmulation
from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.base.transport import use_transport
from dgbench.systems.dgc.exchange import PlainRows, RowExchange
from dgbench.systems.dgc.placement import Placement, by_both, by_sequences, by_snapshots
from dgbench.systems.dgc.plan import Entries, step_entries
from dgbench.systems.dgc.settings_run import ChunkRankSettings
from dgbench.systems.dgc.stale import StaleRows
from dgbench.systems.dgc.stale_store import StaleStoreRows
from dgbench.systems.dgc.store import StoreRows
from dgbench.systems.dgc.trainer import ChunkRankTrainer
from dgbench.systems.dgc.volumes import shape_of

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence
    from dgbench.kernels_cuda.supergraph import Supergraph
    from dgbench.systems.dgc.partition import ChunkPartition


@dataclass(frozen=True, slots=True, eq=False)
class WorkAssignment:
    """Placement and derived data that all ranks receive besides the dataset.

    Attributes:
        graph: the vertex-steps; edges weighted as the partition asked for.
        placement: with a store, one worker more than do the work; it owns nothing.
        entries: A-hat over vertex-steps.
        chunks: of the partition by chunks, else None.
        seconds: taken to make the placement; without `entries`.
        notes: what readers have to know.
    """

    graph: Supergraph
    placement: Placement
    entries: Entries
    chunks: ChunkPartition | None
    seconds: float
    notes: tuple[str, ...] = ()


def deal(
    workload: SequenceWorkload,
    data: SnapshotSequence,
    workers: int,
    settings: ChunkRankSettings,
    *,
    graph: Supergraph | None = None,
    entries: Entries | None = None,
    placement: Placement | None = None,
    device: str = "cpu",
) -> WorkAssignment:
    """Decide which worker does what.

    Args:
        workload, data: what is trained.
        workers: P, without the server of a store.
        settings: the partition, among others.
        graph, entries: of the workload, where they are known; a partition by chunks weighs the
            graph's edges itself.
        placement: None: as the settings say.
        device: that workloads of chunks are predicted for.
    """
    begin = time.perf_counter()
    chunks, notes = None, ()
    if placement is None and settings.partition == "chunks":
        graph, chunks = _chunks(workload, data, workers, settings, device)
        placement, notes = chunks.placement, tuple(chunks.notes)
    if graph is None:
        graph = vertex_steps(data, workload)
    if placement is None:
        placement = _plain(graph, workers, settings.partition)
    seconds = time.perf_counter() - begin
    if settings.store:
        placement = replace(placement, workers=placement.workers + 1)
    if entries is None:
        entries = step_entries(data, graph, workload.norm)
    return WorkAssignment(graph, placement, entries, chunks, seconds, notes)


def _plain(graph: Supergraph, workers: int, partition: str) -> Placement:
    if partition == "sequences":
        return by_sequences(graph, workers)
    if partition == "both":
        return by_both(graph, workers)
    return by_snapshots(graph, workers, contiguous=partition == "snapshots-contiguous")


def _chunks(
    workload: SequenceWorkload,
    data: SnapshotSequence,
    workers: int,
    settings: ChunkRankSettings,
    device: str,
) -> tuple[Supergraph, ChunkPartition]:
    from dgbench.systems.dgc.partition import partition_chunks
    from dgbench.systems.dgc.workloads import workload_of

    shape = shape_of(sequence_model(workload))
    counts = shape.counts()
    spatial, temporal = counts.weights()
    graph = vertex_steps(
        data, workload, spatial=spatial, temporal=temporal, per_length=counts.all_steps
    )
    predict = workload_of(settings.chunks.workload, shape, device)
    return graph, partition_chunks(graph, counts, workers, settings.chunks, predict)


def open_trainer(
    comm: Communicator,
    workload: SequenceWorkload,
    data: SnapshotSequence,
    dealt: WorkAssignment,
    settings: ChunkRankSettings,
    **options: Any,
) -> ChunkRankTrainer:
    """The trainer of this rank; every rank calls it alike.

    Args:
        comm, workload, data: as in `ChunkRankTrainer`.
        dealt: from `deal` with these settings.
        settings: how.
        options: further ones of `ChunkRankTrainer`.
    """
    settings.check()
    fusion = "none"
    if settings.spatial_fusion:
        fusion = "whole" if settings.memory_limit_bytes is None else "spatial"
    return ChunkRankTrainer(
        comm,
        workload,
        data,
        dealt.placement,
        fusion=fusion,
        memory_limit=settings.memory_limit_bytes,
        temporal=settings.temporal,
        precompute=settings.precompute,
        exchange=open_exchange(comm, settings, attention=not sequence_model(workload).state_dims),
        graph=dealt.graph,
        entries=dealt.entries,
        **options,
    )


def open_exchange(
    comm: Communicator, settings: ChunkRankSettings, *, attention: bool = False
) -> RowExchange:
    """Open the exchange of rows; a single rank needs none but has the same counts.

    Args:
        comm, settings: of the run.
        attention: of the model's time encoder; decides `StaleSettings.moves` where that is None.
    """
    if settings.stale is not None:
        stale = settings.stale.of_model(attention=attention)
        return StaleStoreRows(comm, stale) if settings.store else StaleRows(comm, stale)
    return StoreRows(comm) if settings.store else PlainRows(comm)


def connect(comm: Communicator, settings: ChunkRankSettings) -> None:
    """Let rows travel as the settings say; all ranks call it, with nothing under way."""
    use_transport(comm, settings.transport)
    if comm.size > 1:
        comm.use_wire(None if settings.wire is None else LinkEmulation(*settings.wire))

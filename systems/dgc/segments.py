"""Sequences cut by a partition: their segments, in which stage each runs, and how rows hold them.

A recurrence has to pass through all steps of an entity in order. Where the worker changes from one
step to the next the sequence is cut, and the worker behind the cut begins from the state that the
one before it sends (DGC, section 4: remote temporal embeddings). A segment with k cuts before it
runs in stage k: the number of stages is the length of the chain that no worker can shorten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.scan import FROM_ZERO
from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.packing import PackedRows, pack_sequences

Temporal = Literal["packed", "padded", "packed_sequence"]


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """All segments of all workers, in order of ids.

    Attributes:
        first: int64[S], the first vertex-step; a segment is a run of consecutive ids.
        length: int64[S].
        worker: int64[S].
        stage: int64[S], cuts before it in the chain of its entity.
        follows: bool[S], whether the next segment belongs to the same entity.
    """

    first: Tensor
    length: Tensor
    worker: Tensor
    stage: Tensor
    follows: Tensor

    @property
    def stages(self) -> int:
        """The longest chain of segments; 0 where there is no vertex-step."""
        return int(self.stage.max()) + 1 if self.stage.numel() else 0


@dataclass(frozen=True, slots=True, eq=False)
class TimeGroup:
    """Sequences that are run at once, in rows of one length.

    Attributes:
        rows: where each sequence stands in the rows.
        steps: int64, sequence after sequence: the worker's row of each vertex-step. What
            `rows.pack` takes is the values at these rows.
        begins: int32[T, N] of the recurrent scans: FROM_ZERO, CONTINUES, or a row of the states
            that arrive for the stage.
        ends: int64[n], place of each sequence's last step in the rows laid out as [T * N].
        sequences: int64[n], number of each sequence in its stage.
        own: int64 or None. Attention: places in `steps` of the vertex-steps whose outputs are
            kept; None where all are.
    """

    rows: PackedRows
    steps: Tensor
    begins: Tensor
    ends: Tensor
    sequences: Tensor
    own: Tensor | None = None

    @property
    def padding(self) -> int:
        """Steps of the rows that hold nothing."""
        return self.rows.padding


@dataclass(frozen=True, slots=True, eq=False)
class SegmentStage:
    """One worker's segments of one stage.

    Attributes:
        groups: what is run at once; empty where the worker has no segment in this stage.
        segments: n, over all groups, in order of ids.
        arriving: S, states that arrived from the stage before; segment k of the stage begins from
            row `begins` of them.
        lists: end states that go to the owners of the following segments: `send` are numbers of
            segments of this stage, what arrives are the starts of the next stage; None behind the
            last stage.
    """

    groups: list[TimeGroup]
    segments: int
    arriving: int
    lists: RowLists | None


def cut_segments(graph: Supergraph, worker: Tensor) -> Segments:
    """Segments of a placement's `time` workers, int32[V]; a few passes over the vertex-steps."""
    count = graph.num_vertices
    if count == 0:
        none = torch.zeros(0, dtype=torch.int64)
        return Segments(none, none, none, none, none.bool())
    begins = torch.ones(count, dtype=torch.bool)
    begins[1:] = graph.entity[1:] != graph.entity[:-1]
    cut = torch.zeros(count, dtype=torch.bool)
    cut[1:] = (worker[1:] != worker[:-1]) & ~begins[1:]
    first = (begins | cut).nonzero().squeeze(1)
    length = torch.diff(first, append=torch.tensor([count]))
    heads = begins[first]
    number = torch.arange(first.numel())
    stage = number - torch.cummax(torch.where(heads, number, 0), 0).values
    follows = torch.zeros(first.numel(), dtype=torch.bool)
    follows[:-1] = ~heads[1:]
    return Segments(first, length, worker[first].long(), stage, follows)


def plan_stages(
    segments: Segments,
    rows: Tensor,
    rank: int,
    size: int,
    *,
    unit: Tensor | None,
    temporal: Temporal = "packed",
) -> list[SegmentStage]:
    """One worker's stages; as many on every worker, as all take part in every exchange.

    Args:
        segments: of all workers.
        rows: int64[R], ascending, ids of `rank` in the time encoder.
        rank, size: this worker and their number.
        unit: int32[V], sequences are padded with those whose first step has the same; None: with
            all of the worker and stage. Not read where they are packed.
        temporal: `packed` rows, rows `padded` to the longest of a unit, or `packed_sequence`:
            padded rows of falling length, as torch's PackedSequence wants them.
    """
    total = segments.stages
    out: list[SegmentStage] = []
    mine = segments.worker == rank
    arrival: Tensor | None = None
    by_stage = torch.argsort(segments.stage, stable=True)
    bounds = torch.cumsum(torch.bincount(segments.stage, minlength=total), 0).tolist()
    for stage, (low, high) in enumerate(zip([0, *bounds], bounds, strict=False)):
        here = by_stage[low:high]
        own = here[mine[here]]
        lists, following = None, None
        if stage + 1 < total:
            lists, following = _hand_over(segments, here, own, rank, size)
        starts = torch.full((own.numel(),), FROM_ZERO)
        if arrival is not None:
            starts[torch.searchsorted(own, arrival)] = torch.arange(arrival.numel())
        offsets = torch.searchsorted(rows, segments.first[own])
        units = unit[segments.first[own]] if unit is not None and temporal == "padded" else None
        groups = group_sequences(offsets, segments.length[own], starts, units, temporal)
        out.append(
            SegmentStage(groups, own.numel(), 0 if arrival is None else arrival.numel(), lists)
        )
        arrival = following
    return out


def _hand_over(
    segments: Segments, here: Tensor, own: Tensor, rank: int, size: int
) -> tuple[RowLists, Tensor]:
    """Lists of a stage's end states, and the segments that the arriving ones start."""
    given = own[segments.follows[own]]
    to = segments.worker[given + 1]
    order = torch.argsort(to, stable=True)
    send = torch.searchsorted(own, given[order])
    before = here[segments.follows[here]]
    before = before[segments.worker[before + 1] == rank]
    by = segments.worker[before]
    arrived = before[torch.argsort(by, stable=True)] + 1
    counts = [torch.bincount(workers, minlength=size).tolist() for workers in (to, by)]
    return RowLists(send, *counts), arrived


def group_sequences(
    offsets: Tensor, lengths: Tensor, starts: Tensor, units: Tensor | None, temporal: Temporal
) -> list[TimeGroup]:
    """Rows for sequences that stand at `offsets` of a worker's rows, `lengths` long.

    Args:
        offsets, lengths: int64[n].
        starts: int64[n], FROM_ZERO or a row of the states that arrive.
        units: integers [n], sequences of one are padded together; None: all are.
        temporal: as in `plan_stages`; packed sequences are packed whatever their unit.
    """
    count = lengths.numel()
    if count == 0:
        return []
    whole = torch.arange(count)
    if temporal == "padded" and units is not None:
        order = torch.argsort(units, stable=True)
        cuts = torch.unique_consecutive(units[order], return_counts=True)[1]
        parts = list(order.split(cuts.tolist()))
    elif temporal == "packed_sequence":
        parts = [torch.argsort(lengths, descending=True, stable=True)]
    else:
        parts = [whole]
    out = []
    for part in parts:
        sizes = lengths[part]
        rows = pack_sequences(sizes) if temporal == "packed" else pad_sequences(sizes)
        out.append(_group(rows, offsets[part], starts[part], part))
    return out


def pad_sequences(lengths: Tensor) -> PackedRows:
    """A row for each sequence, as long as the longest; int64[n], each at least 1."""
    count = lengths.numel()
    longest = int(lengths.max()) if count else 0
    return PackedRows(lengths, torch.arange(count), torch.zeros_like(lengths), count, longest)


def _group(rows: PackedRows, offsets: Tensor, starts: Tensor, sequences: Tensor) -> TimeGroup:
    steps = offsets[rows.sequence_of_step] + rows.position_of_step
    last = torch.cumsum(rows.lengths, 0) - 1
    return TimeGroup(rows, steps, rows.begins_from(starts), rows.place[last], sequences)

"""Training plan of a worker: rows, halo, matrices, sequences (DGC, section 4).

All index work of the engine, made once from a placement: no model, no communication. Every worker
makes its own plan from the same data, and the plans of all fit each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.scan import FROM_ZERO
from dgbench.kernels_cuda.supergraph import Supergraph
from dgbench.runtime.errors import InvalidInputError, unknown_key
from dgbench.systems.dgc.entries import (
    Entries,
    ascending,
    offsets_of,
    runs_of,
    starts_of,
    step_entries,
)
from dgbench.systems.dgc.fusion import fuse_units, shared_rows, unit_memory
from dgbench.systems.dgc.halo_lists import RowLists, halo_lists, make_lists
from dgbench.systems.dgc.placement import Placement
from dgbench.systems.dgc.segments import (
    Segments,
    SegmentStage,
    Temporal,
    TimeGroup,
    cut_segments,
    group_sequences,
    plan_stages,
)

if TYPE_CHECKING:
    from dgbench.datasets import SnapshotSequence

__all__ = [
    "Entries",
    "RowLists",
    "RowMove",
    "SegmentStage",
    "StructurePlan",
    "TimeGroup",
    "TimePlan",
    "VertexStepGroup",
    "WorkerPlan",
    "halo_lists",
    "plan_worker",
    "step_entries",
]

Fusion = Literal["none", "spatial", "whole"]


@dataclass(frozen=True, slots=True, eq=False)
class VertexStepGroup:
    """Vertex-steps of a worker that the structure encoder takes at once.

    Attributes:
        rows: int64[r], rows of the worker.
        columns: int64[c], what is loaded: the `rows`, then the others that they hear, ascending;
            numbers of the worker's table, own rows 0 .. R - 1 and then the halo.
        csr: r x c, columns ascending, loops left out.
        loop: float32[r].
        units: int64, the units that it holds.
    """

    rows: Tensor
    columns: Tensor
    csr: Csr
    loop: Tensor
    units: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class StructurePlan:
    """One worker's part of the structure encoder.

    Attributes:
        rows: int64[R], own ids, ascending.
        halo: int64[H], ids of others that they hear, in order of arrival.
        lists: of one round; the same for every round.
        csr: R x (R + H), columns ascending, loops left out.
        loop: float32[R].
        groups: what is taken at once, every row in one of them; in order of their first unit.
    """

    rows: Tensor
    halo: Tensor
    lists: RowLists
    csr: Csr
    loop: Tensor
    groups: list[VertexStepGroup]

    @property
    def loads(self) -> int:
        """Rows that all groups load in one round: own and halo rows, repeated ones as well."""
        return sum(group.columns.numel() for group in self.groups)


@dataclass(frozen=True, slots=True, eq=False)
class RowMove:
    """Structure rows on their way to the workers of the time encoder.

    Attributes:
        lists: rows for other workers.
        keep: int64, structure rows that stay.
        order: int64[R2], for each time row its place in the kept rows, then those that arrived.
    """

    lists: RowLists
    keep: Tensor
    order: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TimePlan:
    """One worker's part of the time encoder.

    Attributes:
        rows: int64[R2], own ids, ascending.
        move: None where these are the rows of the structure encoder.
        stages: recurrent models; as many on all workers. Empty for attention.
        halo: attention: int64[H2], ids of others whose entity has a step here, in order of arrival.
        lists: attention: of that exchange, over time rows.
        groups: attention: rows of whole sequences; `steps` are numbers of the time rows and then
            of the halo.
    """

    rows: Tensor
    move: RowMove | None
    stages: list[SegmentStage]
    halo: Tensor | None = None
    lists: RowLists | None = None
    groups: tuple[TimeGroup, ...] = ()

    @property
    def padding(self) -> int:
        """Steps of all rows that hold nothing (section 4.3: times the width, the padded zeros)."""
        parts = [group for stage in self.stages for group in stage.groups]
        return sum(group.padding for group in (*parts, *self.groups))


@dataclass(frozen=True, slots=True, eq=False)
class WorkerPlan:
    """Training plan of one of `size` workers.

    Attributes:
        rank, size: this worker.
        structure, time: its parts.
        critical_path: segments that no worker can run before another has ended; 1 for attention,
            0 without vertex-steps.
    """

    rank: int
    size: int
    structure: StructurePlan
    time: TimePlan
    critical_path: int


def plan_worker(
    data: SnapshotSequence,
    graph: Supergraph,
    placement: Placement,
    rank: int,
    *,
    attention: bool,
    norm: str = "sym",
    fusion: Fusion = "none",
    temporal: Temporal = "packed",
    fused: Tensor | None = None,
    memory_limit: float | None = None,
    row_floats: int = 64,
    entries: Entries | None = None,
) -> WorkerPlan:
    """Everything a worker's rows, messages and sequences are made of.

    Args:
        data, graph: the vertex-steps and the snapshots they are of.
        placement: of these vertex-steps.
        rank: the worker.
        attention: the time encoder reads whole sequences instead of states.
        norm: of A-hat.
        fusion: `none`: the structure encoder goes unit by unit. `spatial`: units are joined, as
            `fused` says or else by `fusion.fuse_units`. `whole`: all rows of the worker at once.
        temporal: see `segments.plan_stages`. Padding is per chunk of a sequence's first own step
            with a partition by chunks, else over the worker.
        fused: int64[units], the group of each unit, from `fusion.fuse_units`.
        memory_limit: bytes of a fused group at most, by `fusion.unit_memory`; None: none.
        row_floats: floats of a vertex-step for that model of memory.
        entries: `step_entries(data, graph, norm)`, where several plans are made.

    Raises:
        InvalidInputError: a rank or placement that does not fit.
        UnknownKeyError: another `fusion` or `temporal`.
    """
    _check(graph, placement, rank, fusion, temporal)
    if entries is None:
        entries = step_entries(data, graph, norm)
    structure = _plan_structure(
        graph, placement, rank, entries, fusion, fused, memory_limit, row_floats
    )
    segments = None if attention else cut_segments(graph, placement.time)
    time = _plan_time(graph, placement, rank, structure.rows, segments, temporal)
    path = int(graph.num_vertices > 0) if segments is None else segments.stages
    return WorkerPlan(rank, placement.workers, structure, time, path)


def _plan_structure(
    graph: Supergraph,
    placement: Placement,
    rank: int,
    entries: Entries,
    fusion: Fusion,
    fused: Tensor | None,
    limit: float | None,
    floats: int,
) -> StructurePlan:
    owner = placement.structure
    rows = (owner == rank).nonzero().squeeze(1)
    indptr, indices = entries.csr.indptr, entries.csr.indices
    reader = torch.repeat_interleave(owner, indptr.diff(), output_size=entries.csr.nnz)
    has = owner[indices]
    across = (reader != has).nonzero().squeeze(1)
    involved = across[(reader[across] == rank) | (has[across] == rank)]
    halo, lists = halo_lists(
        owner,
        rows,
        rank,
        placement.workers,
        reader[involved],
        indices[involved].long(),
        idle=not across.numel(),
    )
    number = torch.full((graph.num_vertices,), -1, dtype=torch.int32)
    number[rows] = torch.arange(rows.numel(), dtype=torch.int32)
    number[halo] = torch.arange(rows.numel(), rows.numel() + halo.numel(), dtype=torch.int32)
    held = indptr.diff()[rows]
    at = runs_of(indptr[rows], held)
    csr = ascending(
        Csr(
            offsets_of(held),
            number[indices[at]],
            rows.numel() + halo.numel(),
            entries.csr.values[at],
        )
    )
    loop = entries.loop[rows]
    unit = placement.unit[rows].long()
    if fusion == "whole":
        group = torch.zeros_like(unit)
    elif fusion == "none":
        group = unit
    else:
        group = (_fuse(csr, unit, placement.units, limit, floats) if fused is None else fused)[unit]
    return StructurePlan(rows, halo, lists, csr, loop, make_groups(csr, loop, group, unit))


def _fuse(csr: Csr, unit: Tensor, units: int, limit: float | None, floats: int) -> Tensor:
    memory = None if limit is None else unit_memory(csr, unit, units, floats)
    return fuse_units(shared_rows(csr, unit, units), memory=memory, limit=limit).group


def make_groups(csr: Csr, loop: Tensor, group: Tensor, unit: Tensor) -> list[VertexStepGroup]:
    """Rows of a worker cut into groups, each with the columns that it has to load.

    Args:
        csr: R x (R + H), a worker's matrix.
        loop: float32[R].
        group: int64[R], any numbers; equal ones are taken at once.
        unit: int64[R].
    """
    count = group.numel()
    if count == 0:
        return []
    names, group = torch.unique(group, return_inverse=True)
    first_unit = torch.full_like(names, unit.max() + 1).scatter_reduce_(0, group, unit, "amin")
    rank = torch.argsort(torch.argsort(first_unit, stable=True))
    group = rank[group]
    groups = names.numel()
    order = torch.argsort(group, stable=True)
    sizes = torch.bincount(group, minlength=groups)
    first = torch.cumsum(sizes, 0) - sizes
    position = torch.empty_like(order)
    position[order] = torch.arange(count) - first[group[order]]
    held = csr.indptr.diff()[order]
    at = runs_of(csr.indptr[order], held)
    columns = csr.indices[at].long()
    of = torch.repeat_interleave(group[order], held, output_size=at.numel())
    inside = columns < count
    inside &= group[columns.clamp(max=count - 1)] == of
    outer = ~inside
    keys, place = torch.unique(of[outer] * csr.num_cols + columns[outer], return_inverse=True)
    others = torch.bincount(keys // csr.num_cols, minlength=groups)
    # All groups side by side in one matrix, so that its rows are sorted in one go.
    base = torch.cumsum(sizes + others, 0) - sizes - others
    new = torch.empty_like(columns)
    new[inside] = base[of[inside]] + position[columns[inside]]
    new[outer] = base[of[outer]] + sizes[of[outer]] + place - starts_of(others)[of[outer]]
    values = None if csr.values is None else csr.values[at]
    side = Csr(offsets_of(held), new.to(torch.int32), int((sizes + others).sum()), values)
    side = ascending(side)
    row_cuts = [0, *torch.cumsum(sizes, 0).tolist()]
    other_cuts = [0, *torch.cumsum(others, 0).tolist()]
    outside = keys % csr.num_cols
    units = unit[order]
    out = []
    for g in range(groups):
        low, high = row_cuts[g], row_cuts[g + 1]
        own = order[low:high]
        indptr = side.indptr[low : high + 1]
        a, b = int(indptr[0]), int(indptr[-1])
        loaded = torch.cat([own, outside[other_cuts[g] : other_cuts[g + 1]]])
        part = Csr(
            indptr - a,
            side.indices[a:b] - int(base[g]),
            loaded.numel(),
            None if side.values is None else side.values[a:b].clone(),
        )
        out.append(VertexStepGroup(own, loaded, part, loop[own], torch.unique(units[low:high])))
    return out


def _plan_time(
    graph: Supergraph,
    placement: Placement,
    rank: int,
    structure_rows: Tensor,
    segments: Segments | None,
    temporal: Temporal,
) -> TimePlan:
    rows, move = structure_rows, None
    if placement.moves:
        rows = (placement.time == rank).nonzero().squeeze(1)
        move = _plan_move(placement, rank, structure_rows, rows)
    unit = placement.unit if placement.partition == "chunks" else None
    if segments is not None:
        stages = plan_stages(segments, rows, rank, placement.workers, unit=unit, temporal=temporal)
        return TimePlan(rows, move, stages)
    halo, lists = _attention_lists(graph, placement, rank, rows)
    groups = _attention_groups(graph, rows, halo, unit, temporal)
    return TimePlan(rows, move, [], halo, lists, tuple(groups))


def _plan_move(placement: Placement, rank: int, before: Tensor, after: Tensor) -> RowMove:
    goes, came = placement.time[before], placement.structure[after]
    asked = [before[goes == q] for q in range(placement.workers)]
    keep = asked[rank]
    asked[rank] = keep[:0]
    wanted = after[came != rank]
    idle = torch.equal(placement.structure, placement.time)
    halo, lists = make_lists(
        placement.structure, before, rank, placement.workers, wanted, asked, idle=idle
    )
    order = torch.argsort(torch.cat([keep, halo]))
    return RowMove(lists, torch.searchsorted(before, keep), order)


def _attention_lists(
    graph: Supergraph, placement: Placement, rank: int, rows: Tensor
) -> tuple[Tensor, RowLists]:
    """Steps of others whose entity has a step here; each goes to a worker once."""
    size, entities = placement.workers, graph.start.numel() - 1
    entity, owner = graph.entity.long(), placement.time
    here = torch.zeros(size, entities, dtype=torch.bool)
    here[owner.long(), entity] = True
    wanted = (here[rank][entity] & (owner != rank)).nonzero().squeeze(1)
    own = entity[rows]
    asked = [rows[here[q][own]] if q != rank else rows[:0] for q in range(size)]
    idle = not bool((here.sum(0) > 1).any())
    return make_lists(owner, rows, rank, size, wanted, asked, idle=idle)


def _attention_groups(
    graph: Supergraph, rows: Tensor, halo: Tensor, unit: Tensor | None, temporal: Temporal
) -> list[TimeGroup]:
    """Whole sequences of the entities that have a step here, as rows."""
    ids, table = torch.sort(torch.cat([rows, halo]))
    entities, lengths = torch.unique_consecutive(graph.entity[ids], return_counts=True)
    offsets = torch.cumsum(lengths, 0) - lengths
    units = None
    if unit is not None:
        first = torch.searchsorted(rows, graph.start[entities.long()])
        units = unit[rows[first]] if rows.numel() else unit[:0]
    starts = torch.full_like(lengths, FROM_ZERO)
    out = []
    for group in group_sequences(offsets, lengths, starts, units, temporal):
        steps = table[group.steps]
        own = (steps < rows.numel()).nonzero().squeeze(1)
        every = own.numel() == steps.numel()
        out.append(
            TimeGroup(
                group.rows,
                steps,
                group.begins,
                group.ends,
                group.sequences,
                None if every else own,
            )
        )
    return out


def _check(graph: Supergraph, placement: Placement, rank: int, fusion: str, temporal: str) -> None:
    for name, value, allowed in (
        ("fusion", fusion, ("none", "spatial", "whole")),
        ("temporal", temporal, ("packed", "padded", "packed_sequence")),
    ):
        if value not in allowed:
            raise unknown_key(name, value, allowed)
    if not 0 <= rank < placement.workers:
        raise InvalidInputError(f"rank is {rank}, allowed are 0 to {placement.workers - 1}")
    for name in ("structure", "time", "unit"):
        found = getattr(placement, name).numel()
        if found != graph.num_vertices:
            raise InvalidInputError(
                f"placement.{name} has {found} numbers, the graph {graph.num_vertices} vertex-steps"
            )

"""Plans of workers: packed rows, fused groups, padding, loads; test_dgc_trainer runs them."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of, tiny_sequence
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.scan import CONTINUES, FROM_ZERO
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.dgc.dealing import WorkAssignment
from dgbench.systems.dgc.fusion import CLOSE, fuse_units, shared_rows, unit_loads, unit_memory
from dgbench.systems.dgc.loading import OFF, ON, SPATIAL, TEMPORAL, count_loads
from dgbench.systems.dgc.loading import plans_of as loaded_plans
from dgbench.systems.dgc.packing import pack_sequences
from dgbench.systems.dgc.placement import Placement, by_both, by_chunks, by_sequences, by_snapshots
from dgbench.systems.dgc.plan import WorkerPlan, plan_worker, step_entries
from dgbench.systems.dgc.volumes import shape_of


@dataclass
class Case:
    data: TinySequence
    graph: Supergraph
    placement: Placement


def of(topology: list[Csr], nodes: int) -> TinySequence:
    """As much of a sequence as a plan reads."""
    return TinySequence(topology, torch.empty(0), torch.empty(0), nodes)


@st.composite
def cases(draw) -> Case:
    count, steps = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    ends = st.integers(0, count - 1)
    pairs = st.sets(st.tuples(ends, ends), max_size=10)
    topology = [csr_of(draw(pairs), count) for _ in range(steps)]
    graph = build_supergraph(topology, presence=draw(st.sampled_from(("span", "tail", "edges"))))
    workers = draw(st.integers(1, 5))
    kind = draw(st.sampled_from(("turns", "runs", "sequences", "both", "chunks", "cut")))
    if kind == "chunks":
        chunks = draw(st.integers(1, 6))
        draws = st.integers(0, chunks - 1)
        chunk = draw(st.lists(draws, min_size=graph.num_vertices, max_size=graph.num_vertices))
        to = draw(st.lists(st.integers(0, workers - 1), min_size=chunks, max_size=chunks))
        placement = by_chunks(
            graph, torch.tensor(chunk, dtype=torch.int32), chunks, torch.tensor(to), workers
        )
    elif kind == "cut":  # at every step
        ids = torch.arange(graph.num_vertices, dtype=torch.int32)
        to = ids.long() % workers
        placement = by_chunks(graph, ids, graph.num_vertices, to, workers)
    else:
        make = {
            "turns": by_snapshots,
            "runs": lambda g, p: by_snapshots(g, p, contiguous=True),
            "sequences": by_sequences,
            "both": by_both,
        }[kind]
        placement = make(graph, workers)
    return Case(of(topology, count), graph, placement)


def plans_of(case: Case, **settings) -> list[WorkerPlan]:
    settings.setdefault("attention", False)
    return [
        plan_worker(case.data, case.graph, case.placement, rank, **settings)
        for rank in range(case.placement.workers)
    ]


@settings(max_examples=60)
@given(cases())
def test_all_workers_know_whether_anybody_sends(case: Case) -> None:
    for attention in (False, True):
        plans = plans_of(case, attention=attention)
        each = [[p.structure.lists, *(s.lists for s in p.time.stages if s.lists)] for p in plans]
        if attention:
            each = [[*lists, plan.time.lists] for lists, plan in zip(each, plans, strict=True)]
        if plans[0].time.move is not None:
            each = [[*lists, plan.time.move.lists] for lists, plan in zip(each, plans, strict=True)]
        for lists in zip(*each, strict=True):
            nobody = sum(some.sent for some in lists) == 0
            assert {some.idle for some in lists} == {nobody}


@settings(max_examples=40)
@given(cases())
def test_padding_is_the_formula_of_each_unit_and_stage(case: Case) -> None:
    """Section 4.3: sum of Lmax - L over sequences padded together; packing never needs more."""
    graph, placement = case.graph, case.placement
    parts: dict[tuple[int, int, int], list[int]] = {}
    for entity in range(graph.start.numel() - 1):
        first, stop = graph.start[entity : entity + 2].tolist()
        stage = -1
        for i in range(first, stop):
            worker = int(placement.time[i])
            if i == first or worker != int(placement.time[i - 1]):
                stage += 1
                unit = int(placement.unit[i]) if placement.partition == "chunks" else -1
                parts.setdefault((worker, stage, unit), []).append(0)
                key = worker, stage, unit
            parts[key][-1] += 1
    wanted = sum(max(sizes) * len(sizes) - sum(sizes) for sizes in parts.values())
    padded = plans_of(case, temporal="padded")
    assert sum(plan.time.padding for plan in padded) == wanted
    stages: dict[tuple[int, int], list[int]] = {}
    for (worker, stage, _), sizes in parts.items():
        stages.setdefault((worker, stage), []).extend(sizes)
    most = sum(max(sizes) * len(sizes) - sum(sizes) for sizes in stages.values())
    assert sum(plan.time.padding for plan in plans_of(case)) <= most


def test_refused() -> None:
    one, both = csr_of({(1, 0)}, 2), csr_of({(1, 0), (0, 1)}, 2)
    data = of([one, both], 2)
    graph = build_supergraph(data.topology)
    good = Case(data, graph, by_snapshots(graph, 2))
    with pytest.raises(InvalidInputError, match="rank"):
        plan_worker(data, graph, good.placement, 2, attention=False)
    for name in ("fusion", "temporal"):
        with pytest.raises(UnknownKeyError, match=name):
            plans_of(good, **{name: "some"})
    small = build_supergraph([csr_of([], 2), one])
    with pytest.raises(InvalidInputError, match=r"placement\.structure"):
        plan_worker(data, small, good.placement, 0, attention=False)
    weighted = csr_of({(1, 0)}, 2, {(1, 0): 2.0})
    for bad, of_graph in ((of([one], 2), graph), (data, small), (of([weighted, both], 2), graph)):
        with pytest.raises(InvalidInputError, match="snapshot"):
            step_entries(bad, of_graph)


LENGTHS = st.lists(st.integers(0, 12), max_size=60)


def first_fit(lengths, capacity):
    """Every sequence by itself: the first row with room, rows in the order they were opened."""
    room, row, offset = [], {}, {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if lengths[i] == 0:
            continue
        r = next((r for r, free in enumerate(room) if free >= lengths[i]), len(room))
        if r == len(room):
            room.append(capacity)
        row[i], offset[i] = r, capacity - room[r]
        room[r] -= lengths[i]
    return row, offset, len(room)


@settings(max_examples=300)
@given(lengths=LENGTHS, longer=st.integers(0, 9))
def test_is_first_fit_decreasing(lengths, longer):
    capacity = max(lengths, default=0) + longer
    rows = pack_sequences(torch.tensor(lengths, dtype=torch.int64), capacity)
    row, offset, count = first_fit(lengths, capacity)
    assert rows.num_rows == count
    for i in row:
        assert (int(rows.row[i]), int(rows.offset[i])) == (row[i], offset[i])


@settings(max_examples=200)
@given(lengths=LENGTHS)
def test_every_step_has_a_place_of_its_own(lengths):
    rows = pack_sequences(torch.tensor(lengths, dtype=torch.int64))
    total, longest = sum(lengths), max(lengths, default=0)
    assert rows.steps == total
    assert rows.row_length == longest
    assert rows.place.unique().numel() == total
    assert rows.padding == rows.num_rows * longest - total == int((rows.sequence < 0).sum())
    assert rows.padding_unpacked == len(lengths) * longest - total
    assert rows.padding <= rows.padding_unpacked
    least = -(-total // longest) if longest else 0
    # First fit leaves one row at most half empty.
    assert least <= rows.num_rows <= 2 * least
    values = torch.arange(2.0 * total).view(total, 2)
    there = rows.pack(values)
    assert torch.equal(rows.unpack(there), values)
    assert float(there.sum()) == float(values.sum())
    at = 0
    for i, length in enumerate(lengths):
        for k in range(length):
            t, n = int(rows.offset[i]) + k, int(rows.row[i])
            assert torch.equal(there[t, n], values[at])
            assert (int(rows.sequence[t, n]), int(rows.position[t, n])) == (i, k)
            assert int(rows.begins[t, n]) == (FROM_ZERO if k == 0 else CONTINUES)
            at += 1
    assert bool((rows.begins[rows.sequence < 0] == FROM_ZERO).all())


def test_mistakes_are_named():
    for lengths in ([1, 2], torch.tensor([1.0]), torch.tensor([3, -1])):
        with pytest.raises(InvalidInputError, match="lengths"):
            pack_sequences(lengths)
    for length in (3, 4.0):
        with pytest.raises(InvalidInputError, match="row_length"):
            pack_sequences(torch.tensor([3, 4]), length)
    rows = pack_sequences(torch.tensor([2, 1]))
    for name, call, bad in (("values", rows.pack, torch.zeros(2, 4)),
                              ("rows", rows.unpack, torch.zeros(3, 4)),
                              ("starts", rows.begins_from, torch.zeros(3).long())):  # fmt: skip
        with pytest.raises(InvalidInputError, match=name):
            call(bad)


def matrix(rows: int, columns: int, entries: set[tuple[int, int]]) -> Csr:
    """A matrix from pairs of row and column."""
    counts = np.bincount([r for r, _ in entries], minlength=rows)
    indptr = torch.from_numpy(np.concatenate([[0], counts.cumsum()]).astype(np.int64))
    indices = torch.tensor([c for _, c in sorted(entries)], dtype=torch.int32)
    return Csr(indptr, indices, columns)


@st.composite
def workers(draw) -> tuple[Csr, Tensor, int]:
    rows, halo = draw(st.integers(0, 14)), draw(st.integers(0, 4))
    units = draw(st.integers(1, 8))
    cells = st.tuples(st.integers(0, max(0, rows - 1)), st.integers(0, max(0, rows + halo - 1)))
    entries = draw(st.sets(cells, max_size=60)) if rows else set()
    entries = {(r, c) for r, c in entries if r != c}
    unit = draw(st.lists(st.integers(0, units - 1), min_size=rows, max_size=rows))
    return matrix(rows, rows + halo, entries), torch.tensor(unit, dtype=torch.int64), units


def entries_of(csr: Csr) -> list[tuple[int, int]]:
    ends = csr.indptr.tolist()
    columns = csr.indices.tolist()
    return [(r, c) for r in range(csr.num_rows) for c in columns[ends[r] : ends[r + 1]]]


def loads(csr: Csr, group: list[int]) -> int:
    """Rows that groups load of this worker's: their own and, once each, others that they hear."""
    others = {
        (group[r], c) for r, c in entries_of(csr) if c < csr.num_rows and group[c] != group[r]
    }
    return len(group) + len(others)


def plain_fusion(
    csr: Csr, unit: list[int], units: int, memory: list[float], limit: float
) -> tuple[list[int], int]:
    """Group of each unit and merges: r counted anew from sets after every merge."""
    group = list(range(units))
    size = list(memory)

    def shared() -> dict[tuple[int, int], int]:
        pairs = {(group[unit[r]], c) for r, c in entries_of(csr) if c < csr.num_rows}
        found: dict[tuple[int, int], int] = {}
        for a, c in pairs:
            b = group[unit[c]]
            if a != b:
                found[min(a, b), max(a, b)] = found.get((min(a, b), max(a, b)), 0) + 1
        return found

    merges = 0
    while True:
        heap = [
            (-r, a, b)
            for (a, b), r in shared().items()
            if max(size[a], size[b]) < CLOSE * limit and size[a] + size[b] <= limit
        ]
        if not heap:
            return group, merges
        _, a, b = min(heap)
        heapq.heapify(heap)
        assert heap[0][1:] == (a, b)
        group = [a if g == b else g for g in group]
        size[a] += size[b]
        merges += 1


@settings(max_examples=150)
@given(workers(), st.data())
def test_fusion_is_that_of_sets_counted_anew(worker, data) -> None:
    csr, unit, units = worker
    limited = data.draw(st.booleans())
    memory = data.draw(st.lists(st.integers(0, 9), min_size=units, max_size=units))
    limit = float(data.draw(st.integers(1, 30))) if limited else float("inf")
    found = fuse_units(
        shared_rows(csr, unit, units),
        memory=torch.tensor(memory, dtype=torch.float64),
        limit=limit if limited else None,
        rest="apart",
    )
    group, merges = plain_fusion(csr, unit.tolist(), units, [float(m) for m in memory], limit)
    names = {g: i for i, g in enumerate(sorted({*group}))}
    assert found.group.tolist() == [names[g] for g in group]
    assert (found.merges, found.groups) == (merges, len(names))
    before = loads(csr, unit.tolist())
    after = loads(csr, [group[u] for u in unit.tolist()])
    assert found.saved_rows == before - after
    every = {
        (unit[r].item(), c) for r, c in [*entries_of(csr), *((r, r) for r in range(len(unit)))]
    }
    counts = [sum(u == one for u, _ in every) for one in range(units)]
    assert unit_loads(csr, unit, units).tolist() == counts
    if limited:
        size = torch.zeros(found.groups, dtype=torch.float64)
        size.index_add_(0, found.group, torch.tensor(memory, dtype=torch.float64))
        counts = torch.bincount(found.group)
        assert bool((size[counts > 1] <= limit).all())
        assert found.frozen == int((size >= CLOSE * limit).sum())


def test_what_shares_nothing_is_joined_as_memory_allows() -> None:
    csr = matrix(4, 4, set())
    unit = torch.arange(4)
    reads = shared_rows(csr, unit, 4)
    assert fuse_units(reads, rest="apart").groups == 4
    assert fuse_units(reads).groups == 1
    memory = torch.tensor([2.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    assert fuse_units(reads, memory=memory, limit=4.0).group.tolist() == [0, 0, 1, 1]


def test_memory_of_a_unit_grows_with_what_it_loads() -> None:
    csr = matrix(3, 5, {(0, 1), (0, 3), (1, 3), (1, 4), (2, 0)})
    unit = torch.tensor([0, 1, 1])
    # Unit 0: row 0 and columns 1, 3; unit 1: rows 1, 2 and columns 0, 3, 4.
    assert unit_memory(csr, unit, 2, 10).tolist() == [(3 + 1) * 40 + 2 * 8, (5 + 2) * 40 + 3 * 8]


def test_fusion_refused() -> None:
    reads = shared_rows(matrix(2, 2, {(0, 1)}), torch.tensor([0, 1]), 2)
    with pytest.raises(UnknownKeyError):
        fuse_units(reads, rest="none")
    two = torch.ones(2, dtype=torch.float64)
    for bad in ({"limit": 3.0}, {"memory": two, "limit": 0.0}, {"memory": -two},
                {"memory": torch.ones(3, dtype=torch.float64)}):  # fmt: skip
        with pytest.raises(InvalidInputError, match=list(bad)[-1]):
            fuse_units(reads, **bad)


def task_of(model: str = "mpnn_lstm_bare") -> SequenceWorkload:
    return SequenceWorkload(dataset="tiny", model=model, feature_dim=3, hidden_dim=4)


def dealt(task: SequenceWorkload, data, workers: int = 2, chunks: int = 9) -> WorkAssignment:
    """Chunks drawn at random: worse than real ones, so that there is much to fuse."""
    graph = vertex_steps(data, task)
    draw = torch.Generator().manual_seed(3)
    chunk = torch.randint(0, chunks, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    placement = by_chunks(graph, chunk, chunks, torch.arange(chunks) % workers, workers)
    return WorkAssignment(graph, placement, step_entries(data, graph), None, 0.0)


@pytest.fixture(scope="module")
def tiny():
    data = tiny_sequence(nodes=14, snapshots=8, edges=10)
    task = task_of()
    return task, data, dealt(task, data)


def test_loads_are_counted_by_formula(tiny):
    task, data, out = tiny
    shape = shape_of(sequence_model(task))
    plans = loaded_plans(data, out, norm="sym")
    loads = {name: count_loads(plan, shape) for name, plan in plans.items()}
    for name, plan in plans.items():
        found = loads[name]
        runs = [run for stage in plan.time.stages for run in stage.groups]
        cells = sum(run.rows.row_length * run.rows.num_rows for run in runs)
        assert found.zeros == (cells - plan.time.rows.numel()) * 8
        matrices = sum(
            group.csr.indptr.nbytes + group.csr.indices.nbytes + group.csr.values.nbytes
            for group in plan.structure.groups
        )
        assert found.bytes == 4 * (found.rows * (3 + 4) + cells * 8) + matrices
        assert found.rows == sum(g.columns.numel() for g in plan.structure.groups)
    assert loads[SPATIAL].rows == loads[ON].rows < loads[OFF].rows == loads[TEMPORAL].rows
    assert loads[TEMPORAL].zeros == loads[ON].zeros < loads[OFF].zeros == loads[SPATIAL].zeros
    assert loads[ON].groups == 1 < loads[OFF].groups

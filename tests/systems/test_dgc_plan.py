"""Plans of workers: packed rows, fused groups, padding, loads; test_dgc_trainer runs them."""

from __future__ import annotations

import pytest
import torch
from dgc_tiny import placements, random_sequence, tiny_workload
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of, matrix_of, tiny_sequence
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.base.sequences import sequence_model, vertex_steps
from dgbench.systems.dgc.dealing import WorkAssignment
from dgbench.systems.dgc.fusion import CLOSE, fuse_units, shared_rows, unit_memory
from dgbench.systems.dgc.loading import OFF, ON, SPATIAL, TEMPORAL, loaded_bytes
from dgbench.systems.dgc.loading import plans_of as loaded_plans
from dgbench.systems.dgc.packing import pack_sequences
from dgbench.systems.dgc.placement import by_chunks, by_snapshots
from dgbench.systems.dgc.plan import WorkerPlan, plan_worker, step_entries
from dgbench.systems.dgc.volumes import shape_of


@st.composite
def cases(draw):
    """Snapshots, their vertex-steps and a placement of any kind."""
    seed, presence = draw(st.integers(0, 999)), draw(st.sampled_from(("span", "tail", "edges")))
    data = random_sequence(draw(st.integers(1, 9)), draw(st.integers(1, 6)), 10, seed)
    graph = build_supergraph(data.topology, presence=presence)
    return data, graph, draw(st.sampled_from(placements(graph, draw(st.integers(1, 5)), seed)))


def plans_of(data, graph, placement, *, attention: bool = False, **settings) -> list[WorkerPlan]:
    return [
        plan_worker(data, graph, placement, rank, attention=attention, **settings)
        for rank in range(placement.workers)
    ]


@settings(max_examples=30)
@given(cases())
def test_padding_is_the_formula_of_each_unit_and_stage(case) -> None:
    """Section 4.3: sum of Lmax - L over sequences padded together; packing never needs more.

    Every vertex-step is run once, by one worker.
    """
    _, graph, placement = case
    units: dict[tuple[int, int, int], list[int]] = {}
    for entity in range(graph.start.numel() - 1):
        stage, last = -1, None
        for i in range(*graph.start[entity : entity + 2].tolist()):
            worker = int(placement.time[i])
            if worker != last:
                stage, last = stage + 1, worker
                unit = int(placement.unit[i]) if placement.partition == "chunks" else -1
                sizes = units.setdefault((worker, stage, unit), [])
                sizes.append(0)
            sizes[-1] += 1
    stages: dict[tuple[int, int], list[int]] = {}
    for (worker, stage, _), sizes in units.items():
        stages.setdefault((worker, stage), []).extend(sizes)

    def padding(parts) -> int:
        return sum(max(sizes) * len(sizes) - sum(sizes) for sizes in parts.values())

    assert sum(plan.time.padding for plan in plans_of(*case, temporal="padded")) == padding(units)
    assert sum(plan.time.padding for plan in plans_of(*case)) <= padding(stages)
    for temporal in ("packed", "padded", "packed_sequence"):
        run = [
            plan.time.rows[group.steps]
            for plan in plans_of(*case, temporal=temporal)
            for stage in plan.time.stages
            for group in stage.groups
        ]
        every = torch.cat([graph.entity[:0].long(), *run])
        assert every.sort().values.tolist() == list(range(graph.num_vertices))


def test_refused() -> None:
    one, both, weighted = (
        csr_of({(1, 0)}, 2),
        csr_of({(1, 0), (0, 1)}, 2),
        csr_of({(1, 0)}, 2, {(1, 0): 2.0}),
    )
    graph, small = build_supergraph([one, both]), build_supergraph([csr_of([], 2), one])

    def of(*topology: Csr) -> TinySequence:
        return TinySequence(list(topology), torch.empty(0), torch.empty(0), 2)

    data, good = of(one, both), by_snapshots(graph, 2)
    with pytest.raises(InvalidInputError, match="rank"):
        plan_worker(data, graph, good, 2, attention=False)
    for name in ("fusion", "temporal"):
        with pytest.raises(UnknownKeyError, match=name):
            plans_of(data, graph, good, **{name: "some"})
    with pytest.raises(InvalidInputError, match=r"placement\.structure"):
        plan_worker(data, small, good, 0, attention=False)
    for bad, of_graph in ((of(one), graph), (data, small), (of(weighted, both), graph)):
        with pytest.raises(InvalidInputError, match="snapshot"):
            step_entries(bad, of_graph)


def first_fit(lengths, capacity):
    """Row and offset by sequence: the first row with room, rows in the order they were opened."""
    room, found = [], {}
    for i in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if lengths[i]:
            r = next((r for r, free in enumerate(room) if free >= lengths[i]), len(room))
            if r == len(room):
                room.append(capacity)
            found[i] = r, capacity - room[r]
            room[r] -= lengths[i]
    return found, len(room)


@settings(max_examples=80)
@given(lengths=st.lists(st.integers(0, 12), max_size=60), longer=st.integers(0, 9))
def test_is_first_fit_decreasing(lengths, longer):
    capacity = max(lengths, default=0) + longer
    rows = pack_sequences(torch.tensor(lengths, dtype=torch.int64), capacity)
    places, count = first_fit(lengths, capacity)
    assert rows.num_rows == count
    assert all((int(rows.row[i]), int(rows.offset[i])) == place for i, place in places.items())


def test_mistakes_are_named():
    rows = pack_sequences(torch.tensor([2, 1]))
    for name, call in (
        ("lengths", lambda: pack_sequences([1, 2])),
        ("lengths", lambda: pack_sequences(torch.tensor([1.0]))),
        ("lengths", lambda: pack_sequences(torch.tensor([3, -1]))),
        ("row_length", lambda: pack_sequences(torch.tensor([3, 4]), 3)),
        ("row_length", lambda: pack_sequences(torch.tensor([3, 4]), 4.0)),
        ("values", lambda: rows.pack(torch.zeros(2, 4))),
        ("rows", lambda: rows.unpack(torch.zeros(3, 4))),
        ("starts", lambda: rows.begins_from(torch.zeros(3).long())),
    ):
        with pytest.raises(InvalidInputError, match=name):
            call()


@st.composite
def workers(draw) -> tuple[set[tuple[int, int]], Csr, Tensor, int]:
    rows, halo = draw(st.integers(0, 14)), draw(st.integers(0, 4))
    units = draw(st.integers(1, 8))
    cells = st.tuples(st.integers(0, max(0, rows - 1)), st.integers(0, max(0, rows + halo - 1)))
    entries = draw(st.sets(cells, max_size=60)) if rows else set()
    entries = {(r, c) for r, c in entries if r != c}
    unit = draw(st.lists(st.integers(0, units - 1), min_size=rows, max_size=rows))
    return entries, matrix_of(entries, rows, rows + halo), torch.tensor(unit).long(), units


def loads(entries: set[tuple[int, int]], group: list[int]) -> int:
    """Rows that groups load of this worker's: their own and, once each, others that they hear."""
    inside = {(group[r], c) for r, c in entries if c < len(group) and group[c] != group[r]}
    return len(group) + len(inside)


def plain_fusion(
    entries: set[tuple[int, int]], unit: list[int], memory: list[float], limit: float
) -> tuple[list[int], int]:
    """Group of each unit and merges: r counted anew from sets after every merge."""
    group, size = list(range(len(memory))), list(memory)
    for merges in range(len(memory)):
        pairs = {(group[unit[r]], c) for r, c in entries if c < len(unit)}
        shared: dict[tuple[int, int], int] = {}
        for a, b in ((a, group[unit[c]]) for a, c in pairs):
            if a != b:
                shared[min(a, b), max(a, b)] = shared.get((min(a, b), max(a, b)), 0) + 1
        fitting = [
            (-r, a, b)
            for (a, b), r in shared.items()
            if max(size[a], size[b]) < CLOSE * limit and size[a] + size[b] <= limit
        ]
        if not fitting:
            return group, merges
        _, a, b = min(fitting)
        group = [a if g == b else g for g in group]
        size[a] += size[b]
    raise AssertionError("more merges than units")


@settings(max_examples=60)
@given(workers(), st.data())
def test_fusion_is_that_of_sets_counted_anew(worker, data) -> None:
    entries, csr, unit, units = worker
    memory = data.draw(st.lists(st.integers(0, 9), min_size=units, max_size=units))
    limit = data.draw(st.one_of(st.none(), st.floats(1, 30)))
    weight = torch.tensor(memory, dtype=torch.float64)
    found = fuse_units(shared_rows(csr, unit, units), memory=weight, limit=limit, rest="apart")
    own = unit.tolist()
    group, merges = plain_fusion(entries, own, memory, limit or float("inf"))
    names = {g: i for i, g in enumerate(sorted({*group}))}
    assert found.group.tolist() == [names[g] for g in group]
    assert (found.merges, found.groups) == (merges, len(names))
    assert found.saved_rows == loads(entries, own) - loads(entries, [group[u] for u in own])
    if limit:
        size = torch.zeros(found.groups).double().index_add_(0, found.group, weight)
        assert bool((size[torch.bincount(found.group) > 1] <= limit).all())
        assert found.frozen == int((size >= CLOSE * limit).sum())


def test_what_shares_nothing_is_joined_as_memory_allows() -> None:
    reads = shared_rows(matrix_of([], 4), torch.arange(4), 4)
    assert fuse_units(reads, rest="apart").groups == 4
    assert fuse_units(reads).groups == 1
    memory = torch.tensor([2.0, 2.0, 3.0, 1.0], dtype=torch.float64)
    assert fuse_units(reads, memory=memory, limit=4.0).group.tolist() == [0, 0, 1, 1]
    with pytest.raises(UnknownKeyError):
        fuse_units(reads, rest="none")
    for bad in ({"limit": 3.0}, {"memory": memory, "limit": 0.0}, {"memory": -memory},
                {"memory": memory[1:]}):  # fmt: skip
        with pytest.raises(InvalidInputError, match=list(bad)[-1]):
            fuse_units(reads, **bad)


def test_memory_of_a_unit_grows_with_what_it_loads() -> None:
    csr = matrix_of([(0, 1), (0, 3), (1, 3), (1, 4), (2, 0)], 3, 5)
    unit = torch.tensor([0, 1, 1])
    # Unit 0: row 0 and columns 1, 3; unit 1: rows 1, 2 and columns 0, 3, 4.
    assert unit_memory(csr, unit, 2, 10).tolist() == [(3 + 1) * 40 + 2 * 8, (5 + 2) * 40 + 3 * 8]


def test_loads_are_counted_by_formula():
    """Chunks drawn at random: worse than real ones, so that there is much to fuse."""
    data = tiny_sequence(nodes=14, snapshots=8, edges=10)
    task = tiny_workload("mpnn_lstm_bare", feature_dim=3)
    graph = vertex_steps(data, task)
    draw = torch.Generator().manual_seed(3)
    chunk = torch.randint(0, 9, (graph.num_vertices,), generator=draw, dtype=torch.int32)
    placement = by_chunks(graph, chunk, 9, torch.arange(9) % 2, 2)
    dealt = WorkAssignment(graph, placement, step_entries(data, graph), None, 0.0)
    shape, plans = shape_of(sequence_model(task)), loaded_plans(data, dealt, norm="sym")
    for plan in plans.values():
        runs = [run.rows for stage in plan.time.stages for run in stage.groups]
        cells = sum(rows.row_length * rows.num_rows for rows in runs)
        assert plan.time.padding == cells - plan.time.rows.numel()
        matrices = sum(
            part.nbytes
            for group in plan.structure.groups
            for part in (group.csr.indptr, group.csr.indices, group.csr.values)
        )
        rows = sum(g.columns.numel() for g in plan.structure.groups)
        assert plan.structure.loads == rows
        assert loaded_bytes(plan, shape) == 4 * (rows * (3 + 4) + cells * 8) + matrices
    rows = {name: plan.structure.loads for name, plan in plans.items()}
    zeros = {name: plan.time.padding for name, plan in plans.items()}
    assert rows[SPATIAL] == rows[ON] < rows[OFF] == rows[TEMPORAL]
    assert zeros[TEMPORAL] == zeros[ON] < zeros[OFF] == zeros[SPATIAL]
    assert len(plans[ON].structure.groups) == 1 < len(plans[OFF].structure.groups)

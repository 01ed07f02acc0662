"""Plans of all workers against one dense matrix and against sequences run entity by entity."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.scan import CONTINUES
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.halo_lists import RowLists
from dgbench.systems.dgc.placement import (
    Placement,
    by_both,
    by_chunks,
    by_sequences,
    by_snapshots,
)
from dgbench.systems.dgc.plan import WorkerPlan, plan_worker, step_entries


@dataclass
class Snapshots:
    """As much of a `SnapshotSequence` as a plan reads."""

    topology: list[Csr]
    num_nodes: int

    def __len__(self) -> int:
        return len(self.topology)


@dataclass
class Case:
    data: Snapshots
    graph: Supergraph
    placement: Placement


def snapshot(count: int, edges: dict[tuple[int, int], float] | set[tuple[int, int]]) -> Csr:
    """Row u hears column v for every (u, v)."""
    ordered = sorted(edges)
    rows = torch.tensor([u for u, _ in ordered], dtype=torch.int64)
    counts = torch.bincount(rows, minlength=count)
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    values = None
    if isinstance(edges, dict):
        values = torch.tensor([edges[e] for e in ordered])
    indices = torch.tensor([v for _, v in ordered], dtype=torch.int32)
    return Csr(indptr, indices, count, values)


@st.composite
def cases(draw) -> Case:
    count, steps = draw(st.integers(1, 8)), draw(st.integers(1, 6))
    ends = st.integers(0, count - 1)
    weighted = draw(st.booleans())
    topology = []
    for _ in range(steps):
        edges = draw(st.sets(st.tuples(ends, ends), max_size=10))
        edges = {(u, v) for u, v in edges if u != v}
        if weighted:
            edges = {e: draw(st.sampled_from((0.5, 1.0, 2.0))) for e in sorted(edges)}
        topology.append(snapshot(count, edges))
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
    return Case(Snapshots(topology, count), graph, placement)


def plans_of(case: Case, **settings) -> list[WorkerPlan]:
    settings.setdefault("attention", False)
    return [
        plan_worker(case.data, case.graph, case.placement, rank, **settings)
        for rank in range(case.placement.workers)
    ]


def dense(csr: Csr) -> Tensor:
    out = torch.zeros(csr.num_rows, csr.num_cols)
    ends, columns, values = csr.indptr.tolist(), csr.indices.tolist(), csr.values.tolist()
    for row in range(csr.num_rows):
        found = columns[ends[row] : ends[row + 1]]
        assert found == sorted(set(found))
        for column, value in zip(found, values[ends[row] : ends[row + 1]], strict=True):
            out[row, column] = value
    return out


def a_hat(case: Case) -> Tensor:
    """D^-1/2 (A + I) D^-1/2 of every snapshot, over vertex-steps."""
    graph = case.graph
    number = {
        (int(v), int(t)): i for i, (v, t) in enumerate(zip(graph.entity, graph.step, strict=True))
    }
    out = torch.zeros(graph.num_vertices, graph.num_vertices)
    for t, csr in enumerate(case.data.topology):
        whole = torch.eye(csr.num_rows)
        ends = csr.indptr.tolist()
        for row in range(csr.num_rows):
            for k in range(ends[row], ends[row + 1]):
                whole[row, csr.indices[k]] += 1.0 if csr.values is None else csr.values[k]
        scale = whole.sum(1) ** -0.5
        whole = scale[:, None] * whole * scale
        for (v, at), i in number.items():
            if at == t:
                for (u, there), j in number.items():
                    if there == t:
                        out[i, j] = whole[v, u]
    return out


def deliver(values: list[Tensor], lists: list[RowLists], reader: int) -> Tensor:
    """Rows that a worker receives when each sends those of its lists."""
    parts = []
    for sender, (mine, its) in enumerate(zip(values, lists, strict=True)):
        first = sum(its.send_counts[:reader])
        count = its.send_counts[reader]
        assert count == lists[reader].receive_counts[sender]
        assert sender != reader or count == 0
        parts.append(mine[its.send[first : first + count]])
    return torch.cat(parts)


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from(("none", "spatial", "whole")))
def test_structure_rounds_are_one_dense_product(case: Case, fusion: str) -> None:
    plans = plans_of(case, fusion=fusion)
    x = torch.rand(case.graph.num_vertices, 2)
    wanted = a_hat(case) @ x
    owned = torch.cat([plan.structure.rows for plan in plans])
    assert owned.sort().values.tolist() == list(range(case.graph.num_vertices))
    shown = [x[plan.structure.rows] for plan in plans]
    ids = [plan.structure.rows for plan in plans]
    lists = [plan.structure.lists for plan in plans]
    for rank, plan in enumerate(plans):
        part = plan.structure
        assert deliver(ids, lists, rank).tolist() == part.halo.tolist()
        assert len(set(part.halo.tolist())) == part.halo.numel()
        table = torch.cat([shown[rank], deliver(shown, lists, rank)])
        out = dense(part.csr) @ table + part.loop[:, None] * shown[rank]
        assert torch.allclose(out, wanted[part.rows], atol=1e-5)
        taken = []
        for group in part.groups:
            loaded = table[group.columns]
            made = dense(group.csr) @ loaded
            made += group.loop[:, None] * loaded[: group.rows.numel()]
            assert torch.allclose(made, wanted[part.rows[group.rows]], atol=1e-5)
            units = set(case.placement.unit[part.rows[group.rows]].tolist())
            assert units == set(group.units.tolist())
            assert fusion != "none" or len(units) == 1
            others = group.columns[group.rows.numel() :].tolist()
            assert set(others) <= set(group.columns[group.csr.indices.long()].tolist())
            taken += group.rows.tolist()
        assert sorted(taken) == list(range(part.rows.numel()))
        if fusion != "none":
            assert len(part.groups) == min(1, part.rows.numel())
        if fusion == "whole" and part.groups:
            used = set(part.csr.indices.tolist()) | set(range(part.rows.numel()))
            assert part.loads == len(used)


def scan(x: Tensor, begins: Tensor, given: Tensor) -> Tensor:
    """h = 0.5 h + x along rows [T, N] whose states begin as `begins` says."""
    h = torch.zeros(x.shape[1])
    out = []
    for step, begin in zip(x, begins, strict=True):
        h = torch.where(begin == CONTINUES, h, 0.0)
        for place in (begin >= 0).nonzero().squeeze(1).tolist():
            h[place] = given[begin[place]]
        h = 0.5 * h + step
        out.append(h)
    return torch.stack(out)


@settings(deadline=None, max_examples=80)
@given(cases(), st.sampled_from(("packed", "padded", "packed_sequence")))
def test_stages_run_every_sequence_in_its_order(case: Case, temporal: str) -> None:
    graph = case.graph
    plans = plans_of(case, temporal=temporal)
    x = torch.rand(graph.num_vertices)
    wanted = torch.zeros_like(x)
    cuts = 0
    for entity in range(graph.start.numel() - 1):
        h, chain = 0.0, 0
        first, stop = graph.start[entity : entity + 2].tolist()
        for i in range(first, stop):
            h = 0.5 * h + float(x[i])
            wanted[i] = h
            chain += i > first and int(case.placement.time[i]) != int(case.placement.time[i - 1])
        cuts = max(cuts, chain)
    stages = cuts + 1 if graph.num_vertices else 0
    assert {plan.critical_path for plan in plans} == {stages}
    found = torch.full_like(x, torch.nan)
    arrived = [torch.zeros(0) for _ in plans]
    for k in range(stages):
        ends = []
        for plan, given_states in zip(plans, arrived, strict=True):
            stage = plan.time.stages[k]
            assert stage.arriving == given_states.numel()
            last = torch.full((stage.segments,), torch.nan)
            for group in stage.groups:
                rows = group.rows.pack(x[plan.time.rows][group.steps][:, None])[..., 0]
                out = scan(rows, group.begins, given_states)
                found[plan.time.rows[group.steps]] = group.rows.unpack(out[..., None])[:, 0]
                last[group.sequences] = out.reshape(-1)[group.ends]
                if temporal == "packed_sequence":
                    assert (group.rows.lengths.diff() <= 0).all()
                if temporal != "packed":
                    assert group.rows.num_rows == group.rows.lengths.numel()
            assert not last.isnan().any()
            ends.append(last)
        lists = [plan.time.stages[k].lists for plan in plans]
        if k + 1 < stages:
            arrived = [deliver(ends, lists, rank) for rank in range(len(plans))]
        else:
            assert lists == [None] * len(plans)
    assert torch.allclose(found, wanted)


@settings(deadline=None, max_examples=60)
@given(cases(), st.sampled_from(("packed", "padded")))
def test_attention_sees_whole_sequences_and_keeps_own_outputs(case: Case, temporal: str) -> None:
    graph = case.graph
    plans = plans_of(case, attention=True, temporal=temporal)
    ids = [plan.time.rows for plan in plans]
    lists = [plan.time.lists for plan in plans]
    kept = []
    for rank, plan in enumerate(plans):
        time = plan.time
        assert time.stages == []
        assert deliver(ids, lists, rank).tolist() == time.halo.tolist()
        table = torch.cat([time.rows, time.halo])
        for group in time.groups:
            steps = table[group.steps]
            first = 0
            for length in group.rows.lengths.tolist():
                entity = int(graph.entity[steps[first]])
                start, stop = graph.start[entity : entity + 2].tolist()
                assert steps[first : first + length].tolist() == list(range(start, stop))
                first += length
            kept += steps[slice(None) if group.own is None else group.own].tolist()
        assert plan.critical_path == int(graph.num_vertices > 0)
    assert sorted(kept) == list(range(graph.num_vertices))


@settings(deadline=None, max_examples=60)
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


@settings(deadline=None, max_examples=40)
@given(cases())
def test_moved_rows_arrive_in_the_order_of_ids(case: Case) -> None:
    placement = by_both(case.graph, case.placement.workers)
    case = Case(case.data, case.graph, placement)
    plans = plans_of(case)
    if placement.workers == 1:
        assert plans[0].time.move is None
        return
    ids = [plan.structure.rows for plan in plans]
    lists = [plan.time.move.lists for plan in plans]
    for rank, plan in enumerate(plans):
        move = plan.time.move
        came = torch.cat([ids[rank][move.keep], deliver(ids, lists, rank)])
        assert came[move.order].tolist() == plan.time.rows.tolist()
        assert plan.critical_path <= 1


@settings(deadline=None, max_examples=40)
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


def test_limit_of_memory_keeps_groups_apart() -> None:
    edges = {(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}
    data = Snapshots([snapshot(4, edges)], 4)
    graph = build_supergraph(data.topology)
    placement = by_chunks(graph, torch.arange(4, dtype=torch.int32), 4, torch.zeros(4).int(), 1)
    case = Case(data, graph, placement)
    (free,) = plans_of(case, fusion="spatial", row_floats=10)
    (tight,) = plans_of(case, fusion="spatial", row_floats=10, memory_limit=400)
    (none,) = plans_of(case, fusion="none")
    assert [len(plan.structure.groups) for plan in (free, tight, none)] == [1, 2, 4]
    assert [plan.structure.loads for plan in (free, tight, none)] == [4, 6, 10]


def test_refused() -> None:
    data = Snapshots([snapshot(2, {(0, 1)}), snapshot(2, {(0, 1), (1, 0)})], 2)
    graph = build_supergraph(data.topology)
    good = Case(data, graph, by_snapshots(graph, 2))
    with pytest.raises(InvalidInputError, match="rank is 2, allowed are 0 to 1"):
        plan_worker(data, graph, good.placement, 2, attention=False)
    with pytest.raises(UnknownKeyError):
        plans_of(good, fusion="some")
    with pytest.raises(UnknownKeyError):
        plans_of(good, temporal="dense")
    with pytest.raises(InvalidInputError, match="data has 1 snapshots, the graph 2"):
        step_entries(Snapshots(data.topology[:1], 2), graph)
    small = build_supergraph([snapshot(2, set()), snapshot(2, {(0, 1)})])
    with pytest.raises(InvalidInputError, match="snapshot 0 has an edge at vertex 0"):
        step_entries(data, small)
    with pytest.raises(InvalidInputError, match=r"placement.structure has"):
        plan_worker(data, small, good.placement, 0, attention=False)
    mixed = Snapshots([snapshot(2, {(0, 1): 2.0}), snapshot(2, {(0, 1), (1, 0)})], 2)
    with pytest.raises(InvalidInputError, match="some snapshots"):
        step_entries(mixed, graph)

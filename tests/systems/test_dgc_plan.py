"""Plans of workers: who sends, what is padded, what memory allows; `test_dgc_trainer` runs them."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, csr_of

from dgbench.kernels_cuda.csr import Csr
from dgbench.kernels_cuda.supergraph import Supergraph, build_supergraph
from dgbench.runtime.errors import InvalidInputError, UnknownKeyError
from dgbench.systems.dgc.placement import (
    Placement,
    by_both,
    by_chunks,
    by_sequences,
    by_snapshots,
)
from dgbench.systems.dgc.plan import WorkerPlan, plan_worker, step_entries


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
    data = of([csr_of({(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)}, 4)], 4)
    graph = build_supergraph(data.topology)
    placement = by_chunks(graph, torch.arange(4, dtype=torch.int32), 4, torch.zeros(4).int(), 1)
    case = Case(data, graph, placement)
    (free,) = plans_of(case, fusion="spatial", row_floats=10)
    (tight,) = plans_of(case, fusion="spatial", row_floats=10, memory_limit=400)
    (none,) = plans_of(case, fusion="none")
    assert [len(plan.structure.groups) for plan in (free, tight, none)] == [1, 2, 4]
    assert [plan.structure.loads for plan in (free, tight, none)] == [4, 6, 10]


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

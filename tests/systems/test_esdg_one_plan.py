"""ESDG's plan of blocks: formula, choice for a budget, and what is really taken at the peak."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_data import TinySequence

from dgbench.kernels_cuda.csr import Csr
from dgbench.models import TIMELINE_MODELS, build_model
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import PlainTimeline, TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.memory import MemoryTally
from dgbench.systems.esdg.plan import (
    StepCost,
    best_count,
    border_bytes,
    choose_blocks,
    fewest_equal_blocks,
    paper_cost,
    peak_bytes,
    split_blocks,
)
from dgbench.systems.esdg.techniques import ADDITIONS

STEPS = 13


def timeline(nodes: int, edges: int, steps: int = STEPS) -> TinySequence:
    """Snapshots that share nine entries in ten; large enough for arrays to outweigh their rest."""
    draw = torch.Generator().manual_seed(0)
    keys = torch.randint(0, nodes * nodes, (edges,), generator=draw)
    topology = []
    for _ in range(steps):
        new = torch.rand(edges, generator=draw) < 0.1
        fresh = torch.randint(0, nodes * nodes, (edges,), generator=draw)
        keys = torch.where(new, fresh, keys)
        held = keys.unique()
        held = held[held // nodes != held % nodes]
        counts = torch.bincount(held // nodes, minlength=nodes)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        topology.append(Csr(indptr, (held % nodes).int(), nodes))
    x = torch.randn(steps, nodes, 2, generator=draw)
    return TinySequence(topology, x, torch.randn(steps, nodes, generator=draw), nodes)


def open_esdg(
    model: str, data: TinySequence, switches=None, *, window=3, task="node", **settings
) -> EsdgTrainer:
    work = TimelineWorkload(dataset="tiny", model=model, task=task, window=window)
    on = EsdgSystem().switches(ADDITIONS | {"arena": True} | (switches or {}))
    return EsdgTrainer(work, data, on, **settings)


@given(st.integers(1, 40), st.data())
def test_blocks_cover_the_timeline_evenly(steps, draw):
    count = draw.draw(st.integers(1, steps))
    blocks = split_blocks(steps, count)
    assert [t for block in blocks for t in block] == list(range(steps))
    sizes = list(map(len, blocks))
    assert len(sizes) == count
    assert sizes == sorted(sizes, reverse=True)
    assert max(sizes) - min(sizes) <= 1


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=12),
    st.integers(1, 9),
    st.integers(0, 300),
    st.integers(0, 20_000),
)
def test_as_few_blocks_as_fit(entries, nodes, border, budget):
    cost = StepCost(20, 96)
    needs = [
        peak_bytes(entries, nodes, split_blocks(len(entries), n), cost, border, 4)
        for n in range(1, len(entries) + 1)
    ]
    fits = [n for n, need in enumerate(needs, 1) if need <= budget]
    if fits:
        assert len(choose_blocks(entries, nodes, cost, border, budget, 4)) == fits[0]
    else:
        with pytest.raises(InvalidInputError, match=f"at least {int(min(needs))} bytes"):
            choose_blocks(entries, nodes, cost, border, budget, 4)


@given(
    st.integers(1, 30),
    st.integers(0, 50),
    st.integers(1, 9),
    st.integers(0, 3000),
    st.integers(0, 60_000),
)
def test_equal_blocks_are_those_that_peaks_choose(steps, entries, nodes, border, budget):
    cost = StepCost(20, 96)
    step = cost.of(entries, nodes)
    needs = [
        peak_bytes([entries] * steps, nodes, split_blocks(steps, n), cost, border)
        for n in range(1, steps + 1)
    ]
    fits = [n for n, need in enumerate(needs, 1) if need <= budget]
    if fits:
        assert fewest_equal_blocks(steps, step, border, budget) == fits[0]
    else:
        with pytest.raises(InvalidInputError, match=f"at least {int(min(needs))} bytes"):
            fewest_equal_blocks(steps, step, border, budget)


def test_the_papers_formula():
    model = build_model("cd_gcn", feature_dim=2, hidden_dim=6)
    assert paper_cost(model).of(100, 10) == 20 * 100 + 4 * 10 * (2 + 6 + 8 + 12 + 6 + 6)
    assert border_bytes(model, 10) == 4 * 10 * (2 * 6 + 2 * 6)
    tm_gcn = build_model("tm_gcn", feature_dim=2, hidden_dim=6, window=5)
    assert border_bytes(tm_gcn, 10) == 4 * 10 * 6 * (5 - 1)
    assert border_bytes(build_model("evolvegcn_o", feature_dim=2, hidden_dim=6), 10) == 0
    blocks = split_blocks(12, 4)
    assert peak_bytes([100] * 12, 10, blocks, paper_cost(model), 960) == 3 * 3600 + 4 * 960
    need = {
        n: peak_bytes([1] * 144, 1, split_blocks(144, n), StepCost(4, 0), 1)
        for n in range(1, 145)
        if 144 % n == 0  # elsewhere blocks are rounded up
    }
    assert need[best_count(144, 4, 1)] == min(need.values())
    assert best_count(7, 4, 0) == 7


@pytest.mark.parametrize("model", TIMELINE_MODELS)
@pytest.mark.parametrize("shape", [(4000, 20000), (1000, 40000)])
@pytest.mark.parametrize("paper_layout", [False, True])
def test_peak_is_within_a_tenth_of_the_plan(model, shape, paper_layout):
    data = timeline(*shape)
    for count in (1, 2, 4) if paper_layout else (1, 4, 12):
        trainer = open_esdg(model, data, {"paper_layout": paper_layout}, nb=count)
        assert trainer.measure_peak() == pytest.approx(trainer.planned_bytes(), rel=0.1), count
        trainer.close()


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_a_timeline_too_large_for_a_budget_trains_in_blocks(model):
    data = timeline(2000, 10000)
    whole = open_esdg(model, data, {"checkpoint": False})
    budget = whole.planned_bytes() * 0.55
    assert whole.measure_peak() > 1.5 * budget
    trainer = open_esdg(model, data, memory_bytes=int(budget))
    assert 1 < len(trainer.blocks) < STEPS - 1
    assert trainer.planned_bytes() <= budget
    assert trainer.measure_peak() <= 1.1 * budget
    plain = PlainTimeline(trainer.workload, data)
    want = [plain.train_epoch() for _ in range(2)]
    assert [trainer.train_epoch() for _ in range(2)] == pytest.approx(want, rel=1e-5)
    with pytest.raises(InvalidInputError, match="memory_bytes is 1000; 12 snapshots need at least"):
        open_esdg(model, data, memory_bytes=1000)
    free = open_esdg(model, data)  # the machine has room for all
    assert len(free.blocks) == 1
    for opened in (whole, trainer, free):
        opened.close()


def test_the_tally_counts_storages_and_forgets_them():
    before = torch.zeros(1000)
    with MemoryTally() as tally:
        view = before[:10]
        a = torch.zeros(256)
        b = a.view(2, 128)
        c = torch.ones(512)
        assert tally.now == 4 * (256 + 512)
        del a
        assert tally.now == 4 * (256 + 512)  # b holds it
        del b
        gc.collect()
        assert tally.now == 4 * 512
        view.add_(1)
    assert tally.peak == 4 * (256 + 512)
    assert float(c.sum()) == 512


def test_the_papers_formula_for_a_trainers_blocks():
    data = timeline(500, 3000)
    trainer = open_esdg("cd_gcn", data, nb=3)
    entries = [csr.nnz for csr in data.topology[: STEPS - 1]]
    blocks = [sum(20 * n + 160 * 500 for n in entries[b.start : b.stop]) for b in trainer.blocks]
    want = max(cost + k * 96 * 500 for k, cost in enumerate(blocks, 1))
    assert trainer.paper_bytes() == want == trainer.report()["paper_peak_bytes"]
    trainer.close()


def test_frames_are_not_its_workload():
    from dgbench.systems.base import Workload

    frames = Workload(dataset="tiny", model="evolvegcn")
    assert "timeline" in EsdgSystem().unsupported(frames, "cpu")[0]
    work = TimelineWorkload(dataset="tiny", model="cd_gcn")
    assert EsdgSystem().unsupported(work, "cpu") == []

"""ESDG's memory: blocks for a budget, the paper's formula and layout, and real peaks."""

from __future__ import annotations

import gc
from math import ceil

import pytest
import torch
from esdg_tiny import STEPS, open_on_arena, timeline
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgbench.models import TIMELINE_MODELS, build_model
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import PlainTimeline
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

# The plan.


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
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 300),
    st.integers(0, 20_000),
)
def test_as_few_blocks_as_fit(entries, alike, nodes, border, budget):
    """Of snapshots of any size, and of equal ones by the closed form."""
    cost, steps = StepCost(20, 96), len(entries)
    entries = entries[:1] * steps if alike else entries
    link = [] if alike else [4]
    needs = [
        peak_bytes(entries, nodes, split_blocks(steps, n), cost, border, *link)
        for n in range(1, steps + 1)
    ]

    def count() -> int:
        if alike:
            return fewest_equal_blocks(steps, cost.of(entries[0], nodes), border, budget)
        return len(choose_blocks(entries, nodes, cost, border, budget, *link))

    fits = [n for n, need in enumerate(needs, 1) if need <= budget]
    if fits:
        assert count() == fits[0]
    else:
        with pytest.raises(InvalidInputError):
            count()


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


# Peaks.


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


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_a_timeline_too_large_for_a_budget_trains_in_blocks(model):
    data = timeline(2000, 10000)
    whole = open_on_arena(model, data, {"checkpoint": False})
    budget = whole.planned_bytes() * 0.55
    assert whole.measure_peak() > 1.5 * budget
    trainer = open_on_arena(model, data, memory_bytes=int(budget))
    assert 1 < len(trainer.blocks) < STEPS - 1
    assert trainer.planned_bytes() <= budget
    assert trainer.measure_peak() <= 1.1 * budget
    plain = PlainTimeline(trainer.workload, data)
    want = [plain.train_epoch() for _ in range(2)]
    assert [trainer.train_epoch() for _ in range(2)] == pytest.approx(want, rel=1e-5)
    with pytest.raises(InvalidInputError, match="memory_bytes"):
        open_on_arena(model, data, memory_bytes=1000)
    free = open_on_arena(model, data)  # the machine has room for all
    assert len(free.blocks) == 1
    for opened in (whole, trainer, free):
        opened.close()


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_the_papers_layout_takes_what_the_paper_says(model):
    """20 nnz + 4 N (widths) per step. Beside it: a stack of the inputs, 8 bytes per vertex, which
    the formula leaves out, and what one snapshot takes on its way and while it is multiplied by."""
    steps, nodes = 40, 1500  # enough for the chain of weights, which is left out, to be little
    data = timeline(nodes, 8000, steps + 1)
    switches = {"paper_layout": True, "prefetch": False, "interleave": True}
    trainer = open_on_arena(model, data, switches, nb=1)
    peak = trainer.measure_peak()
    stack = 8 * nodes * steps * trainer.model.has_temporal(0)
    largest = max(trainer._entries)
    moment = (16 + 12) * largest + 40 * nodes
    assert peak == pytest.approx(trainer.paper_bytes() + stack + moment, rel=0.06)
    assert peak == pytest.approx(trainer.paper_bytes() + stack, rel=0.1)
    assert peak == pytest.approx(trainer.planned_bytes(), rel=0.1)
    trainer.close()


SPARSE, DENSE = (3000, 2000), (1500, 9000)


@settings(max_examples=25, deadline=None)
# One snapshot a block: no state before the first one, and the head's record gone, weigh a tenth.
@example("cd_gcn", 4, 2, 1, SPARSE, "class", True, False)
@example("cd_gcn", 2, 1, 0, SPARSE, "class", True, False)  # the state at the end weighs most
@given(
    model=st.sampled_from(TIMELINE_MODELS),
    window=st.integers(1, 16),
    steps=st.integers(1, 10),
    cuts=st.integers(0, 9),
    shape=st.sampled_from([SPARSE, DENSE]),
    task=st.sampled_from(["node", "link", "class"]),
    ours=st.booleans(),
    interleave=st.booleans(),
)
def test_peaks_follow_the_plan(model, window, steps, cuts, shape, task, ours, interleave):
    """Windows longer than blocks and than the timeline, first passes whole or lean, all heads."""
    nb = 1 + cuts % steps
    switches = {"lean": ours, "prefetch": ours, "interleave": interleave}
    data = timeline(*shape, steps + (task != "class"))
    trainer = open_on_arena(model, data, switches, nb=nb, window=window, task=task)
    peak, plan = trainer.measure_peak(), trainer.planned_bytes()
    trainer.close()
    assert peak == pytest.approx(plan, rel=0.1), (trainer.blocks, peak / plan)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(TIMELINE_MODELS),
    st.integers(1, 16),
    st.integers(2, 12),
    st.floats(0, 1.2),
    st.booleans(),
    st.booleans(),
)
def test_no_plan_exceeds_its_budget(model, window, steps, share, lean, prefetch):
    """Between the least that any blocks take and the whole timeline, and beyond."""
    data = timeline(300, 900, steps + 1)
    switches = {"lean": lean, "prefetch": prefetch}
    whole = open_on_arena(model, data, switches, nb=1, window=window)
    needs = {n: whole.bytes_with(n) for n in range(1, steps + 1)}
    whole.close()
    least = min(needs.values())
    budget = ceil(least + share * (needs[1] - least))
    trainer = open_on_arena(model, data, switches, memory_bytes=budget, window=window)
    assert trainer.planned_bytes() <= budget
    assert len(trainer.blocks) == min(n for n, need in needs.items() if need <= budget)
    trainer.close()

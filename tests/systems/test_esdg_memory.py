"""ESDG's memory: blocks for a budget, the paper's formula and layout, and real peaks."""

from __future__ import annotations

from functools import cache
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tiny_data import TinySequence, tiny_sequence

from dgbench.models import TIMELINE_MODELS, build_model
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.timeline import TimelineWorkload
from dgbench.systems.esdg import EsdgSystem, EsdgTrainer
from dgbench.systems.esdg.plan import (
    StepCost,
    border_bytes,
    fewest_equal_blocks,
    paper_cost,
    peak_bytes,
    split_blocks,
)
from dgbench.systems.esdg.techniques import ADDITIONS

# The plan.


@given(
    st.integers(1, 12), st.integers(0, 50), st.integers(1, 9), st.integers(0, 300),
    st.integers(0, 20_000),
)  # fmt: skip
def test_the_closed_form_is_as_few_blocks_as_fit(steps, entries, nodes, border, budget):
    cost = StepCost(20, 96)
    needs = [
        peak_bytes([entries] * steps, nodes, split_blocks(steps, n), cost, border)
        for n in range(1, steps + 1)
    ]
    fits = [n for n, need in enumerate(needs, 1) if need <= budget]
    if fits:
        assert fewest_equal_blocks(steps, cost.of(entries, nodes), border, budget) == fits[0]
    else:
        with pytest.raises(InvalidInputError):
            fewest_equal_blocks(steps, cost.of(entries, nodes), border, budget)


def test_the_papers_formula():
    cd_gcn, tm_gcn, evolvegcn = (
        build_model(name, feature_dim=2, hidden_dim=6, **more)
        for name, more in (("cd_gcn", {}), ("tm_gcn", {"window": 5}), ("evolvegcn_o", {}))
    )
    assert paper_cost(cd_gcn).of(100, 10) == 20 * 100 + 4 * 10 * (2 + 6 + 8 + 12 + 6 + 6)
    assert border_bytes(cd_gcn, 10) == 4 * 10 * (2 * 6 + 2 * 6)
    assert border_bytes(tm_gcn, 10) == 4 * 10 * 6 * (5 - 1)
    assert border_bytes(evolvegcn, 10) == 0
    blocks = split_blocks(12, 4)
    assert peak_bytes([100] * 12, 10, blocks, paper_cost(cd_gcn), 960) == 3 * 3600 + 4 * 960


# Peaks.


@cache
def timeline(nodes: int, edges: int, steps: int) -> TinySequence:
    """Snapshots that share nine entries in ten; large enough for arrays to outweigh their rest."""
    sequence = tiny_sequence(nodes, steps, edges, 2, kept=0.9)
    if steps > 1:
        sequence.topology[1] = sequence.topology[0]  # in place of an empty one
    return sequence


def open_on_arena(
    model: str, data: TinySequence, switches=None, *, window=3, task="node", **settings
) -> EsdgTrainer:
    """A trainer with dgbench's additions and an arena, but for these switches."""
    work = TimelineWorkload(dataset="tiny", model=model, task=task, window=window)
    on = EsdgSystem().switches(ADDITIONS | {"arena": True} | (switches or {}))
    return EsdgTrainer(work, data, on, **settings)


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


@settings(max_examples=12, deadline=None)
# One snapshot a block: no state before the first one, and the head's record gone, weigh a tenth.
@example("cd_gcn", 4, 2, 1, SPARSE, "class", True, False)
@example("cd_gcn", 2, 1, 0, SPARSE, "class", True, False)  # the state at the end weighs most
@given(
    model=st.sampled_from(TIMELINE_MODELS), window=st.integers(1, 16), steps=st.integers(1, 10),
    cuts=st.integers(0, 9), shape=st.sampled_from([SPARSE, DENSE]),
    task=st.sampled_from(["node", "link", "class"]), ours=st.booleans(), interleave=st.booleans(),
)  # fmt: skip
def test_peaks_follow_the_plan(model, window, steps, cuts, shape, task, ours, interleave):
    """Windows longer than blocks and than the timeline, first passes whole or lean, all heads."""
    nb = 1 + cuts % steps
    switches = {"lean": ours, "prefetch": ours, "interleave": interleave}
    data = timeline(*shape, steps + (task != "class"))
    trainer = open_on_arena(model, data, switches, nb=nb, window=window, task=task)
    peak, plan = trainer.measure_peak(), trainer.planned_bytes()
    trainer.close()
    assert peak == pytest.approx(plan, rel=0.1), (trainer.blocks, peak / plan)


@settings(max_examples=15, deadline=None)
@given(
    st.sampled_from(TIMELINE_MODELS), st.integers(1, 16), st.integers(2, 12), st.floats(0, 1.2),
    st.booleans(), st.booleans(),
)  # fmt: skip
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
    with pytest.raises(InvalidInputError, match="memory_bytes"):
        open_on_arena(model, data, switches, memory_bytes=least // 2, window=window)
    trainer.close()

"""ESDG's memory: prefetch inside a budget, the paper's layout and formula, real limits."""

from __future__ import annotations

from functools import cache
from math import ceil

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_esdg_one_plan import STEPS, open_esdg, timeline

from dgbench.models import TIMELINE_MODELS, build_model
from dgbench.systems.base.timeline import PlainTimeline
from dgbench.systems.esdg.plan import (
    StepCost,
    border_at,
    device_cost,
    peak_bytes,
    piece_length,
    split_blocks,
)

made = cache(timeline)


@pytest.mark.parametrize("model", ["cd_gcn", "evolvegcn_o"])
def test_prefetch_stays_inside_the_budget_or_is_off_and_says_so(model):
    data = timeline(2000, 10000)
    without = open_esdg(model, data, {"prefetch": False}, nb=4)
    need = without.planned_bytes()
    tight = open_esdg(model, data, memory_bytes=int(1.01 * need))
    assert len(tight.blocks) > 1
    assert not tight.prefetching
    assert any("prefetch is off" in note for note in tight.notes)
    assert tight.measure_peak() <= 1.1 * need
    # As many blocks, and room for a second one's inputs.
    roomy = int(1.02 * open_esdg(model, data, nb=len(tight.blocks)).planned_bytes())
    for budget in range(roomy, 2 * roomy, roomy // 8):
        wide = open_esdg(model, data, memory_bytes=budget)
        if wide.prefetching:
            break
        wide.close()
    assert wide.prefetching, "no budget leaves room"
    assert not wide.notes
    peak = wide.measure_peak()
    assert peak == pytest.approx(wide.planned_bytes(), rel=0.1)
    assert peak <= 1.1 * budget
    for trainer in (without, tight, wide):
        trainer.close()


@pytest.mark.parametrize("difference", [True, False])
def test_what_is_on_its_way_is_planned_to_the_byte(difference):
    """Changes counted before anything is encoded are those that are sent."""
    data = timeline(500, 3000)
    for fallback in (True, False):
        switches = {"difference": difference, "fallback": fallback}
        trainer = open_esdg("cd_gcn", data, switches, nb=3)
        trainer.prepare()
        for block in trainer.blocks:
            values = 4 * sum(trainer._entries[t] for t in block)
            sent = trainer.delivery.topology_bytes([block])
            assert trainer._change_bytes(block) + values == sent
        trainer.close()


@pytest.mark.parametrize("model", TIMELINE_MODELS)
def test_the_papers_layout_takes_what_the_paper_says(model):
    """20 nnz + 4 N (widths) per step. Beside it: a stack of the inputs, 8 bytes per vertex, which
    the formula leaves out, and what one snapshot takes on its way and while it is multiplied by."""
    steps, nodes = 40, 1500  # enough for the chain of weights, which is left out, to be little
    data = timeline(nodes, 8000, steps + 1)
    switches = {"paper_layout": True, "prefetch": False, "interleave": True}
    trainer = open_esdg(model, data, switches, nb=1)
    peak = trainer.measure_peak()
    stack = 8 * nodes * steps * trainer.model.has_temporal(0)
    largest = max(trainer._entries)
    moment = (16 + 12) * largest + 40 * nodes
    assert peak == pytest.approx(trainer.paper_bytes() + stack + moment, rel=0.06)
    assert peak == pytest.approx(trainer.paper_bytes() + stack, rel=0.1)
    assert peak == pytest.approx(trainer.planned_bytes(), rel=0.1)
    trainer.close()


def test_gradients_that_wait_for_the_last_layer():
    """Scored at the end, gradients of all outputs are there before the first is used."""
    data = timeline(2000, 6000)
    peaks = {}
    for interleave in (True, False):
        trainer = open_esdg("cd_gcn", data, {"interleave": interleave}, nb=1)
        peaks[interleave] = trainer.measure_peak()
        trainer.close()
    assert peaks[True] < 0.95 * peaks[False]


@pytest.mark.parametrize("model", ["cd_gcn", "evolvegcn_o"])
def test_outputs_are_scored_while_made_only_where_that_saves_blocks(model):
    data = made(300, 900, 13)
    free = open_esdg(model, data, nb=1)
    assert not free.interleaving
    budget = ceil(free.bytes_with(1))
    assert free.planned_bytes() > budget
    tight = open_esdg(model, data, memory_bytes=budget)
    assert tight.interleaving
    assert len(tight.blocks) == 1
    roomy = open_esdg(model, data, memory_bytes=ceil(free.planned_bytes()))
    assert not roomy.interleaving
    plain = PlainTimeline(tight.workload, data)
    want = plain.train_epoch()
    for trainer in (free, tight, roomy):
        assert trainer.train_epoch() == pytest.approx(want, rel=1e-5)
        trainer.close()


def test_pieces_of_the_last_layer():
    assert [piece_length(n) for n in (1, 2, 6, 24, 96)] == [1, 1, 2, 4, 8]
    # 24 snapshots: 6 pieces of 4, of which 5 keep the 2 H floats that they begin with. Outputs of
    # the first layer, H each, outweigh the gradients of a piece, 3 H each, as it has not begun.
    cd_gcn = build_model("cd_gcn", feature_dim=2, hidden_dim=6)
    assert device_cost(cd_gcn).once(24) == 4 * 6 * (2 * 5 + (24 - 3 * 4 + 2))
    assert device_cost(cd_gcn).once(2) == 4 * 6 * (2 + 3 + 2)
    assert device_cost(cd_gcn).once(2, 96, 96, last=False) == 4 * 6 * (2 + 3 + 2) + 2 * 96
    cost = StepCost(0, 100, moments=lambda steps, before, after, last: 45.0)
    assert peak_bytes([0] * 24, 2, split_blocks(24, 1), cost, 0) == 2 * (100 * 24 + 45)


def test_borders_of_a_window_are_counted_as_they_are():
    tm_gcn = build_model("tm_gcn", feature_dim=2, hidden_dim=6, window=10)
    border = border_at(tm_gcn, 5)
    assert [border(stop) for stop in (0, 4, 8, 12)] == [4 * 6 * 5 * rows for rows in (0, 4, 8, 9)]
    kept = []

    def moments(steps: int, before: float, after: float, last: bool) -> float:
        kept.append((before / 24, after / 24, last))
        return 0.0

    blocks = split_blocks(12, 3)
    cost = StepCost(0, 0, moments=moments)
    # The last block is recorded beside two borders, and beside its own where it was run before.
    assert peak_bytes([0] * 12, 5, blocks, cost, border, twice=False) == 4 * 6 * 5 * (4 + 8)
    assert peak_bytes([0] * 12, 5, blocks, cost, border) == 4 * 6 * 5 * (4 + 8 + 9)
    assert kept[:3] == [(0, 4, False), (4, 8, False), (8, 9, True)]


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
    data = made(*shape, steps + (task != "class"))
    trainer = open_esdg(model, data, switches, nb=nb, window=window, task=task)
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
    data = made(300, 900, steps + 1)
    switches = {"lean": lean, "prefetch": prefetch}
    whole = open_esdg(model, data, switches, nb=1, window=window)
    needs = {n: whole.bytes_with(n) for n in range(1, steps + 1)}
    whole.close()
    least = min(needs.values())
    budget = ceil(least + share * (needs[1] - least))
    trainer = open_esdg(model, data, switches, memory_bytes=budget, window=window)
    assert trainer.planned_bytes() <= budget
    assert len(trainer.blocks) == min(n for n, need in needs.items() if need <= budget)
    trainer.close()


def test_without_checkpoint_memory_is_the_whole_timelines():
    data = timeline(1000, 4000)
    whole = open_esdg("tm_gcn", data, {"checkpoint": False})
    cut = open_esdg("tm_gcn", data, nb=6)
    assert whole.planned_bytes() > 2 * cut.planned_bytes()
    assert whole.measure_peak() > 2 * cut.measure_peak()
    assert sum(map(len, cut.blocks)) == STEPS - 1
    for trainer in (whole, cut):
        trainer.close()

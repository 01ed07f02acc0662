"""ESDG's memory: prefetch inside a budget, the paper's layout and formula, real limits."""

from __future__ import annotations

import pytest
from test_esdg_one_plan import STEPS, open_esdg, timeline

from dgbench.models import TIMELINE_MODELS
from dgbench.systems.esdg.plan import StepCost, peak_bytes, piece_length, split_blocks


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
    trainer = open_esdg(model, data, {"paper_layout": True, "prefetch": False}, nb=1)
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


def test_pieces_of_the_last_layer():
    assert [piece_length(n) for n in (1, 2, 6, 24, 96)] == [1, 1, 2, 4, 8]
    cost = StepCost(0, 100, working=5, piece=8, gradients=12, early=3)
    # 24 snapshots: 6 pieces of 4, of which 5 keep what they begin with; 12 * 4 - 3 * 24 < 0.
    assert cost.once(24) == 5 + 8 * 5
    assert cost.once(2) == 5 + 8 + (12 - 3 * 2)
    assert peak_bytes([0] * 24, 2, split_blocks(24, 1), cost, 0) == 2 * (100 * 24 + 45)


def test_without_checkpoint_memory_is_the_whole_timelines():
    data = timeline(1000, 4000)
    whole = open_esdg("tm_gcn", data, {"checkpoint": False})
    cut = open_esdg("tm_gcn", data, nb=6)
    assert whole.planned_bytes() > 2 * cut.planned_bytes()
    assert whole.measure_peak() > 2 * cut.measure_peak()
    assert sum(map(len, cut.blocks)) == STEPS - 1
    for trainer in (whole, cut):
        trainer.close()

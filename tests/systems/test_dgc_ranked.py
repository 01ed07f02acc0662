"""DGC on real ranks: few groups of processes, each with many cases."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dgc_tiny import random_sequence, tiny_workload

from dgbench.lab.result_checks import largest
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.base.sequences import (
    sequence_model,
    vertex_steps,
)
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.placement import by_sequences
from dgbench.systems.dgc.ranked import PHASES, train_ranked
from dgbench.systems.dgc.settings_run import BASELINES, LADDER, ChunkRankSettings
from dgbench.systems.dgc.stale import StaleSettings
from dgbench.systems.dgc.turns import WARM, take_rank_turns
from dgbench.systems.dgc.volumes import count_traffic, shape_of

CHUNKS = ChunkSettings(per_worker=2, workload="edges")
DATA = random_sequence(30, 7, 60, 8)


def contenders():
    return {
        **BASELINES,
        **{name: replace(settings, chunks=CHUNKS) for name, settings in LADDER.items()},
        "contiguous": ChunkRankSettings(partition="snapshots-contiguous"),
        "once": ChunkRankSettings(chunks=CHUNKS, precompute=True),
        "little memory": ChunkRankSettings(chunks=CHUNKS, memory_limit_bytes=4000),
    }


@pytest.mark.parametrize("transport", ["auto", "gloo"])
def test_contenders_take_turns_and_agree(transport):
    model = "tgcn_2layer" if transport == "auto" else "dysat"
    ranks = 2 if transport == "auto" else 3  # which share two cores evenly, or wake by sockets
    work = tiny_workload(model, hidden_dim=8, task="link" if transport == "auto" else "active")
    found = take_rank_turns(
        work, DATA, ranks, contenders(), least=3, budget_s=0.05, timeout_s=90, transport=transport
    )
    oracle = PlainSequences(work, DATA)
    output, gradients = oracle.evaluate(), oracle.gradients()
    losses = [oracle.train_epoch() for _ in range(WARM + 3)]
    assert found.carrier == ("shared memory" if transport == "auto" else "Gloo")
    for name, settings in contenders().items():
        assert len(found.seconds[name]) >= 3
        assert min(found.seconds[name]) > 0
        assert set(found.phases[name]) == set(PHASES)
        assert len(found.shares[name]) == len(found.work_s[name]) == ranks
        assert found.divergence(name) >= 1
        assert 0 <= found.accuracy[name] <= 1
        assert len(found.losses[name]) == len(found.seconds[name]) + WARM
        if settings.stale is not None:
            assert len(found.stale[name]) == len(found.losses[name])
            assert found.stale[name][0].held == 0
            continue
        assert found.stale[name] == []
        assert relative(found.output[name], output) < 1e-5
        assert largest(found.gradients[name], gradients) < 1e-5
        assert found.losses[name][: len(losses)] == pytest.approx(losses, rel=1e-5)
    assert found.traffic["contiguous"].total() < found.traffic["PyGT-PSS"].total()
    assert found.stages["PyGT-PTS"] == 1
    assert found.counters["once"].get("structure0_rows_forward", 0) == 0


def test_a_run_says_what_it_did():
    work = tiny_workload("mpnn_lstm_bare", hidden_dim=8)
    placement = by_sequences(vertex_steps(DATA, work), 2)
    stale = ChunkRankSettings(partition="sequences", stale=StaleSettings(threshold=0.5))
    run = train_ranked(work, 2, stale, epochs=5, data=DATA, accuracy=True, placement=placement)
    assert len(run.losses) == len(run.accuracy) == 5
    assert len(run.samples) + run.warmup == 5
    assert len(run.stale) == 5
    assert sum(epoch.held for epoch in run.stale[1:]) > 0
    assert len(run.work_s) == len(run.phases) == 2
    assert run.stages == 1
    assert run.prepare_s >= run.partition_s >= 0
    whole = count_traffic(DATA, vertex_steps(DATA, work), placement, shape_of(sequence_model(work)))
    assert 0 < run.stale[0].sent_floats * 4 == whole.bytes(direction="forward")
    exact = train_ranked(
        work, 2, ChunkRankSettings(partition="sequences", store=True), epochs=3, data=DATA
    )
    assert len(exact.phases) == 3
    assert len(exact.work_s) == 2
    oracle = PlainSequences(work, DATA)
    assert exact.losses == pytest.approx([oracle.train_epoch() for _ in range(3)], rel=1e-5)
    for name, value in oracle.state().items():
        torch.testing.assert_close(exact.state[name], value, rtol=1e-3, atol=1e-5)


def test_one_rank_runs_in_this_process():
    work = tiny_workload(hidden_dim=8)
    run = train_ranked(work, 1, ChunkRankSettings(chunks=CHUNKS), budget_s=0.02, data=DATA)
    oracle = PlainSequences(work, DATA)
    assert run.losses == pytest.approx([oracle.train_epoch() for _ in run.losses], rel=1e-5)
    assert run.traffic.total() == 0
    assert run.divergence == 1
    turns = take_rank_turns(work, DATA, 1, {"a": BASELINES["PyGT-PSS"]}, least=3, budget_s=0.01)
    assert turns.losses["a"][:3] == pytest.approx(run.losses[:3], rel=1e-5)


def test_what_cannot_be_run_is_refused():
    work = tiny_workload()
    for arguments in ({"size": 0}, {"size": 1, "epochs": 0}, {"size": 1, "budget_s": 0.0}):
        with pytest.raises(InvalidInputError, match=list(arguments)[-1]):
            train_ranked(work, data=DATA, **arguments)
    with pytest.raises(InvalidInputError, match="contenders"):
        take_rank_turns(work, DATA, 2, {})
    with pytest.raises(InvalidInputError, match="store"):
        take_rank_turns(work, DATA, 2, {"a": ChunkRankSettings(store=True)})

"""DGC on ranks: processes that race, and all workers in one process."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dgc_ranks import as_ranks, rank_trainer
from dgc_tiny import random_sequence, scattered, tiny_workload
from tiny_data import tiny_sequence

from dgbench.lab.result_checks import largest
from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base import RunContext
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.race import relative
from dgbench.systems.base.sequences import SequenceWorkload, sequence_model, vertex_steps
from dgbench.systems.dgc.experiments import race_runs
from dgbench.systems.dgc.experiments.race_runs import (
    DGC,
    EXACT,
    PSS,
    PTS,
    RaceJob,
    contenders,
    race,
)
from dgbench.systems.dgc.partition import ChunkSettings
from dgbench.systems.dgc.placement import by_both, by_sequences
from dgbench.systems.dgc.ranked import train_ranked
from dgbench.systems.dgc.settings_run import BASELINES, LADDER, ChunkRankSettings
from dgbench.systems.dgc.stale import StaleRows, StaleSettings, summed
from dgbench.systems.dgc.stale_workers import StaleWorkers, Workers
from dgbench.systems.dgc.turns import WARM, take_rank_turns
from dgbench.systems.dgc.volumes import count_traffic, shape_of

CHUNKS = ChunkSettings(per_worker=2, workload="edges")
DATA = random_sequence(30, 7, 60, 8)


def entrants():
    return {
        **BASELINES,
        **{name: replace(one, chunks=CHUNKS) for name, one in LADDER.items()},
        "contiguous": ChunkRankSettings(partition="snapshots-contiguous"),
        "once": ChunkRankSettings(chunks=CHUNKS, precompute=True),
        "little memory": ChunkRankSettings(chunks=CHUNKS, memory_limit_bytes=4000),
    }


@pytest.mark.parametrize(
    ("transport", "carrier", "model", "task", "ranks"),
    [
        ("auto", "shared memory", "tgcn_2layer", "link", 2),  # they share two cores evenly
        ("gloo", "Gloo", "dysat", "active", 3),  # or wake by sockets
    ],
)
def test_contenders_take_turns_and_agree(transport, carrier, model, task, ranks):
    work = tiny_workload(model, hidden_dim=8, task=task)
    found = take_rank_turns(
        work, DATA, ranks, entrants(), least=3, budget_s=0.05, timeout_s=240, transport=transport
    )
    oracle = PlainSequences(work, DATA)
    output, gradients = oracle.evaluate(), oracle.gradients()
    losses = [oracle.train_epoch() for _ in range(WARM + 3)]
    assert found.carrier == carrier
    for name, chosen in entrants().items():
        assert len(found.losses[name]) == len(found.seconds[name]) + WARM >= 3 + WARM
        assert len(found.shares[name]) == len(found.work_s[name]) == ranks
        assert found.divergence(name) >= 1
        if chosen.stale is not None:
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
    graph = vertex_steps(DATA, work)
    placement = by_sequences(graph, 2)
    stale = ChunkRankSettings(partition="sequences", stale=StaleSettings(threshold=0.5))
    run = train_ranked(work, 2, stale, epochs=5, data=DATA, accuracy=True, placement=placement)
    lengths = (run.losses, run.accuracy, [*run.samples, *range(run.warmup)], run.stale)
    assert set(map(len, lengths)) == {5}
    assert run.prepare_s >= run.partition_s >= 0
    assert sum(epoch.held for epoch in run.stale[1:]) > 0
    whole = count_traffic(DATA, graph, placement, shape_of(sequence_model(work)))
    assert 0 < run.stale[0].sent_floats * 4 == whole.bytes(direction="forward")
    stored = ChunkRankSettings(partition="sequences", store=True)
    exact = train_ranked(work, 2, stored, epochs=3, data=DATA)
    assert (len(exact.phases), len(exact.work_s)) == (3, 2)  # the server has phases
    oracle = PlainSequences(work, DATA)
    assert exact.losses == pytest.approx([oracle.train_epoch() for _ in range(3)], rel=1e-5)
    for name, value in oracle.state().items():
        torch.testing.assert_close(exact.state[name], value, rtol=1e-3, atol=1e-5)


def test_one_rank_runs_in_this_process():
    work = tiny_workload(hidden_dim=8)
    run = train_ranked(work, 1, ChunkRankSettings(chunks=CHUNKS), budget_s=0.02, data=DATA)
    oracle = PlainSequences(work, DATA)
    assert run.losses == pytest.approx([oracle.train_epoch() for _ in run.losses], rel=1e-5)
    assert (run.traffic.total(), run.divergence) == (0, 1)


def test_what_cannot_be_run_is_refused():
    work = tiny_workload()
    for arguments in ({"size": 0}, {"size": 1, "epochs": 0}, {"size": 1, "budget_s": 0.0}):
        with pytest.raises(InvalidInputError, match=list(arguments)[-1]):
            train_ranked(work, data=DATA, **arguments)
    with pytest.raises(InvalidInputError, match="contenders"):
        take_rank_turns(work, DATA, 2, {})
    with pytest.raises(InvalidInputError, match="store"):
        take_rank_turns(work, DATA, 2, {"a": ChunkRankSettings(store=True)})


def test_rows_of_scored_pairs_are_recounted(monkeypatch) -> None:
    """Ends of a pair meet at one worker: an honest race of links passes, a forgotten end fails."""
    names = (PSS, PTS, EXACT, DGC)
    task = tiny_workload("dysat", hidden_dim=8, task="link")
    chosen = {name: one for name, one in contenders().items() if name in names}
    made = RaceJob(task.dataset, task, DATA, chosen)
    context = RunContext(device="cpu", preset="smoke", threads=1)
    found = race([made], 2, context, least=1, budget_s=0.01, clocked=0)
    assert [check.words for check in found.checks if not check.passed] == []
    rows = race_runs.EdgeRecount.rows

    def forgetful(self, placement, shape, pairs):
        return rows(self, placement, shape, pairs[:1].repeat(2, axis=0))

    monkeypatch.setattr(race_runs.EdgeRecount, "rows", forgetful)
    forgot = race([made], 2, context, least=1, budget_s=0.01, clocked=0)
    assert {c.system for c in forgot.checks if not c.passed and c.of == "counters"} <= set(names)
    assert any(not check.passed for check in forgot.checks)


TINY = tiny_sequence(nodes=30, edges=20)


def task_of(model: str) -> SequenceWorkload:
    return tiny_workload(model, feature_dim=3, lr=0.05)


def _rank(comm, task, placement, stale):
    rows = StaleRows(comm, stale)
    trainer = rank_trainer(comm, task, TINY, placement, exchange=rows)
    losses = [trainer.train_epoch() for _ in range(5)]
    return losses, rows.history, rows.cache_bytes, comm.traffic


@pytest.mark.parametrize(
    ("model", "stale"),
    [
        ("tgcn_2layer", StaleSettings()),
        ("dysat", StaleSettings(threshold=0.7)),
        ("dysat", StaleSettings(scope="global")),
        ("mpnn_lstm_bare", StaleSettings(reach="past")),
    ],
)
def test_one_process_sends_and_learns_what_ranks_do(model, stale):
    task = task_of(model)
    graph = vertex_steps(TINY, task)
    placement = scattered(graph, 3, 0)
    laid = Workers(task, TINY, graph, placement, attention=model == "dysat")
    trainer = StaleWorkers(laid, stale)
    losses = [trainer.train_epoch() for _ in range(5)]
    ranks = as_ranks(3, _rank, task, placement, stale)
    for rank in ranks:
        torch.testing.assert_close(torch.tensor(rank[0]), torch.tensor(losses), rtol=1e-4, atol=0)
    history = summed([rank[1] for rank in ranks])
    assert [(e.sent, e.held, e.sent_floats, e.index_bytes, e.rows) for e in history] == [
        (e.sent, e.held, e.sent_floats, e.index_bytes, e.rows) for e in trainer.history
    ]
    assert min(losses) > 0
    assert any(epoch.held for epoch in history)
    assert all(0 < epoch.sent < epoch.sent + epoch.held for epoch in history[1:])
    assert sum(rank[2] for rank in ranks) == trainer.cache_bytes
    kinds = ("all_to_all", "sizes")
    moved = sum(rank[3].total("bytes", operation=kind) for rank in ranks for kind in kinds)
    assert moved == trainer.totals.bytes


def test_rows_that_move_to_the_attention_are_held_back_as_well():
    task = task_of("dysat")
    graph = vertex_steps(TINY, task)
    placement = by_both(graph, 3)
    moved = int((placement.structure != placement.time).sum())
    oracle = PlainSequences(task, TINY, graph=graph)
    exact = torch.tensor([oracle.train_epoch() for _ in range(5)])
    for moves, close in ((None, 0.05), (False, 1e-4)):
        stale = StaleSettings(threshold=0.8, moves=moves).of_model(attention=True)
        ranks = as_ranks(3, _rank, task, placement, stale)
        rows = [epoch.rows["move"] for epoch in summed([rank[1] for rank in ranks])]
        torch.testing.assert_close(torch.tensor(ranks[0][0]), exact, rtol=close, atol=0)
        assert rows[0] == (moved, 0)
        assert {sent + held for sent, held in rows} == {moved}
        if moves is None:
            assert moved / 10 < sum(held for _, held in rows) / 4 < moved
        else:
            assert rows == [(moved, 0)] * 5
    with pytest.raises(InvalidInputError):  # between the encoders of all workers in one process
        Workers(task, TINY, graph, placement, attention=True)

"""All workers in one process against the oracle and against ranks; the experiments' figures."""

from __future__ import annotations

import threading

import pytest
import torch
from dgc_ranks import as_ranks
from dgc_tiny import scattered
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_data import tiny_sequence

from dgbench.runtime.errors import InvalidInputError
from dgbench.systems.base.plain_sequences import PlainSequences
from dgbench.systems.base.sequences import (
    SequenceWorkload,
    vertex_steps,
)
from dgbench.systems.dgc.placement import by_both
from dgbench.systems.dgc.stale import StaleRows, StaleSettings, summed
from dgbench.systems.dgc.stale_workers import Boundary, StaleWorkers, Workers
from dgbench.systems.dgc.trainer import ChunkRankTrainer

_one_at_a_time = threading.Lock()
MODELS = ("tgcn_2layer", "dysat", "mpnn_lstm_bare")


def task_of(model: str, **fields) -> SequenceWorkload:
    base = {"dataset": "tiny", "model": model, "feature_dim": 3, "hidden_dim": 4, "lr": 0.05}
    return SequenceWorkload(**(base | fields))


def one_process(model: str, stale: StaleSettings | None, workers: int = 3, seed: int = 0):
    """The trainer, its oracle, and what ranks need to do the same."""
    data, task = tiny_sequence(nodes=30, edges=20, seed=seed), task_of(model)
    graph = vertex_steps(data, task)
    placement = scattered(graph, workers, seed)
    laid = Workers(task, data, graph, placement, attention=model == "dysat")
    plain = PlainSequences(task, data, graph=graph)
    return StaleWorkers(laid, stale), plain, (task, data, placement)


def _rank(comm, task, data, placement, stale, epochs):
    rows = StaleRows(comm, stale)
    with _one_at_a_time:  # threads draw parameters from one generator
        trainer = ChunkRankTrainer(comm, task, data, placement, exchange=rows)
    losses = [trainer.train_epoch() for _ in range(epochs)]
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
    trainer, _, (task, data, placement) = one_process(model, stale)
    losses = [trainer.train_epoch() for _ in range(5)]
    ranks = as_ranks(3, _rank, task, data, placement, stale, 5)
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
    moved = sum(
        rank[3].total("bytes", operation=operation)
        for rank in ranks
        for operation in ("all_to_all", "sizes")
    )
    assert moved == trainer.totals.bytes


def test_rows_that_move_to_the_attention_are_held_back_as_well():
    data, task = tiny_sequence(nodes=30, edges=20, seed=0), task_of("dysat")
    graph = vertex_steps(data, task)
    placement = by_both(graph, 3)
    moved = int((placement.structure != placement.time).sum())
    oracle = PlainSequences(task, data, graph=graph)
    exact = [oracle.train_epoch() for _ in range(5)]
    found = {}
    for moves in (None, False):
        stale = StaleSettings(threshold=0.8, moves=moves).of_model(attention=True)
        ranks = as_ranks(3, _rank, task, data, placement, stale, 5)
        history = summed([rank[1] for rank in ranks])
        found[moves] = [epoch.rows["move"] for epoch in history], ranks[0][0]
    rows, losses = found[None]
    assert rows[0] == (moved, 0)
    assert {sent + held for sent, held in rows} == {moved}
    assert moved / 10 < sum(held for _, held in rows) / 4 < moved
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(exact), rtol=0.05, atol=0)
    rows, losses = found[False]
    assert rows == [(moved, 0)] * 5
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(exact), rtol=1e-4, atol=0)


def test_rows_that_change_workers_between_the_encoders_are_refused():
    data, task = tiny_sequence(), task_of("dysat")
    graph = vertex_steps(data, task)
    with pytest.raises(InvalidInputError):
        Workers(task, data, graph, by_both(graph, 2), attention=True)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3), st.integers(0, 3)), max_size=30))
def test_readers_are_distinct_workers_beyond_the_own_one(triples):
    owner = {}
    triples = [(row, owner.setdefault(row, by), to) for row, by, to in triples]
    columns = [torch.tensor([t[k] for t in triples], dtype=torch.int64) for k in range(3)]
    found = Boundary.of(*columns, 4)
    expected: dict[int, set[int]] = {}
    for row, by, to in triples:
        if by != to:
            expected.setdefault(row, set()).add(to)
    assert found.rows.tolist() == sorted(expected)
    assert found.sender.tolist() == [owner[row] for row in sorted(expected)]
    assert found.readers.tolist() == [len(expected[row]) for row in sorted(expected)]
    assert found.pairs == sum(map(len, expected.values()))
